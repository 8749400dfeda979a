// The connection's state machine. Runs on whatever thread drives the session; one at a time.
#include "libclient/link.h"

#include <algorithm>
#include <utility>

#include "libclient/endpoint.h"
#include "proto/base/check.h"
#include "proto/base/plain_text.h"
#include "proto/base/shard.h"
#include "proto/base/text.h"
#include "proto/wire/hot.h"

namespace syncd::client {
namespace {

// The daemon's own requests to us carry ids of its own; our Hello is the first request.
constexpr std::uint64_t kHelloId = 1;

constexpr unsigned kDoublingsMax = 16;  // far past any maximum, and no overflow

// With several daemons, so that a sentence about all of them stays readable.
constexpr std::size_t kCauseBytesMax = 200;

// What is shown of an address that a daemon named and that is none.
constexpr std::size_t kAddressBytesMax = 60;

// Without half a character of UTF-8 at its end.
std::string_view shortened(std::string_view text, std::size_t bytes_max = kCauseBytesMax) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

std::string protocol_range() {
  return std::to_string(kProtocolMin) + " to " + std::to_string(kProtocolMax);
}

bool is_tls(const std::string& endpoint) {
  return endpoint.starts_with("tls:");
}

// Of a span that may be 0, for never: long enough, and not too long to be added to a time.
TimeUs us(std::uint32_t span_ms) {
  return span_ms != 0 ? TimeUs{span_ms} * 1000 : kNever / 2;
}

}  // namespace

Link::Link(LinkOptions options, Listener& listener, TimeUs now)
    : options_(std::move(options)),
      given_(options_.endpoints.size()),
      tls_only_(std::any_of(options_.endpoints.begin(), options_.endpoints.end(), is_tls)),
      listener_(listener),
      random_(options_.seed),
      down_since_us_(now),
      errors_(options_.endpoints.size()) {
  start_attempt(now);
}

// ---- Attempts and back-off ---------------------------------------------------------------------

void Link::start_attempt(TimeUs now) {
  phase_ = Phase::kConnecting;
  wish_.number += 1;
  wish_.up = true;
  attempt_started_us_ = now;
  deadline_us_ = add(now, attempt_limit_us());
  output_.shrink(0);
  splitter_ = wire::FrameSplitter();
}

void Link::wait_for_retry(TimeUs delay_us, TimeUs now) {
  if (delay_us == 0) return start_attempt(now);
  phase_ = Phase::kWaiting;
  wish_.number += 1;
  wish_.up = false;
  deadline_us_ = add(now, delay_us);
  output_.shrink(0);
}

// The other endpoints of one daemon are tried without delay: waiting would only help if the same
// one were asked again. After a whole round comes the back-off.
void Link::end_attempt(std::string_view reason, TimeUs now) {
  errors_[wish_.endpoint] = reason;
  if (follow_next(now)) return;
  go_on_after(round_at_);
  tried_in_round_ += 1;
  if (tried_in_round_ < options_.endpoints.size()) {
    wait_for_retry(spacing_us(now), now);
    return;
  }
  tried_in_round_ = 0;
  follows_ = 0;
  first_round_ = false;
  const std::optional<Refusal> refusal = std::exchange(refusal_in_round_, std::nullopt);
  // A slow daemon that was given up early may still take us.
  if (!std::exchange(round_cut_short_, false)) {
    tried_all_ = true;
    refusal_ = refusal;
  }
  wait_for_retry(std::max(next_delay_us(), std::exchange(retry_after_us_, 0)), now);
}

// An endpoint's turn is over when nothing is left to follow.
bool Link::follow_next(TimeUs now) {
  if (to_follow_.empty()) return false;
  if (follows_ == kFollowsMax) {
    to_follow_.clear();
    return false;
  }
  follows_ += 1;
  wish_.endpoint = to_follow_.back();
  to_follow_.pop_back();
  start_attempt(now);
  return true;
}

void Link::go_on_after(std::size_t endpoint) {
  round_at_ = (endpoint + 1) % options_.endpoints.size();
  wish_.endpoint = round_at_;
}

void Link::time_out(std::string_view what, TimeUs now) {
  const TimeUs limit_us = attempt_limit_us();
  if (limit_us < attempt_limit_max_us()) round_cut_short_ = true;
  const bool whole = limit_us % 1'000'000 == 0;
  fail(std::string(what) + " within " +
           (whole ? std::to_string(limit_us / 1'000'000) + " s"
                  : std::to_string(limit_us / 1'000) + " ms"),
       now);
}

TimeUs Link::attempt_limit_max_us() const {
  const bool is_short = options_.several_daemons && phase_ == Phase::kConnecting;
  return is_short ? kConnectTimeoutUs : kHandshakeTimeoutUs;
}

TimeUs Link::attempt_limit_us() const {
  const TimeUs max_us = attempt_limit_max_us();
  if (!options_.several_daemons) return max_us;
  const unsigned rounds = phase_ == Phase::kConnecting ? kFirstRounds
                          : wish_.endpoint == silent_  ? kSilentRounds
                                                       : 0;
  if (was_up_ && failures_ < rounds) return kFailoverTimeoutUs;
  return std::min(max_us, kFirstHandshakeTimeoutUs << std::min(failures_, kDoublingsMax));
}

// Until the next attempt of this round. A client that starts goes through its list at once.
TimeUs Link::spacing_us(TimeUs now) const {
  if (!options_.several_daemons || first_round_) return 0;
  return std::max<TimeUs>(add(attempt_started_us_, kEndpointSpacingUs) - now, 0);
}

// A connection that was of no use and broke at once counts as one more failure in a row, so that a
// daemon which accepts and then drops us is not asked in a tight loop, and nobody waits for it for
// longer than reconnect_timeout.
void Link::end_connection(std::string_view reason, TimeUs now) {
  const bool useful = progress_ || now - up_since_us_ >= kBackoffMaxUs;
  if (useful) {
    failures_ = 0;
    down_since_us_ = now;
    std::fill(errors_.begin(), errors_.end(), std::string());
  }
  errors_[wish_.endpoint] = drain_reason_.empty()
                                ? std::string(reason)
                                : drain_reason_ + " (" + std::string(reason) + ")";
  // Of several daemons, the one that fell silent is tried last: it may have died.
  if (!useful || options_.several_daemons) go_on_after(wish_.endpoint);
  drain_reason_.clear();
  tried_in_round_ = 0;
  // The daemon keeps the place of a worker whose connection has closed for a short while only. Not
  // again and again, for a daemon that takes us and drops us.
  const bool at_once = useful && now - last_at_once_us_ >= kBackoffMaxUs;
  if (at_once) last_at_once_us_ = now;
  wait_for_retry(at_once ? 0 : next_delay_us(), now);
  listener_.link_down();
}

TimeUs Link::next_delay_us() {
  const TimeUs max = !options_.several_daemons  ? kBackoffMaxUs
                     : failures_ < kFirstRounds ? kFirstRoundsPauseMaxUs
                                                : kRoundPauseMaxUs;
  const TimeUs base = std::min(max, kBackoffMinUs << std::min(failures_, kDoublingsMax));
  failures_ += 1;
  const TimeUs half = base / 2;
  return base - static_cast<TimeUs>(next_random() % static_cast<std::uint64_t>(half + 1));
}

// splitmix64: small, and the same on every platform for a seed.
std::uint64_t Link::next_random() {
  random_ += 0x9e3779b97f4a7c15U;
  std::uint64_t mixed = random_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31);
}

// ---- What the transport reports ----------------------------------------------------------------

void Link::on_connected(std::uint64_t number, TimeUs now) {
  if (number != wish_.number || phase_ != Phase::kConnecting) return;
  phase_ = Phase::kHandshake;
  deadline_us_ = add(attempt_started_us_, attempt_limit_us());
  wire::Hello hello;
  hello.protocol_min = kProtocolMin;
  hello.protocol_max = kProtocolMax;
  hello.client_name = options_.client_name;
  hello.client_version = options_.client_version;
  hello.token = options_.token;
  hello.shard = options_.shard;
  send(kHelloId, hello, now);
}

void Link::on_bytes(std::uint64_t number, std::span<const std::uint8_t> bytes, TimeUs now) {
  if (number != wish_.number || (phase_ != Phase::kHandshake && phase_ != Phase::kUp)) return;
  last_received_us_ = now;
  // Most reads are one frame, of a kind that is read where it lies.
  if (splitter_.pending_bytes() == 0 && wire::is_one_frame(bytes) &&
      wire::decode_hot(bytes.subspan(sizeof(std::uint32_t)), scratch_)) {
    return handle(scratch_, now);
  }
  take_bytes(bytes, now);
}

void Link::take_bytes(std::span<const std::uint8_t> bytes, TimeUs now) {
  std::span<const std::uint8_t> payload;
  std::string error;
  const std::uint64_t number = wish_.number;
  splitter_.append(bytes);
  // A handled frame may end this connection; what came after it is then void.
  while (number == wish_.number) {
    const auto result = splitter_.next(payload, error);
    if (result == wire::FrameSplitter::Result::kNeedMore) return;
    if (result == wire::FrameSplitter::Result::kError || !wire::decode(payload, scratch_, error)) {
      fail("the daemon sent something that is not a message: " + error, now);
      return;
    }
    handle(scratch_, now);
  }
}

void Link::on_disconnected(std::uint64_t number, std::string_view reason, TimeUs now) {
  if (number != wish_.number || !wish_.up) return;
  fail(reason, now);
}

void Link::on_refused(std::uint64_t number, Status status, std::string_view reason, TimeUs now) {
  if (number != wish_.number || !wish_.up) return;
  if (phase_ == Phase::kUp) {
    fail(reason, now);
  } else {
    refused(status, std::string(reason), now);
  }
}

void Link::fail(std::string_view reason, TimeUs now) {
  if (phase_ == Phase::kUp) return end_connection(reason, now);
  if (phase_ == Phase::kConnecting || phase_ == Phase::kHandshake) end_attempt(reason, now);
}

void Link::drain(std::string_view reason, TimeUs now) {
  if (!usable()) return;
  drain_reason_ = "the daemon is shutting down";
  if (!reason.empty()) drain_reason_.append(": ").append(reason);
  deadline_us_ = add(now, kDrainTimeoutUs);
}

void Link::close() {
  phase_ = Phase::kClosed;
  deadline_us_ = kNever;
  wish_.number += 1;
  wish_.up = false;
  output_.shrink(0);
}

// ---- Messages ----------------------------------------------------------------------------------

void Link::send(std::uint64_t id, const wire::Body& body, TimeUs now) {
  SYNCD_CHECK(phase_ == Phase::kUp || phase_ == Phase::kHandshake);
  try {
    encoder_.append(id, body, output_);
  } catch (...) {
    encoder_ = wire::Encoder();  // one that ran out of memory has lost count of what it has
    throw;
  }
  last_sent_us_ = now;
}

void Link::handle(const wire::Message& message, TimeUs now) {
  if (phase_ == Phase::kHandshake) return handshake(message, now);
  if (std::holds_alternative<wire::Heartbeat>(message.body)) {
    send(message.id, wire::HeartbeatAck{}, now);
    return;
  }
  if (std::holds_alternative<wire::HeartbeatAck>(message.body)) return;
  const auto* error = std::get_if<wire::Error>(&message.body);
  if (error != nullptr && message.id == 0) {  // not about a request: about this connection
    fail("the daemon ended the connection: " + error->message, now);
    return;
  }
  listener_.link_message(message);
}

void Link::handshake(const wire::Message& message, TimeUs now) {
  if (const auto* welcome = std::get_if<wire::Welcome>(&message.body)) {
    welcomed(*welcome, now);
  } else if (const auto* redirect = std::get_if<wire::Redirect>(&message.body)) {
    redirected(*redirect, now);
  } else if (const auto* error = std::get_if<wire::Error>(&message.body)) {
    std::string text = "the daemon refused the connection: " + error->message;
    if (error->status == Status::kProtocol) {
      text += " (this library speaks protocol versions " + protocol_range() + ")";
    }
    refused(error->status, text, now);
  } else if (const auto* notice = std::get_if<wire::ShutdownNotice>(&message.body)) {
    fail("the daemon is shutting down: " + notice->message, now);
  } else {
    refused(Status::kProtocol,
            "the daemon's first message was " + std::string(wire::body_name(message.body)) +
                ", not Welcome",
            now);
  }
}

void Link::welcomed(const wire::Welcome& welcome, TimeUs now) {
  if (welcome.protocol < kProtocolMin || welcome.protocol > kProtocolMax) {
    refused(Status::kProtocol,
            "the daemon (version " + welcome.server_version + ") speaks protocol version " +
                std::to_string(welcome.protocol) + ", this library speaks versions " +
                protocol_range(),
            now);
    return;
  }
  const std::string its_shard =
      "shard " + std::to_string(welcome.shard) + " of " + std::to_string(welcome.shards);
  if (welcome.shard >= welcome.shards || welcome.shards > kShardsMax) {
    refused(Status::kProtocol, "the daemon says that it serves " + its_shard, now);
    return;
  }
  if (welcome.shards > 1) {
    if (options_.shard >= 0 && std::cmp_not_equal(welcome.shard, options_.shard)) {
      fail("the daemon serves " + its_shard + ", not shard " + std::to_string(options_.shard), now);
      return;
    }
    // The workers' jobs are there: every later connection is for the same one.
    options_.shard = static_cast<std::int32_t>(welcome.shard);
    options_.several_daemons = true;
  }
  phase_ = Phase::kUp;
  welcome_ = welcome;
  round_at_ = wish_.endpoint;
  to_follow_.clear();
  follows_ = 0;
  heartbeat_after_us_ = us(welcome.heartbeat_interval_ms);
  dead_after_us_ = us(welcome.heartbeat_timeout_ms);
  deadline_us_ = kNever;
  up_since_us_ = now;
  was_up_ = true;
  silent_ = kNoEndpoint;
  progress_ = false;
  tried_in_round_ = 0;
  first_round_ = false;
  round_cut_short_ = false;
  tried_all_ = false;
  refusal_in_round_.reset();
  refusal_.reset();
  latest_refusal_.reset();
  listener_.link_up();
}

// The next attempt goes to the daemon of the shard. Whoever sends us in circles, or to nowhere, is
// one endpoint of the round that failed.
void Link::redirected(const wire::Redirect& redirect, TimeUs now) {
  options_.several_daemons = true;
  first_round_ = false;  // attempts that follow redirects of many daemons are spaced, too
  to_follow_.clear();
  const std::string shard = "shard " + std::to_string(redirect.shard);
  if (redirect.addresses.empty()) {
    if (options_.endpoints.size() == 1) {
      retry_after_us_ = std::min(TimeUs{redirect.retry_after_ms} * 1000, kRetryAfterMaxUs);
    }
    return fail("no daemon serves " + shard + " at the moment", now);
  }
  std::string skipped;
  std::string named;
  std::string_view rest = redirect.addresses;
  for (std::size_t count = 0; count < kFollowsMax && !rest.empty(); ++count) {
    const std::string_view address = trimmed(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.find(','), rest.size() - 1) + 1);
    std::string endpoint;
    std::string why_not;
    if (may_follow(address, endpoint, why_not)) {
      to_follow_.insert(to_follow_.begin(), learn(endpoint));
      named += (named.empty() ? "" : ", ") + endpoint;
    } else {
      skipped += (skipped.empty() ? "'" : "; '") + plain(shortened(address, kAddressBytesMax)) +
                 "' " + why_not;
    }
  }
  std::string said = "it sent us to " + named + " for " + shard;
  if (named.empty()) {
    said = "it names no address of " + shard + " that we can use: " + skipped;
  } else if (!skipped.empty()) {
    said += " (but " + skipped + ")";
  }
  if (follows_ == kFollowsMax) {
    said = "we were sent on " + std::to_string(kFollowsMax) + " times in a row; " + said;
  }
  fail(said, now);
}

// False: `why_not` goes on after the address.
bool Link::may_follow(std::string_view address, std::string& endpoint, std::string& why_not) const {
  std::vector<Endpoint> parsed;
  std::string error;
  if (!parse_endpoints(address, parsed, error)) {
    why_not = "is no address";
    return false;
  }
  const Endpoint& one = parsed.front();
  endpoint = one.text();
  if (one.kind == Endpoint::Kind::kUnix) {
    why_not = "is a socket of another machine";
  } else if (one.kind == Endpoint::Kind::kTcp && tls_only_) {
    why_not = "has no TLS";
  } else if (one.kind == Endpoint::Kind::kTls && !tls_only_ && !options_.has_tls) {
    why_not = "needs TLS, and this client has no authority's certificate";
  } else if (endpoint == endpoint_text()) {
    why_not = "is that daemon itself";
  }
  return why_not.empty();
}

// Which endpoint it is from now on. The one that is wished for is not replaced: what it said is
// still to be kept.
std::size_t Link::learn(const std::string& endpoint) {
  std::vector<std::string>& all = options_.endpoints;
  const auto known = std::find(all.begin(), all.end(), endpoint);
  if (known != all.end()) return static_cast<std::size_t>(known - all.begin());
  if (all.size() < given_ + kLearnedEndpointsMax) {
    all.push_back(endpoint);
    errors_.emplace_back();
    return all.size() - 1;
  }
  const auto take_place = [&] {
    const std::size_t place = given_ + next_learned_;
    next_learned_ = (next_learned_ + 1) % kLearnedEndpointsMax;
    return place;
  };
  std::size_t place = take_place();
  if (place == wish_.endpoint) place = take_place();
  if (place == silent_) silent_ = kNoEndpoint;
  all[place] = endpoint;
  errors_[place].clear();
  return place;
}

// As the daemon's own figures: a quarter of it between heartbeats. What a worker has asked for
// itself concerns its own silence: a connection that this side gave up because the daemon is slow
// would cost the worker its place, after exit_grace.
void Link::lower_heartbeat_timeout(std::uint32_t timeout_ms, bool is_workers_own) {
  if (timeout_ms == 0) return;
  heartbeat_after_us_ = std::min(heartbeat_after_us_, us(timeout_ms) / 4);
  if (!is_workers_own) dead_after_us_ = std::min(dead_after_us_, us(timeout_ms));
}

void Link::refused(Status status, const std::string& message, TimeUs now) {
  // Whoever is shutting down is not refusing us; it is as good as gone.
  if (status != Status::kShutdown && status != Status::kUnreachable) {
    latest_refusal_ = Refusal{status, endpoint_text() + ": " + message};
    if (!status_is_retriable(status)) refusal_in_round_ = latest_refusal_;
  }
  fail(message, now);
}

// ---- Time --------------------------------------------------------------------------------------

void Link::on_time(TimeUs now) {
  const bool over = now >= deadline_us_;
  switch (phase_) {
    case Phase::kWaiting:
      if (over) start_attempt(now);
      return;
    case Phase::kConnecting:
      if (over) time_out("no connection", now);
      return;
    case Phase::kHandshake:
      if (over) time_out("no Welcome", now);
      return;
    case Phase::kUp:
      break;
    case Phase::kClosed:
      return;
  }
  if (now >= death_due_us()) {
    silent_ = wish_.endpoint;
    fail("nothing received for " + format_duration(now - last_received_us_) +
             ": the connection is dead",
         now);
  } else if (over) {
    fail("it did not close the connection in time", now);
  } else if (now >= heartbeat_due_us()) {
    send(0, wire::Heartbeat{}, now);
  }
}

std::string Link::describe_errors() const {
  std::string text;
  for (std::size_t i = 0; i < errors_.size(); ++i) {
    if (i != 0) text += "; ";
    text += options_.endpoints[i];
    text += ": ";
    const bool trying = wish_.up && i == wish_.endpoint;
    if (errors_[i].empty()) {
      text += trying ? "no answer yet" : "not tried since";
    } else {
      text += options_.several_daemons ? shortened(errors_[i]) : errors_[i];
    }
  }
  return text;
}

}  // namespace syncd::client
