// What drives one session: a libuv loop on a thread of its own, and the threads that call. One lock
// makes them take turns at the session. A caller puts its call into the session and writes to the
// socket itself; while it waits, it reads the socket too, if no other caller does, so that an
// answer wakes the thread that wants it and no other. The loop connects and closes, keeps the time,
// and reads whenever no caller does.
#pragma once

#include <time.h>
#include <uv.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "libclient/endpoint.h"
#include "libclient/lookup.h"
#include "libclient/session.h"
#include "libclient/stream.h"
#include "proto/base/clock.h"
#include "proto/transport/tls.h"

namespace syncd::client {

// One call that was submitted: it is finished exactly once.
class Call {
 public:
  Call() = default;
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  friend class Driver;
  // On any thread that is in a function of the driver's, under its lock.
  virtual void finish(Completion&& completion) noexcept = 0;

  Call* previous_ = nullptr;  // among the driver's calls in the session
  Call* next_ = nullptr;
};

// What the connections to endpoints of kind kTls use.
struct DriverTls {
  std::shared_ptr<tls::Context> context;  // null: there are none
  std::string server_name;                // empty: each endpoint's host
};

class Driver final : private Stream::Owner {
 public:
  // Endpoints must be those of options.link.endpoints, in the same order.
  Driver(std::vector<Endpoint> endpoints, SessionOptions options, DriverTls tls = {});
  ~Driver() override;  // stops it, if that was not done

  // Starts the thread. On false `error` says why, and the driver is as before.
  bool start(std::string& error);
  // Any thread but the loop's: makes a call and waits until it is finished.
  Completion perform(const MakeCall& make, TimeUs timeout_us);
  // Any thread, without waiting. A call that cannot be taken any more is finished at once; one that
  // frees itself may be gone when this returns.
  void submit(Call& call, const MakeCall& make);
  // Any thread: the worker's handle is gone.
  void release(WorkerId worker) noexcept;
  // Any thread but the loop's: cancels every call and ends the thread. Only the first does
  // anything.
  void stop() noexcept;

  // Loop thread, in an event's callback: none is delivered any more.
  void silence() { silent_ = true; }
  // Whether this is the loop's thread, on which events are delivered: it must not wait.
  bool on_loop_thread() const noexcept;

  // The clock of deadlines: monotonic, microseconds.
  static TimeUs now_us() {
    return clock_ns(CLOCK_MONOTONIC) / 1000;  // libuv's clock
  }

 private:
  class WaitedCall;

  // Stream::Owner
  void stream_connected() override;
  void stream_ready() override;
  void stream_closed(std::string_view reason) override;
  void stream_failed() noexcept override;

  bool open_loop(std::string& error);
  void close_loop() noexcept;
  void run() noexcept;
  static void on_wake(uv_async_t* handle);
  static void on_timer(uv_timer_t* handle);
  void take_wake();
  void take_wake_locked();
  void deliver_events() noexcept;
  void shut_down();
  void close_handles() noexcept;
  void close_if_broken() noexcept;
  void settle();
  void apply_wish();
  void connect(std::size_t endpoint);
  void look_up(std::size_t endpoint);
  void take_looked_up();
  void connect_next_address(std::string_view reason);
  bool open_stream(std::string& error);
  void disconnected(std::string_view reason);
  void drop_connection() noexcept;
  void arm_timer();

  // Any thread that holds the lock.
  void take(Call& call, const MakeCall& make, TimeUs timeout_us);
  bool try_to(const MakeCall& make, const Ask& ask);
  void settle_away();
  void flush();
  void deliver();
  void finish(Call& call, Completion&& completion) noexcept;
  bool may_read() const noexcept;
  void start_reading(WaitedCall& call) noexcept;
  void read_for(WaitedCall& call, std::uint64_t connection, std::unique_lock<std::mutex>& lock);
  bool read_once();
  void wake_loop() noexcept;
  void wake_reader() noexcept;
  void fail_inside() noexcept;
  void link(Call& call) noexcept;
  void unlink(Call& call) noexcept;
  void finish_all(Status status, const char* reason) noexcept;

  std::vector<Endpoint> endpoints_;
  const DriverTls tls_;
  uv_loop_t loop_;

  std::mutex mutex_;  // guards all that follows, but for the thread
  Session session_;
  uv_async_t wake_;
  uv_timer_t timer_;
  TimeUs timer_at_us_ = kNever;
  bool handles_closed_ = false;
  bool stopping_ = false;
  bool broken_ = false;           // an exception was caught: the session is not asked any more
  Status refused_ = Status::kOk;  // why submit() takes nothing any more
  std::string refusal_;

  std::uint64_t connection_ = 0;  // the number of the session's wish that we follow
  Stream* stream_ = nullptr;      // frees itself after close()
  // By endpoint: one that took too long goes on, and the next attempt waits for it too.
  std::vector<std::shared_ptr<Lookup>> lookups_;
  std::shared_ptr<Lookup>* looking_up_ = nullptr;  // the one that this connection waits for
  std::vector<sockaddr_storage> addresses_;
  std::size_t next_address_ = 0;
  std::vector<PendingEvent> delivering_events_;  // these two are the loop's: used without the lock
  bool silent_ = false;
  Call* calls_ = nullptr;  // in the session: a list through the calls

  WaitedCall* reader_ = nullptr;  // the call whose thread reads the socket; null: the loop does
  bool reader_sleeps_ = false;
  int reader_wake_ = -1;  // eventfd, readable when that thread is to look again

  std::thread thread_;
};

}  // namespace syncd::client
