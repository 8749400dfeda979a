// One connection to a daemon, over and over: handshake, framing, heartbeats, and the back-off by
// which a lost connection is made again. Owns no socket, thread, clock or chance: bytes and times
// come in, bytes, a wish about the connection and the next deadline go out. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/out_buffer.h"
#include "proto/wire/wire.h"

namespace syncd::client {

// Microseconds of any clock that does not go back.
using TimeUs = std::int64_t;
inline constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();

// For ever, if that is too long to be counted.
inline TimeUs add(TimeUs time_us, TimeUs span_us) {
  return span_us > kNever - time_us ? kNever : time_us + span_us;
}

// The delay before the n-th attempt in a row grows from the first to the second of these; a random
// half of it is taken off, so that the workers of a cluster do not all come back at once. A
// connection that was of use is first made again without delay, once in kBackoffMaxUs.
inline constexpr TimeUs kBackoffMinUs = 50'000;
inline constexpr TimeUs kBackoffMaxUs = 2'000'000;
// An attempt that has not ended with a Welcome by then is given up.
inline constexpr TimeUs kHandshakeTimeoutUs = 5'000'000;
// With several daemons, an endpoint that swallows packets must not hold up the others: the limit
// for an attempt starts with the first of these and doubles after each whole round. A daemon that
// is busy may take its time for TLS and Hello, but its system accepts a connection by the second.
inline constexpr TimeUs kFirstHandshakeTimeoutUs = 1'000'000;
inline constexpr TimeUs kConnectTimeoutUs = 2'000'000;
// Members that stand by refuse at once: attempts of one round start so far apart. One of them leads
// within seconds, so the pause between rounds is short at first. A client that was served before
// waits for a connection no longer than kFailoverTimeoutUs then, for the machine of the one that is
// gone may be gone, too. Nor does it wait longer in the first kSilentRounds for an answer of the
// one that fell silent, which may hang; it may also be a network that is back.
inline constexpr TimeUs kEndpointSpacingUs = 100'000;
inline constexpr TimeUs kFirstRoundsPauseMaxUs = 100'000;
inline constexpr unsigned kFirstRounds = 32;
inline constexpr TimeUs kRoundPauseMaxUs = 1'000'000;
inline constexpr TimeUs kFailoverTimeoutUs = 300'000;
inline constexpr unsigned kSilentRounds = 4;
// Each shard of a cluster has a daemon of its own, and the others send us there (wire::Redirect). A
// broken one may do so for ever: so many attempts in a row follow a redirect without a pause. What
// was learned from redirects is bounded, too; the oldest endpoint makes room.
inline constexpr unsigned kFollowsMax = 8;
inline constexpr std::size_t kLearnedEndpointsMax = 16;
inline constexpr TimeUs kRetryAfterMaxUs = 10'000'000;  // whatever a Redirect says
// How long the daemon may take to close a connection after it announced that it shuts down.
inline constexpr TimeUs kDrainTimeoutUs = 5'000'000;

struct LinkOptions {
  std::vector<std::string> endpoints;  // as they are shown to people; at least one
  // The endpoints belong to several daemons, of which one at a time takes connections. False: they
  // lead to the same daemon.
  bool several_daemons = false;
  std::int32_t shard = -1;  // whose daemon is wanted; -1: any
  // tls: addresses in a Redirect can be followed though none of the endpoints is one.
  bool has_tls = false;
  std::string client_name;
  std::string client_version;
  std::string token;
  std::uint64_t seed = 0;  // of the back-off's jitter
};

// What the transport is to do, by level and not by edge: whenever `number` differs from that of the
// connection it has, it drops that connection without a further word, and if `up` is set it
// connects to `endpoint` (of Link::endpoint()) under the new number.
struct LinkWish {
  std::uint64_t number = 0;
  bool up = false;
  std::size_t endpoint = 0;
  bool operator==(const LinkWish&) const = default;
};

// Why the daemon would not have us: a handshake that was answered, but not by a usable Welcome.
struct Refusal {
  Status status = Status::kOk;
  std::string message;
};

class Link {
 public:
  // Called from inside Link's functions; may call send(), fail() and drain().
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void link_up() = 0;    // welcomed: requests may be sent
    virtual void link_down() = 0;  // was up: every request that was sent is void
    virtual void link_message(const wire::Message& message) = 0;
  };

  // Wishes for the first connection at once.
  Link(LinkOptions options, Listener& listener, TimeUs now);

  const LinkWish& wish() const { return wish_; }
  // Bytes to send on the connection wish().number; the transport takes them and leaves it empty.
  OutBuffer& output() { return output_; }

  // Reports about the connection `number`; those about an older one are ignored.
  void on_connected(std::uint64_t number, TimeUs now);
  void on_bytes(std::uint64_t number, std::span<const std::uint8_t> bytes, TimeUs now);
  void on_disconnected(std::uint64_t number, std::string_view reason, TimeUs now);
  // The same, where the two sides do not accept each other below the protocol (TLS): before the
  // welcome it counts as the daemon's refusal.
  void on_refused(std::uint64_t number, Status status, std::string_view reason, TimeUs now);

  void on_time(TimeUs now);
  TimeUs next_deadline() const {
    if (phase_ != Phase::kUp) return deadline_us_;
    return std::min({heartbeat_due_us(), death_due_us(), deadline_us_});
  }

  // Appends a message to the output. Precondition: up(), or for the first messages connected.
  void send(std::uint64_t id, const wire::Body& body, TimeUs now);
  // Gives up the connection and makes a new one after the back-off.
  void fail(std::string_view reason, TimeUs now);
  // The daemon said that it goes away: no more requests, and the connection ends soon.
  void drain(std::string_view reason, TimeUs now);
  // A request succeeded: the connection has proved useful, and the back-off starts afresh.
  void note_progress() { progress_ = true; }
  // Silence counts sooner on this connection than the daemon said: a job asks so, of both sides, or
  // a worker, of its own side. Precondition: up().
  void lower_heartbeat_timeout(std::uint32_t timeout_ms, bool is_workers_own);
  // For good: wishes for no connection any more.
  void close();

  bool up() const { return phase_ == Phase::kUp; }
  bool usable() const { return up() && deadline_us_ == kNever; }  // for new requests
  // Since when no connection has been of use. Meaningful while !up().
  TimeUs down_since_us() const { return down_since_us_; }
  TimeUs up_since_us() const { return up_since_us_; }  // of the latest welcome
  const wire::Welcome& welcome() const { return welcome_; }
  // Those of the options come first, then what redirects named: only tcp: and tls:, and another one
  // may take the place of such an endpoint while it is not wished for.
  const std::string& endpoint(std::size_t index) const { return options_.endpoints[index]; }
  const std::string& endpoint_text() const { return endpoint(wish_.endpoint); }
  // Also true once a daemon has said that its cluster has shards.
  bool several_daemons() const { return options_.several_daemons; }

  // Set once every endpoint was tried since the last success and one of them refused us for a
  // reason that will not pass.
  const std::optional<Refusal>& refusal() const { return refusal_; }
  // The latest refusal since the last success that is the daemon's choice, also one that may pass.
  const std::optional<Refusal>& latest_refusal() const { return latest_refusal_; }

  // Whether every endpoint was tried in vain since the last welcome.
  bool tried_all() const { return tried_all_; }
  // The endpoints tried and the latest error of each: "unix:/run/s: no such file; tcp:...: ...".
  std::string describe_errors() const;
  // With several daemons a refusal is no more than one of the answers.
  std::string describe(const Refusal& refusal) const {
    return options_.several_daemons ? describe_errors() : refusal.message;
  }

 private:
  enum class Phase { kWaiting, kConnecting, kHandshake, kUp, kClosed };

  void start_attempt(TimeUs now);
  void end_attempt(std::string_view reason, TimeUs now);
  bool follow_next(TimeUs now);
  void go_on_after(std::size_t endpoint);
  void end_connection(std::string_view reason, TimeUs now);
  void time_out(std::string_view what, TimeUs now);
  void wait_for_retry(TimeUs delay_us, TimeUs now);
  TimeUs attempt_limit_max_us() const;
  TimeUs attempt_limit_us() const;
  TimeUs spacing_us(TimeUs now) const;
  TimeUs next_delay_us();
  std::uint64_t next_random();
  void take_bytes(std::span<const std::uint8_t> bytes, TimeUs now);
  [[gnu::always_inline]] inline void handle(const wire::Message& message, TimeUs now);
  void handshake(const wire::Message& message, TimeUs now);
  void welcomed(const wire::Welcome& welcome, TimeUs now);
  void redirected(const wire::Redirect& redirect, TimeUs now);
  bool may_follow(std::string_view address, std::string& endpoint, std::string& why_not) const;
  std::size_t learn(const std::string& endpoint);
  void refused(Status status, const std::string& message, TimeUs now);
  TimeUs heartbeat_due_us() const { return last_sent_us_ + heartbeat_after_us_; }
  TimeUs death_due_us() const { return last_received_us_ + dead_after_us_; }

  LinkOptions options_;      // with the endpoints that were learned, and the shard that was met
  const std::size_t given_;  // so many endpoints come from the caller
  const bool tls_only_;
  std::size_t next_learned_ = 0;  // where the next one is kept once there are the most
  Listener& listener_;
  std::uint64_t random_;

  Phase phase_ = Phase::kWaiting;
  LinkWish wish_;
  OutBuffer output_;
  wire::Encoder encoder_;
  wire::FrameSplitter splitter_;
  wire::Message scratch_;  // keeps its memory from frame to frame
  wire::Welcome welcome_;

  // When a phase is over: the wait for the next attempt, the attempt, a connection that drains.
  TimeUs deadline_us_ = kNever;
  TimeUs heartbeat_after_us_ = 0;  // kUp: of silence on this side
  TimeUs dead_after_us_ = 0;       // kUp: of silence on the other
  TimeUs last_sent_us_ = 0;
  TimeUs last_received_us_ = 0;
  TimeUs up_since_us_ = 0;
  bool was_up_ = false;
  static constexpr std::size_t kNoEndpoint = SIZE_MAX;
  std::size_t silent_ =
      kNoEndpoint;  // the one whose connection died last, and had no Welcome since
  TimeUs down_since_us_ = 0;
  bool progress_ = false;

  TimeUs last_at_once_us_ = -kBackoffMaxUs;  // a connection was made again without back-off
  unsigned failures_ = 0;                    // in a row: the back-off's exponent
  TimeUs attempt_started_us_ = 0;
  std::size_t round_at_ = 0;  // the endpoint whose turn it is; a redirect leads away from it
  std::vector<std::size_t> to_follow_;  // where a redirect sends us, the last one first
  unsigned follows_ = 0;                // in a row without a Welcome or a pause
  TimeUs retry_after_us_ = 0;           // a daemon asks for a pause of so long at least
  std::size_t tried_in_round_ = 0;      // endpoints whose turn is over since the last back-off
  bool first_round_ = true;             // since the client was made
  bool round_cut_short_ = false;        // an attempt of it had less than the most that one gets
  bool tried_all_ = false;
  std::vector<std::string> errors_;  // per endpoint, the latest; "": none
  std::string drain_reason_;
  std::optional<Refusal> refusal_in_round_;
  std::optional<Refusal> refusal_;
  std::optional<Refusal> latest_refusal_;
};

}  // namespace syncd::client
