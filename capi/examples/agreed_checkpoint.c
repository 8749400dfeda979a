/* Agreed checkpoints: all workers save at the same iteration, and a later run goes on from there.
 *     cc -std=c99 agreed_checkpoint.c -lsyncclient -lpthread
 *     ./a.out DIRECTORY [ITERATIONS]     each run goes on from the last one's checkpoint
 * Two workers add up 1, 2, 3, ...; each saves its sum, a shard. Worker 0 asks at iteration 10. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <syncd/client.h>
enum { WORKERS = 2, WAIT = SYNCD_TIMEOUT_DEFAULT };
static syncd_client *client;
static const char *directory;
static int64_t iterations, first;
static struct { int64_t at, sum; } state[WORKERS]; /* at: iterations of all runs together */
static void check(syncd_status status, syncd_error *error) {
  if (status == SYNCD_OK) return;
  fprintf(stderr, "%s: %s\n", syncd_error_name(error), syncd_error_message(error)), exit(1);
}
static void save(syncd_worker *worker, int32_t rank) {
  const uint64_t number = syncd_worker_checkpoint(worker);
  uint32_t shards, shard = syncd_worker_checkpoint_shard(worker, number, &shards);
  syncd_error *error = NULL;
  char path[1000];
  snprintf(path, sizeof path, "%s/%" PRIu64 "-%d", directory, number, (int)rank);
  FILE *file = fopen(path, "w");
  if (!file || fwrite(&state[rank], sizeof *state, 1, file) != 1 || fclose(file)) exit(1);
  check(syncd_worker_checkpointed(worker, number, shard, shards, path, WAIT, &error), error);
}
static void *train(void *given) {
  syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  syncd_step step = SYNCD_STEP_INIT;
  syncd_worker *worker = NULL;
  syncd_error *error = NULL; /* checkpoints: this program saves when a step says so */
  join.job = "agreed", join.rank = *(int *)given, join.world_size = WORKERS, join.checkpoints = 1;
  check(syncd_join(client, &join, &worker, &error), error);
  for (;;) {
    check(syncd_begin(worker, WAIT, &step, &error), error);
    if (step.flags & SYNCD_STEP_CHECKPOINT) save(worker, join.rank);
    if ((step.flags & SYNCD_STEP_STOP) || state[join.rank].at >= iterations) break;
    if (join.rank == 0 && step.iteration == 10)
      check(syncd_worker_request_checkpoint(worker, "iteration 10", 0, WAIT, NULL, &error), error);
    state[join.rank].sum += state[join.rank].at++;
    check(syncd_push(worker, step.iteration, NULL, WAIT, NULL, &error), error);
  }
  if (syncd_leave(worker, WAIT, &error) == SYNCD_E_CHECKPOINT) save(worker, join.rank);
  return syncd_leave(worker, WAIT, NULL), syncd_error_free(error), syncd_worker_free(worker), NULL;
}
int main(int argc, char **argv) {
  pthread_t threads[WORKERS];
  int i, ranks[WORKERS] = {0, 1};
  syncd_checkpoint *latest = NULL;
  const syncd_checkpoint_shard *shards = NULL;
  syncd_error *error = NULL;
  directory = argc > 1 ? argv[1] : ".", iterations = argc > 2 ? atoi(argv[2]) : 20;
  check(syncd_client_open(NULL, &client, &error), error);
  if (syncd_latest_checkpoint(client, "agreed", WAIT, &latest, NULL) == SYNCD_OK)
    for (i = 0; i < (int)syncd_checkpoint_list(latest, &shards); first = state[i++].at) {
      FILE *file = fopen(shards[i].location, "r");
      if (!file || fread(&state[i], sizeof *state, 1, file) != 1 || fclose(file)) return 1;
    }
  for (i = 0; i < WORKERS; ++i) pthread_create(&threads[i], NULL, train, &ranks[i]);
  while (i-- > 0) pthread_join(threads[i], NULL);
  printf("from %" PRId64 ": sums %" PRId64 " %" PRId64 "\n", first, state[0].sum, state[1].sum);
  syncd_checkpoint_free(latest), syncd_client_close(client);
  return state[0].sum != iterations * (iterations - 1) / 2;
}
