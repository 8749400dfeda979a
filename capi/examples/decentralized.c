/* Decentralized training: no parameter server, each worker averages with its neighbours in a graph.
 *
 *     cc -std=c99 decentralized.c -lsyncclient -lpthread
 *     ./a.out [WORKERS [ITERATIONS [POLICY]]]        for instance: ./a.out 4 200 hop:ring
 * The workers are threads. Each sees one point of y = 3*x - 1, so that only averaging finds it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <syncd/update_queue.h> /* with all of <syncd/client.h> */

enum { WORKERS_MAX = 32, WAIT = SYNCD_TIMEOUT_DEFAULT };
static syncd_update_queue *queues[WORKERS_MAX]; /* by the reader; a sender's edge is its rank */
static struct line { double a, b; } models[WORKERS_MAX];
static syncd_client *client;
static uint32_t workers, iterations;
static const char *policy;
#define CHECK(call) /* Ends the program with the library's message if the call fails. */ \
  for (syncd_error *error = NULL; call; exit(1)) fprintf(stderr, "%s\n", syncd_error_message(error))

static void *train(void *own) {
  syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  syncd_step step = SYNCD_STEP_INIT;
  syncd_update from[WORKERS_MAX], *u;
  syncd_worker *worker = NULL;
  struct line *model = own, one;
  int32_t to[WORKERS_MAX], me = (int32_t)(model - models), x = me % 2 ? 1 : -1;
  size_t count;
  join.job = "decentralized", join.policy = policy, join.rank = me, join.world_size = workers;
  CHECK(syncd_join(client, &join, &worker, &error));
  for (int64_t k;;) {
    CHECK(syncd_begin(worker, WAIT, &step, &error)); /* under hop, see SYNCD_STEP_SKIP, too */
    if ((step.flags & SYNCD_STEP_STOP) || (k = step.iteration) >= iterations) break;
    CHECK(syncd_worker_targets(worker, k, WAIT, to, WORKERS_MAX, &count, &error));
    for (to[count++] = me; count > 0; --count) /* to itself, too: its own is among those it reads */
      CHECK(syncd_update_queue_write(queues[to[count - 1]], me, k, model, sizeof one, &error));
    CHECK(syncd_push(worker, k, NULL, WAIT, NULL, &error));
    double miss = model->a * x + model->b - (3 * x - 1); /* while the others' updates arrive */
    CHECK(syncd_worker_collect(worker, k, WAIT, from, WORKERS_MAX, &count, &error));
    *model = (struct line){-0.3 * miss * x, -0.3 * miss};
    for (u = from; u < from + count; ++u) {
      CHECK(syncd_update_queue_read(queues[me], u->rank, u->iteration, &one, sizeof one, &error));
      model->a += u->weight * one.a, model->b += u->weight * one.b;
    }
    CHECK(syncd_worker_consumed(worker, k, 0, &error)); /* The senders may use these slots again. */
  }
  if (model->a < 2.9 || model->a > 3.1 || model->b < -1.1 || model->b > -0.9) exit(1);
  CHECK(syncd_leave(worker, WAIT, &error));
  return syncd_worker_free(worker), NULL;
}
int main(int argc, char **argv) {
  syncd_update_queue_options options = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;
  pthread_t threads[WORKERS_MAX];
  uint32_t i;
  workers = argc > 1 ? atoi(argv[1]) : 4, iterations = argc > 2 ? atoi(argv[2]) : 200;
  policy = argc > 3 ? argv[3] : "hop:ring";
  if (workers < 2 || workers > WORKERS_MAX || iterations < 1) return fprintf(stderr, "usage\n"), 2;
  options.edges = workers, options.payload_bytes = sizeof(struct line);
  CHECK(syncd_update_queue_slots_needed(8, 8, 0, &options.slots, &error)); /* max_ig, staleness */
  for (i = 0; i < workers; ++i) CHECK(syncd_update_queue_create(&options, &queues[i], &error));
  CHECK(syncd_client_open(NULL, &client, &error));
  for (i = 0; i < workers; ++i) if (pthread_create(&threads[i], NULL, train, &models[i])) return 1;
  for (i = 0; i < workers; ++i) pthread_join(threads[i], NULL);
  for (i = 0; i < workers; ++i) syncd_update_queue_free(queues[i]);
  printf("%u workers under %s: y = %.3f x %+.3f\n", workers, policy, models[0].a, models[0].b);
  return syncd_client_close(client), 0;
}
