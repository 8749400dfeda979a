/* <syncd/server.h>: the daemon inside any program.
 *
 * A program that wants no service beside it starts the daemon itself, for instance in rank 0 of a
 * training job, and tells the other workers where it listens:
 *
 *     syncd_server_options options = SYNCD_SERVER_OPTIONS_INIT;
 *     options.store = "/scratch/run-17/history";
 *     syncd_server_start(&options, &server, NULL);
 *     ... hand syncd_server_address(server, 0) to the workers, which open clients as ever ...
 *     syncd_server_stop(server, SYNCD_TIMEOUT_DEFAULT, NULL);
 *
 * Everything else is the same as with the program syncd: the policies, the store (which syncctl and
 * another syncd can read after the stop), and what syncctl shows through --addr.
 *
 * Linking. libsyncd has all functions of <syncd/client.h> and <syncd/update_queue.h>, too: a program
 * that embeds the daemon links libsyncd alone, and its workers in the same process use the same
 * client calls over a socket as those in others. Should libsyncclient be in the process as well (a
 * plugin may bring it), the two shared libraries do not see each other: their symbols have versions of their own, and each
 * serves who was linked to it. An object (client, worker, error) goes back to the library that made
 * it. The two static libraries may be linked together if they are of one version.
 *
 * The conventions at the top of <syncd/client.h> hold here, too. In addition:
 *  - Nothing is global: any number of servers may run in one process, each with an address and a
 *    store of its own.
 *  - No signal handler is installed and no signal's disposition changed. A server's threads (one for
 *    its sockets; those of its store; RocksDB's and libuv's pools, which live as long as the
 *    process) block all signals, so that a client that has gone raises no SIGPIPE in the program.
 *  - No limit of the process is changed. Each connection takes a descriptor: where the soft limit of
 *    open files is low, the server takes fewer connections and says so in its log.
 *  - The environment variables of the program syncd are not read, and nothing is written but the
 *    store, and the log where it was asked for.
 *  - A child of fork() has no server: it gets SYNCD_E_FORKED, but keeps the listening sockets open
 *    until it ends or calls exec(). Start workers before the server, or with posix_spawn().
 *  - Stop every server before the program ends.
 *
 * Since-version of everything in this file: 0.1.0.
 */
#ifndef SYNCD_SERVER_H
#define SYNCD_SERVER_H

#include <syncd/client.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct syncd_server syncd_server;

/* Levels of log lines. */
enum { SYNCD_LOG_DEBUG = 1, SYNCD_LOG_INFO = 2, SYNCD_LOG_WARN = 3, SYNCD_LOG_ERROR = 4 };

/* Receives one line of the log, such as "worker_lost job=mf worker=3 reason=evict_after", without a
 * time, a level or a newline in it. `context` is log_context of the options; `line` lives until the
 * callback returns.
 *
 * Called on the server's own thread, one line at a time, from within syncd_server_start() until
 * syncd_server_stop() returns. It must return quickly, since nobody is served meanwhile, and must
 * not throw, fork, or wait for a client of this server. It may call anything of <syncd/client.h> that
 * does not block; syncd_server_stop() of this server answers SYNCD_E_STATE. */
typedef void (*syncd_log_callback)(void *context, int32_t level, const char *line);

/* Flags of a server. */
enum {
  SYNCD_SERVER_LOG_STDERR = 1 /* write the log to standard error, each line with time and level */
};

/* What is NULL or 0 here is as `config` says, else as said here. */
typedef struct syncd_server_options {
  size_t struct_size;     /* set by SYNCD_SERVER_OPTIONS_INIT */
  const char *config;     /* settings as the text of a configuration file of syncd (TOML: [listen],
                             [store], [limits], [timeouts], [log] level, [[job]]; `syncd
                             --check-config` prints all with their values). NULL: none. Of
                             settings that neither this nor a field below gives, listen.tcp is
                             "127.0.0.1:0", listen.unix "off" and store.path "memory"; the others
                             are as in syncd. log.file,
                             listen.admin and timeouts.exit_when_idle are refused */
  const char *tcp;        /* listen.tcp: "HOST:PORT", several with commas, or "off"; port 0 takes any
                             free one */
  const char *unix_path;  /* listen.unix: the path of a Unix socket, or "off" */
  const char *store;      /* store.path: a directory whose parent exists, or "memory": the history
                             then ends with the server */
  syncd_log_callback log; /* NULL: none */
  void *log_context;
  int32_t log_level;      /* log.level: the least level that is logged; 0: SYNCD_LOG_INFO */
  uint32_t flags;         /* SYNCD_SERVER_... */
} syncd_server_options;

#define SYNCD_SERVER_OPTIONS_INIT \
  { sizeof(syncd_server_options), NULL, NULL, NULL, NULL, NULL, NULL, 0, 0 }

/* Starts a server and waits until clients can connect. A store that has a history is read first:
 * its jobs go on where they were.
 *
 * options: NULL for all defaults. Thread-safe. Blocks while the store is opened and read, and while a
 * host name among the addresses is looked up. Starts the server's threads.
 * Ownership: *server is stopped and freed with syncd_server_stop(). Where the start fails, threads,
 * sockets and locks are gone again when the call returns; a store directory that it made stays.
 * Errors: SYNCD_E_INVALID (a wrong struct_size, TOML text or setting: the message has one line for
 * each mistake, with the line of the text or the field, the key, the value and what is allowed),
 * SYNCD_E_STORE (the store cannot be opened or read: not writable, in use, damaged, of a newer
 * version), SYNCD_E_LISTEN (an address is in use, is not this machine's, or needs a privilege),
 * SYNCD_E_LIMIT (this process has no descriptors or threads left). */
SYNCD_API syncd_status syncd_server_start(const syncd_server_options *options,
                                          syncd_server **server, syncd_error **error);

/* Where the server listens, in the form that syncd_client_options.addresses and SYNCD_ADDR take:
 * "unix:/path" first if there is a Unix socket, then "tcp:127.0.0.1:40117" for each TCP address in
 * the order given, with the port that was chosen; "tls:" with TLS. NULL if index is not below the
 * number of them, or server is NULL; a started server has at least one. The string lives until the
 * server is stopped. Any thread, does not block. */
SYNCD_API const char *syncd_server_address(const syncd_server *server, size_t index);

/* Stops the server in good order and frees the handle: it stops accepting, answers what it can,
 * writes to the store what was pushed, tells the clients, and closes everything, its store and the
 * Unix socket's file included.
 *
 * To the clients this is a lost daemon: their blocked calls stay blocked for reconnect_timeout_ms,
 * go on if a server on the same store listens at the same address by then, and else end with
 * SYNCD_E_UNREACHABLE. A program that will not start it again closes its clients first.
 *
 * timeout_ms: for everything together; SYNCD_TIMEOUT_DEFAULT: timeouts.shutdown_timeout (10 s). What
 * is not over by then is cut off; the call may take a moment longer. At most a day. Takes NULL.
 * Call once, from any thread but the server's own; blocks until the server's thread has ended. No
 * other call on this server may be under way.
 * Errors: SYNCD_E_STORE (not everything could be written; the message says what; the server is
 * stopped and freed all the same), SYNCD_E_INTERNAL (a defect had ended the server before: its
 * clients were disconnected, its store is closed, and the message and the log line server_failed say
 * what it was; freed all the same), SYNCD_E_INVALID (timeout_ms), SYNCD_E_STATE (called from the log
 * callback) and SYNCD_E_FORKED; with these three the server goes on. */
SYNCD_API syncd_status syncd_server_stop(syncd_server *server, int64_t timeout_ms,
                                         syncd_error **error);

#ifdef __cplusplus
}
#endif

#endif /* SYNCD_SERVER_H */
