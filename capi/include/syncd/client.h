/* <syncd/client.h>: the C interface through which a trainer talks to syncd.
 *
 * A training loop needs four calls:
 *
 *     syncd_join(client, &join, &worker, NULL);
 *     for (;;) {
 *       syncd_begin(worker, SYNCD_TIMEOUT_DEFAULT, &step, NULL);     may block: the policy decides
 *       if (step.flags & SYNCD_STEP_STOP) break;
 *       if (step.flags & SYNCD_STEP_PULL) ... renew the parameters ...
 *       ... compute; between micro-batches ask syncd_should_resync(worker) ...
 *       ... make this worker's update visible to the others ...
 *       syncd_push(worker, step.iteration, NULL, SYNCD_TIMEOUT_DEFAULT, NULL, NULL);
 *     }
 *     syncd_leave(worker, SYNCD_TIMEOUT_DEFAULT, NULL);
 *
 * A worker leaves when its work is done. The job ends when all workers have left, or when an
 * operator stops it (syncctl job stop). Then syncd_begin() answers with SYNCD_STEP_STOP.
 *
 * The loop is the same under every parameter-server policy. A worker of a decentralized job (Hop,
 * NOTIFY-ACK) exchanges updates with its neighbours instead. It also calls syncd_worker_targets(),
 * syncd_worker_collect() and syncd_worker_consumed().
 *
 * Conventions that hold for every function unless its comment says otherwise:
 *  - Returns SYNCD_OK (0) or a negative SYNCD_E_... code. On failure no out-parameter is touched,
 *    except `error`: if it is not NULL, it receives an error object that the caller frees with
 *    syncd_error_free(). On success `error` is not touched either.
 *  - No function throws, aborts the process, prints, or installs a signal handler.
 *  - Any function may also answer SYNCD_E_INVALID (an argument is NULL or out of range),
 *    SYNCD_E_NOMEM, SYNCD_E_PROTOCOL (the daemon's answer makes no sense) and SYNCD_E_INTERNAL.
 *  - Strings passed in are copied. A returned string belongs to the object that gave it and lives
 *    until that object is freed.
 *  - Any number of threads may use a syncd_client at once. Only one thread at a time may use a
 *    syncd_worker. Exceptions, which any thread may call until the worker is freed:
 *    syncd_should_resync(), syncd_worker_explain(), syncd_worker_members(), syncd_worker_view(),
 *    syncd_worker_round(), and the accessors syncd_worker_rank(), ..._world_size(), ..._job(),
 *    ..._policy() and ..._resync_flag().
 *  - Do not end a thread in one of these functions by pthread_cancel(), and do not leave one by
 *    longjmp() from a signal handler: other threads may depend on what it does there.
 *  - A signal handler may call only syncd_should_resync(). Block signals with long handlers in
 *    threads that call these functions: while a handler interrupts such a call, other threads'
 *    calls may wait, and after some seconds the daemon takes the client for dead.
 *  - After fork(), the child gets SYNCD_E_FORKED from every call on an object that its parent made.
 *    The child may open a client of its own.
 *
 * Environment. These variables win over what the code passes, because a framework often owns the
 * code: SYNCD_ADDR, SYNCD_JOB, SYNCD_TOKEN_FILE, SYNCD_CA_FILE, SYNCD_CERTIFICATE_FILE,
 * SYNCD_KEY_FILE, SYNCD_SERVER_NAME, SYNCD_CONNECT_TIMEOUT_SEC, SYNCD_RECONNECT_TIMEOUT_SEC,
 * SYNCD_BEGIN_TIMEOUT_SEC, SYNCD_REQUEST_TIMEOUT_SEC, SYNCD_JOIN_TIMEOUT_SEC. Times are numbers of
 * seconds such as 2.5; 0 means the built-in default, as it does in the options. An empty variable
 * counts as unset; a wrong value is SYNCD_E_INVALID.
 *
 * These fill in what the code leaves unset: rank and world size come from RANK / WORLD_SIZE, else
 * SLURM_PROCID / SLURM_NTASKS, else OMPI_COMM_WORLD_RANK / OMPI_COMM_WORLD_SIZE, both from one
 * pair. A rank that is not below its world size is SYNCD_E_INVALID. The launch comes from
 * SYNCD_LAUNCH and others: see syncd_join_options.launch.
 *
 * Since-version of everything in this file: 0.1.0.
 */
#ifndef SYNCD_CLIENT_H
#define SYNCD_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SYNCD_API __attribute__((visibility("default")))
#else
#define SYNCD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status codes: numbered by hand, never reused ------------------------------------------- */

typedef int32_t syncd_status;

enum {
  SYNCD_OK = 0,
  SYNCD_E_INVALID = -1,         /* an argument is wrong; the message names it and what is allowed */
  SYNCD_E_NOMEM = -2,           /* memory ran out */
  SYNCD_E_TIMEOUT = -3,         /* not granted in time; the message says who is waited for */
  SYNCD_E_UNREACHABLE = -4,     /* no daemon answered at any endpoint within the timeout */
  SYNCD_E_PROTOCOL = -5,        /* the peer speaks no protocol version that we do, or garbage */
  SYNCD_E_AUTH = -6,            /* credentials are missing or not accepted, or not for this job */
  SYNCD_E_UNKNOWN_JOB = -7,     /* no such job, and the daemon may not create it */
  SYNCD_E_POLICY_MISMATCH = -8, /* the job exists with another policy */
  SYNCD_E_WRONG_ITERATION = -9, /* the iteration is not the one that is due; both are named */
  SYNCD_E_FENCED = -10,         /* this worker was evicted, or another joined in its place */
  SYNCD_E_RANK_TAKEN = -11,     /* another live worker has this rank */
  SYNCD_E_LIMIT = -12,          /* a limit of the daemon, or of this process, is reached */
  SYNCD_E_STORE = -13,          /* the daemon cannot write its history (disk full, I/O error) */
  SYNCD_E_CANCELLED = -14,      /* the call was cancelled by syncd_client_close() */
  SYNCD_E_CLOSED = -15,         /* the object is closed, or the worker has left */
  SYNCD_E_FORKED = -16,         /* the object belongs to the parent of this process */
  SYNCD_E_UNSUPPORTED = -17,    /* the daemon, or the job's policy, does not offer this */
  SYNCD_E_STOPPED = -18,        /* the job was stopped or has finished */
  SYNCD_E_STATE = -19,          /* the call is out of order (a push before any begin) */
  SYNCD_E_INTERNAL = -20,       /* a defect of this library or of the daemon; please report it */
  SYNCD_E_SHUTDOWN = -21,       /* the daemon is shutting down */
  SYNCD_E_UNKNOWN_WORKER = -22, /* no such worker in the job */
  SYNCD_E_JOB_EXISTS = -23,     /* a job of this name exists already */
  SYNCD_E_BUFFER = -24,         /* a buffer is too small; the call says how many it must take */
  SYNCD_E_LISTEN = -25,         /* an embedded daemon cannot listen at the address of its options */
  SYNCD_E_NO_UPDATE = -26,      /* an update queue does not hold this update (yet) */
  SYNCD_E_OVERWRITTEN = -27,    /* its slot in the update queue holds a later iteration already */
  SYNCD_E_TORN = -28,           /* it is half-written, and stays so until the next write */
  SYNCD_E_BROKEN = -29,         /* the job has lost a worker and cannot be saved whole */
  SYNCD_E_CHECKPOINT = -30      /* the worker has not left: it must save a checkpoint first */
};

/* The name of a status code, such as "SYNCD_E_TIMEOUT"; "SYNCD_E_?" for an unknown one. Never
 * NULL; static storage. Thread-safe, does not block. */
SYNCD_API const char *syncd_strerror(syncd_status status);

/* The library's version, such as "0.1.0", and as major * 10000 + minor * 100 + patch. Static
 * storage. Thread-safe, does not block. */
SYNCD_API const char *syncd_version(void);
SYNCD_API int32_t syncd_version_number(void);

/* ---- Error objects --------------------------------------------------------------------------- */

typedef struct syncd_error syncd_error;

/* The accessors take NULL and then answer SYNCD_OK, "SYNCD_OK", "" and 0. The strings live as long
 * as the error object. Thread-safe for a given object, since it never changes. */
SYNCD_API syncd_status syncd_error_code(const syncd_error *error);
SYNCD_API const char *syncd_error_name(const syncd_error *error);
SYNCD_API const char *syncd_error_message(const syncd_error *error);
/* 1 if the same call may succeed when you repeat it unchanged: SYNCD_E_TIMEOUT, _UNREACHABLE,
 * _STORE, _LIMIT, _NOMEM, _SHUTDOWN, _NO_UPDATE, _TORN. It then continues where it was; nothing
 * counts twice. */
SYNCD_API int32_t syncd_error_is_retriable(const syncd_error *error);
/* 1 if this worker is dead: SYNCD_E_FENCED, _STOPPED, _CLOSED, _FORKED, _PROTOCOL, _AUTH. Free it;
 * it need not leave. Join again unless the job has ended. If syncd_client_open() answers with such
 * an error, do not repeat it with the same options. An error that is neither retriable nor fatal
 * concerns only this call: after SYNCD_E_WRONG_ITERATION, for instance, the next syncd_begin() says
 * where the worker is. */
SYNCD_API int32_t syncd_error_is_fatal(const syncd_error *error);
SYNCD_API void syncd_error_free(syncd_error *error);

/* ---- Timeouts -------------------------------------------------------------------------------- */

/* Every blocking call takes timeout_ms: a number of milliseconds from 0 (do not wait at all), or
 * one of these. */
#define SYNCD_WAIT_FOREVER ((int64_t)-1)
#define SYNCD_TIMEOUT_DEFAULT ((int64_t)-2) /* what the client's options or the environment say */

/* ---- The client: one connection to a daemon, for any number of workers -----------------------
 * In a cluster with shards it has one to the daemon of each shard that it needs. The first call that
 * names a job of a shard makes that connection, within connect_timeout_ms, and what goes wrong is
 * an error of this call, as of syncd_client_open(). */

typedef struct syncd_client syncd_client;

typedef struct syncd_client_options {
  size_t struct_size;    /* set by SYNCD_CLIENT_OPTIONS_INIT */
  const char *addresses; /* endpoints in order of preference, comma-separated:
                            "unix:/run/syncd/syncd.sock", "tls:host:7117" (TLS 1.3),
                            "tcp:host:7117", "host:7117" or, at the default port, "host"; at most
                            16, and beside "tls:" no TCP without TLS. Several may belong to one
                            daemon, or to daemons of which one at a time takes connections: after a
                            loss all are tried, the one that was lost last. Of a cluster with shards
                            any member that leads one will do: it names the others. NULL: the default Unix
                            socket, then 127.0.0.1:7117 */
  const char *client_name;      /* shown to operators; NULL: the program's name */
  const char *token_file;       /* a file that holds the shared token, to which only its owner and
                                   group have rights; NULL: none */
  /* Milliseconds or SYNCD_WAIT_FOREVER; 0 and SYNCD_TIMEOUT_DEFAULT: as said here. */
  int64_t connect_timeout_ms;   /* for the first connection, over all endpoints. After 5 s without
                                   an answer it is tried again; of several endpoints the next one
                                   after 1 s, and in later rounds after 2 s without a connection,
                                   or 2, 4, then 5 s without an answer. 0: 10 s */
  int64_t reconnect_timeout_ms; /* how long calls stay blocked without a connection before they
                                   answer SYNCD_E_UNREACHABLE; 0: 60 s. Below 50 ms they do so
                                   before the first attempt. A call with a shorter timeout of its
                                   own answers SYNCD_E_TIMEOUT, and says since when there is no
                                   connection. The daemon does not wait for this: if it runs, it
                                   evicts a worker without a connection after its worker_grace
                                   (10 s), or after exit_grace (3.5 s) if the connection was
                                   closed */
  int64_t begin_timeout_ms;     /* SYNCD_TIMEOUT_DEFAULT of syncd_begin, syncd_worker_targets and
                                   syncd_worker_collect; 0: wait for ever */
  int64_t request_timeout_ms;   /* SYNCD_TIMEOUT_DEFAULT of the other calls; 0: 60 s */
  /* For addresses that begin with "tls:"; files in PEM, which only syncd_client_open() reads. */
  const char *ca_file;          /* the authorities that may sign the daemon's certificate; NULL:
                                   those that the system trusts */
  const char *certificate_file; /* this client's certificate, then what signed it; NULL: none */
  const char *key_file;         /* its private key, without a password, in a file to which only its
                                   owner and group have rights */
  const char *server_name;      /* the name or numeric address that the daemon's certificate must
                                   have; NULL: the host of the address */
} syncd_client_options;

#define SYNCD_CLIENT_OPTIONS_INIT \
  { sizeof(syncd_client_options), NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL }

/* Opens a client and waits until it is connected and welcomed by a daemon.
 *
 * options: NULL for all defaults. Blocks for at most connect_timeout_ms. Starts one thread for each
 * connection (and one more for each look-up of a host name, while it lasts), which connects, keeps
 * the connection alive and listens while no call does: a thread that is blocked in a call reads the
 * answers itself, also those of others. It runs none of the caller's functions: on_event and
 * on_inspect each get a thread when they are first called. None of these threads takes signals.
 * Ownership: *client is closed with syncd_client_close().
 * Errors: SYNCD_E_INVALID (an address that cannot be parsed, a file of a token, certificate or key
 * that cannot be used, a wrong struct_size), SYNCD_E_UNREACHABLE, SYNCD_E_PROTOCOL (both sides'
 * versions are named, or one of them does not speak TLS), SYNCD_E_AUTH (a token or certificate is
 * missing or not accepted, on either side), SYNCD_E_LIMIT (the daemon is full, or this process has
 * no descriptors or threads left). */
SYNCD_API syncd_status syncd_client_open(const syncd_client_options *options,
                                         syncd_client **client, syncd_error **error);

/* Closes the client: calls blocked in it return SYNCD_E_CANCELLED, its connection is closed, also
 * where a child of fork() has inherited it, and its thread ends. Workers of this client that have
 * not left are treated by the daemon as disconnected (it keeps their place for exit_grace).
 * Worker handles stay valid and must still be freed; every call on them then answers
 * SYNCD_E_CLOSED. The client's own handle is freed: calls on it may be under way, but none may
 * begin after this one. Takes NULL. May be called from any thread, once; blocks until the client's
 * thread has ended, which takes a few milliseconds, but not within an event's callback. */
SYNCD_API void syncd_client_close(syncd_client *client);

/* ---- Workers --------------------------------------------------------------------------------- */

typedef struct syncd_worker syncd_worker;

#define SYNCD_RANK_ANY (-1)

/* ---- Events: what a worker is told without asking -------------------------------------------- */

enum {
  SYNCD_EVENT_RESYNC = 1,  /* syncd_should_resync() is 1 now (policy specsync): drop `iteration`,
                              start it again */
  SYNCD_EVENT_MEMBERS = 2, /* another worker joined, left, was lost, was cut off, came back, or
                              shows other data: syncd_worker_members() has the list, and `version`
                              is its version now. Sent once, however much changes, until this worker
                              has fetched the list; also after a lost connection. If the list that
                              you have has this `version` or a higher one, the event says nothing
                              new */
  SYNCD_EVENT_PLAN = 3,    /* the policy (elastic_bsp) has planned the next barrier: this worker
                              reaches it after its push of `iteration`. `wait_us`: how long the
                              first is expected to wait there. A later plan replaces this one */
  SYNCD_EVENT_STOP = 4,    /* the job was stopped or has finished, or this worker was drained
                              (syncctl drain); sent once */
  SYNCD_EVENT_ROUND = 5,   /* jobs with views: members are gone from this worker's round, or others
                              could be taken into the next, as syncd_worker_round() now says;
                              `version` is the round's number */
  SYNCD_EVENT_STRAGGLER = 6, /* a worker has become slower than is usual for it, compared with the
                              others, or is as fast as usual again. Sent to that worker, and to the
                              one of lowest rank that has an on_event */
  SYNCD_EVENT_HANG = 7     /* a worker of a job under observation has waited for hang_after: `text`
                              says for whom, `rank` is the first of them (-1: no worker differs from
                              the others), `iteration` and `wait_us` are of the longest wait. Sent
                              to all workers, and again when others are at fault than before */
};

/* An event. The library makes it, and it may be longer in later versions: struct_size is the size
 * of the library's. It is valid only during the call. */
typedef struct syncd_event {
  size_t struct_size;
  int32_t kind;       /* SYNCD_EVENT_...; skip one that you do not know */
  uint32_t reserved;  /* 0 */
  int64_t iteration;  /* RESYNC, PLAN, HANG; else -1 */
  int64_t wait_us;    /* PLAN: microseconds, or -1 if they are not known; HANG; else -1 */
  uint64_t version;   /* MEMBERS: it grows with every change, over restarts of the daemon, too;
                         ROUND: the round's number; else 0 */
  /* STRAGGLER; `rank` and `text` also HANG; else -1, 0 and NULL. */
  int32_t rank;       /* whose iterations they are */
  int32_t recovered;  /* 1: they are as usual again */
  double factor;      /* how many times its usual time they take */
  int64_t since_us;   /* since when, in microseconds since the Unix epoch */
  const char *text;   /* as a sentence, with the worker's name and host; if most workers of that
                         host have become slow, that too */
} syncd_event;

/* Called on a thread of the client, one call at a time for all workers of the client, in the order
 * of the events; the first may come shortly before syncd_join() returns. No call follows once
 * syncd_worker_free() of that worker, or syncd_client_close(), has returned.
 * While it runs, later events wait, those of at most 1,024 messages, and any more are dropped; the
 * connection does not wait.
 * It may call the accessors, syncd_should_resync(), syncd_worker_arrive() and syncd_worker_poll()
 * (not while the worker's own thread is in a call), syncd_worker_free(), and syncd_client_close(),
 * which then does not wait: the client ends soon after the callback has returned.
 * It must not throw or longjmp() out. The functions of this client that may block answer
 * SYNCD_E_STATE there. */
typedef void (*syncd_event_callback)(const syncd_event *event, void *user_data);

/* Called every 10 s while a call of this worker is blocked: syncd_begin(), syncd_worker_targets(),
 * syncd_worker_collect(), or what syncd_worker_arrive() asked for. `text` says what the call waits
 * for, such as "waiting for 1 of 4 workers: 3 (3 of 4 expected workers are ready)", or since when
 * there is no daemon. It is valid only during the call. waiting_us: microseconds since the worker
 * made its call. Runs on the thread of syncd_event_callback, under the same rules. */
typedef void (*syncd_wait_callback)(const char *text, int64_t waiting_us, void *user_data);

/* The model with which a process begins, if its job waits for a group of workers. A process that
 * joins living workers enters where they are; then this has no effect. */
enum {
  SYNCD_RESUME_AUTO = 0,     /* as NEW */
  SYNCD_RESUME_NEW = 1,      /* a fresh one: the group begins at iteration 0 */
  SYNCD_RESUME_CONTINUE = 2  /* one that it has loaded: the group begins at resume_at */
};

#define SYNCD_EXIT_GRACE_NONE (-1)

/* Says where this process is, for people: the stacks of its threads, for instance. An administrator
 * asked (syncctl inspect), or the daemon did because others wait for this worker (inspect_on_hang).
 * Writes at most `capacity` (16384) bytes to `text` and returns how many. syncctl escapes bytes
 * that are not UTF-8. Called on a thread of its own, at most once a second for a worker. If the
 * answer takes more than 2 s, the daemon reports that there is none; so even a function that waits
 * for a lock which the process holds forever says something. What it may call, and when no call
 * follows any more: as syncd_event_callback. */
typedef size_t (*syncd_inspect_callback)(char *text, size_t capacity, void *user_data);

#define SYNCD_HANG_AUTO ((int64_t)-1)

typedef struct syncd_join_options {
  size_t struct_size;   /* set by SYNCD_JOIN_OPTIONS_INIT */
  const char *job;      /* the job's name: 1-64 of [A-Za-z0-9._-]. NULL: SYNCD_JOB, else
                           "default" */
  const char *policy;   /* for the first joiner of a job that is not declared yet, such as "ssp:3";
                           for others it must match if it is given. NULL: the job's, or "bsp" */
  const char *name;     /* the worker's name, 1 to 128 bytes of UTF-8 without control and invisible
                           characters, and no blank at either end. A worker that joins again under
                           the same name and host gets its rank back, once its old connection is
                           gone (SYNCD_E_RANK_TAKEN until then). NULL: "worker-<rank>" if a rank is
                           given, else "<host>-<pid>-<n>" */
  const char *host;     /* at most 255 bytes, likewise. NULL: this machine's host name */
  int32_t rank;         /* SYNCD_RANK_ANY: from the environment, else the daemon gives one.
                           A process with several workers in a job gives each its own */
  uint32_t world_size;  /* workers expected before the job starts; 0: from the environment, else
                           what the job says, else 1. Used when this join creates the job; a
                           job that expects another number refuses it (SYNCD_E_INVALID), so that
                           a second launch under the same name stays out */
  int64_t timeout_ms;   /* 0: SYNCD_TIMEOUT_DEFAULT, unlike a call's timeout_ms: a join always
                           waits */
  uint32_t *resync_flag; /* where the flag of syncd_should_resync() is to be, for instance in pinned
                           memory that is mapped for a GPU: 4 bytes, at a multiple of 4, that stay
                           valid until syncd_worker_free() has returned, or syncd_join() if that
                           fails. NULL: in the library's own memory */
  const void *data;     /* what this worker shows to the others in syncd_worker_members(), such as
                           the address at which it takes their updates: any bytes, which are copied.
                           The daemon keeps them, also over its restart; a worker that joins again
                           shows what it then says. NULL: nothing */
  size_t data_size;     /* bytes of `data`, at most 1024 */
  syncd_event_callback on_event; /* NULL: none, and nothing is sent for it */
  void *user_data;      /* for on_event and on_inspect; must stay valid as long as they may be
                           called */
  uint32_t views;       /* 1: a job that this join makes has views (see below); policies bsp and
                           elastic_bsp. 0: it has none, or has them by its policy (gather) */
  uint32_t reserved;    /* 0 */
  /* What started this process: a name that all processes of the launch have, at most 64 bytes of
   * plain text, and a number that is higher each time they are started again. Members of a lower
   * number get STOP. A worker of another name is refused while a member of the present launch
   * lives. NULL: from the environment: SYNCD_LAUNCH ("NAME" or "NAME/NUMBER"), else
   * TORCHELASTIC_RUN_ID without a number, else SLURM_JOB_ID with a number made of
   * SLURM_RESTART_COUNT and SLURM_STEP_ID, else none. "": none */
  const char *launch;
  uint64_t launch_number;
  uint32_t resume;          /* SYNCD_RESUME_...; all processes of a group must say the same */
  uint32_t reserved2;       /* 0 */
  int64_t resume_at;        /* CONTINUE: the next iteration of the model that was loaded, from 0;
                               else 0 */
  int64_t exit_grace_ms;    /* how long the daemon keeps this worker's place once its connection has
                               closed without syncd_leave(): 1 to 86400000, or
                               SYNCD_EXIT_GRACE_NONE. 0: as the job says (3.5 s). A silent
                               connection is kept for worker_grace */
  int64_t join_timeout_ms;  /* how long a syncd_begin() waits for the job's start before it answers
                               SYNCD_E_TIMEOUT, even with SYNCD_WAIT_FOREVER; calling again waits
                               on. 0: SYNCD_JOIN_TIMEOUT_SEC, else 600 s. Or SYNCD_WAIT_FOREVER */
  syncd_wait_callback on_wait; /* NULL: none. user_data is that of on_event */
  uint32_t checkpoints; /* 1: this worker saves when a step says SYNCD_STEP_CHECKPOINT. 0: it takes
                           no part in agreed checkpoints */
  uint32_t reserved_2;  /* 0 */
  int64_t hang_after_ms; /* puts a job that this join makes under observation. Once a worker waited
                           this many milliseconds, in syncd_begin() or between
                           syncd_worker_mark(COMPUTED) and its push, all workers hear who is at
                           fault (SYNCD_EVENT_HANG). The daemon evicts no worker of such a job for
                           being slow, unless its evict_after is a number. SYNCD_HANG_AUTO: the
                           daemon derives the time from the workers' own iterations. 0: no
                           observation */
  syncd_inspect_callback on_inspect; /* NULL: this process does not answer inspections */
  uint32_t heartbeat_timeout_ms; /* after how long a silence of this process the daemon takes the
                           worker's connection for cut: 100 to 3600000; then worker_grace starts.
                           0, or more than the daemon's (5 s): as the daemon says */
  uint32_t reserved_3;  /* 0 */
} syncd_join_options;

#define SYNCD_JOIN_OPTIONS_INIT                                                               \
  { sizeof(syncd_join_options), NULL, NULL, NULL, NULL, SYNCD_RANK_ANY, 0, 0, NULL, NULL, 0, \
    NULL, NULL, 0, 0, NULL, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, 0 }

/* Joins a job. Does not wait for the other workers: the first syncd_begin() does.
 *
 * Blocks until the daemon has answered. Ownership: *worker is freed with syncd_worker_free(),
 * before or after the client is closed.
 * Errors: SYNCD_E_INVALID, SYNCD_E_TIMEOUT, SYNCD_E_UNREACHABLE, SYNCD_E_UNKNOWN_JOB,
 * SYNCD_E_AUTH (the credentials are not for this job; both are named),
 * SYNCD_E_POLICY_MISMATCH (both policies are named), SYNCD_E_RANK_TAKEN (also by another worker of
 * this client), SYNCD_E_LIMIT, SYNCD_E_STOPPED, SYNCD_E_STORE, SYNCD_E_CANCELLED, SYNCD_E_CLOSED,
 * SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_join(syncd_client *client, const syncd_join_options *options,
                                  syncd_worker **worker, syncd_error **error);

/* Flags of a step. */
enum {
  SYNCD_STEP_PULL = 1,    /* parameters changed since this worker's last pull: renew them */
  SYNCD_STEP_BARRIER = 2, /* a planned global synchronization has just happened */
  SYNCD_STEP_SKIP = 4,    /* iteration moved ahead of the one that was due: renew parameters
                             first */
  SYNCD_STEP_STOP = 8,    /* the job has ended, or this worker was drained (syncctl drain): do not
                             compute, leave */
  SYNCD_STEP_RESUMED = 16, /* in the first step after a start, if the group continues at an
                             iteration beyond 0: begin with the model of that iteration */
  SYNCD_STEP_CHECKPOINT = 32 /* save the parameters as they are now, before this iteration (after a
                             SKIP: once they are renewed), as the others do at theirs; see
                             syncd_worker_checkpointed(). Only where the join said `checkpoints` */
};

typedef struct syncd_step {
  size_t struct_size; /* set by SYNCD_STEP_INIT, read by the library */
  int64_t iteration;  /* the iteration to run now, from 0 */
  int64_t staleness;  /* iterations by which this worker is ahead of the slowest active one */
  uint32_t flags;     /* SYNCD_STEP_... */
  uint32_t reserved;  /* 0 */
  /* Jobs with views; see there. Else 0 and NULL. */
  uint64_t view;            /* its number, from 1 */
  uint32_t view_rank;       /* this worker's place in it, from 0 */
  uint32_t view_size;       /* how many are in it */
  const void *view_data;    /* what the view's first gave to syncd_worker_set_data(), at any
                               alignment; NULL: nothing. It and `reason` are valid until this
                               worker's next syncd_begin() or syncd_worker_poll() that gives a step,
                               or its end */
  size_t view_data_size;
  const char *reason;       /* for people. With SYNCD_STEP_STOP: why; it begins with "finished"
                               where the others have ended their work. Else: why the view is another
                               than before. NULL: nothing to say */
} syncd_step;

#define SYNCD_STEP_INIT \
  { sizeof(syncd_step), 0, 0, 0, 0, 0, 0, 0, NULL, 0, NULL }

/* Asks to start this worker's next iteration and waits until the job's policy grants it.
 *
 * Survives a lost connection and a restart of the daemon for up to reconnect_timeout_ms. On
 * SYNCD_E_TIMEOUT or SYNCD_E_UNREACHABLE the request stays pending: calling syncd_begin() again
 * waits on. Before it answers SYNCD_E_TIMEOUT it asks the daemon for the reason, which may take up
 * to a second beyond timeout_ms. So a timeout of 0 says whether the worker may go on at once, and
 * if not, why. The message has the rule and its numbers, and the workers waited for: ranks as
 * ranges, host, clock, and the age of the last push. For instance
 *   "begin(12) of worker 3 not granted after 5.0 s: ssp:3: relative clock 12 is 4 ahead of the
 *    slowest (8), allowed 3; waiting for worker 7 (node-b, clock 8, last push 41.2 s ago)".
 * After the job has ended, and once an operator has drained this worker, it answers SYNCD_OK with
 * SYNCD_STEP_STOP.
 * Errors: SYNCD_E_TIMEOUT, SYNCD_E_UNREACHABLE (retriable), SYNCD_E_STATE (the iteration granted
 * last was not pushed), SYNCD_E_WRONG_ITERATION (worker and daemon disagreed on where the worker
 * is; they agree now, and the next syncd_begin() asks for another iteration), SYNCD_E_STORE (a
 * worker that was evicted cannot be taken back now), SYNCD_E_FENCED (fatal), SYNCD_E_CANCELLED,
 * SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_begin(syncd_worker *worker, int64_t timeout_ms, syncd_step *step,
                                   syncd_error **error);

/* ---- Beginning without blocking: for a loop that overlaps waiting with computing, or that waits
 * for other things too.
 *
 *     syncd_worker_arrive(worker, NULL);              asks, as syncd_begin() does
 *     ... compute what needs no new parameters, until the descriptor is readable ...
 *     syncd_worker_poll(worker, &ready, &step, NULL);
 *     if (ready) ... as after syncd_begin() ...
 *
 * syncd_begin() may be called instead of syncd_worker_poll(): it then waits for what was asked
 * for. */

/* Asks to start this worker's next iteration, and does not wait. While what was asked for before
 * has not been taken, it does nothing. Does not block.
 * Errors: SYNCD_E_FORKED; all others come from syncd_worker_poll(). */
SYNCD_API syncd_status syncd_worker_arrive(syncd_worker *worker, syncd_error **error);

/* Takes the answer to syncd_worker_arrive(), if it is there: *ready is then 1 and *step is set, as
 * by syncd_begin(). Else *ready is 0, and *step is not touched. Does not block.
 * Errors: those of syncd_begin() except SYNCD_E_TIMEOUT. An error is an answer, too: call
 * syncd_worker_arrive() again to go on. SYNCD_E_STATE also means that nothing was asked for. */
SYNCD_API syncd_status syncd_worker_poll(syncd_worker *worker, int32_t *ready, syncd_step *step,
                                         syncd_error **error);

/* A file descriptor for poll(), epoll or an event loop: readable while syncd_worker_poll() has an
 * answer to give. The same at each call; the worker's, which closes it when it is freed. Do not
 * read from it. Does not block.
 * Errors: SYNCD_E_LIMIT (this process has no descriptors left), SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_descriptor(syncd_worker *worker, int32_t *descriptor,
                                               syncd_error **error);

/* 1 if the daemon advises this worker to drop the iteration it is computing and to start it again
 * on fresher parameters; 0 otherwise. To follow the advice, drop the work, call
 * syncd_worker_restarted(), renew the parameters and compute again. You may ignore it. It concerns
 * only the present iteration: syncd_worker_restarted(), syncd_push() and the next grant end it. One
 * relaxed atomic load: no lock, no system call. Any thread. */
SYNCD_API int32_t syncd_should_resync(const syncd_worker *worker);

/* Where the flag is that syncd_should_resync() reads: 0 or 1, which the library writes, on its
 * own thread or on one that is in a call, by single stores of 4 bytes. For a loop that polls it
 * without a call, or a GPU kernel (see syncd_join_options.resync_flag); read it as an atomic or a
 * volatile. Nothing but 0 and 1 is ever in it, and no other data is ordered by it. Valid until the
 * worker is freed. NULL for NULL. Any thread, never blocks. */
SYNCD_API const uint32_t *syncd_worker_resync_flag(const syncd_worker *worker);

/* Tells the daemon that this worker followed the advice of syncd_should_resync(): it has dropped
 * its work on `iteration` and pulls again. Call it before the pull, so that the daemon counts what
 * comes after it as missed. Without an advice it has no effect.
 *
 * Blocks until the daemon has confirmed it. With timeout_ms 0 it does not wait for that: SYNCD_OK
 * then means that the library will tell the daemon, also over a lost connection.
 * Errors: SYNCD_E_TIMEOUT and SYNCD_E_UNREACHABLE (calling again waits on), SYNCD_E_WRONG_ITERATION
 * (the worker does not compute this iteration), SYNCD_E_STATE (nothing was granted yet),
 * SYNCD_E_STOPPED, SYNCD_E_FENCED, SYNCD_E_CANCELLED, SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_restarted(syncd_worker *worker, int64_t iteration,
                                              int64_t timeout_ms, syncd_error **error);

/* What a worker marks in its iteration. */
enum {
  SYNCD_MARK_COMPUTED = 1 /* its own computing is done; what follows until the push is exchange */
};

/* Marks a moment of the iteration that this worker computes. For a loop that exchanges gradients
 * with the others before it pushes, by an all-reduce for instance: there every worker's time from
 * the grant to the push is that of the slowest, and only the mark tells whose computing it was.
 *
 *     syncd_begin(worker, ..., &step, ...);
 *     ... forward and backward ...
 *     syncd_worker_mark(worker, SYNCD_MARK_COMPUTED, NULL);
 *     ... all-reduce; apply ...
 *     syncd_push(worker, step.iteration, ...);
 *
 * With an accelerator, mark when its work is done, not when it is queued. The push carries the time
 * from the grant's arrival (of an iteration that was started again: from syncd_worker_restarted())
 * to the mark; the last mark counts. Lateness, forecasts, the detection of stragglers and what
 * operators are shown then go by it. Sends nothing, reads one clock, never blocks. In a
 * decentralized job the mark comes before the push, too: elsewhere it has no effect.
 * Errors: SYNCD_E_STATE (no iteration was granted yet, or it was pushed), SYNCD_E_INVALID (another
 * mark), SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_mark(syncd_worker *worker, int32_t mark, syncd_error **error);

/* Tells the daemon that this worker is in a long phase, such as an evaluation or a checkpoint, in
 * which it is not late. For `lease_ms` milliseconds the daemon neither warns of it nor evicts it
 * for being slow, and says so to those that wait for it: "in phase 'checkpoint' for 12.0 s of
 * 60.0 s". Lateness then counts from the end of the lease. The phase ends with the lease, with this
 * worker's next syncd_begin() (or syncd_worker_arrive()) or syncd_push(), or with another call of
 * this function. Only lateness changes: the policy still waits for this worker, and the daemon
 * still evicts it if its connection is lost.
 *
 * name: 1 to 64 of the characters A-Z a-z 0-9 . _ -, with a lease of 1 to 86400000 (24 hours). NULL
 * with a lease of 0 ends the phase; without one it has no effect. The same name once more renews
 * the lease.
 *
 * Blocks until the daemon has confirmed it. With timeout_ms 0 it does not wait for that: SYNCD_OK
 * then means that the library will tell the daemon, also over a lost connection and to one that was
 * started again, as long as the phase lasts. After the job has ended it has no effect.
 * Errors: SYNCD_E_INVALID (what is wrong is named, and what is allowed), SYNCD_E_TIMEOUT and
 * SYNCD_E_UNREACHABLE (calling again is safe), SYNCD_E_STATE (another thread is in this function),
 * SYNCD_E_UNSUPPORTED (the daemon is older than this function), SYNCD_E_FENCED, SYNCD_E_CANCELLED,
 * SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_phase(syncd_worker *worker, const char *name, int64_t lease_ms,
                                          int64_t timeout_ms, syncd_error **error);

typedef struct syncd_push_info {
  size_t struct_size;  /* set by SYNCD_PUSH_INFO_INIT */
  double loss;         /* this worker's training loss; NaN or infinite: not known */
  uint64_t samples;    /* training samples in this update; 0: not known */
  uint64_t bytes;      /* size of this update in bytes; 0: not known */
} syncd_push_info;

/* NaN without <math.h>: the library reads any loss that is not equal to itself as "not known". */
#define SYNCD_LOSS_UNKNOWN (1e308 * 10.0 - 1e308 * 10.0)
#define SYNCD_PUSH_INFO_INIT \
  { sizeof(syncd_push_info), SYNCD_LOSS_UNKNOWN, 0, 0 }

/* Flags of a push's outcome. */
enum {
  SYNCD_PUSH_LATE = 1 /* the others have gone on without this update: drop the gradient */
};

/* Tells the daemon that this worker's update of `iteration` is visible to the others.
 *
 * Returns when the daemon has it on disk (a durable job, the default) or in memory (a fast one). It
 * counts exactly once: the library sends it again after a reconnect, and the daemon drops a second
 * copy. info may be NULL; so may flags, else *flags receives SYNCD_PUSH_... bits.
 * Errors: SYNCD_E_TIMEOUT and SYNCD_E_UNREACHABLE (whether it counts is then unknown: call again
 * with the same iteration, which is safe), SYNCD_E_WRONG_ITERATION (both iterations are named),
 * SYNCD_E_STATE (nothing was granted yet), SYNCD_E_STORE (the disk is full or fails: call again
 * with the same iteration, which is safe here, too),
 * SYNCD_E_FENCED, SYNCD_E_STOPPED, SYNCD_E_CANCELLED, SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_push(syncd_worker *worker, int64_t iteration,
                                  const syncd_push_info *info, int64_t timeout_ms, uint32_t *flags,
                                  syncd_error **error);

/* ---- Decentralized jobs ----------------------------------------------------------------------
 *
 * In a job under hop:GRAPH or notify_ack:GRAPH there is no parameter server: each worker sends its
 * update to its neighbours in the job's graph, by whatever means the trainer uses, and reduces what
 * it received. An iteration is
 *
 *     syncd_begin(worker, ..., &step, ...);
 *     syncd_worker_targets(worker, k, ..., ranks, capacity, &count, ...);    may block
 *     ... send the parameters to these ranks ...
 *     syncd_push(worker, k, ...);                            the update is there, for all of them
 *     ... compute ...                                        (or before syncd_worker_targets)
 *     syncd_worker_collect(worker, k, ..., updates, capacity, &count, ...);  may block
 *     ... parameters = the sum of weight * update; apply what was computed ...
 *     syncd_worker_consumed(worker, k, ...);                 these updates may be overwritten
 *
 * with k = step.iteration. Workers on one machine can send and receive through
 * <syncd/update_queue.h>. When a step carries SYNCD_STEP_SKIP, syncd_worker_collect() of k - 1
 * gives the set from which to renew the parameters first. If the daemon has evicted this worker
 * meanwhile, one of these calls or syncd_push() answers SYNCD_E_WRONG_ITERATION; the next
 * syncd_begin() then says where it takes part again.
 *
 * A parameter-server policy answers SYNCD_E_UNSUPPORTED. */

/* To whom this worker sends its update of `iteration`. Waits until the policy allows it
 * (NOTIFY-ACK: until the neighbours have consumed the last one), as syncd_begin() does, and says in
 * the same way why not.
 *
 * ranks: room for `capacity` ranks, in rank order; may be NULL if capacity is 0. *count receives
 * how many there are. If they do not fit, the call answers SYNCD_E_BUFFER and sets only *count:
 * call again with that much room. A call for the latest answered iteration gives the same answer,
 * without asking the daemon. A worker has at most world_size - 1 neighbours at the start; later
 * joiners may add some.
 * Errors: SYNCD_E_BUFFER; SYNCD_E_TIMEOUT and SYNCD_E_UNREACHABLE (retriable; the request stays
 * pending), SYNCD_E_UNSUPPORTED, SYNCD_E_WRONG_ITERATION (both are named), SYNCD_E_STATE (out of
 * order), SYNCD_E_STOPPED, SYNCD_E_FENCED, SYNCD_E_CANCELLED, SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_targets(syncd_worker *worker, int64_t iteration,
                                            int64_t timeout_ms, int32_t *ranks, size_t capacity,
                                            size_t *count, syncd_error **error);

/* One update to reduce. Its layout never changes. */
typedef struct syncd_update {
  int32_t rank;      /* whose update it is; this worker's own is among them */
  uint32_t reserved; /* 0 */
  int64_t iteration; /* the sender's iteration */
  double weight;     /* its share in the reduced parameters; those of one answer sum up to 1 */
} syncd_update;

/* Which updates this worker is to reduce in `iteration`. Waits until the policy has enough of them.
 * Buffers, waiting and errors as with syncd_worker_targets(); SYNCD_E_STATE also means that
 * syncd_push() of this iteration has not been made yet. */
SYNCD_API syncd_status syncd_worker_collect(syncd_worker *worker, int64_t iteration,
                                            int64_t timeout_ms, syncd_update *updates,
                                            size_t capacity, size_t *count, syncd_error **error);

/* Tells the daemon that the updates which syncd_worker_collect() gave for `iteration` (and before)
 * have been read: their senders may overwrite them. Call it after the reduce has read them.
 *
 * Blocks until the daemon has confirmed it. With timeout_ms 0 it does not wait for that: SYNCD_OK
 * then means that the library will tell the daemon, also over a lost connection.
 * Errors: SYNCD_E_TIMEOUT and SYNCD_E_UNREACHABLE (calling again waits on), SYNCD_E_WRONG_ITERATION
 * (this iteration was not collected yet), SYNCD_E_STATE (none was), SYNCD_E_FENCED,
 * SYNCD_E_CANCELLED, SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_consumed(syncd_worker *worker, int64_t iteration,
                                             int64_t timeout_ms, syncd_error **error);

/* ---- Why am I waiting? ----------------------------------------------------------------------- */

/* What the daemon says about a worker's pending request: immutable, so that any thread may read it.
 * Its strings and list live until it is freed. */
typedef struct syncd_explanation syncd_explanation;

/* One worker that is waited for. Its layout never changes. */
typedef struct syncd_waited_for {
  int32_t rank;
  uint32_t reserved;        /* 0 */
  int64_t clock;            /* iterations completed; decentralized: the iteration it is in */
  int64_t last_push_age_us; /* microseconds since its last push; -1: it has not pushed yet */
  const char *name;
  const char *host;
  const char *state; /* for people: "in iteration 8 for 41.2 s", "its connection closed 3.2 s ago",
                        ... */
} syncd_waited_for;

/* Asks the daemon why this worker's syncd_begin(), syncd_worker_targets() or syncd_worker_collect()
 * is not answered yet. Changes nothing. Meant for another thread, while that call is blocked.
 *
 * Blocks until the daemon has answered. Ownership: *explanation is freed with
 * syncd_explanation_free(). Thread-safe, but for syncd_worker_free() of the same worker.
 * Errors: SYNCD_E_TIMEOUT, SYNCD_E_UNREACHABLE, SYNCD_E_FENCED, SYNCD_E_CANCELLED, SYNCD_E_CLOSED,
 * SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_explain(const syncd_worker *worker, int64_t timeout_ms,
                                            syncd_explanation **explanation, syncd_error **error);

/* The accessors take NULL and then answer "", -1 and 0.
 * text: the whole as one sentence, such as "ssp:3: relative clock 12 is 4 ahead of the slowest (8),
 * allowed 3; waiting for worker 7 (node-b, clock 8, last push 41.2 s ago)". */
SYNCD_API const char *syncd_explanation_text(const syncd_explanation *explanation);
/* The policy, or "start" while the job has not begun. */
SYNCD_API const char *syncd_explanation_rule(const syncd_explanation *explanation);
/* The iteration that was asked for; -1: this worker is not waiting, and the rest says nothing. */
SYNCD_API int64_t syncd_explanation_iteration(const syncd_explanation *explanation);
/* Microseconds since it was asked for. */
SYNCD_API int64_t syncd_explanation_waiting_us(const syncd_explanation *explanation);
/* All workers that are waited for, as ranges of ranks such as "4, 23, 40-47", and their number. */
SYNCD_API const char *syncd_explanation_ranks(const syncd_explanation *explanation);
SYNCD_API uint32_t syncd_explanation_waited_for_count(const syncd_explanation *explanation);
/* The first 8 of them at most, in rank order: returns how many, and *workers receives the list
 * (NULL if there is none). `workers` may be NULL. */
SYNCD_API size_t syncd_explanation_workers(const syncd_explanation *explanation,
                                           const syncd_waited_for **workers);
/* Takes NULL. */
SYNCD_API void syncd_explanation_free(syncd_explanation *explanation);

/* ---- Who takes part? ------------------------------------------------------------------------- */

/* The members of a job at one moment: immutable, so that any thread may read it. What it gives
 * lives until it is freed. */
typedef struct syncd_members syncd_members;

enum {
  SYNCD_MEMBER_ACTIVE = 0,       /* connected */
  SYNCD_MEMBER_DISCONNECTED = 1, /* its connection is gone; its place is kept for a while */
  SYNCD_MEMBER_LEFT = 2,         /* its place is free */
  SYNCD_MEMBER_LOST = 3          /* evicted; its place is free, and it may come back */
};

/* One member. Its layout never changes. */
typedef struct syncd_member {
  int32_t rank;
  int32_t state;    /* SYNCD_MEMBER_... */
  int64_t clock;    /* iterations completed; decentralized: the iteration it is in */
  const char *name;
  const char *host;
  const void *data; /* what it gave as syncd_join_options.data, at any alignment; NULL: nothing */
  size_t data_size;
} syncd_member;

/* Asks the daemon who takes part in this worker's job. For each rank the list has the worker that
 * has it or had it last, this worker included. Changes nothing. It costs the daemon time in
 * proportion to their number, so ask when SYNCD_EVENT_MEMBERS says so rather than again and again.
 *
 * Blocks until the daemon has answered, with a long list in several parts. Ownership: *members is
 * freed with syncd_members_free(). Thread-safe, but for syncd_worker_free() of the same worker.
 * Errors: SYNCD_E_TIMEOUT, SYNCD_E_UNREACHABLE, SYNCD_E_UNSUPPORTED (the daemon is older than this
 * function), SYNCD_E_FENCED, SYNCD_E_STATE (in an event's callback), SYNCD_E_CANCELLED,
 * SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_members(const syncd_worker *worker, int64_t timeout_ms,
                                            syncd_members **members, syncd_error **error);

/* The accessors take NULL and then answer 0.
 * version: the list has every change up to this version, and perhaps some that came while it was
 * read. SYNCD_EVENT_MEMBERS tells of later ones. */
SYNCD_API uint64_t syncd_members_version(const syncd_members *members);
/* In rank order: returns how many, and *list receives them (NULL if there is none). `list` may be
 * NULL. */
SYNCD_API size_t syncd_members_list(const syncd_members *members, const syncd_member **list);
/* Takes NULL. */
SYNCD_API void syncd_members_free(syncd_members *members);

/* ---- Views: who trains together ---------------------------------------------------------------
 *
 * A job under gather:MIN-MAX, or one under bsp or elastic_bsp whose first joiner set
 * syncd_join_options.views, has views. A view is the group of workers that were granted together.
 * Each gets the view's number, its size, and its own place in it, so that they can make a process
 * group without asking the daemon again. Each also gets what the first of them gave to
 * syncd_worker_set_data(), such as the address at which it listens.
 *
 * Under gather a view is a round: syncd_begin() says "ready for the next round" and ends this
 * worker's part in the present one; there are no pushes. While it trains, syncd_worker_round() says
 * whether the round is broken, or whether the next one could take workers that wait. Then all begin
 * anew. */

/* What the next syncd_begin() or syncd_worker_arrive() shows to the others of its view: any bytes,
 * which are copied; they stay until this is called again. A begin that has timed out keeps the data
 * that it was made with. data_size: at most 1024. Never blocks for long: nothing is sent.
 * Errors: SYNCD_E_UNSUPPORTED (the job has no views), SYNCD_E_FENCED, SYNCD_E_STATE (in an event's
 * callback), SYNCD_E_CANCELLED, SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_set_data(syncd_worker *worker, const void *data,
                                             size_t data_size, syncd_error **error);

/* A view: immutable, so that any thread may read it. What it gives lives until it is freed. */
typedef struct syncd_view syncd_view;

/* One worker of a view. Its layout never changes. */
typedef struct syncd_view_member {
  uint32_t rank;     /* its place in the view */
  uint32_t reserved; /* 0 */
  const char *name;
  const char *host;
  const void *data; /* what it gave to syncd_worker_set_data(), at any alignment; NULL: nothing */
  size_t data_size;
} syncd_view_member;

/* Asks the daemon who is in a view of this worker's: `number` is syncd_step.view; 0: the latest
 * that was granted. The daemon keeps the last two. Changes nothing.
 *
 * Blocks until the daemon has answered, with a long list in several parts. Ownership: *view is
 * freed with syncd_view_free(). Thread-safe, but for syncd_worker_free() of the same worker.
 * Errors: SYNCD_E_INVALID (a view that is not kept; those that are, are named), SYNCD_E_UNSUPPORTED
 * (the job has no views), SYNCD_E_STATE (none was granted yet, or in an event's callback),
 * SYNCD_E_TIMEOUT, SYNCD_E_UNREACHABLE, SYNCD_E_FENCED, SYNCD_E_CANCELLED, SYNCD_E_CLOSED,
 * SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_view(const syncd_worker *worker, uint64_t number,
                                         int64_t timeout_ms, syncd_view **view,
                                         syncd_error **error);

/* The accessors take NULL and then answer 0 and "". */
SYNCD_API uint64_t syncd_view_number(const syncd_view *view);
/* Why it is another than the one before, for people. */
SYNCD_API const char *syncd_view_reason(const syncd_view *view);
/* In the order of their places: returns how many, and *list receives them (NULL if there is none).
 * `list` may be NULL. */
SYNCD_API size_t syncd_view_list(const syncd_view *view, const syncd_view_member **list);
/* Takes NULL. */
SYNCD_API void syncd_view_free(syncd_view *view);

typedef struct syncd_round {
  size_t struct_size; /* set by SYNCD_ROUND_INIT, read by the library */
  uint64_t number;    /* the latest view that was granted to this worker; 0: none */
  uint32_t gone;      /* members of it that were lost, failed, were preempted, left, were excluded
                         or made spare, or began anew: it is broken. Finished ones are not
                         counted */
  uint32_t room;      /* workers that wait and could be taken into the next */
} syncd_round;

#define SYNCD_ROUND_INIT \
  { sizeof(syncd_round), 0, 0, 0 }

/* What has become of this worker's round, as far as the library knows. Sends nothing and never
 * blocks. A worker that the daemon has evicted and taken back reads its old round as broken until
 * it begins. In a job without views all are 0. Any thread.
 * Errors: SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_round(const syncd_worker *worker, syncd_round *round,
                                          syncd_error **error);

/* ---- Agreed checkpoints -------------------------------------------------------------------------
 *
 * The workers of a job save their parameters at iterations that fit together: with barriers all
 * save the same ones. A checkpoint is asked for by a worker, by an operator (syncctl checkpoint) or
 * by the job itself (checkpoint_every). Then one step of each worker that takes part
 * (syncd_join_options.checkpoints) carries SYNCD_STEP_CHECKPOINT:
 *
 *     if (step.flags & SYNCD_STEP_CHECKPOINT) {
 *       uint64_t number = syncd_worker_checkpoint(worker);
 *       uint32_t shards, shard = syncd_worker_checkpoint_shard(worker, number, &shards);
 *       ... save this worker's parameters to `path`, here or beside the next iterations ...
 *       syncd_worker_checkpointed(worker, number, shard, shards, path, SYNCD_TIMEOUT_DEFAULT,
 *                                 &error);
 *     }
 *
 * It is complete when all of its shards are there, and incomplete when a worker goes before it has
 * saved, or after checkpoint_timeout (30 minutes). Announce a long save with
 * syncd_worker_phase(). */

enum {
  SYNCD_CHECKPOINT_LEAVING = 1 /* this worker is about to go. A checkpoint that is open serves,
                                  too; so does one that was complete less than 20 s ago, and since
                                  the job's latest start. Otherwise SYNCD_E_BROKEN while the job
                                  has lost a worker, and while the round that started this worker
                                  is broken or over: its launch is NAME/ROUND, and the library asks
                                  the job rdzv.NAME, for 1 s at most */
};

/* Asks for a checkpoint, for instance when this machine is about to go. If one is open, the request
 * joins it; if this worker is past its step of that one, it asks for the next. `reason` is for
 * people, at most 512 bytes; NULL: none. `flags`: SYNCD_CHECKPOINT_... bits, or 0. *number receives
 * its number; may be NULL.
 *
 * Blocks until the daemon has it on disk. From any thread, also while syncd_begin() is blocked.
 * Errors: SYNCD_E_INVALID, SYNCD_E_STATE (this worker takes no part in checkpoints, or the job
 * waits for its start), SYNCD_E_BROKEN (as `flags` says),
 * SYNCD_E_TIMEOUT and SYNCD_E_UNREACHABLE (calling again is safe), SYNCD_E_STORE,
 * SYNCD_E_UNSUPPORTED (the daemon is older than this function), SYNCD_E_STOPPED, SYNCD_E_FENCED,
 * SYNCD_E_CANCELLED, SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_request_checkpoint(syncd_worker *worker, const char *reason,
                                                       uint32_t flags, int64_t timeout_ms,
                                                       uint64_t *number, syncd_error **error);

/* The number of the latest checkpoint that a step or syncd_leave() asked of this worker; 0: none.
 * Any thread, never blocks. */
SYNCD_API uint64_t syncd_worker_checkpoint(const syncd_worker *worker);

/* Which shard of checkpoint `number` is this worker's, where each worker saves its own: returns it,
 * from 0, and *shards receives how many there are. The daemon numbers the workers that are to save,
 * so all of them agree, even if others join or leave meanwhile. *shards receives 0 if `number` is
 * not what syncd_worker_checkpoint() answers, or the daemon is older than this function. `shards`
 * may be NULL. Any thread, never blocks. */
SYNCD_API uint32_t syncd_worker_checkpoint_shard(const syncd_worker *worker, uint64_t number,
                                                 uint32_t *shards);

/* Says that this worker has saved its part of checkpoint `number`: shard `shard` of `shards`, where
 * `location` says (a path or an address, 1 to 1024 bytes of UTF-8 without control and invisible
 * characters). All workers must say the same `shards`: 1 if each saves all of the parameters (one
 * copy suffices); as many as there are parts otherwise. shards 0, with shard 0 and location NULL:
 * this worker has nothing to save. Once for each checkpoint, at that step or any number of steps
 * later; the same once more has no effect.
 *
 * Blocks until the daemon has it on disk. Thread-safe, but for syncd_worker_free() of the same
 * worker.
 * Errors: SYNCD_E_INVALID (what is wrong is named, and what is allowed), SYNCD_E_STATE (this
 * checkpoint was given up, the worker was not told of it or has answered something else),
 * SYNCD_E_LIMIT, SYNCD_E_TIMEOUT and SYNCD_E_UNREACHABLE (calling again is safe), SYNCD_E_STORE,
 * SYNCD_E_UNSUPPORTED, SYNCD_E_STOPPED, SYNCD_E_FENCED, SYNCD_E_CANCELLED, SYNCD_E_CLOSED,
 * SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_worker_checkpointed(syncd_worker *worker, uint64_t number,
                                                 uint32_t shard, uint32_t shards,
                                                 const char *location, int64_t timeout_ms,
                                                 syncd_error **error);

/* What is known of a job's checkpoints: immutable, so that any thread may read it. What it gives
 * lives until it is freed. */
typedef struct syncd_checkpoint syncd_checkpoint;

/* One shard of the latest complete checkpoint. Its layout never changes. */
typedef struct syncd_checkpoint_shard {
  uint32_t shard;
  int32_t rank;        /* of the worker that saved it */
  int64_t iteration;   /* the one that this worker was about to begin: where to continue */
  const char *location;
} syncd_checkpoint_shard;

/* The latest complete checkpoint of the job by this name: also of one that has ended, or of the one
 * that had the name before, so that a new launch finds what to load. `job` NULL: SYNCD_JOB, else
 * "default".
 *
 * Blocks until the daemon has answered, with a long list in several parts; it is not sent again
 * over a lost connection. Ownership: *checkpoint is freed with syncd_checkpoint_free().
 * Errors: SYNCD_E_INVALID, SYNCD_E_UNKNOWN_JOB (no job has or had this name), SYNCD_E_AUTH,
 * SYNCD_E_TIMEOUT and SYNCD_E_UNREACHABLE (calling again is safe), SYNCD_E_UNSUPPORTED,
 * SYNCD_E_CANCELLED, SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_latest_checkpoint(syncd_client *client, const char *job,
                                               int64_t timeout_ms, syncd_checkpoint **checkpoint,
                                               syncd_error **error);

/* The same, but only with the shards from `first_shard` on, and at most `shards_max` of them: a
 * worker that loads its own shard needs no other. With shards_max 0 it only answers whether there
 * is one, and which are closed: a short question, also in a job of 10,000 workers. Use it to wait
 * until a checkpoint is closed, with pauses that grow from 0.1 s to 2 s and differ between workers.
 * Errors: as syncd_latest_checkpoint(). */
SYNCD_API syncd_status syncd_latest_checkpoint_part(syncd_client *client, const char *job,
                                                    uint32_t first_shard, uint32_t shards_max,
                                                    int64_t timeout_ms,
                                                    syncd_checkpoint **checkpoint,
                                                    syncd_error **error);

/* The accessors take NULL and then answer 0, "" and -1.
 * number: from 1; a job that has taken one over goes on from its number. 0: none is complete.
 * Checkpoints are in the order of (epoch, number). */
SYNCD_API uint64_t syncd_checkpoint_number(const syncd_checkpoint *checkpoint);
SYNCD_API uint64_t syncd_checkpoint_epoch(const syncd_checkpoint *checkpoint);
/* The lowest iteration of its shards; -1: none is complete. */
SYNCD_API int64_t syncd_checkpoint_iteration(const syncd_checkpoint *checkpoint);
/* When it was complete: microseconds since the Unix epoch. */
SYNCD_API int64_t syncd_checkpoint_completed_us(const syncd_checkpoint *checkpoint);
/* How many shards it has. */
SYNCD_API uint32_t syncd_checkpoint_shards(const syncd_checkpoint *checkpoint);
/* Those that were asked for, in the order of shards, each once: returns how many, and *list
 * receives them (NULL if there is none). `list` may be NULL. */
SYNCD_API size_t syncd_checkpoint_list(const syncd_checkpoint *checkpoint,
                                       const syncd_checkpoint_shard **list);
/* The checkpoint that workers save now; 0: none. */
SYNCD_API uint64_t syncd_checkpoint_open(const syncd_checkpoint *checkpoint);
/* The latest one that is complete or was given up, and why it was given up ("": it is complete). */
SYNCD_API uint64_t syncd_checkpoint_closed(const syncd_checkpoint *checkpoint);
SYNCD_API const char *syncd_checkpoint_closed_reason(const syncd_checkpoint *checkpoint);
/* Takes NULL. */
SYNCD_API void syncd_checkpoint_free(syncd_checkpoint *checkpoint);

/* ---- The end of a worker --------------------------------------------------------------------- */

/* Leaves the job: the others no longer wait for this worker. The handle must still be freed. After
 * it has succeeded a second call answers SYNCD_E_CLOSED. Blocks until the daemon has answered.
 * SYNCD_E_CHECKPOINT: the worker has not left, because a checkpoint is open that no step of it
 * carried. Save, call syncd_worker_checkpointed() with syncd_worker_checkpoint(), and leave again.
 * The daemon asks for this once; the next syncd_leave() leaves.
 * Errors: SYNCD_E_TIMEOUT and SYNCD_E_UNREACHABLE (calling again waits on), SYNCD_E_STORE,
 * SYNCD_E_FENCED, SYNCD_E_CANCELLED, SYNCD_E_CLOSED, SYNCD_E_FORKED. */
SYNCD_API syncd_status syncd_leave(syncd_worker *worker, int64_t timeout_ms, syncd_error **error);

/* How a worker leaves. One that has failed or was preempted counts as lost: if no other is left,
 * the job waits for it. With [[job]] on_failure = "stop" one that has failed stops the job. */
enum {
  SYNCD_LEAVE_LEFT = 0,
  SYNCD_LEAVE_FINISHED = 1, /* its work is done */
  SYNCD_LEAVE_FAILED = 2,
  SYNCD_LEAVE_PREEMPTED = 3 /* its machine is taken away */
};

/* As syncd_leave(), and says how and why, which the history keeps and syncctl shows.
 * kind: SYNCD_LEAVE_... reason: NULL: none. Characters that cannot be shown are escaped, and at
 * most 1024 bytes are kept. If an earlier leave is still pending, the call waits on for it and does
 * not change what it said.
 * Errors: SYNCD_E_INVALID (the kind), and those of syncd_leave(). */
SYNCD_API syncd_status syncd_leave_as(syncd_worker *worker, int32_t kind, const char *reason,
                                      int64_t timeout_ms, syncd_error **error);

/* Frees the handle; waits while on_event is being called for it, but not within that call. A worker
 * that has not left keeps its place at the daemon until the client is closed; a join under its name
 * and host goes on where it was. Takes NULL. No other call on this worker may be under way. */
SYNCD_API void syncd_worker_free(syncd_worker *worker);

/* What the daemon answered to the join; they never change. Any thread, never block. */
SYNCD_API int32_t syncd_worker_rank(const syncd_worker *worker);
SYNCD_API uint32_t syncd_worker_world_size(const syncd_worker *worker); /* workers expected */
SYNCD_API const char *syncd_worker_job(const syncd_worker *worker);
SYNCD_API const char *syncd_worker_policy(const syncd_worker *worker);
/* 1 if a step had SYNCD_STEP_RESUMED, which says that the group continued at an iteration beyond 0;
 * else 0. Any thread, never blocks. */
SYNCD_API int32_t syncd_worker_resumed(const syncd_worker *worker);
/* The iteration of this worker's first step, or of the latest with SYNCD_STEP_RESUMED; -1 before
 * the first step. Any thread, never blocks. */
SYNCD_API int64_t syncd_worker_start_iteration(const syncd_worker *worker);

#ifdef __cplusplus
}
#endif

#endif /* SYNCD_CLIENT_H */
