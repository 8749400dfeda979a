/* A training job that carries its daemon in itself, as somebody writes it who has read
 * <syncd/client.h> and <syncd/server.h> and nothing else:
 *
 *     new_user_embedded DIRECTORY     an empty one, for the socket and the history
 *
 * Two workers make 200 iterations under bsp. In the middle of it the main thread stops the server
 * and starts it again on the same store and socket; the workers need not know. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <syncd/server.h>

enum { WORKERS = 2, ITERATIONS = 200 };

static syncd_client* client;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long pushes, warnings; /* under `lock` */

static void count(long* what) {
  pthread_mutex_lock(&lock);
  ++*what;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

/* On the server's thread. */
static void on_log(void* context, int32_t level, const char* line) {
  (void)context;
  if (level >= SYNCD_LOG_WARN) {
    printf("server: %s\n", line);
    count(&warnings);
  }
}

static int failed(const char* call, syncd_error* error) {
  printf("%s: %s: %s\n", call, syncd_error_name(error), syncd_error_message(error));
  syncd_error_free(error);
  return 1;
}

static void* train(void* result) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  syncd_worker* worker = NULL;
  syncd_step step = SYNCD_STEP_INIT;
  syncd_error* error = NULL;
  int i;
  options.job = "embedded";
  options.policy = "bsp";
  options.world_size = WORKERS;
  if (syncd_join(client, &options, &worker, &error)) return failed("join", error) ? result : NULL;
  for (i = 0; i < ITERATIONS && error == NULL; ++i) {
    if (syncd_begin(worker, SYNCD_TIMEOUT_DEFAULT, &step, &error)) break;
    if (step.flags & SYNCD_STEP_STOP) break;
    if (syncd_push(worker, step.iteration, NULL, SYNCD_TIMEOUT_DEFAULT, NULL, &error)) break;
    count(&pushes);
  }
  if (error == NULL) syncd_leave(worker, SYNCD_TIMEOUT_DEFAULT, &error);
  syncd_worker_free(worker);
  return error != NULL && failed("train", error) ? result : NULL;
}

int main(int argc, char** argv) {
  char socket_path[256], store[256];
  pthread_t threads[WORKERS];
  syncd_server_options options = SYNCD_SERVER_OPTIONS_INIT;
  syncd_client_options connect = SYNCD_CLIENT_OPTIONS_INIT;
  syncd_server* server = NULL;
  syncd_error* error = NULL;
  int i, wrong = 0;
  if (argc != 2 || strlen(argv[1]) > 80) return 2;

  options.config = "[store]\nflavour = \"sweet\"\n";
  if (syncd_server_start(&options, &server, &error) != SYNCD_E_INVALID) return 1;
  printf("as it must be: %s\n", syncd_error_message(error));
  syncd_error_free(error);
  error = NULL;

  snprintf(socket_path, sizeof(socket_path), "%s/socket", argv[1]);
  snprintf(store, sizeof(store), "%s/history", argv[1]);
  options.config = NULL;
  options.tcp = "off";
  options.unix_path = socket_path;
  options.store = store;
  options.log = on_log;
  if (syncd_server_start(&options, &server, &error)) return failed("start", error);
  connect.addresses = syncd_server_address(server, 0);
  printf("the server listens at %s\n", connect.addresses);
  if (syncd_client_open(&connect, &client, &error)) return failed("open", error);
  for (i = 0; i < WORKERS; ++i) {
    if (pthread_create(&threads[i], NULL, train, &client)) return 1;
  }

  pthread_mutex_lock(&lock);
  while (pushes < ITERATIONS / 2) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  if (syncd_server_stop(server, SYNCD_TIMEOUT_DEFAULT, &error)) return failed("stop", error);
  server = NULL;
  if (syncd_server_start(&options, &server, &error)) return failed("start again", error);

  for (i = 0; i < WORKERS; ++i) {
    void* result = NULL;
    pthread_join(threads[i], &result);
    wrong += result != NULL;
  }
  syncd_client_close(client);
  if (syncd_server_stop(server, SYNCD_TIMEOUT_DEFAULT, &error)) return failed("stop", error);
  printf("%ld pushes, %ld warnings\n", (long)pushes, (long)warnings);
  return wrong || pushes != WORKERS * ITERATIONS;
}
