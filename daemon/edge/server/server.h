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
#include <string_view>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/job_spec.h"
#include "daemon/edge/net/address.h"
#include "daemon/edge/net/network.h"
#include "daemon/edge/server/access.h"
#include "daemon/edge/server/audit.h"
#include "daemon/edge/server/background.h"
#include "daemon/edge/server/core.h"
#include "daemon/edge/server/history_reads.h"
#include "daemon/edge/server/job_quota.h"
#include "daemon/edge/server/server_view.h"
#include "daemon/edge/store/store.h"

namespace syncd::server {

struct ServerOptions {
  std::string version;
  EngineOptions engine;       // `durable` is set from the store
  std::vector<JobSpec> jobs;  // declared at the start, if they are of this daemon's shard
  std::uint32_t shard = 0;    // that this daemon serves, of so many; a single daemon has one
  std::uint32_t shards = 1;
  // Where another shard is served: as in SYNCD_ADDR; empty: nowhere now. Null: there is one shard.
  std::function<std::string(std::uint32_t shard)> whereabouts;
  net::NetworkOptions network;  // `server_version` is set from `version`
  tls::ServerSettings tls;      // no certificate: TCP is not encrypted
  net::AdmissionRules admission;
  bool open_to_anybody = false;  // the configuration wants it so: the log says it
  std::vector<net::TcpAddress> tcp;
  std::string unix_path;  // empty: no Unix socket
  // Over which alone administrative requests are accepted; none: over all of them.
  std::vector<net::TcpAddress> control_tcp;
  std::string control_unix_path;
  std::uint32_t jobs_per_identity_max = limits::kJobsMax;
  mode_t unix_mode = 0600;
  Micros shutdown_timeout_us = 10'000'000;
  Micros exit_when_idle_us = 0;          // without a connection; 0: for ever
  std::function<void()> on_idle;         // called once it has been idle for so long; may be null
  std::function<void()> before_sending;  // at the end of each turn; may be null
  std::function<void()>
      on_recovering;  // called after each job that start() has restored; may be null
  // Called for each job of a cluster that start() cannot read; need not return; may be null.
  std::function<void(const std::string& why)> on_unreadable;
};

enum class StartError { kNone, kStore, kJob, kListen };

class Server final : private net::FrameHandler, private Core::Host {
 public:
  using LogSink = std::function<void(const LogLine&)>;

  // `store` has been opened and nothing else done with it.
  Server(uv_loop_t* loop, ServerOptions options, std::unique_ptr<store::Store> store, LogSink log);
  // Precondition: is_over().
  ~Server() override;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Sockets that listen already: start() serves those for workers instead of opening options.tcp
  // and options.unix_path, and those for control instead of options.control_tcp and
  // control_unix_path. Before start().
  void inherit(std::vector<net::ListenSocket> sockets) { inherited_ = std::move(sockets); }

  // Whether start() could listen now, by these options: everything is opened, and closed again.
  static bool can_listen(const ServerOptions& options, std::string& error);

  // Recovers from the store, declares the jobs, then listens. Blocks while it reads the store. Once
  // it answers kNone, clients are served as the loop turns. On any other answer `error` is a
  // sentence that names the cause; call stop() then, too.
  StartError start(std::string& error);

  // Where it listens for workers: "tcp:127.0.0.1:7117", "unix:/run/syncd/syncd.sock".
  std::vector<std::string> endpoints() const { return network_.endpoints(); }

  // Reads certificates, keys and tokens again, for connections from now on, and puts into force
  // what may change while it runs: of `options`, the engine's options, limits of the network, tls,
  // admission, jobs_per_identity_max and shutdown_timeout_us. All of it or, with a sentence in
  // `error`, nothing. Blocks on the disk.
  bool reconfigure(const ServerOptions& options, std::string& error);

  // What it is like now, with the figures of so many jobs. O(jobs_max), and O(1) for each job more.
  ServerView view(std::size_t jobs_max);

  // For the stop to come.
  void set_shutdown_timeout(Micros timeout_us) { options_.shutdown_timeout_us = timeout_us; }

  // Stops accepting, answers what stands, waits for the disk, tells the clients, closes the store,
  // all within options.shutdown_timeout_us. Then calls `on_stopped`, with an empty text or with
  // what could not be written; the server may be destroyed in it. Call once. After a start() that
  // failed early it calls back before it returns.
  void stop(const std::string& reason, std::function<void(const std::string& problem)> on_stopped);

  // start() was never called, or stop() calls back or has done so: nothing of it is in the loop.
  bool is_over() const { return is_over_; }
  // After the loop has failed, and its handles are closed: commits what was submitted within
  // `timeout_us`, and closes the store. Nothing else may be called any more.
  void close_store_after_failure(Micros timeout_us);

 private:
  enum class Phase { kServing, kDraining, kClosing };

  // net::FrameHandler
  void on_hot(ConnectionId connection, const net::Identity& identity, const wire::HotCall& hot,
              std::uint64_t at_ns) override;
  void on_message(ConnectionId connection, wire::Message&& message) override;
  void on_closed(ConnectionId connection, const std::string& reason, bool by_peer) override;
  void on_turn_end() override;
  wire::Redirect whereabouts(std::uint32_t shard) override;
  bool is_elsewhere(const std::string& job, std::string& why) const;
  void on_log(LogLine line) override { log_(line); }

  // Core::Host
  Micros now() const override;
  // Engine time at a reading of uv_hrtime().
  Micros at(std::uint64_t monotonic_ns) const {
    return epoch_us_ + static_cast<Micros>((monotonic_ns - started_ns_) / 1000);
  }
  void send(ConnectionId connection, RequestId id, wire::Body&& body) override;
  void look_at(ConnectionId connection, RequestId id, wire::Body& body);
  void add_store_reason(ConnectionId connection, wire::Error& error) const;
  void start_plan(Plan&& plan) override;
  void log(LogLine&& line) override { log_(line); }

  bool recover(std::string& error);
  bool listen(std::string& error);

  void arm_timer();
  void watch_idleness();

  bool secure(const tls::ServerSettings& tls, const net::AdmissionRules& rules, std::string& error);

  // The way of a request, in server_requests.cpp.
  template <class Message>
  void receive(const Caller& caller, Message& body);
  void hide_job(const Caller& caller, const wire::WorkerRef& worker);
  bool begin_audit(const Caller& caller, const wire::Body& done, Audits::Fields what);
  void refuse_asker(const Caller& caller, std::string_view request, std::string why);
  void refuse(const Caller& caller, Status status, std::string why);
  void answer(const Caller& caller, wire::Body body);
  // The same, and the end of its audit, if it has one.
  void conclude(const Caller& caller, const wire::Body& body);

  // What the server sees to itself, each kind in a file handle_*.cpp.
  void handle(const Caller& caller, wire::Join& join);
  void handle(const Caller& caller, wire::CreateJobRequest& create);
  template <class Message>
  void make_job(const Caller& caller, Message& body, const std::string& policy);
  void handle(const Caller& caller, const wire::StatusRequest& request);
  void handle(const Caller& caller, const wire::JobsRequest& request);
  void handle(const Caller& caller, const wire::HistoryRequest& request);
  void handle(const Caller& caller, const wire::CheckpointRequest& request);
  void handle(const Caller& caller, wire::InspectRequest& request);

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
  std::vector<net::ListenSocket> inherited_;  // until it listens
  Core core_;
  Access access_;
  net::Network network_;
  Audits audits_;
  JobQuota quota_;
  Background background_;
  HistoryReads histories_;

  // Engine time is the wall clock at the start, or the latest time in the store if that is later,
  // and goes on with the monotonic clock: a clock that is set back never reaches the engine.
  Micros epoch_us_ = 0;
  std::uint64_t started_ns_ = 0;
  Micros started_us_ = 0;

  Micros armed_us_ = kNever;
  bool checkpointing_ = false;

  int own_handles_ = 0;
  uv_async_t committed_;
  uv_timer_t timer_;
  uv_timer_t drain_timer_;
  uv_timer_t idle_timer_;

  Phase phase_ = Phase::kServing;
  bool network_opened_ = false;
  bool listening_ = false;
  bool network_down_ = false;
  bool store_started_ = false;
  bool is_over_ = true;
  Micros stop_at_us_ = 0;
  std::string stop_reason_;
  std::string problem_;
  std::function<void(const std::string&)> on_stopped_;
};

}  // namespace syncd::server
