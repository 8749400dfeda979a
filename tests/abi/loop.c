/* A loop of begin and push through the C interface, N threads with a worker each over one client:
 *
 *     loop THREADS ITERATIONS POLICY
 *
 * Checks every step, and prints how long a begin and a push took together: median, 99th percentile,
 * and all threads' rate. The figures are for people; nothing fails because of them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syncd/client.h>
#include <time.h>

enum { THREADS_MAX = 1024 };

static syncd_client *client;
static int threads, iterations;
static const char *policy;

struct worker {
  int number;
  int wrong;
  double *round_us;
};

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int failed(const char *what, syncd_error *error) {
  fprintf(stderr, "%s: %s: %s\n", what, syncd_error_name(error), syncd_error_message(error));
  syncd_error_free(error);
  return 1;
}

static int train(struct worker *self, syncd_worker *worker) {
  syncd_step step = SYNCD_STEP_INIT;
  syncd_error *error = NULL;
  int i;
  for (i = 0; i < iterations; ++i) {
    double start = now_us();
    if (syncd_begin(worker, 60000, &step, &error)) return failed("begin", error);
    if (step.iteration != i || (step.flags & SYNCD_STEP_STOP)) {
      fprintf(stderr, "step %d: iteration %ld, flags %u\n", i, (long)step.iteration, step.flags);
      return 1;
    }
    if (syncd_push(worker, step.iteration, NULL, 60000, NULL, &error)) return failed("push", error);
    self->round_us[i] = now_us() - start;
  }
  return syncd_leave(worker, 60000, &error) ? failed("leave", error) : 0;
}

static void *run(void *argument) {
  struct worker *self = argument;
  syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  syncd_worker *worker = NULL;
  syncd_error *error = NULL;
  join.job = "loop";
  join.policy = policy;
  join.rank = self->number;
  join.world_size = (uint32_t)threads;
  self->wrong = 1;
  if (syncd_join(client, &join, &worker, &error)) {
    failed("join", error);
    return NULL;
  }
  self->wrong = train(self, worker);
  syncd_worker_free(worker);
  return NULL;
}

static int by_size(const void *left, const void *right) {
  double difference = *(const double *)left - *(const double *)right;
  return (difference > 0) - (difference < 0);
}

int main(int argc, char **argv) {
  pthread_t handles[THREADS_MAX];
  struct worker workers[THREADS_MAX];
  syncd_error *error = NULL;
  double *all, start;
  size_t count;
  int i, wrong = 0;
  if (argc != 4) return 2;
  threads = atoi(argv[1]);
  iterations = atoi(argv[2]);
  policy = argv[3];
  if (threads < 1 || threads > THREADS_MAX || iterations < 1) return 2;
  count = (size_t)threads * (size_t)iterations;
  all = calloc(count, sizeof(*all));
  if (all == NULL) return 2;
  if (syncd_client_open(NULL, &client, &error)) return failed("open", error);
  start = now_us();
  for (i = 0; i < threads; ++i) {
    workers[i].number = i;
    workers[i].round_us = all + (size_t)i * (size_t)iterations;
    if (pthread_create(&handles[i], NULL, run, &workers[i])) return 2;
  }
  for (i = 0; i < threads; ++i) {
    pthread_join(handles[i], NULL);
    wrong += workers[i].wrong;
  }
  start = now_us() - start;
  syncd_client_close(client);
  qsort(all, count, sizeof(*all), by_size);
  printf("%d threads, %s: begin+push p50 %.1f us, p99 %.1f us, %.0f rounds/s\n", threads, policy,
         all[count / 2], all[count - 1 - count / 100], (double)count / (start / 1e6));
  free(all);
  return wrong != 0;
}
