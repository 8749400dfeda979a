// The libuv loop that drives one session on a thread of its own. Other threads hand it calls
// through submit() and wait on each call's own condition variable; everything else here belongs to
// the loop thread.
#pragma once

#include <uv.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "libclient/endpoint.h"
#include "libclient/lookup.h"
#include "libclient/session.h"
#include "libclient/stream.h"

namespace syncd::client {

struct ConnectCommand {};
struct BeginCommand {
  WorkerId worker = kNoWorker;
};
struct PushCommand {
  WorkerId worker = kNoWorker;
  std::int64_t iteration = 0;
  PushInfo info;
};
// Targets, collect, consumed, restarted: each is about one iteration.
using IterationCall = void (Session::*)(OpId, WorkerId, std::int64_t, Timeout, TimeUs);
struct IterationCommand {
  WorkerId worker = kNoWorker;
  std::int64_t iteration = 0;
  IterationCall call = nullptr;
};
struct LeaveCommand {
  WorkerId worker = kNoWorker;
};
struct ExplainCommand {
  WorkerId worker = kNoWorker;
};
struct CancelBeginCommand {
  WorkerId worker = kNoWorker;
};
using Command = std::variant<ConnectCommand, JoinRequest, BeginCommand, PushCommand,
                             IterationCommand, LeaveCommand, ExplainCommand, CancelBeginCommand>;

// One call. One that is waited for lives on its caller's stack, which is safe because every
// submitted call is finished exactly once and wait() returns only then.
class Call {
 public:
  Call(Command command, Timeout timeout) : command_(std::move(command)), timeout_(timeout) {}
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Completion wait();

 private:
  friend class Driver;
  // Once, on the loop's thread or, where submit() refuses it, on the caller's.
  virtual void finish(Completion completion) noexcept;

  Command command_;
  Timeout timeout_;
  Call* previous_ = nullptr;  // among the driver's calls in the session
  Call* next_ = nullptr;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  Completion completion_;
};

class Driver final : private Stream::Owner {
 public:
  // Endpoints must be those of options.link.endpoints, in the same order.
  Driver(std::vector<Endpoint> endpoints, SessionOptions options);
  // Precondition: not started, or stopped.
  ~Driver() override;

  // Starts the thread. On false `error` says why, and the driver is as before.
  bool start(std::string& error);
  // Any thread. A call that cannot be taken any more is finished at once.
  void submit(Call& call);
  // Any thread: the worker's handle is gone.
  void release(WorkerId worker);
  // Any thread but the loop's: cancels every call and ends the thread. Only the first does
  // anything.
  void stop() noexcept;

  // The clock of deadlines: monotonic, microseconds.
  static TimeUs now_us() { return static_cast<TimeUs>(uv_hrtime() / 1000); }

 private:
  // Stream::Owner
  void stream_connected() override;
  void stream_bytes(std::span<const std::uint8_t> bytes) override;
  void stream_closed(std::string_view reason) override;
  void stream_failed() noexcept override;

  bool open_loop(std::string& error);
  void close_loop() noexcept;
  void run() noexcept;
  static void on_wake(uv_async_t* handle);
  static void on_timer(uv_timer_t* handle);
  void take_submitted();
  void dispatch(Call& call);
  void shut_down();
  void close_handles() noexcept;
  void settle();
  void apply_wish();
  void connect(std::size_t endpoint);
  void look_up(std::size_t endpoint);
  void take_looked_up();
  void connect_next_address(std::string_view reason);
  void drop_connection() noexcept;
  void flush();
  void deliver();
  void arm_timer();
  void link(Call& call) noexcept;
  void unlink(Call& call) noexcept;
  void finish_all(Status status, const char* reason) noexcept;

  std::vector<Endpoint> endpoints_;
  Session session_;
  uv_loop_t loop_;
  uv_async_t wake_;
  uv_timer_t timer_;
  TimeUs timer_at_us_ = kNever;
  bool handles_closed_ = false;
  bool broken_ = false;  // an exception was caught: the session is not asked any more

  std::uint64_t connection_ = 0;  // the number of the session's wish that we follow
  Stream* stream_ = nullptr;      // frees itself after close()
  // By endpoint: one that took too long goes on, and the next attempt waits for it too.
  std::vector<std::shared_ptr<Lookup>> lookups_;
  std::shared_ptr<Lookup>* looking_up_ = nullptr;  // the one that this connection waits for
  std::vector<sockaddr_storage> addresses_;
  std::size_t next_address_ = 0;
  std::vector<Completion> delivering_;
  Call* calls_ = nullptr;  // in the session: a list through the calls

  std::mutex mutex_;  // guards the next five
  std::vector<Call*> submitted_;
  std::vector<WorkerId> released_;
  bool stopping_ = false;
  Status refused_ = Status::kOk;  // why submit() takes nothing any more
  std::string refusal_;

  std::vector<Call*> taken_;  // keep their memory from turn to turn
  std::vector<WorkerId> taken_released_;
  std::thread thread_;
};

}  // namespace syncd::client
