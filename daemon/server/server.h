// The daemon as an object: engine, store and network on one libuv loop. It has no global state,
// installs no signal handler and writes no log but through the sink it is given, so that a program
// can run it on a loop and a thread of its own.
//
// Everything is called on the loop thread, on which SIGPIPE must be ignored or blocked. The store's
// writer thread and libuv's pool work beside it.
#pragma once

#include <sys/types.h>
#include <uv.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/engine/effects.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/job_spec.h"
#include "daemon/net/address.h"
#include "daemon/net/network.h"
#include "daemon/server/background.h"
#include "daemon/server/commit_gate.h"
#include "daemon/store/store.h"

namespace syncd::server {

struct ServerOptions {
  std::string version;
  EngineOptions engine;         // `durable` is set from the store
  std::vector<JobSpec> jobs;    // declared at the start
  net::NetworkOptions network;  // `server_version` is set from `version`
  std::vector<net::TcpAddress> tcp;
  std::string unix_path;  // empty: no Unix socket
  mode_t unix_mode = 0600;
  Micros shutdown_timeout_us = 10'000'000;
};

enum class StartError { kNone, kStore, kJob, kListen };

class Server final : private net::FrameHandler {
 public:
  using LogSink = std::function<void(const LogLine&)>;

  // `store` has been opened and nothing else done with it.
  Server(uv_loop_t* loop, ServerOptions options, std::unique_ptr<store::Store> store, LogSink log);
  // Precondition: start() was never called, or stop() has called back.
  ~Server() override;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Recovers from the store, declares the jobs, then listens. Blocks while it reads the store. Once
  // it answers kNone, clients are served as the loop turns. On any other answer `error` is a
  // sentence that names the cause; call stop() then, too.
  StartError start(std::string& error);

  // Where it listens: "tcp:127.0.0.1:7117", "unix:/run/syncd/syncd.sock".
  std::vector<std::string> endpoints() const { return network_.endpoints(); }

  // For the stop to come.
  void set_shutdown_timeout(Micros timeout_us) { options_.shutdown_timeout_us = timeout_us; }

  // Stops accepting, answers what stands, waits for the disk, tells the clients, closes the store,
  // all within options.shutdown_timeout_us. Then calls `on_stopped`, with an empty text or with
  // what could not be written; the server may be destroyed in it. Call once. After a start() that
  // failed early it calls back before it returns.
  void stop(const std::string& reason, std::function<void(const std::string& problem)> on_stopped);

 private:
  enum class Phase { kServing, kDraining, kClosing };

  // net::FrameHandler
  void on_message(ConnectionId connection, wire::Message&& message) override;
  void on_closed(ConnectionId connection) override;
  void on_turn_end() override;
  void on_log(LogLine line) override { log_(line); }

  bool recover(std::string& error);
  bool declare_jobs(std::string& error);
  bool listen(std::string& error);

  Micros now() const;
  void step(Event event);
  void fire_timers(Micros at);
  void apply();
  void start_plan(const Plan& plan);
  void arm_timer();
  bool tell_store_state();

  void answer_status(const Caller& caller);
  void answer_history(const Caller& caller, const wire::HistoryRequest& request);
  void send(const Caller& caller, wire::Body body);

  void stop_network_if_drained();
  void stop_network();
  void close_store_if_idle();
  void close_own_handles();
  Micros left_until_deadline() const;
  void log(LogLevel level, std::string event,
           std::vector<std::pair<std::string, std::string>> fields);

  uv_loop_t* loop_;
  ServerOptions options_;
  std::unique_ptr<store::Store> store_;
  LogSink log_;
  Engine engine_;
  net::Network network_;
  CommitGate gate_;
  Background background_;
  Effects effects_;

  // Engine time is the wall clock at the start, or the latest time in the store if that is later,
  // and goes on with the monotonic clock: a clock that is set back never reaches the engine.
  Micros epoch_us_ = 0;
  std::uint64_t started_ns_ = 0;
  Micros started_us_ = 0;

  Micros armed_us_ = kNever;
  bool told_writable_ = true;
  std::size_t histories_ = 0;  // being read now
  std::string mode_text_;

  int own_handles_ = 0;
  uv_async_t committed_;
  uv_timer_t timer_;
  uv_timer_t drain_timer_;

  Phase phase_ = Phase::kServing;
  bool network_opened_ = false;
  bool network_down_ = false;
  bool store_started_ = false;
  Micros stop_at_us_ = 0;
  std::string stop_reason_;
  std::string problem_;
  std::function<void(const std::string&)> on_stopped_;
};

}  // namespace syncd::server
