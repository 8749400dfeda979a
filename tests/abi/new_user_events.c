/* A job whose workers find each other and listen to what they are told, as somebody writes it who
 * has read <syncd/client.h> and nothing else: three workers on three threads over one client.
 *
 *     new_user_events [ITERATIONS]   the default is 60; 0: until the job is stopped
 *
 * Each shows an address, and begins once it knows those of all others. Worker 1 announces its
 * checkpoint; worker 2 leaves after its fifth push, and the others go on until they were told of it
 * and have dropped its address. Nobody asks again and again: all that a worker waits for wakes one
 * poll(). Exits with 0 if all of that came about and every worker ended in good order. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syncd/client.h>
#include <unistd.h>

enum { WORKERS = 3, LEAVES_AFTER = 5, CHECKPOINT_AT = 3 };

struct worker {
  int rank;
  syncd_worker* handle;
  /* What on_event leaves, under `lock`; a byte in the pipe says that there is something. */
  int wake[2], stop, changed;
  /* The worker's own. */
  uint64_t known; /* the version of the list that `peers` is from; it never goes back */
  char peers[WORKERS][32];
  int active, left;
  long pushed;
  int stopped, failed;
};

static syncd_client* client;
static long iterations = 60;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* 1 if the call succeeded; says what went wrong else. */
static int good(struct worker* self, const char* call, syncd_status status, syncd_error** error) {
  if (status == SYNCD_OK) return 1;
  printf("worker %d: %s: %s: %s\n", self->rank, call, syncd_error_name(*error),
         syncd_error_message(*error));
  syncd_error_free(*error);
  *error = NULL;
  self->failed = 1;
  return 0;
}

/* On the client's thread, which must not be kept: the worker's own does the rest. */
static void on_event(const syncd_event* event, void* given) {
  struct worker* self = given;
  pthread_mutex_lock(&lock);
  if (event->kind == SYNCD_EVENT_MEMBERS) self->changed = 1;
  if (event->kind == SYNCD_EVENT_STOP) self->stop = 1;
  pthread_mutex_unlock(&lock);
  /* Full means that it is awake already. */
  if (write(self->wake[1], "", 1) != 1) return;
}

static int join_job(struct worker* self) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  syncd_error* error = NULL;
  char address[32];
  snprintf(address, sizeof address, "10.0.0.%d:%d", self->rank + 1, 9000 + self->rank);
  options.job = "new-user-events";
  options.policy = "bsp"; /* so that nobody leaves before the others have found it */
  options.rank = self->rank;
  options.world_size = WORKERS;
  options.data = address;
  options.data_size = strlen(address);
  options.on_event = on_event;
  options.user_data = self;
  return good(self, "join", syncd_join(client, &options, &self->handle, &error), &error);
}

/* Reads the list: who is there, and where. */
static int find_peers(struct worker* self) {
  syncd_members* members = NULL;
  syncd_error* error = NULL;
  const syncd_member* list = NULL;
  size_t i, count;
  if (!good(self, "members", syncd_worker_members(self->handle, 5000, &members, &error), &error))
    return 0;
  self->failed |= syncd_members_version(members) < self->known;
  self->known = syncd_members_version(members);
  self->active = 0;
  memset(self->peers, 0, sizeof self->peers);
  count = syncd_members_list(members, &list);
  for (i = 0; i < count; ++i) {
    if (list[i].rank < 0 || list[i].rank >= WORKERS) continue;
    if (list[i].rank == 2 && list[i].state == SYNCD_MEMBER_LEFT && !self->left) {
      printf("worker %d: worker 2 has left\n", self->rank);
      self->left = 1;
    }
    if (list[i].state != SYNCD_MEMBER_ACTIVE || list[i].data_size >= sizeof self->peers[0])
      continue;
    /* Bytes, without an end of their own. */
    if (list[i].data_size > 0) memcpy(self->peers[list[i].rank], list[i].data, list[i].data_size);
    self->active++;
  }
  syncd_members_free(members);
  return 1;
}

/* Waits until something is told, or `grant` is readable unless it is -1; follows a changed list. 0
 * if the job has ended or the worker cannot go on. */
static int wait_and_listen(struct worker* self, int grant) {
  struct pollfd fds[2] = {{self->wake[0], POLLIN, 0}, {grant, POLLIN, 0}};
  char bytes[64];
  int stop, changed;
  poll(fds, 2, -1);
  if (fds[0].revents != 0 && read(self->wake[0], bytes, sizeof bytes) < 0) return 0;
  pthread_mutex_lock(&lock);
  changed = self->changed;
  self->changed = 0;
  stop = self->stop;
  pthread_mutex_unlock(&lock);
  if (stop) {
    self->stopped = 1;
    return 0;
  }
  return changed ? find_peers(self) : 1;
}

static int save(struct worker* self) {
  syncd_error* error = NULL;
  if (!good(self, "phase", syncd_worker_phase(self->handle, "checkpoint", 60000, 5000, &error),
            &error))
    return 0;
  printf("worker %d: saves its state\n", self->rank);
  return good(self, "phase's end", syncd_worker_phase(self->handle, NULL, 0, 5000, &error), &error);
}

/* One iteration: 0 if there is none any more. */
static int iterate(struct worker* self, int grant) {
  syncd_step step = SYNCD_STEP_INIT;
  syncd_error* error = NULL;
  syncd_status pushed;
  int32_t ready = 0;
  if (!good(self, "arrive", syncd_worker_arrive(self->handle, &error), &error)) return 0;
  while (!ready) {
    if (!wait_and_listen(self, grant)) return 0;
    if (!good(self, "poll", syncd_worker_poll(self->handle, &ready, &step, &error), &error))
      return 0;
  }
  if (step.flags & SYNCD_STEP_STOP) {
    self->stopped = 1;
    return 0;
  }
  if (self->rank == 1 && step.iteration == CHECKPOINT_AT && !save(self)) return 0;
  pushed = syncd_push(self->handle, step.iteration, NULL, 5000, NULL, &error);
  if (pushed == SYNCD_E_STOPPED) {
    syncd_error_free(error);
    self->stopped = 1;
    return 0;
  }
  self->pushed += pushed == SYNCD_OK;
  return good(self, "push", pushed, &error);
}

static int done(const struct worker* self) {
  if (self->rank == 2) return self->pushed == LEAVES_AFTER;
  return iterations > 0 && self->pushed >= iterations;
}

static void* train(void* argument) {
  struct worker* self = argument;
  syncd_error* error = NULL;
  int32_t grant = -1;
  int more =
      join_job(self) && find_peers(self) &&
      good(self, "descriptor", syncd_worker_descriptor(self->handle, &grant, &error), &error);
  while (more && self->active < WORKERS) more = wait_and_listen(self, -1);
  if (more) {
    printf("worker %d: knows %s, %s and %s\n", self->rank, self->peers[0], self->peers[1],
           self->peers[2]);
  }
  while (more && !done(self)) more = iterate(self, grant);
  while (more && self->rank != 2 && !self->left) more = wait_and_listen(self, -1);
  if (self->left && self->peers[2][0] != 0) self->failed = 1;
  if (self->handle != NULL) good(self, "leave", syncd_leave(self->handle, 5000, &error), &error);
  return NULL;
}

int main(int argc, char** argv) {
  struct worker workers[WORKERS];
  pthread_t threads[WORKERS];
  syncd_error* error = NULL;
  int i, wrong = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc > 1) iterations = atol(argv[1]);
  if (syncd_client_open(NULL, &client, &error) != SYNCD_OK) {
    fprintf(stderr, "no daemon: %s\n", syncd_error_message(error));
    return 1;
  }
  memset(workers, 0, sizeof workers);
  for (i = 0; i < WORKERS; ++i) {
    workers[i].rank = i;
    if (pipe(workers[i].wake) != 0 || fcntl(workers[i].wake[1], F_SETFL, O_NONBLOCK) != 0) return 1;
    if (pthread_create(&threads[i], NULL, train, &workers[i]) != 0) return 1;
  }
  for (i = 0; i < WORKERS; ++i) {
    pthread_join(threads[i], NULL);
    syncd_worker_free(workers[i].handle);
    close(workers[i].wake[0]);
    close(workers[i].wake[1]);
    printf("worker %d: %ld pushes%s\n", i, workers[i].pushed,
           workers[i].stopped ? ", until the job was stopped" : "");
    wrong += workers[i].failed;
  }
  syncd_client_close(client);
  return wrong != 0;
}
