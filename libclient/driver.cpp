// The session between its callers, a socket and a libuv loop. See the header for threads.
#include "libclient/driver.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/thread.h"

namespace syncd::client {
namespace {

// A timer this late means that the process was stopped: what the daemon sent meanwhile lies in the
// socket and is read before time is held against it.
constexpr TimeUs kSuspendedUs = 1'000'000;

// How long the loop leaves the socket to a caller that reads. Its timers may be as late, and so may
// a notice that comes when no call waits.
constexpr std::chrono::milliseconds kLookAway{2};

// The client whose loop or callbacks this thread runs.
thread_local const void* running = nullptr;

constexpr const char* kOutOfMemory = "out of memory";  // short enough to need none

OpId op_of(Call& call) {
  return reinterpret_cast<std::uintptr_t>(&call);
}
Call& call_of(OpId op) {
  return *reinterpret_cast<Call*>(static_cast<std::uintptr_t>(op));
}

// Only the back-off's jitter depends on it.
std::uint64_t make_seed() {
  std::uint64_t seed = static_cast<std::uint64_t>(Driver::now_us());
  seed ^= static_cast<std::uint64_t>(getpid()) << 40;
  try {
    std::random_device device;
    seed ^= (std::uint64_t{device()} << 32) | device();
  } catch (const std::exception&) {  // time and pid differ between workers well enough
  }
  return seed;
}

bool is_tls(const Endpoint& endpoint) {
  return endpoint.kind == Endpoint::Kind::kTls;
}

SessionOptions complete(SessionOptions options, const std::vector<Endpoint>& endpoints,
                        const DriverTls& tls) {
  for (const Endpoint& endpoint : endpoints) options.link.endpoints.push_back(endpoint.text());
  // The default ones are two ways to this machine's daemon.
  options.link.several_daemons = endpoints.size() > 1 && endpoints != default_endpoints();
  options.link.has_tls = tls.context != nullptr;
  options.link.seed = make_seed();
  return options;
}

}  // namespace

// ---- Calls -------------------------------------------------------------------------------------

// It lives on its caller's stack, which is safe because perform() returns only when it is finished,
// and looks for that under the driver's lock.
class Driver::WaitedCall final : public Call {
 public:
  explicit WaitedCall(Completion& completion) : completion_(completion) {}
  bool done() const { return done_; }
  void wait(std::unique_lock<std::mutex>& lock) {
    std::condition_variable ended;
    ended_ = &ended;
    while (!done_) ended.wait(lock);
  }

 private:
  void finish(Completion&& completion) noexcept override {
    completion_ = std::move(completion);
    done_ = true;
    if (ended_ != nullptr) ended_->notify_one();
  }

  std::condition_variable* ended_ = nullptr;  // while the caller sleeps on it
  bool done_ = false;
  Completion& completion_;
};

void Driver::submit(Call& call, const MakeCall& make) {
  const std::lock_guard lock(mutex_);
  take(call, make, {op_of(call), {}, now_us()});
}

Completion Driver::perform(const MakeCall& make, TimeUs timeout_us) {
  Completion completion;
  if (forked()) {
    completion = {0, Status::kForked, kForkedText};
  } else if (on_loop_thread()) {
    completion = {0, Status::kState, "an event's callback must not call a function that may block"};
  } else {
    WaitedCall call(completion);
    wait_for(call, make, timeout_us);
  }
  return completion;
}

void Driver::wait_for(WaitedCall& call, const MakeCall& make, TimeUs timeout_us) {
  std::unique_lock lock(mutex_);
  const bool reads = refused_ == Status::kOk && reader_ == nullptr && stream_ != nullptr &&
                     !stream_->is_connecting() && session_.wish().number == connection_;
  if (reads) reader_ = &call;
  const TimeUs now = now_us();
  take(call, make, {op_of(call), Timeout::after(timeout_us, now), now});
  if (reads) read_for(call, lock);
  if (!call.done()) call.wait(lock);
}

void Driver::take(Call& call, const MakeCall& make, const Ask& ask) {
  if (refused_ != Status::kOk) return call.finish({0, refused_, refusal_});
  // First: whatever happens below, it is finished.
  call.next_ = calls_;
  call.previous_ = nullptr;
  if (calls_ != nullptr) calls_->previous_ = &call;
  calls_ = &call;
  if (reader_ == nullptr) loop_reads_.notify_one();
  try {
    if (!try_to(make, ask)) finish(call, {0, Status::kNoMemory, kOutOfMemory});
    settle_away();
  } catch (...) {
    fail_inside();
  }
}

// False: memory ran out before the session had taken it. It is as it was, and the call alone fails.
bool Driver::try_to(const MakeCall& make, const Ask& ask) {
  try {
    make(session_, ask);
    return true;
  } catch (const std::bad_alloc&) {
    const auto& ended = session_.completions();
    const auto is_its = [&](const Completion& completion) { return completion.op == ask.op; };
    if (std::any_of(ended.begin(), ended.end(), is_its)) return true;
    session_.abandon(ask.op);
    return false;
  }
}

void Driver::release(WorkerId worker) noexcept {
  if (forked()) return;
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

// Until the call is finished, or the connection is not what it was: the loop goes on with it then.
// The lock is free while this thread sleeps, so that anything may have happened meanwhile.
void Driver::read_for(WaitedCall& call, std::unique_lock<std::mutex>& lock) {
  const std::uint64_t connection = connection_;
  const auto same_connection = [&] { return stream_ != nullptr && connection_ == connection; };
  while (!call.done() && same_connection()) {
    epoll_event ready[2];
    reader_sleeps_ = true;
    lock.unlock();
    const int count = epoll_wait(readers_.get(), ready, 2, -1);
    lock.lock();
    reader_sleeps_ = false;
    // A signal may have come together with bytes, of which the loop was not told then.
    bool readable = count < 0;
    for (int i = 0; i < count; ++i) {
      if (ready[i].data.fd == reader_wake_.get()) {
        eventfd_t wakes = 0;
        eventfd_read(reader_wake_.get(), &wakes);
      } else {
        readable = true;
      }
    }
    // Even if the call is done, or it is another connection: the kernel has woken us, and not the
    // loop.
    if (readable && stream_ != nullptr && !stream_->is_connecting() && !read_all()) break;
  }
  reader_ = nullptr;
  if (calls_ != nullptr) loop_reads_.notify_one();
}

// False: the loop must see to the connection.
bool Driver::read_all() {
  try {
    do {
      std::span<const std::uint8_t> bytes;
      if (!stream_->read(bytes)) return false;
      if (!bytes.empty()) session_.on_bytes(connection_, bytes, now_us());
    } while (stream_->has_more() && session_.wish().number == connection_);
    settle_away();
    return session_.wish().number == connection_;
  } catch (...) {
    fail_inside();
    return false;
  }
}

void Driver::wake_loop() noexcept {
  if (!handles_closed_) uv_async_send(&wake_);
  loop_wanted_ = true;
  loop_reads_.notify_one();
}

void Driver::wake_reader() noexcept {
  if (reader_sleeps_) eventfd_write(reader_wake_.get(), 1);
}

// ---- Start and stop ----------------------------------------------------------------------------

Driver::Driver(std::vector<Endpoint> endpoints, SessionOptions options, DriverTls tls,
               const void* client)
    : client_(client != nullptr ? client : this),
      tls_(std::move(tls)),
      session_(complete(std::move(options), endpoints, tls_), now_us()) {
  for (Endpoint& endpoint : endpoints) targets_.push_back({std::move(endpoint), nullptr});
}

Driver::~Driver() {
  if (thread_.joinable()) stop();
}

bool make_tls(const std::vector<Endpoint>& endpoints, const tls::ClientSettings& settings,
              DriverTls& tls, std::string& error) {
  const bool is_needed = std::any_of(endpoints.begin(), endpoints.end(), is_tls);
  if (!is_needed && settings.ca_file.empty()) return true;
  tls.context = tls::Context::client(settings, error);
  return tls.context != nullptr || !is_needed;
}

bool Driver::open_readers() {
  readers_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (readers_) reader_wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!reader_wake_) return false;
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  wanted.data.fd = reader_wake_.get();
  return epoll_ctl(readers_.get(), EPOLL_CTL_ADD, reader_wake_.get(), &wanted) == 0;
}

bool Driver::open_loop(std::string& error) {
  int code = open_readers() ? uv_loop_init(&loop_) : uv_translate_sys_error(errno);
  if (code == 0) {
    code = uv_async_init(&loop_, &wake_,
                         [](uv_async_t* handle) { on_event<&Driver::take_wake>(handle->data); });
    if (code != 0) uv_loop_close(&loop_);
  }
  if (code != 0) {
    error = uv_strerror(code);
    return false;
  }
  uv_timer_init(&loop_, &timer_);  // cannot fail
  wake_.data = timer_.data = this;
  return true;
}

void Driver::close_loop() noexcept {
  close_handles();
  uv_run(&loop_, UV_RUN_DEFAULT);
  uv_loop_close(&loop_);
}

bool Driver::start(std::string& error) {
  if (!open_loop(error)) return false;
  if (start_without_signals(
          thread_, [this] { run(); }, error))
    return true;
  close_loop();
  return false;
}

bool Driver::on_loop_thread() const noexcept {
  return running == client_;
}

void Driver::run() noexcept {
  running = client_;
  pthread_setname_np(pthread_self(), "syncd-client");
  uv_async_send(&wake_);  // the first connection
  uv_run(&loop_, UV_RUN_DEFAULT);
  uv_loop_close(&loop_);
}

void Driver::cancel() noexcept {
  if (forked()) return;
  const std::lock_guard lock(mutex_);
  if (!std::exchange(stopping_, true)) wake_loop();
}

void Driver::stop() noexcept {
  if (forked()) return;
  cancel();
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
  }
  thread_.join();
  events_thread_.stop();
  inspect_thread_.stop();
}

// ---- Libuv callbacks ---------------------------------------------------------------------------

template <void (Driver::*handle)()>
void Driver::on_event(void* driver) noexcept {
  auto* self = static_cast<Driver*>(driver);
  try {
    (self->*handle)();
  } catch (...) {
    const std::lock_guard lock(self->mutex_);
    self->fail_inside();
  }
}

void Driver::take_wake() {
  std::vector<PendingEvent> events;
  std::vector<PendingInspection> inspections;
  {
    const std::lock_guard lock(mutex_);
    loop_wanted_ = false;
    if (broken_) return close_if_broken();
    if (stopping_) return shut_down();
    take_looked_up();
    settle();
    events.swap(session_.events());
    inspections.swap(session_.inspections());
  }
  // Where there is no thread to be had, this one tells of events, as a matter of need.
  if (!events.empty()) {
    auto told = std::make_shared<const std::vector<PendingEvent>>(std::move(events));
    if (!events_thread_.post([this, told] { deliver(*told); })) deliver(*told);
  }
  for (PendingInspection& one : inspections) {
    static_cast<void>(
        inspect_thread_.post([this, inspection = std::move(one)] { inspect(inspection); }));
  }
}

// Without the lock: what is called may take it, in a call of this client that does not block.
void Driver::deliver(const std::vector<PendingEvent>& events) noexcept {
  const void* const before = std::exchange(running, client_);
  for (const PendingEvent& pending : events) {
    if (!silent_) pending.signals->deliver(pending.event);
  }
  running = before;
}

void Driver::inspect(const PendingInspection& inspection) noexcept {
  try {
    running = client_;
    const std::string text = silent_ ? std::string() : inspection.signals->inspect(now_us());
    running = nullptr;
    perform(
        [&](Session& session, const Ask& ask) {
          session.inspected(ask, inspection.worker, inspection.number, text);
        },
        0);
  } catch (...) {  // there is no memory to answer with
    running = nullptr;
  }
}

void Driver::take_time() {
  const std::lock_guard lock(mutex_);
  if (broken_) return;
  const TimeUs now = now_us();
  const bool suspended = now - timer_at_us_ > kSuspendedUs;
  timer_at_us_ = kNever;
  if (suspended) return start_timer(now + 1000);
  if (now < session_.next_deadline()) return arm_timer();
  session_.on_time(now);
  settle();
}

void Driver::take_ready() {
  std::unique_lock lock(mutex_);
  const bool one_call = calls_ == nullptr || calls_->next_ == nullptr;
  const bool only_reads = !stream_->is_connecting() && !stream_->is_writing();
  if (reader_ != nullptr && one_call && only_reads) leave_to_reader(lock);
  if (broken_) return;
  std::span<const std::uint8_t> bytes;
  if (stream_->is_connecting()) {
    take_connected();
  } else if (!stream_->write_rest() || !stream_->read(bytes)) {
    disconnected();
  } else if (!bytes.empty()) {
    session_.on_bytes(connection_, bytes, now_us());
  }
  settle();
}

// The answer arrived before its caller slept, and woke the loop, too. The loop looks away for a
// moment, so that the next answers do not wake it; it comes back when no caller reads for a call,
// or when there is something that only it can do.
void Driver::leave_to_reader(std::unique_lock<std::mutex>& lock) {
  loop_reads_.wait_for(lock, kLookAway,
                       [&] { return loop_wanted_ || (reader_ == nullptr && calls_ != nullptr); });
}

void Driver::take_connected() {
  // A name may have several addresses, of which only some are served.
  if (!stream_->finish_connect()) return connect_next_address(stream_->error());
  addresses_.clear();
  const Endpoint& endpoint = target(session_.wish().endpoint).endpoint;
  if (is_tls(endpoint) && !encrypt(endpoint)) return disconnected();
  session_.on_connected(connection_, now_us());
}

bool Driver::encrypt(const Endpoint& endpoint) {
  const std::string& name = tls_.server_name.empty() ? endpoint.host : tls_.server_name;
  std::vector<std::uint8_t> first;
  auto channel = tls::Channel::connect(tls_.context, name, endpoint.text(), first);
  if (channel == nullptr) throw std::bad_alloc();
  return stream_->encrypt(std::move(channel), std::move(first));
}

// Where TLS failed, the two sides do not accept each other: asking again would not help.
void Driver::disconnected() {
  const Status status = stream_->tls_status();
  if (status != Status::kOk) {
    session_.on_refused(connection_, status, stream_->error(), now_us());
  } else {
    session_.on_disconnected(connection_, stream_->error(), now_us());
  }
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
  const bool events = !session_.events().empty() || !session_.inspections().empty();
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
  // They are delivered from there, without the lock.
  if (!session_.events().empty() || !session_.inspections().empty()) wake_loop();
}

void Driver::apply_wish() {
  while (session_.wish().number != connection_) {
    drop_connection();
    const LinkWish wish = session_.wish();
    connection_ = wish.number;
    if (wish.up) connect(target(wish.endpoint));
  }
}

// It may move the targets, and replace one: no look-up must be waited for.
Driver::Target& Driver::target(std::size_t index) {
  while (targets_.size() <= index) targets_.emplace_back();
  Target& wanted = targets_[index];
  const std::string& text = session_.endpoint(index);
  if (wanted.endpoint.text() == text) return wanted;
  // The link has learned it, so that it is well-formed.
  std::vector<Endpoint> parsed;
  std::string error;
  SYNCD_CHECK(parse_endpoints(text, parsed, error));
  wanted = {std::move(parsed.front()), nullptr};
  return wanted;
}

void Driver::connect(Target& target) {
  const Endpoint& endpoint = target.endpoint;
  sockaddr_storage address;
  if (endpoint.kind == Endpoint::Kind::kUnix) {
    unix_address(endpoint.path, address);
  } else if (!numeric_address(endpoint.host, endpoint.port, address)) {
    return look_up(target);
  }
  addresses_.assign(1, address);
  connect_next_address({});
}

void Driver::look_up(Target& target) {
  std::shared_ptr<Lookup>& lookup = target.lookup;
  std::string error;
  if (lookup == nullptr) lookup = Lookup::start(target.endpoint.host, target.endpoint.port, error);
  if (lookup == nullptr) return session_.on_disconnected(connection_, error, now_us());
  looking_up_ = &lookup;
  lookup->notify(&wake_);
}

void Driver::take_looked_up() {
  Lookup::Result result;
  if (looking_up_ == nullptr || !(*looking_up_)->take(result)) return;
  std::exchange(looking_up_, nullptr)->reset();
  addresses_ = std::move(result.addresses);
  connect_next_address(result.reason);
}

// `reason`: why there is no address left, if there is none.
void Driver::connect_next_address(std::string reason) {
  if (stream_ != nullptr) std::exchange(stream_, nullptr)->close();
  while (!addresses_.empty()) {
    const sockaddr_storage address = addresses_.front();
    addresses_.erase(addresses_.begin());
    stream_ = Stream::connect(loop_, readers_.get(), address, on_event<&Driver::take_ready>, this,
                              reason);
    if (stream_ != nullptr) return;
  }
  session_.on_disconnected(connection_, reason, now_us());
}

void Driver::drop_connection() noexcept {
  wake_reader();
  if (stream_ != nullptr) std::exchange(stream_, nullptr)->close();
  if (looking_up_ != nullptr) (*std::exchange(looking_up_, nullptr))->notify(nullptr);
  addresses_.clear();
}

void Driver::flush() {
  if (session_.output().empty() || stream_ == nullptr || stream_->is_connecting()) return;
  if (!stream_->write(session_.output())) disconnected();
}

void Driver::deliver() {
  std::vector<Completion>& ended = session_.completions();
  if (ended.empty()) return;
  for (Completion& completion : ended) finish(call_of(completion.op), std::move(completion));
  ended.clear();
}

// The call is gone afterwards, but for that of a thread that waits.
void Driver::finish(Call& call, Completion&& completion) noexcept {
  (call.previous_ != nullptr ? call.previous_->next_ : calls_) = call.next_;
  if (call.next_ != nullptr) call.next_->previous_ = call.previous_;
  if (reader_ == &call) wake_reader();
  call.finish(std::move(completion));
}

// A timer that is due too early only looks again, so that the usual exchange, which moves the next
// heartbeat a little, does not touch the timer at all.
void Driver::arm_timer() {
  const TimeUs at_us = session_.next_deadline();
  if (at_us < timer_at_us_) start_timer(at_us);
}

void Driver::start_timer(TimeUs at_us) {
  timer_at_us_ = at_us;
  const TimeUs wait_us = std::max<TimeUs>(at_us - now_us(), 0);
  uv_update_time(&loop_);
  uv_timer_start(
      &timer_, [](uv_timer_t* handle) { on_event<&Driver::take_time>(handle->data); },
      static_cast<std::uint64_t>(wait_us + 999) / 1000, 0);
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
