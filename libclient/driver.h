// A client: one session, driven by a libuv loop on a thread of its own and by the threads that
// call. One lock makes them take turns at the session. A caller puts its call into the session and
// writes to the socket itself; while it waits, it reads the socket too, if no other caller does, so
// that an answer wakes the thread that wants it and no other. The loop connects and closes, keeps
// the time, and reads while no caller does. The kernel chooses between the two (stream.h): neither
// says when it begins and ends to read. In a child of fork() every call answers kForked and
// touches nothing that the parent's threads may have held.
#pragma once

#include <time.h>
#include <uv.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "libclient/callback_thread.h"
#include "libclient/endpoint.h"
#include "libclient/fork_mark.h"
#include "libclient/lookup.h"
#include "libclient/session.h"
#include "libclient/stream.h"
#include "proto/base/clock.h"
#include "proto/transport/tls.h"

namespace syncd::client {

// What a call answers with kForked.
inline constexpr const char* kForkedText =
    "this client was opened before fork(); open a new one in the child";

// One call that was submitted: it is finished exactly once.
class Call {
 public:
  Call() = default;
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  friend class Driver;
  // On any thread that is in a function of the driver's, under its lock. Must be quick, and may not
  // call the driver.
  virtual void finish(Completion&& completion) noexcept = 0;

  Call* previous_ = nullptr;  // among the driver's calls in the session
  Call* next_ = nullptr;
};

// What the connections to endpoints of kind kTls use.
struct DriverTls {
  std::shared_ptr<tls::Context> context;  // null: there are none
  std::string server_name;                // empty: each endpoint's host
};

// Reads the files of `settings` if an endpoint needs them, or a daemon may send this client to one
// that does. False: `error` says what is wrong with them.
bool make_tls(const std::vector<Endpoint>& endpoints, const tls::ClientSettings& settings,
              DriverTls& tls, std::string& error);

class Driver final {
 public:
  // Fills in the endpoints of options.link, and its seed. Drivers of one `client` are as one to
  // their callbacks, which may wait for none of them; null: this is its only one.
  Driver(std::vector<Endpoint> endpoints, SessionOptions options, DriverTls tls = {},
         const void* client = nullptr);
  ~Driver();  // stops it, if that was not done

  // Starts the thread. On false `error` says why, and the driver is as before.
  bool start(std::string& error);
  // Any thread: makes a call and waits until it is finished, for at most `timeout_us`, or kNever.
  // On the loop's thread, which must not wait, it fails.
  Completion perform(const MakeCall& make, TimeUs timeout_us);
  // Any thread, without waiting. A call that cannot be taken any more is finished at once; one that
  // frees itself may be gone when this returns.
  void submit(Call& call, const MakeCall& make);
  // Any thread: the worker's handle is gone.
  void release(WorkerId worker) noexcept;
  // Any thread: every call is cancelled, soon, and none is taken any more.
  void cancel() noexcept;
  // Any thread but the loop's: the same, and ends the thread. Only the first does anything.
  void stop() noexcept;

  // In a callback: none is called any more.
  void silence() { silent_ = true; }
  // Whether this is the loop's thread, or one on which callbacks are called, of this driver or
  // another one of its client: it must not wait.
  bool on_loop_thread() const noexcept;
  // True in a child of the process that made this driver.
  bool forked() const noexcept { return fork_mark_.forked(); }

  // The clock of deadlines: monotonic, microseconds.
  static TimeUs now_us() {
    return clock_ns(CLOCK_MONOTONIC) / 1000;  // libuv's clock
  }

 private:
  class WaitedCall;

  bool open_readers();
  bool open_loop(std::string& error);
  void close_loop() noexcept;
  void run() noexcept;
  // What libuv calls. An exception must not go on into it.
  template <void (Driver::*handle)()>
  static void on_event(void* driver) noexcept;
  void take_wake();
  void take_time();
  void take_ready();
  void leave_to_reader(std::unique_lock<std::mutex>& lock);
  void deliver(const std::vector<PendingEvent>& events) noexcept;
  void inspect(const PendingInspection& inspection) noexcept;
  void shut_down();
  void close_handles() noexcept;
  void close_if_broken() noexcept;
  void settle();
  void apply_wish();
  // Where a connection may go to.
  struct Target {
    Endpoint endpoint;
    std::shared_ptr<Lookup> lookup;  // one that took too long goes on; the next attempt takes it up
  };
  Target& target(std::size_t index);
  void connect(Target& target);
  void look_up(Target& target);
  void take_looked_up();
  void connect_next_address(std::string reason);
  void take_connected();
  bool encrypt(const Endpoint& endpoint);
  void disconnected();
  void drop_connection() noexcept;
  void arm_timer();
  void start_timer(TimeUs at_us);

  // Each call goes through these: inlined, they cost less than their prologues.
  [[gnu::always_inline]] inline void wait_for(WaitedCall& call, const MakeCall& make,
                                              TimeUs timeout_us);
  // Any thread that holds the lock.
  void take(Call& call, const MakeCall& make, const Ask& ask);
  [[gnu::always_inline]] inline bool try_to(const MakeCall& make, const Ask& ask);
  [[gnu::always_inline]] inline void settle_away();
  [[gnu::always_inline]] inline void flush();
  [[gnu::always_inline]] inline void deliver();
  [[gnu::always_inline]] inline void finish(Call& call, Completion&& completion) noexcept;
  [[gnu::always_inline]] inline void read_for(WaitedCall& call, std::unique_lock<std::mutex>& lock);
  [[gnu::always_inline]] inline bool read_all();
  void wake_loop() noexcept;
  void wake_reader() noexcept;
  void fail_inside() noexcept;
  void finish_all(Status status, const char* reason) noexcept;

  const ForkMark fork_mark_;
  const void* const client_;
  const DriverTls tls_;
  uv_loop_t loop_;

  std::mutex mutex_;  // guards all that follows, but for the thread
  Session session_;
  uv_async_t wake_;
  uv_timer_t timer_;
  TimeUs timer_at_us_ = kNever;
  bool handles_closed_ = false;
  bool stopping_ = false;
  bool ended_ = false;            // stop() was called
  bool broken_ = false;           // an exception was caught: the session is not asked any more
  Status refused_ = Status::kOk;  // why submit() takes nothing any more
  std::string refusal_;

  std::uint64_t connection_ = 0;  // the number of the session's wish that we follow
  Stream* stream_ = nullptr;      // frees itself after close()
  std::vector<Target> targets_;   // by the link's endpoint; those that it learned when first used
  std::shared_ptr<Lookup>* looking_up_ = nullptr;  // the one that this connection waits for
  std::vector<sockaddr_storage> addresses_;        // that were not tried yet
  std::atomic<bool> silent_{false};
  Call* calls_ = nullptr;  // in the session: a list through the calls

  WaitedCall* reader_ = nullptr;  // the call whose thread reads the socket; null: the loop does
  bool reader_sleeps_ = false;
  UniqueFd readers_;                    // the epoll in which that thread sleeps
  UniqueFd reader_wake_;                // eventfd, readable when it is to look again
  std::condition_variable loop_reads_;  // a call waits and no caller reads, or loop_wanted_
  bool loop_wanted_ = false;            // wake_loop() was called, and the loop has not looked yet

  std::thread thread_;
  // What events and inspections call may wait for as long as it likes.
  CallbackThread events_thread_{"syncd-events"};
  CallbackThread inspect_thread_{"syncd-inspect"};
};

}  // namespace syncd::client
