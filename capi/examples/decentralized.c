/* Decentralized training in one process: no parameter server, each worker averages with neighbours.
 *
 *     cc -std=c99 decentralized.c -lsyncclient -lpthread -lm
 *     ./a.out [WORKERS [ITERATIONS [POLICY]]]        for instance: ./a.out 4 200 hop:ring
 *
 * The workers are threads in a graph that the policy names (notify_ack:GRAPH works the same). They
 * send through the queues of <syncd/update_queue.h>, which lie in shared memory: processes would do
 * the same after syncd_update_queue_open() of the others' descriptors. Each fits y = a*x + b to
 * points of its own, so that only averaging shows it the others'. Exits with 0 if every worker
 * finished and all of them agree on a good fit. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <syncd/client.h>
#include <syncd/update_queue.h>

/* Room for any policy up to these; a larger one would end in SYNCD_E_OVERWRITTEN. */
enum { POINTS = 64, WORKERS_MAX = 32, MAX_IG = 8, STALENESS = 8 };
static const double TRUE_A = 3.0, TRUE_B = -1.0, LEARNING_RATE = 0.3;

struct model { double a, b; };
/* By the worker that reads; a sender's edge is its rank. */
static syncd_update_queue *queues[WORKERS_MAX];
static struct model results[WORKERS_MAX];
static syncd_client *client;
static int workers = 4, iterations = 200;
static const char *policy = "hop:ring";

/* Says what went wrong and frees the error object; 1 so that callers can return it. */
static int failed(const char *what, syncd_error *error) {
  fprintf(stderr, "%s: %s: %s\n", what, syncd_error_name(error), syncd_error_message(error));
  syncd_error_free(error);
  return 1;
}

/* The gradient of half the mean squared error over this worker's own points. */
static struct model gradient(int32_t rank, struct model at) {
  struct model slope = {0, 0};
  for (int i = 0; i < POINTS; ++i) {
    double x = (double)(i * workers + rank) / (POINTS * workers) * 2 - 1;
    double miss = at.a * x + at.b - (TRUE_A * x + TRUE_B);
    slope.a += miss * x / POINTS;
    slope.b += miss / POINTS;
  }
  return slope;
}

/* The weighted mean of the updates that syncd names for iteration k. */
static int reduce(syncd_worker *worker, int64_t k, struct model *model) {
  syncd_update updates[WORKERS_MAX];
  syncd_error *error = NULL;
  size_t count = 0;
  int32_t rank = syncd_worker_rank(worker);
  struct model mean = {0, 0}, update;
  if (syncd_worker_collect(worker, k, SYNCD_TIMEOUT_DEFAULT, updates, WORKERS_MAX, &count, &error))
    return failed("collect", error);
  for (size_t i = 0; i < count; ++i) {
    if (updates[i].rank == rank)
      update = *model; /* its own is among them */
    else if (syncd_update_queue_read(queues[rank], (uint32_t)updates[i].rank, updates[i].iteration,
                                     &update, sizeof update, &error))
      return failed("read", error);
    mean.a += updates[i].weight * update.a;
    mean.b += updates[i].weight * update.b;
  }
  *model = mean;
  /* Read: the senders may use these slots again. Nothing here needs to wait for the daemon. */
  return syncd_worker_consumed(worker, k, 0, &error) ? failed("consumed", error) : 0;
}

static int send(syncd_worker *worker, int64_t k, struct model model) {
  int32_t ranks[WORKERS_MAX], rank = syncd_worker_rank(worker);
  syncd_error *error = NULL;
  size_t count = 0;
  if (syncd_worker_targets(worker, k, SYNCD_TIMEOUT_DEFAULT, ranks, WORKERS_MAX, &count, &error))
    return failed("targets", error);
  for (size_t i = 0; i < count; ++i) {
    if (syncd_update_queue_write(queues[ranks[i]], (uint32_t)rank, k, &model, sizeof model, &error))
      return failed("write", error);
  }
  return syncd_push(worker, k, NULL, SYNCD_TIMEOUT_DEFAULT, NULL, &error) ? failed("push", error) : 0;
}

static int train(syncd_worker *worker) {
  syncd_step step = SYNCD_STEP_INIT;
  syncd_error *error = NULL;
  struct model model = {0, 0}, slope;
  for (;;) {
    if (syncd_begin(worker, SYNCD_TIMEOUT_DEFAULT, &step, &error)) return failed("begin", error);
    if ((step.flags & SYNCD_STEP_STOP) || step.iteration >= iterations) break;
    /* Moved ahead past iterations that it need not compute: the set before this one is its start. */
    if ((step.flags & SYNCD_STEP_SKIP) && reduce(worker, step.iteration - 1, &model)) return 1;
    if (send(worker, step.iteration, model)) return 1;
    slope = gradient(syncd_worker_rank(worker), model); /* while the others' updates arrive */
    if (reduce(worker, step.iteration, &model)) return 1;
    model.a -= LEARNING_RATE * slope.a;
    model.b -= LEARNING_RATE * slope.b;
  }
  results[syncd_worker_rank(worker)] = model;
  return syncd_leave(worker, SYNCD_TIMEOUT_DEFAULT, &error) ? failed("leave", error) : 0;
}

static void *run_worker(void *result) {
  syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  syncd_worker *worker = NULL;
  syncd_error *error = NULL;
  int *code = result;
  join.job = "decentralized";
  join.policy = policy;
  join.rank = *code; /* its number, handed in where the result will be */
  join.world_size = (uint32_t)workers;
  if (syncd_join(client, &join, &worker, &error)) return *code = failed("join", error), NULL;
  *code = train(worker);
  syncd_worker_free(worker);
  return NULL;
}

/* A queue for every worker, with an edge for every other that its graph may name. */
static int make_queues(void) {
  syncd_update_queue_options options = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;
  syncd_error *error = NULL;
  options.edges = (uint32_t)workers;
  options.payload_bytes = sizeof(struct model);
  if (syncd_update_queue_slots_needed(MAX_IG, STALENESS, 1, &options.slots, &error))
    return failed("slots", error);
  for (int i = 0; i < workers; ++i) {
    if (syncd_update_queue_create(&options, &queues[i], &error)) return failed("queue", error);
  }
  return 0;
}

int main(int argc, char **argv) {
  syncd_error *error = NULL;
  pthread_t threads[WORKERS_MAX];
  int codes[WORKERS_MAX], wrong = 0;
  if (argc > 1) workers = atoi(argv[1]);
  if (argc > 2) iterations = atoi(argv[2]);
  if (argc > 3) policy = argv[3];
  if (workers < 1 || workers > WORKERS_MAX || iterations < 1) return fprintf(stderr, "usage\n"), 2;
  if (make_queues()) return 1;
  if (syncd_client_open(NULL, &client, &error)) return failed("open", error);
  for (int i = 0; i < workers; ++i) {
    codes[i] = i;
    if (pthread_create(&threads[i], NULL, run_worker, &codes[i])) return perror("thread"), 1;
  }
  for (int i = 0; i < workers; ++i) {
    pthread_join(threads[i], NULL);
    wrong += codes[i] != 0;
    wrong += fabs(results[i].a - TRUE_A) > 0.1 || fabs(results[i].b - TRUE_B) > 0.1;
  }
  syncd_client_close(client);
  for (int i = 0; i < workers; ++i) syncd_update_queue_free(queues[i]);
  printf("%d workers under %s: y = %.3f x %+.3f\n", workers, policy, results[0].a, results[0].b);
  return wrong != 0;
}
