// A server on a loop and a thread of its own, for a program that embeds the daemon. Nothing is
// global: any number of them may run in one process. Any thread may use it.
#pragma once

#include <uv.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/edge/config/config.h"
#include "daemon/edge/server/server.h"
#include "proto/base/status.h"

namespace syncd::server {

class ServerThread {
 public:
  // `log` is called on the server's own thread, one line at a time.
  ServerThread(config::Config config, std::string version, Server::LogSink log);
  ~ServerThread();  // stops it, if stop() was not called
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;

  // Opens the store, recovers, listens. Call once; blocks until clients are served. Anything but
  // kOk comes with a sentence in `error`, and the thread, the sockets and the store are gone again:
  // kStore, kInvalid (a job of the configuration), kListen, kLimit (no thread or descriptor left),
  // kNoMemory or kInternal.
  //
  // The thread takes no signals, and neither do those that it starts (the store's, RocksDB's): a
  // write to a socket whose peer has gone raises no SIGPIPE in anybody.
  Status start(std::string& error);

  // Where it listens, such as "unix:/tmp/s", "tcp:127.0.0.1:40117". After start() was kOk.
  const std::vector<std::string>& endpoints() const { return endpoints_; }
  // True on the thread that `log` is called on.
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  Micros shutdown_timeout_us() const { return config_.shutdown_timeout_us; }

  // Stops it in good order within `timeout_us`; blocks until its thread has ended. Call once, from
  // another thread. kStore, with what could not be written in `problem`; or kInternal, with what
  // happened, if the server had ended early.
  Status stop(Micros timeout_us, std::string& problem);

 private:
  // What the loop needs, in one piece: should an exception end the loop, it is never freed, since
  // parts of it may be between two states.
  struct Machine {
    uv_loop_t loop{};
    uv_async_t stop_request{};
    std::unique_ptr<Server> server;
  };

  void join();
  void run() noexcept;
  void fail(const char* why) noexcept;
  Status prepare(std::string& error);
  Status start_server(std::string& error);
  void serve();
  void stop_on_loop(const std::string& reason, Micros timeout_us);

  config::Config config_;
  std::string version_;
  Server::LogSink log_;
  std::unique_ptr<Machine> machine_;
  bool loop_open_ = false;
  std::mutex failing_;
  bool failed_ = false;  // the loop takes no request any more
  std::promise<void> started_;
  Status status_ = Status::kOk;  // of the start
  std::string error_;
  std::vector<std::string> endpoints_;
  std::atomic<Micros> stop_timeout_us_{0};
  std::string problem_;
  std::thread thread_;
};

}  // namespace syncd::server
