/* A parameter server in one process, kept in step by syncd. Exits with 0 if its line fits.
 *
 *     cc -std=c99 parameter_server.c -lsyncclient -lpthread -lm
 *     ./a.out [WORKERS [ITERATIONS [POLICY]]]        for instance: ./a.out 4 200 ssp:3
 * The workers are threads on one client. On many machines, with a real server, the calls stay. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <syncd/client.h>

enum { WORKERS_MAX = 256, WAIT = SYNCD_TIMEOUT_DEFAULT };
static struct { pthread_mutex_t mutex; double a, b; } server = {PTHREAD_MUTEX_INITIALIZER, 0, 0};
static syncd_client *client;
static int workers, iterations;
static const char *policy;

/* Prints the library's message if a call has failed. Returns 0 if the job was stopped, which is a
 * regular end; any other error ends the program. */
static int check(syncd_status status, syncd_error **error) {
  if (status == SYNCD_OK) return 1;
  fprintf(stderr, "%s: %s\n", syncd_error_name(*error), syncd_error_message(*error));
  if (status != SYNCD_E_STOPPED) exit(1);
  return syncd_error_free(*error), *error = NULL, 0;
}
static void *train(void *rank) {
  syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  syncd_step step = SYNCD_STEP_INIT;
  syncd_push_info info = SYNCD_PUSH_INFO_INIT;
  syncd_worker *worker = NULL;
  syncd_error *error = NULL;
  join.job = "parameter-server", join.policy = policy;
  join.rank = *(int *)rank, join.world_size = (uint32_t)workers;
  if (!check(syncd_join(client, &join, &worker, &error), &error)) return NULL;
  for (;;) { /* Each step begins as soon as the policy allows it. */
    check(syncd_begin(worker, WAIT, &step, &error), &error);
    if ((step.flags & SYNCD_STEP_STOP) || step.iteration >= iterations) break;
    double x = (double)((step.iteration * workers + join.rank) % 7) / 3 - 1, miss;
    do { /* Compute on y = 3*x - 1; again on fresher parameters if syncd advises it. */
      pthread_mutex_lock(&server.mutex);
      miss = server.a * x + server.b - (3 * x - 1), info.loss = miss * miss / 2;
      pthread_mutex_unlock(&server.mutex);
    } while (syncd_should_resync(worker) &&
             check(syncd_worker_restarted(worker, step.iteration, WAIT, &error), &error));
    pthread_mutex_lock(&server.mutex); /* Make the update visible to the others, then say so. */
    server.a -= 0.3 / workers * miss * x, server.b -= 0.3 / workers * miss;
    pthread_mutex_unlock(&server.mutex);
    if (!check(syncd_push(worker, step.iteration, &info, WAIT, NULL, &error), &error)) break;
  }
  check(syncd_leave(worker, WAIT, &error), &error);
  return syncd_worker_free(worker), NULL;
}
int main(int argc, char **argv) {
  pthread_t threads[WORKERS_MAX];
  int ranks[WORKERS_MAX];
  syncd_error *error = NULL;
  workers = argc > 1 ? atoi(argv[1]) : 4, iterations = argc > 2 ? atoi(argv[2]) : 200;
  policy = argc > 3 ? argv[3] : "ssp:3";
  if (workers < 1 || workers > WORKERS_MAX || iterations < 1) return fprintf(stderr, "usage\n"), 2;
  check(syncd_client_open(NULL, &client, &error), &error);
  for (int i = 0; i < workers; ++i)
    if (pthread_create(&threads[i], NULL, train, (ranks[i] = i, &ranks[i]))) return 1;
  for (int i = 0; i < workers; ++i) pthread_join(threads[i], NULL);
  printf("%d workers under %s: y = %.3f x %+.3f\n", workers, policy, server.a, server.b);
  return syncd_client_close(client), fabs(server.a - 3) > 0.1 || fabs(server.b + 1) > 0.1;
}
