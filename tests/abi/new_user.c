/* A small training job, as somebody writes it who has read <syncd/client.h> and nothing else: three
 * workers on three threads over one client fit y = 3 x - 2 by stochastic gradient descent, under
 * ssp:1, on parameters that they share in this process.
 *
 *     new_user [ITERATIONS]          the default is 60; 0: until the job is stopped
 *
 * Worker 0 uses short timeouts and says why it waits; worker 1 is late with its first push, until
 * worker 0 was refused once and the main thread has asked the daemon for whom it waits; worker 2
 * overlaps waiting with computing. Exits with 0 if every worker ended in good order and, unless the job
 * was stopped, the parameters are right. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <syncd/client.h>

enum { WORKERS = 3 };

struct worker {
  int32_t rank;
  syncd_worker* handle; /* replaced under `lock` */
  int64_t pushed;
  long waits; /* times that it went on computing, or asked again, because it was not granted yet */
  int joins, stopped, failed;
};

static syncd_client* client;
static long iterations = 60;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct worker workers[WORKERS];
static int refused, explained;  /* worker 0 was; why, it was told: worker 1 may push */
static double slope, intercept; /* the parameters */

/* What a program does about an error is in the error object. */
enum remedy { AGAIN, JOIN_ANEW, GIVE_UP };

static enum remedy remedy_of(struct worker* self, const char* call, syncd_error* error) {
  enum remedy remedy = GIVE_UP;
  if (syncd_error_is_retriable(error)) remedy = AGAIN;
  if (syncd_error_is_fatal(error)) remedy = JOIN_ANEW;
  /* The first is enough for a person. */
  if (remedy != AGAIN || ++self->waits == 1) {
    printf("worker %d: %s: %s: %s\n", (int)self->rank, call, syncd_error_name(error),
           syncd_error_message(error));
  }
  syncd_error_free(error);
  return remedy;
}

static int join_job(struct worker* self) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  syncd_worker* handle = NULL;
  syncd_error* error = NULL;
  options.job = "new-user";
  options.policy = "ssp:1";
  options.rank = self->rank;
  options.world_size = WORKERS;
  while (syncd_join(client, &options, &handle, &error) != SYNCD_OK) {
    if (remedy_of(self, "join", error) != AGAIN) return 0;
    error = NULL;
  }
  pthread_mutex_lock(&lock);
  syncd_worker_free(self->handle); /* the one that was fenced, or none */
  self->handle = handle;
  self->joins++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return 1;
}

/* Waits on a descriptor, as a program would that waits for other things, too. */
static syncd_status begin_overlapped(struct worker* self, syncd_step* step, syncd_error** error) {
  struct pollfd readable = {-1, POLLIN, 0};
  int32_t ready = 0;
  syncd_status status = syncd_worker_descriptor(self->handle, &readable.fd, error);
  if (status == SYNCD_OK) status = syncd_worker_arrive(self->handle, error);
  while (status == SYNCD_OK) {
    status = syncd_worker_poll(self->handle, &ready, step, error);
    if (status != SYNCD_OK || ready) break;
    self->waits++;
    poll(&readable, 1, -1);
  }
  return status;
}

static void descend(struct worker* self, int64_t iteration) {
  double x = (double)((iteration * WORKERS + self->rank) % 7) / 3.0 - 1.0, wrong;
  pthread_mutex_lock(&lock);
  wrong = slope * x + intercept - (3.0 * x - 2.0);
  slope -= 0.3 * wrong * x;
  intercept -= 0.3 * wrong;
  pthread_mutex_unlock(&lock);
}

static void tell(int* happened) {
  pthread_mutex_lock(&lock);
  *happened = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

static void wait_until_explained(void) {
  pthread_mutex_lock(&lock);
  while (!refused || !explained) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

/* One iteration: 1 if it was pushed, 0 at the end of the job, -1 if the worker cannot go on. */
static int iterate(struct worker* self) {
  syncd_step step = SYNCD_STEP_INIT;
  syncd_push_info info = SYNCD_PUSH_INFO_INIT;
  syncd_error* error = NULL;
  syncd_status status;
  for (;;) {
    status = self->rank == 2
                 ? begin_overlapped(self, &step, &error)
                 : syncd_begin(self->handle, self->rank == 0 ? 50 : 5000, &step, &error);
    if (status == SYNCD_OK) break;
    if (status == SYNCD_E_TIMEOUT && self->rank == 0) tell(&refused);
    switch (remedy_of(self, "begin", error)) {
      case AGAIN:
        break;
      case JOIN_ANEW:
        if (!join_job(self)) return -1;
        break;
      default:
        return -1;
    }
    error = NULL;
  }
  if (step.flags & SYNCD_STEP_STOP) return 0;
  descend(self, step.iteration);
  if (self->rank == 1) wait_until_explained();
  info.samples = 1;
  while ((status = syncd_push(self->handle, step.iteration, &info, 5000, NULL, &error))) {
    enum remedy remedy;
    if (status == SYNCD_E_STOPPED) {
      syncd_error_free(error);
      return 0;
    }
    remedy = remedy_of(self, "push", error);
    error = NULL;
    if (remedy == JOIN_ANEW) return join_job(self) ? 1 : -1;
    if (remedy == GIVE_UP) return -1;
  }
  self->pushed++;
  return 1;
}

static void* train(void* argument) {
  struct worker* self = argument;
  syncd_error* error = NULL;
  int more = join_job(self) ? 1 : -1;
  while (more == 1 && (iterations == 0 || self->pushed < iterations)) more = iterate(self);
  if (self->rank == 0) tell(&refused); /* nobody shall wait for it any more */
  self->stopped = more == 0;
  self->failed = more < 0;
  if (self->handle == NULL) return NULL;
  while (syncd_leave(self->handle, 5000, &error) != SYNCD_OK) {
    if (remedy_of(self, "leave", error) != AGAIN) {
      self->failed = 1;
      break;
    }
    error = NULL;
  }
  return NULL;
}

/* Asks for whom a worker waits, until it does wait. */
static void explain(struct worker* other) {
  int waits = 0;
  while (!waits) {
    syncd_explanation* why = NULL;
    syncd_error* error = NULL;
    const syncd_waited_for* list = NULL;
    size_t i, count;
    pthread_mutex_lock(&lock);
    while (other->handle == NULL) pthread_cond_wait(&changed, &lock);
    if (syncd_worker_explain(other->handle, SYNCD_TIMEOUT_DEFAULT, &why, &error) != SYNCD_OK) {
      printf("explain: %s\n", syncd_error_message(error));
      waits = !syncd_error_is_retriable(error);
      syncd_error_free(error);
    } else if (syncd_explanation_iteration(why) > 0) {
      waits = 1;
      printf("worker %d waits to begin %ld: %s\n", (int)other->rank,
             (long)syncd_explanation_iteration(why), syncd_explanation_text(why));
      count = syncd_explanation_workers(why, &list);
      for (i = 0; i < count; ++i) {
        printf("  for worker %d, %s on %s: %s\n", (int)list[i].rank, list[i].name, list[i].host,
               list[i].state);
      }
    }
    syncd_explanation_free(why);
    pthread_mutex_unlock(&lock);
  }
}

int main(int argc, char** argv) {
  pthread_t threads[WORKERS];
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  syncd_error* error = NULL;
  int i, wrong = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc > 1) iterations = atol(argv[1]);
  options.client_name = "new_user";
  options.connect_timeout_ms = 5000;
  if (syncd_client_open(&options, &client, &error) != SYNCD_OK) {
    fprintf(stderr, "no daemon: %s\n", syncd_error_message(error));
    syncd_error_free(error);
    return 1;
  }
  for (i = 0; i < WORKERS; ++i) {
    workers[i].rank = i;
    if (pthread_create(&threads[i], NULL, train, &workers[i])) return 1;
  }
  explain(&workers[0]);
  tell(&explained);
  for (i = 0; i < WORKERS; ++i) {
    pthread_join(threads[i], NULL);
    syncd_worker_free(workers[i].handle);
    printf("worker %d: %ld pushes, waited %ld times, joined %d times%s\n", i,
           (long)workers[i].pushed, workers[i].waits, workers[i].joins,
           workers[i].stopped ? ", until the job was stopped" : "");
    wrong += workers[i].failed;
  }
  syncd_client_close(client);
  printf("y = %.3f x + %.3f\n", slope, intercept);
  if (!workers[0].stopped)
    wrong += slope < 2.9 || slope > 3.1 || intercept < -2.1 || intercept > -1.9;
  return wrong != 0;
}
