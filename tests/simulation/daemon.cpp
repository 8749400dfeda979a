// See daemon.h.
#include "daemon.h"

#include <algorithm>

#include "tests/support/forwarding_store.h"
#include "violation.h"

namespace syncd::simulation {
namespace {

constexpr Micros kTurnUs = 100;            // of a loop that has something to do, about
constexpr Micros kPlanUs = 20'000;         // of a plan on the pool, at most
constexpr Micros kDrainCheckUs = 1'000;    // of a daemon that stops
constexpr std::size_t kAnswersAtOnce = 2;  // so that small jobs are answered in slices, too
constexpr ConnectionId kOperator = UINT64_MAX;
constexpr std::uint64_t kAskEvery = 3;  // turns
constexpr RequestId kFirstQuestion = RequestId{1} << 62;

}  // namespace

class Daemon::WatchedStore final : public test::ForwardingStore {
 public:
  WatchedStore(std::unique_ptr<store::Store> inner, DaemonWatcher& watcher)
      : ForwardingStore(std::move(inner)), watcher_(watcher) {}

  bool submit(Ticket ticket, store::Batch&& batch) override {
    // One that was refused comes again.
    if (ticket > seen_) {
      seen_ = ticket;
      watcher_.on_records(batch.records);
    }
    return ForwardingStore::submit(ticket, std::move(batch));
  }

 private:
  DaemonWatcher& watcher_;
  Ticket seen_ = 0;
};

Daemon::Daemon(Agenda& agenda, test::Random& random, Network& network, const OpenStore& open,
               Options options, DaemonWatcher& watcher)
    : agenda_(agenda),
      random_(random),
      network_(network),
      options_(std::move(options)),
      watcher_(watcher),
      started_(agenda.now()) {
  // What was committed is looked at in a turn of the loop's own.
  const auto awake = [this] {
    later(static_cast<Micros>(random_.below(kTurnUs)), [this] {
      input([this] {
        core_->settle();
        end_turn_soon();
      });
    });
  };
  store_ = std::make_unique<WatchedStore>(open(awake), watcher);
  server::Core::Host& host = *this;
  core_ = std::make_unique<server::Core>(options_.engine, *store_, host, kAnswersAtOnce);
  server::Core::Recovered recovered;
  std::string error;
  const auto go_on_from = [this](Micros latest) {
    epoch_us_ = std::max(latest, agenda_.now() + options_.wall_clock_offset_us);
  };
  require(core_->recover(go_on_from, recovered, error), "the daemon does not recover: " + error);
  store_->start([this](const store::CommitReport& report) { core_->report(report); });
  require(core_->declare_job(options_.job, error), "the job is refused: " + error);
  network_.listen(options_.address, this);
  end_turn();
}

Daemon::~Daemon() {
  *alive_ = false;
  network_.listen(options_.address, nullptr);
  for (const auto& [connection, session] : sessions_) network_.close(connection, false, silent_);
}

Micros Daemon::now() const {
  return epoch_us_ + (agenda_.now() - started_);
}

void Daemon::later(Micros span, std::function<void()> what) {
  agenda_.in(span, [alive = alive_, what = std::move(what)] {
    if (*alive) what();
  });
}

// ---- What comes in, in its order, also where the loop stands still for a while.

void Daemon::input(std::function<void()> what) {
  if (deposed_) return;
  inputs_.push_back(std::move(what));
  handle_inputs();
}

void Daemon::handle_inputs() {
  if (inputs_.size() > 1 && agenda_.now() < frozen_until_) return;  // is waited for already
  if (agenda_.now() < frozen_until_) {
    agenda_.at(frozen_until_, [this, alive = alive_] {
      if (*alive) handle_inputs();
    });
    return;
  }
  while (!inputs_.empty() && agenda_.now() >= frozen_until_ && !deposed_) {
    const auto what = std::move(inputs_.front());
    inputs_.pop_front();
    what();
  }
}

void Daemon::on_open(ConnectionKey connection) {
  sessions_[connection].last_read = agenda_.now();
  check_idle(connection);
}

void Daemon::on_bytes(ConnectionKey connection, std::span<const std::uint8_t> bytes) {
  input([this, connection, copy = std::vector<std::uint8_t>(bytes.begin(), bytes.end())] {
    handle(connection, copy);
  });
}

void Daemon::on_end(ConnectionKey connection, const std::string&) {
  input([this, connection] { drop(connection, true); });
}

void Daemon::drop(ConnectionKey connection, bool by_peer) {
  const auto found = sessions_.find(connection);
  if (found == sessions_.end()) return;
  const bool was_open = found->second.open;
  sessions_.erase(found);
  network_.close(connection, false);
  if (!was_open) return;
  core_->on_closed(connection, {}, by_peer);
  end_turn_soon();
}

void Daemon::handle(ConnectionKey connection, const std::vector<std::uint8_t>& bytes) {
  const auto found = sessions_.find(connection);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  session.last_read = agenda_.now();
  session.splitter.append(bytes);
  std::span<const std::uint8_t> payload;
  std::string error;
  for (;;) {
    const auto result = session.splitter.next(payload, error);
    if (result == wire::FrameSplitter::Result::kNeedMore) break;
    require(result == wire::FrameSplitter::Result::kFrame, "the client sent no frame: " + error);
    wire::Message message;
    require(wire::decode(payload, message, error), "the client sent no message: " + error);
    if (!on_message(connection, session, std::move(message))) return;
    if (options_.one_request_a_turn) end_turn();
  }
  end_turn_soon();
}

// False: the session is gone.
bool Daemon::on_message(ConnectionKey connection, Session& session, wire::Message&& message) {
  if (!session.open) {
    const auto* hello = std::get_if<wire::Hello>(&message.body);
    require(hello != nullptr, "the client does not begin with Hello");
    net::SessionTerms terms;
    terms.heartbeat_timeout_ms = static_cast<std::uint32_t>(options_.idle_timeout_us / 1000);
    terms.heartbeat_interval_ms = terms.heartbeat_timeout_ms / 4;
    const auto answer = net::negotiate(*hello, terms, connection);
    require(std::holds_alternative<wire::Welcome>(answer), "the client is not welcome");
    session.open = true;
    send(connection, message.id, std::get<wire::Welcome>(answer));
    return true;
  }
  std::string error;
  switch (net::route(message, error)) {
    case net::Route::kHandler:
      if (const auto* begin = std::get_if<wire::Begin>(&message.body)) {
        begins(session, message.id, begin->worker);
      } else if (const auto* arrive = std::get_if<wire::Arrive>(&message.body)) {
        begins(session, message.id, arrive->worker);
      } else if (const auto* cancel = std::get_if<wire::CancelBegin>(&message.body)) {
        no_longer_waits(cancel->worker);
      } else if (const auto* push = std::get_if<wire::Push>(&message.body)) {
        watcher_.on_push(*push);
      }
      core_->on_request({{connection, message.id}, std::move(message.body)});
      return true;
    case net::Route::kHeartbeat:
      send(connection, message.id, wire::HeartbeatAck{});
      return true;
    case net::Route::kIgnore:
      return true;
    default:
      require(false, "the client breaks the rules: " + error);
      return false;
  }
}

// Of several by one worker, the last one waits.
void Daemon::begins(Session& session, RequestId request, const wire::WorkerRef& worker) {
  session.begins[request] = worker;
  no_longer_waits(worker);
  session.waiting[request] = worker;
}

void Daemon::no_longer_waits(const wire::WorkerRef& worker) {
  for (auto& [connection, session] : sessions_) {
    std::erase_if(session.waiting, [&](const auto& one) { return one.second == worker; });
  }
}

void Daemon::check_idle(ConnectionKey connection) {
  later(options_.idle_timeout_us, [this, connection] {
    input([this, connection] {
      const auto found = sessions_.find(connection);
      if (found == sessions_.end()) return;
      if (agenda_.now() - found->second.last_read >= options_.idle_timeout_us) {
        drop(connection, false);
      } else {
        check_idle(connection);
      }
    });
  });
}

void Daemon::operate(wire::Body body) {
  input([this, body = std::move(body)] {
    core_->on_request({{kOperator, ++operator_request_}, body});
    end_turn_soon();
  });
}

// ---- What the core wants

void Daemon::send(ConnectionId connection, RequestId id, wire::Body&& body) {
  wire::Message message{id, std::move(body)};
  if (message.id >= kFirstQuestion) {
    const auto* why = std::get_if<Explanation>(&message.body);
    require(why != nullptr, "nobody says why a worker waits");
    return watcher_.on_waits(asked_why_.at(message.id), *why);
  }
  const auto found = sessions_.find(connection);
  if (found == sessions_.end()) return;
  if (const auto* granted = std::get_if<wire::Granted>(&message.body)) {
    const auto asked = found->second.begins.find(message.id);
    const bool begins = asked != found->second.begins.end();
    // That it is over is said so to whatever waits.
    const bool stops = (granted->flags & wire::kStepStop) != 0;
    require(begins || stops, "a grant answers something else than a begin");
    if (!stops) granted_.emplace_back(asked->second, *granted);
    if (begins) found->second.begins.erase(asked);
  }
  if (const auto* granted = std::get_if<wire::ViewGranted>(&message.body)) {
    const auto asked = found->second.begins.find(message.id);
    require(asked != found->second.begins.end(), "a view answers something else than a begin");
    if ((granted->flags & wire::kStepStop) == 0) {
      views_granted_.emplace_back(asked->second, *granted);
    }
    found->second.begins.erase(asked);
  }
  found->second.waiting.erase(message.id);
  if (const auto* notice = std::get_if<wire::ResyncNotice>(&message.body)) {
    advised_.push_back(*notice);
  }
  encoder_.append(message, found->second.out);
}

void Daemon::start_plan(Plan&& plan) {
  auto ready = std::make_shared<PlanReady>();
  ready->job = plan.job;
  ready->plan = plan.id;
  ready->result = plan.work->run();
  later(static_cast<Micros>(random_.below(kPlanUs)), [this, ready] {
    input([this, ready] {
      core_->on_plan(std::move(*ready));
      end_turn_soon();
    });
  });
}

void Daemon::end_turn_soon() {
  if (turn_ends_) return;
  if (options_.one_request_a_turn) {
    end_turn();
    return;
  }
  turn_ends_ = true;
  later(static_cast<Micros>(random_.below(kTurnUs)), [this] {
    turn_ends_ = false;
    end_turn();
  });
}

// Its process ends at once if not.
bool Daemon::may_answer() {
  if (deposed_) return false;
  if (!options_.may_answer || options_.may_answer()) return true;
  deposed_ = true;
  options_.on_deposed(!core_->idle() || std::ranges::any_of(sessions_, [](const auto& item) {
    return !item.second.out.empty();
  }));
  return false;
}

void Daemon::end_turn() {
  if (!may_answer()) return;
  core_->end_turn();
  for (const auto& [worker, granted] : std::exchange(granted_, {})) {
    watcher_.on_granted(worker, granted);
  }
  for (const auto& [worker, granted] : std::exchange(views_granted_, {})) {
    watcher_.on_view_granted(worker, granted);
  }
  for (const wire::ResyncNotice& notice : std::exchange(advised_, {})) {
    watcher_.on_advised(notice.worker, notice.iteration);
  }
  for (auto& [connection, session] : sessions_) {
    if (session.out.empty()) continue;
    watcher_.on_sends();
    network_.send(connection, false, std::exchange(session.out, {}));
  }
  // Where a timer is due, it comes before any question.
  if (++turns_ % kAskEvery == 0 && core_->idle() && !draining_ && core_->next_deadline() > now()) {
    ask_who_waits();
  }
  arm_timer();
}

// Only where no answer waits for the disk: whoever has none then waits for others.
void Daemon::ask_who_waits() {
  RequestId question = kFirstQuestion;
  for (const auto& [connection, session] : sessions_) {
    for (const auto& [request, worker] : session.waiting) {
      asked_why_[++question] = worker;
      core_->on_request({{connection, question}, wire::Explain{worker}});
    }
  }
  core_->end_turn();
  asked_why_.clear();
}

void Daemon::arm_timer() {
  const Micros next = core_->next_deadline();
  if (next == armed_) return;
  armed_ = next;
  const std::uint64_t timer = ++timer_;
  if (next == kNever) return;
  later(std::max<Micros>(0, next - now()), [this, timer] {
    input([this, timer] {
      if (timer != timer_) return;
      armed_ = kNever;
      core_->fire_timers();
      end_turn();
    });
  });
}

// ---- Stopping

void Daemon::stop() {
  if (draining_) return;
  draining_ = true;
  network_.listen(options_.address, nullptr);
  core_->shutdown("the simulation wants it");
  end_turn();
  // As the server does: when nothing waits for the disk any more, or after a while.
  const auto check = std::make_shared<std::function<void(int)>>();
  *check = [this, weak = std::weak_ptr(check)](int left) {
    if (deposed_) return;
    if (!core_->idle() && left > 0) {
      const auto again = weak.lock();
      later(kDrainCheckUs, [again, left] { (*again)(left - 1); });
      return;
    }
    for (auto& [connection, session] : sessions_) {
      encoder_.append({0, wire::ShutdownNotice{"the daemon is shutting down"}}, session.out);
    }
    end_turn();
    core_->submit_rest();
    std::string error;
    store_->close(0, error);
    done_ = true;
  };
  later(kDrainCheckUs, [check] { (*check)(3000); });
}

}  // namespace syncd::simulation
