/* Agreed checkpoints: all workers save at the same iteration, and a later run goes on from there.
 *     cc -std=c99 agreed_checkpoint.c -lsyncclient -lpthread
 *     ./a.out DIRECTORY [ITERATIONS]     again and again: each goes on where the one before has saved
 * Two workers add up 1, 2, 3, ...; each saves its sum, a shard. Worker 0 asks at iteration 10. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <syncd/client.h>
enum { WORKERS = 2, WAIT = SYNCD_TIMEOUT_DEFAULT };
static syncd_client *client;
static const char *directory;
static int64_t iterations, sums[WORKERS], at[WORKERS]; /* at: iterations of all runs together */
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
  if (!file || fprintf(file, "%" PRId64 " %" PRId64 "\n", at[rank], sums[rank]) < 0) exit(1);
  if (fclose(file)) exit(1);
  check(syncd_worker_checkpointed(worker, number, shard, shards, path, WAIT, &error), error);
}
static void *train(void *argument) {
  syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  syncd_step step = SYNCD_STEP_INIT;
  syncd_worker *worker = NULL;
  syncd_error *error = NULL; /* checkpoints: this program saves when a step says so */
  join.job = "agreed", join.rank = *(int *)argument, join.world_size = WORKERS;
  join.checkpoints = 1;
  check(syncd_join(client, &join, &worker, &error), error);
  for (;;) {
    check(syncd_begin(worker, WAIT, &step, &error), error);
    if (step.flags & SYNCD_STEP_CHECKPOINT) save(worker, join.rank);
    if ((step.flags & SYNCD_STEP_STOP) || at[join.rank] >= iterations) break;
    if (join.rank == 0 && step.iteration == 10)
      check(syncd_worker_request_checkpoint(worker, "iteration 10", 0, WAIT, NULL, &error), error);
    sums[join.rank] += at[join.rank]++;
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
    for (i = 0; i < (int)syncd_checkpoint_list(latest, &shards); ++i) {
      FILE *file = fopen(shards[i].location, "r");
      if (!file || fscanf(file, "%" SCNd64 "%" SCNd64, &at[i], &sums[i]) != 2) return 1;
      fclose(file);
    }
  printf("from %" PRId64 ": ", at[0]);
  for (i = 0; i < WORKERS; ++i) pthread_create(&threads[i], NULL, train, &ranks[i]);
  while (i-- > 0) pthread_join(threads[i], NULL);
  printf("sums %" PRId64 " %" PRId64 "\n", sums[0], sums[1]);
  syncd_checkpoint_free(latest), syncd_client_close(client);
  return sums[0] != iterations * (iterations - 1) / 2;
}
