/* A parameter server in one process, kept in step by syncd.
 *
 *     cc -std=c99 parameter_server.c -lsyncclient -lpthread -lm
 *     ./a.out [WORKERS [ITERATIONS [POLICY]]]        for instance: ./a.out 4 200 ssp:3
 *
 * The "server" is an array behind a mutex, the workers are threads that share one client, and the
 * model is y = a*x + b fitted by gradient descent, each worker on points of its own. In a real job
 * the workers are processes on many machines and the server is whatever the trainer already uses:
 * the four calls stay as they are. Exits with 0 if every worker finished and the fit is good. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <syncd/client.h>

enum { POINTS = 64, WORKERS_MAX = 256 };
static const double TRUE_A = 3.0, TRUE_B = -1.0, LEARNING_RATE = 0.3;

static struct { pthread_mutex_t mutex; double a, b; } server = {PTHREAD_MUTEX_INITIALIZER, 0, 0};
static syncd_client *client;
static int workers = 4, iterations = 200;
static const char *policy = "ssp:3";

/* Says what went wrong and frees the error object; 1 so that callers can return it. */
static int failed(const char *what, syncd_error *error) {
  fprintf(stderr, "%s: %s: %s\n", what, syncd_error_name(error), syncd_error_message(error));
  syncd_error_free(error);
  return 1;
}

/* The gradient of half the mean squared error over this worker's own points; returns that error. */
static double gradient(int32_t rank, double a, double b, double *da, double *db) {
  double loss = 0;
  *da = *db = 0;
  for (int i = 0; i < POINTS; ++i) {
    double x = (double)(i * workers + rank) / (POINTS * workers) * 2 - 1;
    double miss = a * x + b - (TRUE_A * x + TRUE_B);
    *da += miss * x / POINTS;
    *db += miss / POINTS;
    loss += miss * miss / (2 * POINTS);
  }
  return loss;
}

static int train(syncd_worker *worker) {
  syncd_step step = SYNCD_STEP_INIT;
  syncd_push_info info = SYNCD_PUSH_INFO_INIT;
  syncd_error *error = NULL;
  double a = 0, b = 0, da, db;
  info.samples = POINTS;
  for (;;) {
    /* May block, until the policy lets this worker go on. */
    if (syncd_begin(worker, SYNCD_TIMEOUT_DEFAULT, &step, &error)) return failed("begin", error);
    if ((step.flags & SYNCD_STEP_STOP) || step.iteration >= iterations) break;
    for (;;) { /* Compute; again on fresher parameters if syncd advises it meanwhile. */
      pthread_mutex_lock(&server.mutex);
      a = server.a, b = server.b;
      pthread_mutex_unlock(&server.mutex);
      info.loss = gradient(syncd_worker_rank(worker), a, b, &da, &db);
      if (!syncd_should_resync(worker)) break;
      if (syncd_worker_restarted(worker, step.iteration, SYNCD_TIMEOUT_DEFAULT, &error))
        return failed("restarted", error);
    }
    pthread_mutex_lock(&server.mutex); /* Make the update visible to the others, then say so. */
    server.a -= LEARNING_RATE / workers * da;
    server.b -= LEARNING_RATE / workers * db;
    pthread_mutex_unlock(&server.mutex);
    if (syncd_push(worker, step.iteration, &info, SYNCD_TIMEOUT_DEFAULT, NULL, &error))
      return failed("push", error);
  }
  return syncd_leave(worker, SYNCD_TIMEOUT_DEFAULT, &error) ? failed("leave", error) : 0;
}

static void *run_worker(void *result) {
  syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  syncd_worker *worker = NULL;
  syncd_error *error = NULL;
  int *code = result;
  join.job = "parameter-server";
  join.policy = policy;
  join.rank = *code; /* its number, handed in where the result will be */
  join.world_size = (uint32_t)workers;
  if (syncd_join(client, &join, &worker, &error)) return *code = failed("join", error), NULL;
  *code = train(worker);
  syncd_worker_free(worker);
  return NULL;
}

int main(int argc, char **argv) {
  syncd_error *error = NULL;
  pthread_t threads[WORKERS_MAX];
  int codes[WORKERS_MAX], wrong = 0;
  if (argc > 1) workers = atoi(argv[1]);
  if (argc > 2) iterations = atoi(argv[2]);
  if (argc > 3) policy = argv[3];
  if (workers < 1 || workers > WORKERS_MAX || iterations < 1) return fprintf(stderr, "usage\n"), 2;
  if (syncd_client_open(NULL, &client, &error)) return failed("open", error);
  for (int i = 0; i < workers; ++i) {
    codes[i] = i;
    if (pthread_create(&threads[i], NULL, run_worker, &codes[i])) return perror("thread"), 1;
  }
  for (int i = 0; i < workers; ++i) {
    pthread_join(threads[i], NULL);
    wrong += codes[i] != 0;
  }
  syncd_client_close(client);
  printf("%d workers under %s: y = %.3f x %+.3f\n", workers, policy, server.a, server.b);
  return wrong != 0 || fabs(server.a - TRUE_A) > 0.1 || fabs(server.b - TRUE_B) > 0.1;
}
