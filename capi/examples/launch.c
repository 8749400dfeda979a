/* A worker of a group that may be killed and started again: it says which model it has loaded, what
 * it waits for, and how it ends.
 *
 *     cc -std=c99 launch.c -lsyncclient
 *     SYNCD_LAUNCH=demo/1 ./a.out LOADED ITERATIONS    LOADED: its model's next iteration, or 0
 */
#include <stdio.h>
#include <stdlib.h>
#include <syncd/client.h>

static void waits(const char *text, int64_t waiting_us, void *user_data) {
  (void)user_data;
  fprintf(stderr, "for %.0f s: %s\n", (double)waiting_us / 1e6, text);
}
int main(int argc, char **argv) {
  syncd_client *client = NULL;
  syncd_worker *worker = NULL;
  syncd_error *error = NULL;
  syncd_step step = SYNCD_STEP_INIT;
  syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  const int64_t loaded = argc > 1 ? atoi(argv[1]) : 0, iterations = argc > 2 ? atoi(argv[2]) : 10;
  join.job = "launch-c", join.on_wait = waits;
  join.resume = loaded > 0 ? SYNCD_RESUME_CONTINUE : SYNCD_RESUME_NEW, join.resume_at = loaded;
  if (syncd_client_open(NULL, &client, &error)) goto done;
  if (syncd_join(client, &join, &worker, &error)) goto done;
  for (;;) {
    if (syncd_begin(worker, SYNCD_WAIT_FOREVER, &step, &error)) goto done;
    if ((step.flags & SYNCD_STEP_STOP) || step.iteration >= iterations) break;
    if (step.flags & SYNCD_STEP_RESUMED) printf("goes on at %d\n", (int)step.iteration);
    if (syncd_push(worker, step.iteration, NULL, SYNCD_TIMEOUT_DEFAULT, NULL, &error)) goto done;
  }
  syncd_leave_as(worker, SYNCD_LEAVE_FINISHED, "all iterations", SYNCD_TIMEOUT_DEFAULT, &error);
done:
  if (error) fprintf(stderr, "%s\n", syncd_error_message(error));
  syncd_worker_free(worker);
  syncd_client_close(client);
  return error != NULL;
}
