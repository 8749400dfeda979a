// The daemon's edge; see the header. Loop thread.
#include "daemon/edge/net/network.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "daemon/edge/net/loop_guard.h"

namespace syncd::net {
namespace {

constexpr std::size_t kReadBufferBytes = 64 * 1024;

// How long accepting pauses when descriptors have run out.
constexpr std::uint64_t kAcceptPauseMs = 250;
// Entries of the wheel that stand for resuming, and for the end of a second of warnings, rather
// than for a connection, whose ids are larger.
constexpr std::uint64_t kResumeEntry = 0;
constexpr std::uint64_t kWarningsEntry = 1;
constexpr std::uint64_t kWarningsMs = 1000;
// Some hundred microseconds' work.
constexpr std::size_t kChargedTogether = 128;
// A timer this late means that the process did not run: see check_deadlines().
constexpr std::uint64_t kStallMs = 100;

std::uint64_t resolution_for(const ConnectionLimits& limits) {
  const std::uint64_t shortest = std::min({limits.handshake_timeout_ms, limits.idle_timeout_ms,
                                           limits.write_timeout_ms, limits.linger_ms});
  return std::clamp<std::uint64_t>(shortest / 10, 1, 100);
}

SessionTerms terms_for(const NetworkOptions& options) {
  SessionTerms terms;
  terms.server_version = options.server_version;
  terms.shard = options.shard;
  terms.shards = options.shards;
  terms.frame_bytes_max = static_cast<std::uint32_t>(options.connection.frame_bytes_max);
  terms.heartbeat_timeout_ms = static_cast<std::uint32_t>(
      std::min(options.connection.idle_timeout_ms, options.silence_max_ms));
  // Four chances to be heard before the timeout, so that one late packet cuts nobody off.
  terms.heartbeat_interval_ms = std::max<std::uint32_t>(1, terms.heartbeat_timeout_ms / 4);
  return terms;
}

std::string seconds(std::uint64_t ms) {
  return format_duration(static_cast<std::int64_t>(ms) * 1000);
}

}  // namespace

Network::Network(uv_loop_t* loop, NetworkOptions options, FrameHandler& handler)
    : loop_(loop),
      options_(std::move(options)),
      terms_(terms_for(options_)),
      handler_(handler),
      meter_(options_.clocks),
      read_buffer_(kReadBufferBytes),
      wheel_(resolution_for(options_.connection)) {}

Network::~Network() = default;

void Network::open() {
  // None of these can fail: they only fill the handle in.
  uv_prepare_init(loop_, &prepare_);
  uv_check_init(loop_, &check_);
  uv_timer_init(loop_, &timer_);
  uv_idle_init(loop_, &idle_);
  prepare_.data = check_.data = timer_.data = idle_.data = this;
  own_handles_ = 4;
  // After polling, for what the polling brought; before it, for what timers and closings brought.
  uv_check_start(&check_, guarded([](uv_check_t* handle) {
    auto* self = static_cast<Network*>(handle->data);
    self->end_of_turn();
    self->budget_.next_turn();
  }));
  uv_prepare_start(&prepare_, guarded([](uv_prepare_t* handle) {
    static_cast<Network*>(handle->data)->end_of_turn();
  }));
}

bool Network::listen(ListenSocket socket, std::string& error) {
  Listener* listener = Listener::open(
      loop_, std::move(socket), [this](Accepted accepted) { on_accept(std::move(accepted)); },
      [this](int code) { on_shortage(code); }, error);
  if (listener == nullptr) return false;
  listeners_.push_back(listener);
  return true;
}

std::vector<std::string> Network::endpoints(bool control) const {
  std::vector<std::string> all;
  for (const Listener* listener : listeners_) {
    if (listener->is_control() == control) all.push_back(listener->endpoint());
  }
  return all;
}

// ---- newcomers
// ------------------------------------------------------------------------------------

ConnectionId Network::take_slot() {
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.push_back(nullptr);
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return (next_serial_++ << kSlotBits) | slot;
}

void Network::on_accept(Accepted accepted) {
  if (!has_room(accepted)) return;
  make_room();
  const ConnectionId id = take_slot();
  std::string error;
  const std::shared_ptr<tls::Context> plain;
  const std::shared_ptr<tls::Context>& tls = accepted.is_tcp ? tls_ : plain;
  Connection* connection =
      Connection::open(loop_, *this, options_.connection, id, std::move(accepted), tls, error);
  if (connection == nullptr) {
    free_slots_.push_back(static_cast<std::uint32_t>(id & kSlotMask));
    log(LogLevel::kWarn, "connection_failed", nullptr, {{"reason", error}});
    return;
  }
  ++stats_.accepted;
  slots_[id & kSlotMask] = connection;
  ++connection_count_;
  if (connection->accepted().is_tcp) ++per_machine_[connection->accepted().machine];
  unintroduced_.insert(id);
  ++unintroduced_of_[source_of(connection->accepted())];
  on_deadline_moved(*connection);
}

void Network::on_shortage(int code) {
  if (!accepting_paused_) {
    log(LogLevel::kWarn, "accepting_paused", nullptr,
        {{"reason", std::strerror(code)},
         {"connections", std::to_string(connection_count_)},
         {"hint", "raise the limit of open files (LimitNOFILE=, ulimit -n)"}});
  }
  accepting_paused_ = true;
  for (Listener* listener : listeners_) listener->pause();
  wheel_.add(kResumeEntry, uv_now(loop_) + kAcceptPauseMs);
  arm_timer();
}

void Network::resume_accepting() {
  if (!accepting_paused_) return;
  accepting_paused_ = false;
  for (Listener* listener : listeners_) listener->resume();
}

// ---- frames in
// --------------------------------------------------------------------------------------

// Many hot messages are charged for at once, unless one has many answers: it may have released a
// barrier.
bool Network::on_payload(Connection& connection, std::span<const std::uint8_t> payload) {
  ++stats_.frames_in;
  stats_.bytes_in += payload.size() + sizeof(std::uint32_t);
  wire::read_hot(payload, hot_);
  if (hot_.kind == wire::Hot::kNone || hot_.id == 0 || connection.client_share == nullptr) {
    return take_message(connection, payload);
  }
  if (uncharged_++ == 0) {
    meter_.begin();
    frames_out_before_ = stats_.frames_out;
  }
  handler_.on_hot(connection.id(), connection.identity, hot_, meter_.begun_ns());
  if (uncharged_ < kChargedTogether &&
      stats_.frames_out - frames_out_before_ <= 2 * kChargedTogether) {
    return false;
  }
  charge(connection);
  return true;
}

bool Network::take_message(Connection& connection, std::span<const std::uint8_t> payload) {
  if (connection.client_share == nullptr) {
    if (decode(connection, payload)) shake_hands(connection, message_);
    return true;
  }
  if (uncharged_ == 0) meter_.begin();
  if (decode(connection, payload)) dispatch(connection);
  charge(connection);
  return true;
}

void Network::charge(Connection& connection) {
  uncharged_ = 0;
  budget_.spend(connection.turn_share, *connection.client_share, meter_.end());
}

void Network::on_read_end(Connection& connection) {
  if (uncharged_ > 0) charge(connection);
}

bool Network::decode(Connection& connection, std::span<const std::uint8_t> payload) {
  if (wire::decode(payload, message_, error_)) return true;
  fail(connection, Status::kProtocol, error_);
  return false;
}

bool Network::must_wait(const Connection& connection) {
  return connection.client_share != nullptr &&
         budget_.is_spent(connection.turn_share, *connection.client_share);
}

void Network::on_held(Connection& connection) {
  ++stats_.held;
  held_.push_back(connection.id());
  if (held_.size() == 1) {
    uv_idle_start(&idle_, guarded([](uv_idle_t* handle) {
      static_cast<Network*>(handle->data)->resume_held();
    }));
  }
}

// Before the others are looked at: what these have used up of their clients' parts is not there for
// more of the same.
void Network::resume_held() {
  for (std::size_t count = held_.size(); count > 0; --count) {
    const ConnectionId id = held_.front();
    held_.pop_front();
    Connection* connection = find(id);
    if (connection == nullptr || !connection->held() || !connection->usable()) continue;
    if (must_wait(*connection)) {
      held_.push_back(id);
      continue;
    }
    connection->resume();
    if (!connection->held()) on_deadline_moved(*connection);
  }
  if (held_.empty()) uv_idle_stop(&idle_);
}

// Who it is, for its part of each turn; of whom nothing is known, where they come from.
void Network::share_turn(Connection& connection) {
  const Identity& identity = connection.identity;
  const std::vector<std::string> names = identity.counted();
  const std::string who = identity.is_owner ? "owner"
                          : names.empty()   ? "machine " + connection.accepted().machine
                                            : names.front();
  std::weak_ptr<TurnBudget::Share>& known = shares_[who];
  connection.client_share = known.lock();
  if (connection.client_share == nullptr) {
    connection.client_share = std::make_shared<TurnBudget::Share>();
    known = connection.client_share;
  }
  // Those whose last connection has gone.
  if (shares_.size() > 2 * connection_count_ + 16) {
    std::erase_if(shares_, [](const auto& entry) { return entry.second.expired(); });
  }
}

void Network::shake_hands(Connection& connection, const wire::Message& message) {
  const auto* hello = std::get_if<wire::Hello>(&message.body);
  if (hello == nullptr) {
    fail(connection, Status::kProtocol,
         "the first message is of type " + std::string(wire::body_name(message.body)) +
             ": a connection begins with Hello");
    return;
  }
  if (!admit(connection, *hello)) return;
  const auto answer = negotiate(*hello, terms_, connection.id());
  if (const auto* error = std::get_if<wire::Error>(&answer)) {
    fail(connection, error->status, error->message);
    return;
  }
  if (hello->shard >= 0 && static_cast<std::uint32_t>(hello->shard) != terms_.shard) {
    return send_elsewhere(connection, message.id, static_cast<std::uint32_t>(hello->shard));
  }
  if (!has_room_for(connection)) return;
  share_turn(connection);
  connection.established();
  no_longer_unintroduced(connection);
  on_deadline_moved(connection);  // from the handshake's to the session's own, which may be earlier
  ++stats_.sessions;
  log(LogLevel::kDebug, "session_opened", &connection,
      {{"client", hello->client_name},
       {"version", hello->client_version},
       {"identity", connection.identity.text()}});
  append(connection, message.id, std::get<wire::Welcome>(answer));
}

void Network::send_elsewhere(Connection& connection, RequestId id, std::uint32_t shard) {
  wire::Redirect redirect = handler_.whereabouts(shard);
  log(LogLevel::kDebug, "sent_elsewhere", &connection,
      {{"shard", std::to_string(shard)}, {"to", redirect.addresses}});
  encoder_.append(id, std::move(redirect), connection.out());
  ++stats_.frames_out;
  connection.finish(uv_now(loop_) + options_.connection.linger_ms);
}

bool Network::admit(Connection& connection, const wire::Hello& hello) {
  if (admission_ == nullptr) return true;
  Applicant applicant;
  applicant.is_tcp = connection.accepted().is_tcp;
  applicant.uid = connection.accepted().uid;
  applicant.gid = connection.accepted().gid;
  applicant.groups = connection.accepted().groups;
  applicant.certificate_names = connection.certificate_names();
  applicant.certificate_digest = connection.certificate_digest();
  applicant.token = hello.token;
  std::string why;
  if (admission_->admit(applicant, connection.identity, why)) return true;
  fail(connection, Status::kAuth, why, Refusal::kAuth);
  return false;
}

// One tenant must not take every place. Those of whom nothing is known are counted by machine.
bool Network::has_room_for(Connection& connection) {
  if (connection.identity.is_owner) return true;
  const std::vector<std::string> names = connection.identity.counted();
  for (const std::string& name : names) {
    const auto found = per_identity_.find(name);
    if (found == per_identity_.end() || found->second < options_.connections_per_identity_max) {
      continue;
    }
    fail(connection, Status::kLimit,
         "this daemon serves " + std::to_string(found->second) + " connections of '" + name +
             "' already, the most allowed (limits.connections_per_identity_max)",
         Refusal::kIdentityMax);
    return false;
  }
  for (const std::string& name : names) ++per_identity_[name];
  return true;
}

const Identity* Network::identity(ConnectionId id) const {
  const Connection* connection = find(id);
  return connection != nullptr && connection->was_established() ? &connection->identity : nullptr;
}

bool Network::over_control(ConnectionId id) const {
  const Connection* connection = find(id);
  return connection != nullptr && connection->accepted().is_control;
}

bool Network::is_here(ConnectionId id) const {
  const Connection* connection = find(id);
  if (connection == nullptr) return false;
  const std::string& peer = connection->accepted().peer;
  return !connection->accepted().is_tcp || peer.starts_with("127.") || peer.starts_with("[::1]");
}

void Network::lower_idle_timeout(ConnectionId id, std::uint64_t ms) {
  Connection* connection = find(id);
  if (connection == nullptr) return;
  connection->lower_idle_timeout(ms);
  on_deadline_moved(*connection);
}

std::string Network::peer(ConnectionId id) const {
  const Connection* connection = find(id);
  return connection != nullptr ? connection->peer() : std::string{};
}

void Network::dispatch(Connection& connection) {
  switch (route(message_, error_)) {
    case Route::kHandler:
      handler_.on_message(connection.id(), std::move(message_));
      break;
    case Route::kHeartbeat:
      append(connection, message_.id, wire::HeartbeatAck{});
      break;
    case Route::kIgnore:
      break;
    case Route::kUnsupported:
      append(connection, message_.id,
             wire::Error{Status::kUnsupported,
                         "this daemon does not know requests of type " +
                             std::to_string(std::get<wire::Unknown>(message_.body).type)});
      break;
    case Route::kBroken:
      fail(connection, Status::kProtocol, error_);
      break;
  }
}

void Network::on_broken(Connection& connection, Status status, const std::string& text) {
  fail(connection, status, text, status == Status::kAuth ? Refusal::kAuth : Refusal::kProtocol);
}

// ---- frames out
// -------------------------------------------------------------------------------------

void Network::send(ConnectionId to, RequestId id, const wire::Body& body) {
  Connection* connection = find(to);
  if (connection != nullptr && connection->usable()) append(*connection, id, body);
}

void Network::append(Connection& connection, RequestId id, const wire::Body& body) {
  OutBuffer& out = connection.out();
  const std::size_t before = out.size();
  const std::size_t capacity = out.capacity();
  encoder_.append(id, body, out);
  if (out.size() - before > options_.connection.frame_bytes_max + sizeof(std::uint32_t)) {
    replace_too_large(connection, id, body, before);
  }
  ++stats_.frames_out;
  stats_.bytes_out += out.size() - before;
  if (connection.outbound_bytes() > options_.outbound_bytes_max) return end_slow_reader(connection);
  if (out.capacity() != capacity) on_buffered(connection);
  if (!connection.dirty && connection.usable()) on_output(connection);
}

void Network::replace_too_large(Connection& connection, RequestId id, const wire::Body& body,
                                std::size_t before) {
  OutBuffer& out = connection.out();
  const std::size_t payload = out.size() - before - sizeof(std::uint32_t);
  const std::string text = "the answer has " + std::to_string(payload) + " bytes, more than the " +
                           std::to_string(options_.connection.frame_bytes_max) +
                           " that a frame may have: ask for less at once";
  out.shrink(before);
  encoder_.append(id, wire::Error{Status::kLimit, text}, out);
  log(LogLevel::kWarn, "answer_too_large", &connection,
      {{"type", std::string(wire::body_name(body))}, {"bytes", std::to_string(payload)}});
}

void Network::end_slow_reader(Connection& connection) {
  count(Refusal::kSlowReader);
  end(connection,
      "slow reader: " + std::to_string(connection.outbound_bytes()) +
          " bytes wait to be read by it, allowed are " +
          std::to_string(options_.outbound_bytes_max),
      LogLevel::kWarn);
}

// A connection within the floor is never closed for what other connections hold.
void Network::on_buffered(Connection& connection) {
  const std::size_t bytes = connection.buffered_bytes();
  const bool grows = bytes > connection.counted_bytes;
  buffered_bytes_ += bytes - connection.counted_bytes;
  connection.counted_bytes = bytes;
  if (!grows || buffered_bytes_ <= options_.buffered_bytes_max ||
      bytes <= limits::kBufferedFloorBytes || connection.state() == Connection::State::kClosed) {
    return;
  }
  count(Refusal::kBuffers);
  end(connection,
      "its buffers hold " + std::to_string(bytes) + " bytes, and those of all connections " +
          std::to_string(buffered_bytes_) + ", where " +
          std::to_string(options_.buffered_bytes_max) + " are allowed: those with more than " +
          std::to_string(limits::kBufferedFloorBytes) + " are cut off",
      LogLevel::kWarn);
}

void Network::on_output(Connection& connection) {
  if (connection.dirty) return;
  connection.dirty = true;
  dirty_.push_back(connection.id());
}

void Network::end_of_turn() {
  handler_.on_turn_end();
  // A flush may end a connection but queues nothing new; what on_closed() brings comes next turn.
  flushing_.swap(dirty_);
  for (const ConnectionId id : flushing_) {
    Connection* connection = find(id);
    if (connection == nullptr) continue;
    connection->dirty = false;
    ++stats_.writes;
    connection->flush();
    on_buffered(*connection);
  }
  flushing_.clear();
}

// ---- endings
// ------------------------------------------------------------------------------------------

// The client broke a rule: it is told which, and only its connection ends.
void Network::fail(Connection& connection, Status status, const std::string& text, Refusal why) {
  if (!connection.usable()) return;
  count(why);
  log(LogLevel::kWarn, "connection_rejected", &connection,
      {{"status", std::string(status_name(status))}, {"reason", text}});
  encoder_.append(0, wire::Error{status, text}, connection.out());
  ++stats_.frames_out;
  // Answers to earlier requests of the same turn lie in the same buffer: they may go only after the
  // handler has had its say.
  handler_.on_turn_end();
  connection.finish(uv_now(loop_) + options_.connection.linger_ms);
}

void Network::end(Connection& connection, const std::string& reason, LogLevel level) {
  log(level, "connection_closed", &connection, {{"reason", reason}});
  connection.closed_why = reason;
  connection.close();
}

void Network::on_lost(Connection& connection, const std::string& reason, bool by_peer) {
  log(LogLevel::kDebug, "connection_closed", &connection, {{"reason", reason}});
  connection.closed_why = reason;
  connection.closed_by_peer = by_peer;
}

void Network::close(ConnectionId id, const std::string& reason) {
  Connection* connection = find(id);
  if (connection != nullptr && connection->usable()) end(*connection, reason, LogLevel::kInfo);
}

void Network::on_gone(Connection& connection) {
  const ConnectionId id = connection.id();
  slots_[id & kSlotMask] = nullptr;
  free_slots_.push_back(static_cast<std::uint32_t>(id & kSlotMask));
  --connection_count_;
  buffered_bytes_ -= connection.counted_bytes;
  no_longer_unintroduced(connection);
  if (const auto found = per_machine_.find(connection.accepted().machine);
      connection.accepted().is_tcp && found != per_machine_.end() && --found->second == 0) {
    per_machine_.erase(found);
  }
  if (connection_count_ == 0 || connection.was_established()) limit_reported_ = false;
  if (connection.was_established()) {
    --stats_.sessions;
    for (const std::string& name : connection.identity.counted()) {
      const auto found = per_identity_.find(name);  // of the daemon's own user there is none
      if (found != per_identity_.end() && !connection.identity.is_owner && --found->second == 0) {
        per_identity_.erase(found);
      }
    }
    handler_.on_closed(id, connection.closed_why, connection.closed_by_peer);
  }
  close_own_handles_if_done();
}

// ---- deadlines
// ------------------------------------------------------------------------------------------

void Network::on_deadline_moved(Connection& connection) {
  const std::uint64_t at = connection.deadline_ms();
  if (at == UINT64_MAX) return;
  if (connection.scheduled_ms != 0 && connection.scheduled_ms <= at) return;
  connection.scheduled_ms = wheel_.add(connection.id(), at);
  arm_timer();
}

void Network::arm_timer() {
  const std::uint64_t next = wheel_.next_ms();
  if (next >= armed_ms_ || next == DeadlineWheel::kNone) return;
  armed_ms_ = next;
  const std::uint64_t now = uv_now(loop_);
  uv_timer_start(&timer_, guarded([](uv_timer_t* timer) {
    static_cast<Network*>(timer->data)->check_deadlines(false);
  }),
                 next > now ? next - now : 0, 0);
}

// When the process was stopped or starved, everybody looks silent although their bytes are waiting
// in the kernel. So a late check is put off until the sockets have been polled once more.
void Network::check_deadlines(bool after_poll) {
  const std::uint64_t now = uv_now(loop_);
  if (!after_poll && now > armed_ms_ + kStallMs) {
    uv_timer_start(&timer_, guarded([](uv_timer_t* timer) {
      static_cast<Network*>(timer->data)->check_deadlines(true);
    }),
                   1, 0);
    return;
  }
  armed_ms_ = DeadlineWheel::kNone;
  std::uint64_t slot = 0;
  std::vector<std::uint64_t> ids;
  while (wheel_.pop(now, slot, ids)) {
    for (const std::uint64_t id : ids) {
      if (id == kResumeEntry) resume_accepting();
      if (id == kWarningsEntry) tell_of_lines_left_out();
      Connection* connection = find(id);
      if (connection == nullptr || connection->scheduled_ms != slot) continue;
      connection->scheduled_ms = 0;
      on_expired(*connection, connection->expired(now));
    }
  }
  arm_timer();
}

void Network::on_expired(Connection& connection, Connection::Expired what) {
  switch (what) {
    case Connection::Expired::kNothing:
      on_deadline_moved(connection);
      return;
    case Connection::Expired::kHandshake:
      fail(connection, Status::kProtocol,
           "no Hello came within " + seconds(options_.connection.handshake_timeout_ms),
           Refusal::kHandshakeTimeout);
      return;
    case Connection::Expired::kIdle: {
      const bool as_set = connection.idle_timeout_ms() == options_.connection.idle_timeout_ms;
      const std::string text =
          "nothing came for " + seconds(connection.idle_timeout_ms()) +
          (as_set ? " (timeouts.heartbeat_timeout)" : ", which its workers' jobs allow at most");
      encoder_.append(0, wire::Error{Status::kTimeout, text}, connection.out());
      connection.flush();
      end(connection, text, LogLevel::kWarn);
      return;
    }
    case Connection::Expired::kWrite:
      count(Refusal::kSlowReader);
      end(connection,
          "slow reader: it took nothing for " + seconds(options_.connection.write_timeout_ms),
          LogLevel::kWarn);
      return;
    case Connection::Expired::kFinish:
      connection.close();
      return;
  }
}

// ---- shutting down
// ------------------------------------------------------------------------------------------

void Network::stop_accepting() {
  listeners_closing_ += listeners_.size();
  for (Listener* listener : listeners_) {
    listener->close([this] {
      --listeners_closing_;
      close_own_handles_if_done();
    });
  }
  listeners_.clear();
}

void Network::shutdown(const std::string& message, std::uint64_t timeout_ms,
                       std::function<void()> on_done) {
  shutting_down_ = true;
  on_done_ = std::move(on_done);
  stop_accepting();
  const std::uint64_t deadline = uv_now(loop_) + timeout_ms;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    Connection* connection = slots_[slot];
    if (connection == nullptr || !connection->usable()) continue;
    if (connection->state() == Connection::State::kOpen) {
      encoder_.append(0, wire::ShutdownNotice{message}, connection->out());
      ++stats_.frames_out;
    }
    connection->finish(deadline);
  }
  close_own_handles_if_done();
}

void Network::close_own_handles_if_done() {
  if (!shutting_down_ || connection_count_ != 0 || listeners_closing_ != 0) return;
  shutting_down_ = false;  // once
  tell_of_lines_left_out();
  const auto close = [](auto& handle) {
    uv_close(reinterpret_cast<uv_handle_t*>(&handle), guarded([](uv_handle_t* closed) {
               auto* self = static_cast<Network*>(closed->data);
               if (--self->own_handles_ > 0) return;
               // Last, because it may destroy the network.
               const std::function<void()> done = std::move(self->on_done_);
               if (done) done();
             }));
  };
  close(prepare_);
  close(check_);
  close(idle_);
  close(timer_);
}

// ---- log
// ------------------------------------------------------------------------------------------------------

void Network::log(LogLevel level, std::string event, const Connection* connection,
                  std::vector<std::pair<std::string, std::string>> fields) {
  if (level == LogLevel::kWarn && !has_line_left(event)) level = LogLevel::kDebug;
  LogLine line{level, std::move(event), {}};
  if (connection != nullptr) {
    line.fields.emplace_back("connection", std::to_string(connection->id()));
    line.fields.emplace_back("peer", connection->peer());
  }
  for (auto& field : fields) line.fields.push_back(std::move(field));
  handler_.on_log(std::move(line));
}

// Somebody without any right can be turned away a thousand times a second: the log must neither
// fill the disk nor bury what else stands in it.
bool Network::has_line_left(const std::string& event, const std::string& identity) {
  if (warnings_.empty()) {
    wheel_.add(kWarningsEntry, uv_now(loop_) + kWarningsMs);
    arm_timer();
  }
  return ++warnings_[{event, identity}] <= kWarnLinesPerSecond;
}

void Network::tell_of_lines_left_out() {
  for (const auto& [of, lines] : warnings_) {
    if (lines <= kWarnLinesPerSecond) continue;
    const auto& [event, identity] = of;
    LogLine line{LogLevel::kWarn, "log_lines_left_out", {{"event", event}}};
    if (!identity.empty()) line.fields.emplace_back("identity", identity);
    line.fields.emplace_back("lines", std::to_string(lines - kWarnLinesPerSecond));
    line.fields.emplace_back("within", seconds(kWarningsMs));
    line.fields.emplace_back("hint", "log.level = \"debug\" shows them all");
    handler_.on_log(std::move(line));
  }
  warnings_.clear();
}

}  // namespace syncd::net
