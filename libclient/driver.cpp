// The session between its callers, a socket and a libuv loop. See the header for threads.
#include "libclient/driver.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "proto/base/check.h"

namespace syncd::client {
namespace {

// A timer this late means that the process was stopped: what the daemon sent meanwhile lies in the
// socket and is read before time is held against it.
constexpr TimeUs kSuspendedUs = 1'000'000;

// Whose loop this thread runs.
thread_local const Driver* running = nullptr;

constexpr const char* kOutOfMemory = "out of memory";

Completion out_of_memory() {
  Completion completion;
  completion.status = Status::kNoMemory;
  completion.message = kOutOfMemory;  // short enough to need none
  return completion;
}

OpId op_of(Call& call) {
  return reinterpret_cast<std::uintptr_t>(&call);
}
Call& call_of(OpId op) {
  return *reinterpret_cast<Call*>(static_cast<std::uintptr_t>(op));
}

}  // namespace

// ---- Calls -------------------------------------------------------------------------------------

Completion Call::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return done_; });
  return std::move(completion_);
}

// The caller's stack may be gone as soon as the mutex is free, so that notifying comes before.
void Call::finish(Completion completion) noexcept {
  const std::lock_guard lock(mutex_);
  completion_ = std::move(completion);
  done_ = true;
  ended_.notify_one();
}

void Driver::submit(Call& call) {
  const std::lock_guard lock(mutex_);
  take(call);
}

Completion Driver::perform(Call& call) {
  {
    std::unique_lock lock(mutex_);
    // Before the request goes out: its answer is not to wake the loop.
    const bool reads = refused_ == Status::kOk && may_read();
    const std::uint64_t connection = connection_;
    if (reads) start_reading(call);
    take(call);
    if (reads) read_for(call, connection, lock);
  }
  return call.wait();
}

void Driver::take(Call& call) {
  if (refused_ != Status::kOk) {
    Completion refusal;
    refusal.status = refused_;
    refusal.message = refusal_;
    return call.finish(std::move(refusal));
  }
  link(call);  // first: whatever happens below, it is finished
  try {
    if (!try_dispatch(call)) finish(call, out_of_memory());
    settle_away();
  } catch (...) {
    fail_inside();
  }
}

// False: memory ran out before the session had taken it. It is as it was, and the call alone fails.
bool Driver::try_dispatch(Call& call) {
  try {
    dispatch(call);
    return true;
  } catch (const std::bad_alloc&) {
    const auto& ended = session_.completions();
    const auto is_its = [&](const Completion& completion) { return completion.op == op_of(call); };
    if (std::any_of(ended.begin(), ended.end(), is_its)) return true;
    session_.abandon(op_of(call));
    return false;
  }
}

void Driver::release(WorkerId worker) noexcept {
  const std::lock_guard lock(mutex_);
  if (refused_ != Status::kOk) return;
  try {
    session_.release(worker, now_us());
    settle_away();
  } catch (...) {
    fail_inside();
  }
}

// ---- Reading on a caller's thread --------------------------------------------------------------

bool Driver::may_read() const noexcept {
  return reader_ == nullptr && stream_ != nullptr && stream_->descriptor() >= 0 &&
         session_.wish().number == connection_;
}

void Driver::start_reading(Call& call) noexcept {
  reader_ = &call;
  stream_->watch_reading(false);
}

// Until the call is finished, or the connection is not what it was: the loop goes on with it then.
// The lock is free while this thread sleeps, so that anything may have happened meanwhile.
void Driver::read_for(Call& call, std::uint64_t connection, std::unique_lock<std::mutex>& lock) {
  const auto same_connection = [&] { return stream_ != nullptr && connection_ == connection; };
  // Where the descriptor is closed, and perhaps another's already, the loop wakes us after that.
  pollfd wanted[] = {{stream_->descriptor(), POLLIN, 0}, {reader_wake_, POLLIN, 0}};
  while (!call.done_ && same_connection()) {
    reader_sleeps_ = true;
    lock.unlock();
    const int ready = poll(wanted, 2, -1);
    lock.lock();
    reader_sleeps_ = false;
    if (ready <= 0) continue;
    if (wanted[1].revents != 0) {
      eventfd_t count = 0;
      eventfd_read(reader_wake_, &count);
    }
    if (call.done_ || !same_connection()) break;
    if (wanted[0].revents != 0 && !read_once()) break;
  }
  reader_ = nullptr;
  if (same_connection()) stream_->watch_reading(true);
}

// False: the loop must see to the connection.
bool Driver::read_once() {
  try {
    std::span<const std::uint8_t> bytes;
    std::string error;
    if (!stream_->read(bytes, error)) return false;
    session_.on_bytes(connection_, bytes, now_us());
    settle_away();
    return session_.wish().number == connection_;
  } catch (...) {
    fail_inside();
    return false;
  }
}

void Driver::wake_loop() noexcept {
  if (!handles_closed_) uv_async_send(&wake_);
}

void Driver::wake_reader() noexcept {
  if (reader_sleeps_) eventfd_write(reader_wake_, 1);
}

// ---- Start and stop ----------------------------------------------------------------------------

Driver::Driver(std::vector<Endpoint> endpoints, SessionOptions options, DriverTls tls)
    : endpoints_(std::move(endpoints)),
      tls_(std::move(tls)),
      session_(std::move(options), now_us()),
      lookups_(endpoints_.size()) {}

Driver::~Driver() {
  if (thread_.joinable()) stop();
  if (reader_wake_ >= 0) ::close(reader_wake_);
}

bool Driver::open_loop(std::string& error) {
  reader_wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (reader_wake_ < 0) {
    error = uv_strerror(uv_translate_sys_error(errno));
    return false;
  }
  int code = uv_loop_init(&loop_);
  if (code != 0) {
    error = uv_strerror(code);
    return false;
  }
  code = uv_async_init(&loop_, &wake_, on_wake);
  if (code != 0) {
    error = uv_strerror(code);
    uv_loop_close(&loop_);
    return false;
  }
  wake_.data = this;
  uv_timer_init(&loop_, &timer_);  // cannot fail
  timer_.data = this;
  return true;
}

void Driver::close_loop() noexcept {
  close_handles();
  uv_run(&loop_, UV_RUN_DEFAULT);
  uv_loop_close(&loop_);
}

bool Driver::start(std::string& error) {
  if (!open_loop(error)) return false;
  // The loop thread takes no signals: they are the program's, and a write to a socket that the peer
  // has closed must not raise SIGPIPE in anybody.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& failure) {
    error = failure.what();
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) close_loop();
  return started;
}

bool Driver::on_loop_thread() const noexcept {
  return running == this;
}

void Driver::run() noexcept {
  running = this;
  pthread_setname_np(pthread_self(), "syncd-client");
  uv_async_send(&wake_);  // the first connection
  uv_run(&loop_, UV_RUN_DEFAULT);
  uv_loop_close(&loop_);
}

void Driver::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    wake_loop();
  }
  thread_.join();
}

// ---- Libuv callbacks ---------------------------------------------------------------------------

void Driver::on_wake(uv_async_t* handle) {
  auto* self = static_cast<Driver*>(handle->data);
  try {
    self->take_wake();
  } catch (...) {
    self->stream_failed();
  }
}

void Driver::take_wake() {
  {
    const std::lock_guard lock(mutex_);
    take_wake_locked();
    delivering_events_.swap(session_.events());
  }
  deliver_events();
}

void Driver::take_wake_locked() {
  if (broken_) return close_if_broken();
  if (stopping_) return shut_down();
  take_looked_up();
  settle();
}

// Without the lock: what is called may take it, in a call of this client that does not block.
void Driver::deliver_events() noexcept {
  for (const PendingEvent& pending : delivering_events_) {
    if (!silent_) pending.signals->deliver(pending.event);
  }
  delivering_events_.clear();
}

void Driver::dispatch(Call& call) {
  const OpId op = op_of(call);
  const Timeout timeout = call.timeout_;
  const TimeUs now = now_us();
  std::visit(
      [&](auto& command) {
        using Given = std::decay_t<decltype(command)>;
        if constexpr (std::is_same_v<Given, ConnectCommand>) {
          session_.connect(op, timeout);
        } else if constexpr (std::is_same_v<Given, AskCommand>) {
          session_.ask(op, std::move(command.request), timeout, now);
        } else if constexpr (std::is_same_v<Given, JoinRequest>) {
          session_.join(op, std::move(command), timeout, now);
        } else if constexpr (std::is_same_v<Given, BeginCommand>) {
          session_.begin(op, command.worker, timeout, now);
        } else if constexpr (std::is_same_v<Given, PushCommand>) {
          session_.push(op, command.worker, command.iteration, command.info, timeout, now);
        } else if constexpr (std::is_same_v<Given, IterationCommand>) {
          (session_.*command.call)(op, command.worker, command.iteration, timeout, now);
        } else if constexpr (std::is_same_v<Given, PhaseCommand>) {
          session_.phase(op, command.worker, std::move(command.name), command.lease_us, timeout,
                         now);
        } else if constexpr (std::is_same_v<Given, LeaveCommand>) {
          session_.leave(op, command.worker, timeout, now);
        } else if constexpr (std::is_same_v<Given, ExplainCommand>) {
          session_.explain(op, command.worker, timeout, now);
        } else if constexpr (std::is_same_v<Given, MembersCommand>) {
          session_.members(op, command.worker, timeout, now);
        } else {
          session_.cancel_begin(op, command.worker, timeout, now);
        }
      },
      call.command_);
}

void Driver::on_timer(uv_timer_t* handle) {
  auto* self = static_cast<Driver*>(handle->data);
  try {
    const std::lock_guard lock(self->mutex_);
    if (self->broken_) return;
    const TimeUs now = now_us();
    const bool suspended = now - self->timer_at_us_ > kSuspendedUs;
    self->timer_at_us_ = kNever;
    if (suspended) {
      uv_timer_start(&self->timer_, on_timer, 1, 0);
      self->timer_at_us_ = now + 1000;
      return;
    }
    self->session_.on_time(now);
    self->settle();
  } catch (...) {
    self->stream_failed();
  }
}

void Driver::stream_connected() {
  const std::lock_guard lock(mutex_);
  if (broken_) return;
  addresses_.clear();
  next_address_ = 0;
  std::string error;
  if (open_stream(error)) {
    session_.on_connected(connection_, now_us());
  } else {
    session_.on_disconnected(connection_, error, now_us());
  }
  settle();
}

bool Driver::open_stream(std::string& error) {
  const Endpoint& endpoint = endpoints_[session_.wish().endpoint];
  if (endpoint.kind == Endpoint::Kind::kTls) {
    const std::string& name = tls_.server_name.empty() ? endpoint.host : tls_.server_name;
    std::vector<std::uint8_t> first;
    auto channel = tls::Channel::connect(tls_.context, name, endpoint.text(), first);
    if (channel == nullptr) throw std::bad_alloc();
    stream_->encrypt(std::move(channel), std::move(first));
  }
  return stream_->open(error);
}

// Where TLS failed, the two sides do not accept each other: asking again would not help.
void Driver::disconnected(std::string_view reason) {
  const Status status = stream_ != nullptr ? stream_->tls_status() : Status::kOk;
  if (status != Status::kOk) {
    session_.on_refused(connection_, status, reason, now_us());
  } else {
    session_.on_disconnected(connection_, reason, now_us());
  }
}

void Driver::stream_ready() {
  const std::lock_guard lock(mutex_);
  if (broken_) return;
  std::span<const std::uint8_t> bytes;
  std::string error;
  if (!stream_->write_rest(error) || !stream_->read(bytes, error)) {
    disconnected(error);
  } else if (!bytes.empty()) {
    session_.on_bytes(connection_, bytes, now_us());
  }
  settle();
}

void Driver::stream_closed(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (broken_) return;
  // A name may have several addresses, of which only some are served.
  if (next_address_ < addresses_.size()) {
    connect_next_address(reason);
  } else {
    session_.on_disconnected(connection_, reason, now_us());
  }
  settle();
}

void Driver::stream_failed() noexcept {
  const std::lock_guard lock(mutex_);
  fail_inside();
}

// An exception, which is memory that ran out or a defect, was caught. The session may be between
// two states, so nothing more is asked of it: every call ends, and so does every later one. The
// loop drops the connection.
void Driver::fail_inside() noexcept {
  Status status = Status::kInternal;
  const char* reason = "the client library failed inside";
  std::optional<InternalError> check;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    status = Status::kNoMemory;
    reason = kOutOfMemory;
  } catch (const InternalError& failure) {
    check = failure;  // a copy needs no memory
    reason = check->what();
  } catch (...) {
  }
  broken_ = true;
  refused_ = status;
  try {
    refusal_ = reason;
  } catch (...) {  // the status says enough
  }
  finish_all(status, reason);
  wake_loop();
}

void Driver::close_if_broken() noexcept {
  drop_connection();
  uv_timer_stop(&timer_);
  if (stopping_) close_handles();
}

void Driver::shut_down() {
  refused_ = Status::kClosed;
  refusal_ = "the client is closed";
  session_.close();
  deliver();
  finish_all(Status::kCancelled, "");
  drop_connection();
  close_handles();
}

void Driver::close_handles() noexcept {
  if (std::exchange(handles_closed_, true)) return;
  uv_close(reinterpret_cast<uv_handle_t*>(&wake_), nullptr);
  uv_close(reinterpret_cast<uv_handle_t*>(&timer_), nullptr);
}

// ---- After every callback ----------------------------------------------------------------------

// On a caller's thread: what only the loop can do is left to it.
void Driver::settle_away() {
  if (session_.wish().number == connection_) flush();
  deliver();
  const bool events = !session_.events().empty();
  if (events || session_.wish().number != connection_ || session_.next_deadline() < timer_at_us_) {
    wake_loop();
  }
}

// On the loop's.
void Driver::settle() {
  do {
    apply_wish();
    flush();
  } while (session_.wish().number != connection_);
  deliver();
  arm_timer();
  if (!session_.events().empty()) wake_loop();  // they are delivered from there, without the lock
}

void Driver::apply_wish() {
  while (session_.wish().number != connection_) {
    drop_connection();
    const LinkWish wish = session_.wish();
    connection_ = wish.number;
    if (wish.up) connect(wish.endpoint);
  }
}

void Driver::connect(std::size_t index) {
  const Endpoint& endpoint = endpoints_[index];
  std::string error;
  if (endpoint.kind == Endpoint::Kind::kUnix) {
    stream_ = Stream::connect_unix(loop_, *this, endpoint.path, error);
    if (stream_ == nullptr) session_.on_disconnected(connection_, error, now_us());
    return;
  }
  sockaddr_storage address;
  if (!numeric_address(endpoint.host, endpoint.port, address)) return look_up(index);
  addresses_.assign(1, address);
  connect_next_address({});
}

void Driver::look_up(std::size_t index) {
  const Endpoint& endpoint = endpoints_[index];
  std::shared_ptr<Lookup>& lookup = lookups_[index];
  std::string error;
  if (lookup == nullptr) lookup = Lookup::start(endpoint.host, endpoint.port, error);
  if (lookup == nullptr) return session_.on_disconnected(connection_, error, now_us());
  looking_up_ = &lookup;
  lookup->notify(&wake_);
}

void Driver::take_looked_up() {
  Lookup::Result result;
  if (looking_up_ == nullptr || !(*looking_up_)->take(result)) return;
  std::exchange(looking_up_, nullptr)->reset();
  addresses_ = std::move(result.addresses);
  next_address_ = 0;
  connect_next_address(result.reason);
}

// `reason`: why there is no address left, if there is none.
void Driver::connect_next_address(std::string_view reason) {
  if (stream_ != nullptr) std::exchange(stream_, nullptr)->close();
  std::string error(reason);
  while (next_address_ < addresses_.size()) {
    const sockaddr_storage& address = addresses_[next_address_++];
    stream_ = Stream::connect_tcp(loop_, *this, reinterpret_cast<const sockaddr&>(address), error);
    if (stream_ != nullptr) return;
  }
  session_.on_disconnected(connection_, error, now_us());
}

void Driver::drop_connection() noexcept {
  wake_reader();
  if (stream_ != nullptr) std::exchange(stream_, nullptr)->close();
  if (looking_up_ != nullptr) (*std::exchange(looking_up_, nullptr))->notify(nullptr);
  addresses_.clear();
  next_address_ = 0;
}

void Driver::flush() {
  if (stream_ == nullptr || stream_->descriptor() < 0 || session_.output().empty()) return;
  std::string error;
  if (!stream_->write(session_.output(), error)) disconnected(error);
}

void Driver::deliver() {
  delivering_.swap(session_.completions());
  for (Completion& completion : delivering_) {
    finish(call_of(completion.op), std::move(completion));
  }
  delivering_.clear();
}

// The call is gone afterwards, but for that of the thread that reads.
void Driver::finish(Call& call, Completion completion) noexcept {
  unlink(call);
  if (reader_ == &call) wake_reader();
  call.finish(std::move(completion));
}

// A timer that is due too early only looks again, so that the usual exchange, which moves the next
// heartbeat a little, does not touch the timer at all.
void Driver::arm_timer() {
  const TimeUs at_us = session_.next_deadline();
  if (at_us >= timer_at_us_) return;
  timer_at_us_ = at_us;
  const TimeUs wait_us = at_us - now_us();
  uv_update_time(&loop_);
  uv_timer_start(&timer_, on_timer,
                 wait_us <= 0 ? 0 : static_cast<std::uint64_t>(wait_us + 999) / 1000, 0);
}

void Driver::link(Call& call) noexcept {
  call.next_ = calls_;
  call.previous_ = nullptr;
  if (calls_ != nullptr) calls_->previous_ = &call;
  calls_ = &call;
}

void Driver::unlink(Call& call) noexcept {
  (call.previous_ != nullptr ? call.previous_->next_ : calls_) = call.next_;
  if (call.next_ != nullptr) call.next_->previous_ = call.previous_;
}

void Driver::finish_all(Status status, const char* reason) noexcept {
  while (calls_ != nullptr) {
    Completion completion;
    completion.status = status;
    try {
      completion.message = reason;
    } catch (...) {  // the status says enough
    }
    finish(*calls_, std::move(completion));
  }
}

}  // namespace syncd::client
