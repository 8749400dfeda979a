// The daemon's edge: listeners, sessions, limits and timeouts on one libuv loop. It turns bytes
// into verified messages and back, and knows nothing of jobs. Every function and every call of the
// handler happens on the loop thread, on which SIGPIPE must be ignored or blocked: libuv writes to
// sockets whose peer may just have gone.
#pragma once

#include <uv.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/types.h"
#include "daemon/edge/net/connection.h"
#include "daemon/edge/net/cost_meter.h"
#include "daemon/edge/net/deadline_wheel.h"
#include "daemon/edge/net/handshake_budget.h"
#include "daemon/edge/net/listener.h"
#include "daemon/edge/net/network_limits.h"
#include "daemon/edge/net/session.h"
#include "proto/wire/hot.h"
#include "proto/wire/wire.h"

namespace syncd::net {

// Whoever serves the requests. Calls never nest: none is made from within send() or close().
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // A request of an established session.
  virtual void on_message(ConnectionId connection, wire::Message&& message) = 0;
  // The same of a call of which there are many (see wire::visit_hot()): `at_ns` is what the
  // monotonic clock said before the first of those that came together.
  virtual void on_hot(ConnectionId connection, const Identity& identity, const wire::HotCall& hot,
                      std::uint64_t at_ns) = 0;
  // Where the clients of another shard are to go.
  virtual wire::Redirect whereabouts(std::uint32_t shard) { return {shard, {}, 0}; }
  // An established session is over, `reason` in words; nothing sent to it from now on arrives.
  // `by_peer`: the other side closed or reset it.
  virtual void on_closed(ConnectionId connection, const std::string& reason, bool by_peer) = 0;
  // Everything that could be read in this turn of the loop has been handed over, and answers are
  // about to be written. What must happen before an answer can leave is done here at the latest.
  virtual void on_turn_end() = 0;
  virtual void on_log(LogLine line) = 0;
};

struct NetworkOptions : NetworkLimits {
  std::string server_version;
  std::uint32_t shard = 0;  // that this daemon serves, of so many
  std::uint32_t shards = 1;
  // Clients take this daemon for dead after so long a silence, if the idle timeout is not shorter.
  std::uint64_t silence_max_ms = UINT64_MAX;
  ConnectionLimits connection;
  CostClocks clocks;  // by which clients' parts of a turn are counted
};

// Why a connection was turned away or cut off for what it did.
enum class Refusal : std::uint8_t {
  kConnectionsMax,
  kMachineMax,
  kHandshakes,
  kIdentityMax,
  kUnintroduced,  // made room for another newcomer
  kHandshakeTimeout,
  kAuth,
  kProtocol,
  kSlowReader,
  kBuffers,
};
inline constexpr std::array<const char*, 10> kRefusalNames = {"connections_max",
                                                              "connections_per_machine_max",
                                                              "handshakes_per_machine_per_s",
                                                              "connections_per_identity_max",
                                                              "unintroduced_max",
                                                              "handshake_timeout",
                                                              "auth",
                                                              "protocol",
                                                              "slow_reader",
                                                              "buffers"};

struct NetworkStats {
  std::uint32_t sessions = 0;  // established now
  std::uint64_t frames_in = 0;
  std::uint64_t frames_out = 0;
  std::uint64_t writes = 0;    // flushes of one connection: frames_out / writes is the coalescing
  std::uint64_t bytes_in = 0;  // of frames; what TLS adds is not counted
  std::uint64_t bytes_out = 0;
  std::uint64_t accepted = 0;     // connections
  std::uint64_t connections = 0;  // open now, with those that have not introduced themselves
  std::array<std::uint64_t, kRefusalNames.size()> refused{};
  std::uint64_t buffered = 0;  // bytes of memory, in the buffers of all connections
  std::uint64_t held = 0;      // times that one had to wait for a later turn
};

class Network final : private ConnectionHost {
 public:
  // `handler` must outlive the network.
  Network(uv_loop_t* loop, NetworkOptions options, FrameHandler& handler);
  // open() was never called, or shutdown() has called back: its owner checks that.
  ~Network() override;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // What TCP connections speak from now on; those that there are go on as they began. Null:
  // nothing but frames.
  void set_tls(std::shared_ptr<tls::Context> context) { tls_ = std::move(context); }
  const tls::Context* tls() const { return tls_.get(); }  // null: TCP is not encrypted

  // Who may use it from now on; sessions that there are go on. Null: everybody. Must outlive the
  // network.
  void set_admission(const Admission* admission) { admission_ = admission; }
  // Who the client of an established session is; null if that is over.
  const Identity* identity(ConnectionId connection) const;
  // "127.0.0.1:53114"; empty if it is gone.
  std::string peer(ConnectionId connection) const;
  // The connection ends after so long a silence from now on, if that is less than before.
  void lower_idle_timeout(ConnectionId connection, std::uint64_t ms);
  // Whether it came in by a control socket.
  bool over_control(ConnectionId connection) const;
  // Whether the client is on this machine: over the Unix socket, or to a loopback address.
  bool is_here(ConnectionId connection) const;

  // The numbers of connections and of bytes for each from now on; `options` is otherwise ignored.
  void set_limits(const NetworkLimits& limits) { static_cast<NetworkLimits&>(options_) = limits; }

  // Hooks into the loop. Call once, before listen().
  void open();
  // Serves the clients of one socket.
  bool listen(ListenSocket socket, std::string& error);
  // Of those that are control sockets, or of those that are not.
  std::vector<std::string> endpoints(bool control = false) const;

  // Queues one frame; everything queued for a connection in one turn of the loop leaves in one
  // write. A connection that is gone, or that never was, is skipped. A client that has let more
  // than outbound_bytes_max pile up is disconnected. A message that does not fit a frame is
  // replaced by an Error LIMIT with the same id.
  void send(ConnectionId connection, const wire::Message& message) {
    send(connection, message.id, message.body);
  }
  void send(ConnectionId connection, RequestId id, const wire::Body& body);
  // A line about what clients can bring about as often as they like, as most of the network's own
  // are. Of one event kWarnLinesPerSecond are written in a second, and then one line
  // log_lines_left_out that says how many more there were, which stand at kDebug.
  void warn(std::string event, std::vector<std::pair<std::string, std::string>> fields) {
    log(LogLevel::kWarn, std::move(event), nullptr, std::move(fields));
  }
  static constexpr std::uint64_t kWarnLinesPerSecond = 20;
  // Whether one more line of this event, of one identity where each has lines of its own, may be
  // written in this second; it counts as one.
  bool has_line_left(const std::string& event, const std::string& identity = {});

  // Disconnects at once; on_closed() follows.
  void close(ConnectionId connection, const std::string& reason);

  void stop_accepting();
  // Stops accepting, tells every client `message`, sends what is queued, and closes everything
  // within `timeout_ms`; then calls `on_done`, after which (and in which) the network may be
  // destroyed. Call once; what on_turn_end() is for must have been done before.
  void shutdown(const std::string& message, std::uint64_t timeout_ms,
                std::function<void()> on_done);

  NetworkStats stats() const {
    NetworkStats stats = stats_;
    stats.connections = connection_count_;
    stats.buffered = buffered_bytes_;
    return stats;
  }

 private:
  // ConnectionHost
  std::span<std::uint8_t> read_buffer() override { return read_buffer_; }
  bool on_payload(Connection& connection, std::span<const std::uint8_t> payload) override;
  void on_read_end(Connection& connection) override;
  std::vector<std::uint8_t>& plain_buffer() override { return plain_buffer_; }
  bool must_wait(const Connection& connection) override;
  void on_held(Connection& connection) override;
  void on_broken(Connection& connection, Status status, const std::string& text) override;
  void on_buffered(Connection& connection) override;
  void on_output(Connection& connection) override;
  void on_lost(Connection& connection, const std::string& reason, bool by_peer) override;
  void on_deadline_moved(Connection& connection) override;
  void on_gone(Connection& connection) override;

  void on_accept(Accepted accepted);
  void on_shortage(int code);
  void count(Refusal why) { ++stats_.refused[static_cast<std::size_t>(why)]; }
  void refuse_newcomer(const Accepted& accepted, const std::string& text);
  bool has_room(const Accepted& accepted);
  bool may_shake_hands(const Accepted& accepted);
  void make_room();
  void send_elsewhere(Connection& connection, RequestId id, std::uint32_t shard);
  bool admit(Connection& connection, const wire::Hello& hello);
  bool has_room_for(Connection& connection);
  bool take_message(Connection& connection, std::span<const std::uint8_t> payload);
  void charge(Connection& connection);
  bool decode(Connection& connection, std::span<const std::uint8_t> payload);
  void shake_hands(Connection& connection, const wire::Message& message);
  void dispatch(Connection& connection);
  void append(Connection& connection, RequestId id, const wire::Body& body);
  void replace_too_large(Connection& connection, RequestId id, const wire::Body& body,
                         std::size_t before);
  void end_slow_reader(Connection& connection);
  void fail(Connection& connection, Status status, const std::string& text,
            Refusal why = Refusal::kProtocol);
  void end(Connection& connection, const std::string& reason, LogLevel level);
  void on_expired(Connection& connection, Connection::Expired what);
  void end_of_turn();
  void check_deadlines(bool after_poll);
  void arm_timer();
  void resume_accepting();
  void close_own_handles_if_done();
  Connection* find(ConnectionId id) const {
    const std::size_t slot = id & kSlotMask;
    if (slot >= slots_.size()) return nullptr;
    Connection* connection = slots_[slot];
    return connection != nullptr && connection->id() == id ? connection : nullptr;
  }
  ConnectionId take_slot();
  void log(LogLevel level, std::string event, const Connection* connection,
           std::vector<std::pair<std::string, std::string>> fields);
  void tell_of_lines_left_out();
  void resume_held();
  void share_turn(Connection& connection);
  // Of newcomers (network_newcomers.cpp)
  static std::string source_of(const Accepted& accepted);
  Connection* oldest_unintroduced(const std::string& source);
  std::string busiest_source() const;
  void no_longer_unintroduced(const Connection& connection);
  void turn_out(Connection& unintroduced, const std::string& text);

  uv_loop_t* loop_;
  NetworkOptions options_;
  SessionTerms terms_;
  std::shared_ptr<tls::Context> tls_;
  const Admission* admission_ = nullptr;
  FrameHandler& handler_;
  NetworkStats stats_;
  CostMeter meter_;
  wire::Encoder encoder_;
  wire::Message message_;  // the one being handled; kept for its memory
  wire::HotCall hot_;
  // The hot messages of a read that are being handled and not charged for yet; 0: none.
  std::size_t uncharged_ = 0;
  std::uint64_t frames_out_before_ = 0;
  std::string error_;
  std::vector<std::uint8_t> read_buffer_;
  std::vector<std::uint8_t> plain_buffer_;

  std::vector<Listener*> listeners_;
  bool accepting_paused_ = false;
  bool limit_reported_ = false;
  // In the second that is under way; empty between two.
  std::map<std::pair<std::string, std::string>, std::uint64_t> warnings_;  // by event, identity
  bool shutting_down_ = false;
  std::size_t listeners_closing_ = 0;

  // A connection's id is a serial number and, in its low bits, its place in this array.
  static constexpr unsigned kSlotBits = 20;
  static constexpr ConnectionId kSlotMask = (ConnectionId{1} << kSlotBits) - 1;
  static_assert(limits::kConnectionsMax < kSlotMask);
  std::vector<Connection*> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::uint64_t next_serial_ = 1;
  std::size_t connection_count_ = 0;
  std::size_t buffered_bytes_ = 0;  // the sum of what is counted of each
  std::unordered_map<std::string, std::size_t> per_machine_;
  HandshakeBudget handshakes_;
  std::unordered_map<std::string, std::size_t> per_identity_;  // established sessions
  TurnBudget budget_;
  std::unordered_map<std::string, std::weak_ptr<TurnBudget::Share>> shares_;  // of each client
  // Those that wait for a later turn, the one that has waited longest first.
  std::deque<ConnectionId> held_;
  // By age, since serial numbers grow.
  std::set<ConnectionId> unintroduced_;
  std::unordered_map<std::string, std::size_t> unintroduced_of_;  // by where they come from
  std::vector<ConnectionId> dirty_;
  std::vector<ConnectionId> flushing_;

  DeadlineWheel wheel_;
  std::uint64_t armed_ms_ = DeadlineWheel::kNone;
  int own_handles_ = 0;
  uv_prepare_t prepare_;
  uv_check_t check_;
  uv_idle_t idle_;  // runs while somebody is held, so that the loop does not wait for others
  uv_timer_t timer_;
  std::function<void()> on_done_;
};

}  // namespace syncd::net
