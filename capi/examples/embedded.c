/* A training job without a service: rank 0 carries the daemon in itself.
 *
 *     cc -std=c99 embedded.c -lsyncd -lpthread
 *     ./a.out [WORKERS [ITERATIONS [STORE]]]         for instance: ./a.out 4 200 /tmp/history
 *
 * It starts the others, tells them where it listens, as a launcher would, and works itself, too.
 * Its history goes with it, unless a directory is named. Exits with 0 if every worker finished. */
#define _POSIX_C_SOURCE 200809L
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <syncd/server.h> /* with all of <syncd/client.h> */

extern char **environ;

/* Ends the program with the library's message if a call has failed. */
static void check(syncd_status status, syncd_error **error) {
  if (status == SYNCD_OK) return;
  fprintf(stderr, "%s: %s\n", syncd_error_name(*error), syncd_error_message(*error));
  exit(1);
}
/* One worker from beginning to end: the same in rank 0 as in any other process. */
static void train(const char *address, int rank, int workers, int iterations) {
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  syncd_step step = SYNCD_STEP_INIT;
  syncd_client *client = NULL;
  syncd_worker *worker = NULL;
  syncd_error *error = NULL;
  options.addresses = address, options.reconnect_timeout_ms = 5000; /* A dead rank 0 stays dead. */
  join.job = "embedded", join.policy = "bsp", join.rank = rank, join.world_size = (uint32_t)workers;
  check(syncd_client_open(&options, &client, &error), &error);
  check(syncd_join(client, &join, &worker, &error), &error);
  for (;;) {
    check(syncd_begin(worker, SYNCD_TIMEOUT_DEFAULT, &step, &error), &error);
    if ((step.flags & SYNCD_STEP_STOP) || step.iteration >= iterations) break;
    /* ... renew the parameters, compute, make the update visible to the others ... */
    check(syncd_push(worker, step.iteration, NULL, SYNCD_TIMEOUT_DEFAULT, NULL, &error), &error);
  }
  check(syncd_leave(worker, SYNCD_TIMEOUT_DEFAULT, &error), &error);
  syncd_worker_free(worker), syncd_client_close(client);
}
int main(int argc, char **argv) {
  syncd_server_options options = SYNCD_SERVER_OPTIONS_INIT;
  syncd_server *server = NULL;
  syncd_error *error = NULL;
  char four[] = "4", many[] = "200", where[256], rank[16];
  char *job[] = {argv[0], argc > 1 ? argv[1] : four, argc > 2 ? argv[2] : many, where, rank, NULL};
  int workers = atoi(job[1]), iterations = atoi(job[2]), status, wrong = 0;
  if (argc == 5) return train(argv[3], atoi(argv[4]), workers, iterations), 0;
  options.store = argc > 3 ? argv[3] : "memory";
  options.log_level = SYNCD_LOG_WARN, options.flags = SYNCD_SERVER_LOG_STDERR;
  check(syncd_server_start(&options, &server, &error), &error);
  snprintf(where, sizeof where, "%s", syncd_server_address(server, 0));
  for (int i = 1; i < workers; ++i) { /* Unlike a fork, it has no daemon in it. */
    snprintf(rank, sizeof rank, "%d", i);
    if (posix_spawn(&(pid_t){0}, "/proc/self/exe", NULL, NULL, job, environ)) return 1;
  }
  train(where, 0, workers, iterations);
  while (wait(&status) > 0) wrong |= status;
  check(syncd_server_stop(server, SYNCD_TIMEOUT_DEFAULT, &error), &error);
  if (!wrong) printf("%d workers made %d iterations, in step by %s\n", workers, iterations, where);
  return wrong != 0;
}
