/* A training job without a service: rank 0 carries the daemon in itself.
 *
 *     cc -std=c99 embedded.c -lsyncd -lpthread
 *     ./a.out [WORKERS [ITERATIONS [STORE]]]         for instance: ./a.out 4 200 /tmp/history
 *
 * The first process is rank 0: it starts the daemon, starts the other workers as processes of their
 * own, tells each where the daemon listens, and is a worker itself. In a real job a launcher starts
 * the workers, and the address travels with whatever else they are told. The history is gone with
 * rank 0, unless a directory is named for it: `syncctl history embedded --store DIR` reads it then.
 * Exits with 0 if every worker made every iteration. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <syncd/server.h> /* with all of <syncd/client.h> */

enum { WORKERS_MAX = 256 };

/* Says what went wrong and frees the error object; 1 so that callers can return it. */
static int failed(const char *what, syncd_error *error) {
  fprintf(stderr, "%s: %s: %s\n", what, syncd_error_name(error), syncd_error_message(error));
  syncd_error_free(error);
  return 1;
}

static int train(syncd_worker *worker, int iterations) {
  syncd_step step = SYNCD_STEP_INIT;
  syncd_error *error = NULL;
  for (;;) {
    if (syncd_begin(worker, SYNCD_TIMEOUT_DEFAULT, &step, &error)) return failed("begin", error);
    if ((step.flags & SYNCD_STEP_STOP) || step.iteration >= iterations) break;
    /* ... renew the parameters, compute, make the update visible to the others ... */
    if (syncd_push(worker, step.iteration, NULL, SYNCD_TIMEOUT_DEFAULT, NULL, &error))
      return failed("push", error);
  }
  return syncd_leave(worker, SYNCD_TIMEOUT_DEFAULT, &error) ? failed("leave", error) : 0;
}

/* One worker from beginning to end: the same in rank 0 as in any other process. */
static int work(const char *address, int rank, int workers, int iterations) {
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  syncd_client *client = NULL;
  syncd_worker *worker = NULL;
  syncd_error *error = NULL;
  int code;
  options.addresses = address;
  join.job = "embedded";
  join.policy = "bsp";
  join.rank = rank;
  join.world_size = (uint32_t)workers;
  if (syncd_client_open(&options, &client, &error)) return failed("open", error);
  if (syncd_join(client, &join, &worker, &error))
    code = failed("join", error);
  else
    code = train(worker, iterations);
  syncd_worker_free(worker);
  syncd_client_close(client);
  return code;
}

extern char **environ;

/* Starts this program again as worker `rank`. Unlike a fork, it has no daemon in it. */
static int spawn_worker(pid_t *pid, char *address, int rank, char *workers, char *iterations) {
  char number[16];
  char *arguments[] = {"embedded", "--worker", address, number, workers, iterations, NULL};
  snprintf(number, sizeof number, "%d", rank);
  return posix_spawn(pid, "/proc/self/exe", NULL, NULL, arguments, environ);
}

int main(int argc, char **argv) {
  syncd_server_options options = SYNCD_SERVER_OPTIONS_INIT;
  syncd_server *server = NULL;
  syncd_error *error = NULL;
  pid_t others[WORKERS_MAX];
  char address[256], four[] = "4", many[] = "200";
  int workers, iterations, started = 1, status, wrong = 0;
  if (argc == 6 && strcmp(argv[1], "--worker") == 0)
    return work(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
  workers = atoi(argc > 1 ? argv[1] : four);
  iterations = atoi(argc > 2 ? argv[2] : many);
  if (workers < 1 || workers > WORKERS_MAX || iterations < 1) return fprintf(stderr, "usage\n"), 2;

  options.store = argc > 3 ? argv[3] : "memory";
  options.log_level = SYNCD_LOG_WARN;
  options.flags = SYNCD_SERVER_LOG_STDERR;
  if (syncd_server_start(&options, &server, &error)) return failed("server", error);
  snprintf(address, sizeof address, "%s", syncd_server_address(server, 0));

  for (; started < workers && !wrong; started += !wrong)
    wrong = spawn_worker(&others[started], address, started, argc > 1 ? argv[1] : four,
                         argc > 2 ? argv[2] : many) != 0;
  if (!wrong) wrong = work(address, 0, workers, iterations);
  for (int i = 1; i < started; ++i) {
    if (wrong) kill(others[i], SIGTERM); /* it would wait for ever for the one that failed */
    if (waitpid(others[i], &status, 0) != others[i] || status != 0) wrong = 1;
  }
  if (syncd_server_stop(server, SYNCD_TIMEOUT_DEFAULT, &error)) return failed("stop", error);
  if (wrong) return 1;
  printf("%d workers made %d iterations, kept in step by %s\n", workers, iterations, address);
  return 0;
}
