// One life of a daemon in the simulated world: its own core, sessions and codec, between a
// simulated network, store and clock. What a libuv loop does beside that, turns and timers, is done
// here from the agenda. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agenda.h"
#include "daemon/edge/net/session.h"
#include "daemon/edge/server/core.h"
#include "network.h"
#include "proto/wire/wire.h"
#include "tests/support/random.h"

namespace syncd::simulation {

// Who looks at what the daemon does, apart from it.
class DaemonWatcher {
 public:
  virtual ~DaemonWatcher() = default;
  // The records of a turn, before any answer of it has left.
  virtual void on_records(const std::vector<Record>& records) = 0;
  // A client has sent a push, for the first time or again.
  virtual void on_push(const wire::Push& push) = 0;
  // A worker asked to begin and is granted; after the records of its turn.
  virtual void on_granted(const wire::WorkerRef& worker, const wire::Granted& granted) = 0;
  // The same of a round, or of another view.
  virtual void on_view_granted(const wire::WorkerRef& worker, const wire::ViewGranted& granted) = 0;
  // A worker is advised to drop the work of an iteration; after the grants of its turn.
  virtual void on_advised(const wire::WorkerRef& worker, std::int64_t iteration) = 0;
  // Between turns: why a worker that asked to begin has no answer yet.
  virtual void on_waits(const wire::WorkerRef& worker, const Explanation& why) = 0;
  virtual void on_log(const LogLine& line) = 0;
  // Something leaves for clients now.
  virtual void on_sends() = 0;
};

class Daemon final : public Endpoint, private server::Core::Host {
 public:
  struct Options {
    EngineOptions engine;
    store::Mode mode = store::Mode::kDurable;
    JobSpec job;
    bool one_request_a_turn = false;
    Micros wall_clock_offset_us = 0;
    Micros idle_timeout_us = 5'000'000;
    std::size_t address = 0;
    // Of a cluster's member: whether it leads still, asked before anything leaves; null: always. If
    // not, `on_deposed` is called, and nothing is done any more. `has_answers`: that never leave.
    std::function<bool()> may_answer = {};
    std::function<void(bool has_answers)> on_deposed = {};
  };
  // Opens the store; `awake` is to be called when the loop is to look at what was reported.
  using OpenStore = std::function<std::unique_ptr<store::Store>(std::function<void()> awake)>;

  // Recovers from the store and listens. Throws Violation if it cannot.
  Daemon(Agenda& agenda, test::Random& random, Network& network, const OpenStore& open,
         Options options, DaemonWatcher& watcher);
  // As SIGKILL, or, if lose_power() was called, as a power cut of its machine.
  ~Daemon() override;
  void lose_power() { silent_ = true; }

  // As SIGTERM: it answers, commits, tells its clients, and is done() some time later.
  void stop();
  bool done() const { return done_; }
  // What an operator asks for; nobody hears the answer.
  void operate(wire::Body body);
  // Its loop does not turn until then.
  void freeze(Micros until) { frozen_until_ = until; }

  const Engine& engine() const { return core_->engine(); }
  bool idle() const { return core_->idle(); }

  // Endpoint
  void on_open(ConnectionKey connection) override;
  void on_bytes(ConnectionKey connection, std::span<const std::uint8_t> bytes) override;
  void on_end(ConnectionKey connection, const std::string& reason) override;

 private:
  struct Session {
    bool open = false;
    wire::FrameSplitter splitter;
    std::vector<std::uint8_t> out;
    Micros last_read = 0;
    std::map<RequestId, wire::WorkerRef> begins;
    std::map<RequestId, wire::WorkerRef> waiting;  // those that will be answered
  };
  // Sits between the core and the store, and shows what goes by.
  class WatchedStore;

  // Core::Host
  Micros now() const override;
  void send(ConnectionId connection, RequestId id, wire::Body&& body) override;
  void start_plan(Plan&& plan) override;
  void log(LogLine&& line) override { watcher_.on_log(line); }

  void input(std::function<void()> what);
  void handle_inputs();
  void handle(ConnectionKey connection, const std::vector<std::uint8_t>& bytes);
  bool on_message(ConnectionKey connection, Session& session, wire::Message&& message);
  void drop(ConnectionKey connection, bool by_peer);
  void end_turn_soon();
  void end_turn();
  bool may_answer();
  void ask_who_waits();
  void arm_timer();
  void begins(Session& session, RequestId request, const wire::WorkerRef& worker);
  void no_longer_waits(const wire::WorkerRef& worker);
  void check_idle(ConnectionKey connection);
  void later(Micros span, std::function<void()> what);

  Agenda& agenda_;
  test::Random& random_;
  Network& network_;
  Options options_;
  DaemonWatcher& watcher_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<server::Core> core_;
  Micros epoch_us_ = 0;
  Micros started_ = 0;  // on the agenda

  std::map<ConnectionKey, Session> sessions_;
  wire::Encoder encoder_;
  std::vector<std::pair<wire::WorkerRef, wire::Granted>> granted_;            // in this turn
  std::vector<std::pair<wire::WorkerRef, wire::ViewGranted>> views_granted_;  // likewise
  std::vector<wire::ResyncNotice> advised_;                                   // likewise
  std::uint64_t turns_ = 0;
  std::map<RequestId, wire::WorkerRef> asked_why_;
  bool turn_ends_ = false;
  bool draining_ = false;
  bool done_ = false;
  bool silent_ = false;
  bool deposed_ = false;
  Micros armed_ = kNever;
  std::uint64_t timer_ = 0;
  RequestId operator_request_ = 0;
  Micros frozen_until_ = 0;
  std::deque<std::function<void()>> inputs_;  // that came while it was frozen
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace syncd::simulation
