// Requests of any kind, in any order, with any numbers, to the daemon without its sockets
// (server::Core over a store in memory): each byte is a decision. Every request is answered at most
// once, and by the daemon's end at least once if its connection is there; answers fit a frame; what
// a request changes, and what it is refused with, is as engine_watch.h has it; and what is stored
// makes the same jobs again.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/server/core.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/engine_watch.h"
#include "tests/support/choices.h"

namespace {

using namespace syncd;

constexpr int kStepsMax = 400;
constexpr std::array<const char*, 24> kPolicies = {"bsp",
                                                   "bsp:3",
                                                   "bsp:5,backup=1",
                                                   "asp",
                                                   "ssp:0",
                                                   "ssp:3",
                                                   "dssp:1-4",
                                                   "elastic_bsp:4",
                                                   "naive_wait:50+bsp",
                                                   "naive_wait:5+ssp:2",
                                                   "specsync+asp",
                                                   "specsync+ssp:3",
                                                   "specsync:strict+bsp",
                                                   "hop:ring,max_ig=2",
                                                   "hop:ring_based,max_ig=3,backup=1",
                                                   "hop:complete,staleness=2",
                                                   "hop:ring,max_ig=4,backup=1,skip=3",
                                                   "notify_ack:ring",
                                                   "notify_ack:complete",
                                                   "hop:file:none",
                                                   "ssp",
                                                   "",
                                                   "nothing",
                                                   "hop:root_expander,max_ig=2,staleness=1"};
constexpr std::array<const char*, 4> kJobs = {"a", "b", "#1", "a job of another name"};
const std::array<std::string, 4> kOddJobs = {"#0", "#2", "nobody's", std::string(65, 'j')};
const std::array<std::string, 8> kOddWorkers = {
    "", "-1", "7", " 0", "0x0", "99999999999999999999", "p\nq", std::string(129, 'w')};
constexpr std::array<std::int64_t, 10> kOdd = {
    -1, INT64_MIN, INT64_MAX, 1 << 20, -2, std::int64_t{1} << 48, (std::int64_t{1} << 48) + 1,
    7,  1000,      -1000};

class World final : public server::Core::Host {
 public:
  explicit World(test::ByteChoices& choices) : choices_(choices) {
    EngineOptions options;
    options.auto_create = !choices_.one_in(8);
    options.snapshot_every_records = choices_.one_in(2) ? 5 : 100'000;
    options.defaults.expected_workers = static_cast<std::uint32_t>(1 + choices_.below(3));
    options.defaults.worker_grace_us = 1'000'000;
    options.defaults.evict_after_us = choices_.one_in(2) ? 2'000'000 : 0;
    options.defaults.warn_after_us = 1'000'000;
    core_ = std::make_unique<server::Core>(options, *store_, *this);
    watch_ = std::make_unique<fuzz::EngineWatch>(core_->engine());
    store_->start([this](const store::CommitReport& report) { core_->report(report); });
  }

  void run() {
    for (int i = 0; i < kStepsMax && !choices_.used_up(); ++i) {
      act();
      core_->end_turn();
      watch_->look();
    }
    core_->shutdown("the input is at its end");
    core_->end_turn();
    fuzz::require(core_->idle(), "something waits for a store that commits at once");
    for (const auto& [connection, requests] : standing_) {
      fuzz::require(requests.empty(), "a request is never answered",
                    requests.empty() ? "" : requests.begin()->second.name);
    }
    compare_restored();
  }

  // ---- server::Core::Host

  Micros now() const override { return now_; }
  void send(ConnectionId connection, RequestId id, wire::Body&& body) override {
    const wire::Message message{id, std::move(body)};
    const std::vector<std::uint8_t> frame = fuzz::frame_of(message);
    fuzz::require(frame.size() <= kDefaultMaxFrameBytes, "an answer that fits no frame",
                  wire::body_name(message.body));
    fuzz::require_sound(message);
    if (const auto* error = std::get_if<wire::Error>(&message.body)) {
      fuzz::require(!error->message.empty(), "an error without a text");
    }
    if (message.id == 0) {
      watch_->notified(message.body);
    } else {
      watch_->answered(connection, message.body);
      if (message.id == asking_) answer_ = message.body;
    }
    // Those of a connection that is gone are skipped.
    const auto at = standing_.find(connection);
    if (at == standing_.end() || message.id == 0) return;
    const auto request = at->second.find(message.id);
    fuzz::require(request != at->second.end(), "an answer that nobody waits for",
                  wire::body_name(message.body));
    KnownWorker* const worker = request->second.worker;
    at->second.erase(request);
    if (const auto* joined = std::get_if<wire::Joined>(&message.body)) {
      workers_.push_back({joined->worker, joined->iteration, joined->iteration});
    } else if (const auto* granted = std::get_if<wire::Granted>(&message.body)) {
      fuzz::require(granted->iteration >= 0 || (granted->flags & wire::kStepStop) != 0,
                    "an iteration below 0");
      if (worker != nullptr) worker->in = worker->next = granted->iteration;
    } else if (const auto* pushed = std::get_if<wire::Pushed>(&message.body)) {
      if (worker != nullptr) worker->next = next_after(pushed->iteration);
    }
  }
  void start_plan(Plan&& plan) override { plans_.push_back(std::move(plan)); }
  void log(LogLine&& line) override { fuzz::require(!line.event.empty(), "a log line of nothing"); }

 private:
  struct KnownWorker {
    wire::WorkerRef ref;
    std::int64_t next = 0;  // what it begins or pushes next
    std::int64_t in = 0;    // the iteration that it was granted last
  };
  struct Standing {
    std::string name;
    KnownWorker* worker;  // that it is about; null: none
  };

  void act() {
    switch (choices_.below(16)) {
      case 0:
        now_ += static_cast<Micros>(choices_.below(256)) * 10'000;
        core_->fire_timers();
        return;
      case 1:
        if (core_->next_deadline() != kNever) now_ = std::max(now_, core_->next_deadline());
        core_->fire_timers();
        return;
      case 2: {
        const ConnectionId gone = 1 + choices_.below(3);
        standing_.erase(gone);
        watch_->closed(gone);
        core_->on_closed(gone, {}, gone % 2 == 0);
        return;
      }
      case 3:
        if (plans_.empty()) return;
        {
          const Plan plan = std::move(plans_.front());
          plans_.pop_front();
          core_->on_plan({plan.job, plan.id, plan.work->run()});
        }
        return;
      default:
        request();
    }
  }

  void request() {
    // A connection that is gone never comes back under its number; here, none of its is standing.
    const ConnectionId connection = 1 + choices_.below(3);
    const RequestId id = next_request_++;
    asking_for_ = nullptr;
    const wire::Body body = make_body();
    standing_[connection].emplace(id, Standing{std::string(wire::body_name(body)), asking_for_});
    // What has become due is not the request's doing.
    core_->fire_timers();
    core_->end_turn();
    watch_->before(connection, body);
    asking_ = id;
    answer_.reset();
    core_->on_request({{connection, id}, body});
    core_->end_turn();
    watch_->after(body, answer_ ? &*answer_ : nullptr);
    now_ += 1000;
  }

  static std::int64_t next_after(std::int64_t iteration) {
    return iteration == INT64_MAX ? 0 : iteration + 1;
  }
  std::int64_t number(std::int64_t likely) {
    return choices_.below(8) != 0 ? likely : choices_.pick(kOdd);
  }
  KnownWorker worker() {
    if (workers_.empty()) return {};
    asking_for_ = &workers_[choices_.below(workers_.size())];
    KnownWorker known = *asking_for_;
    if (choices_.one_in(16)) known.ref.rank += 1;
    if (choices_.one_in(16)) known.ref.incarnation = static_cast<Incarnation>(number(0));
    if (choices_.one_in(16)) known.ref.job = static_cast<JobId>(number(2));
    if (choices_.one_in(16)) known.ref.epoch += choices_.one_in(2) ? 1 : -1;
    return known;
  }
  std::string job() { return choices_.pick(kJobs); }
  std::string policy() { return choices_.pick(kPolicies); }

  wire::Body make_body() {
    switch (choices_.below(26)) {
      case 0:
      case 1:
      case 2: {
        wire::Join join;
        join.job = job();
        join.policy = policy();
        join.name = std::string(1, static_cast<char>('p' + choices_.below(4)));
        join.rank = static_cast<std::int32_t>(choices_.below(4)) - 1;
        if (choices_.one_in(16)) join.rank = static_cast<std::int32_t>(number(70'000));
        join.world_size = static_cast<std::uint32_t>(choices_.below(4));
        if (choices_.one_in(4)) {
          join.incarnation = static_cast<Incarnation>(number(1));
          join.granted = number(2);
          join.pushed = number(1);
          join.collected = number(1);
          join.consumed = number(1);
        }
        if (choices_.one_in(8)) join.data.assign(choices_.below(1200), 0x55);
        if (choices_.one_in(8)) {
          join.phase = "checkpoint";
          join.phase_left_us = number(1'000'000);
        }
        join.notices = static_cast<std::uint32_t>(choices_.below(32));
        return join;
      }
      case 3: {
        wire::Leave leave{worker().ref};
        if (choices_.one_in(4)) {
          leave.kind = static_cast<wire::LeaveKind>(choices_.below(5));
          leave.reason.assign(choices_.below(2000), 'z');
        }
        return leave;
      }
      case 4:
      case 5:
      case 6: {
        const KnownWorker known = worker();
        return wire::Begin{known.ref, number(known.next)};
      }
      case 7:
      case 8:
      case 9: {
        const KnownWorker known = worker();
        wire::Push push{known.ref, number(known.next), std::nullopt, 1, 1};
        if (known.next % 2 != 0) push.computed_us = number(known.next * 1000);
        if (choices_.one_in(4)) push.loss = static_cast<double>(number(1)) / 3;
        return push;
      }
      case 10:
        return wire::Explain{worker().ref};
      case 11: {
        const KnownWorker known = worker();
        return wire::CancelBegin{known.ref, number(known.next)};
      }
      case 12: {
        const KnownWorker known = worker();
        return wire::Restarted{known.ref, number(known.in)};
      }
      case 13: {
        const KnownWorker known = worker();
        return wire::Targets{known.ref, number(known.in)};
      }
      case 14: {
        const KnownWorker known = worker();
        return wire::Collect{known.ref, number(known.in)};
      }
      case 15: {
        const KnownWorker known = worker();
        return wire::Consumed{known.ref, number(known.in)};
      }
      case 16: {
        const KnownWorker known = worker();
        return wire::Phase{known.ref, choices_.one_in(2) ? "checkpoint" : "", number(1'000'000)};
      }
      case 17:
        return wire::SetPolicyRequest{job(), policy()};
      case 18:
        return wire::MembersRequest{worker().ref, static_cast<std::uint32_t>(number(0))};
      case 19:
      case 20:
        return manage_request();
      case 21:
        return edge_request();
      case 22:
        return wire::AskCheckpoint{worker().ref, std::string(choices_.one_in(16) ? 600 : 3, 'r'),
                                   choices_.one_in(4)};
      case 23:
        return saved();
      case 24:
        if (choices_.one_in(2)) return wire::OrderCheckpoint{job(), "enough"};
        return wire::LatestCheckpoint{job(), static_cast<std::uint32_t>(number(0)), number(3)};
      default:
        return operator_request();
    }
  }
  wire::Body saved() {
    wire::Checkpointed saved;
    saved.worker = worker().ref;
    saved.number =
        static_cast<std::uint64_t>(choices_.one_in(8) ? number(1) : 1 + choices_.below(3));
    saved.shards = static_cast<std::uint32_t>(choices_.below(4));
    saved.shard = static_cast<std::uint32_t>(choices_.below(3));
    if (choices_.one_in(16)) saved.shards = static_cast<std::uint32_t>(number(1));
    saved.location.assign(choices_.one_in(16) ? 1100 : saved.shards, '/');
    return saved;
  }
  wire::Body manage_request() {
    wire::ManageWorkerRequest manage;
    manage.job = choices_.one_in(16) ? choices_.pick(kOddJobs) : job();
    // By rank, by name, or somebody that nobody knows.
    switch (choices_.below(5)) {
      case 0:
      case 1:
        manage.worker = std::to_string(choices_.below(4));
        break;
      case 2:
      case 3:
        manage.worker = std::string(1, static_cast<char>('p' + choices_.below(4)));
        break;
      default:
        manage.worker = choices_.pick(kOddWorkers);
    }
    manage.action = static_cast<wire::WorkerAction>(choices_.below(4));
    if (choices_.one_in(16)) manage.action = static_cast<wire::WorkerAction>(choices_.below(256));
    if (manage.action == wire::WorkerAction::kLease) {
      manage.text = "evaluation";
      manage.lease_us = number(1'000'000);
    }
    if (choices_.one_in(8)) manage.text.assign(choices_.below(1200), 'y');
    return manage;
  }
  // Of most of these the engine knows nothing.
  wire::Body edge_request() {
    switch (choices_.below(9)) {
      case 6: {
        const KnownWorker known = worker();
        return wire::Exchanging{known.ref, number(known.in), number(1'000'000)};
      }
      case 7:
        return wire::Inspected{worker().ref, static_cast<std::uint64_t>(number(1)),
                               std::vector<std::uint8_t>(choices_.below(40'000), 255)};
      case 8:
        return wire::InspectRequest{job(), std::to_string(choices_.below(4)), choices_.one_in(2)};
      case 3: {
        const KnownWorker known = worker();
        return wire::Arrive{known.ref, number(known.next),
                            std::vector<std::uint8_t>(choices_.below(1200), 7)};
      }
      case 4:
        return wire::ViewRequest{worker().ref, static_cast<std::uint64_t>(number(1)),
                                 static_cast<std::uint32_t>(number(0))};
      case 5: {
        const bool undo = choices_.one_in(2), force = choices_.one_in(2);
        return wire::ExcludeRequest{job(), "h", undo, force, "y"};
      }
      case 0:
        return wire::StatusRequest{};
      case 1:
        return wire::HistoryRequest{job(), static_cast<std::uint64_t>(number(0)), 0, 0};
      default:
        return wire::CheckpointRequest{"/nowhere"};
    }
  }
  wire::Body operator_request() {
    switch (choices_.below(5)) {
      case 0:
        return wire::JobsRequest{};
      case 1:
        return wire::WorkersRequest{job(), static_cast<std::uint32_t>(number(0)),
                                    choices_.one_in(2)};
      case 2:
        return wire::CreateJobRequest{job(), policy(), static_cast<std::uint32_t>(number(2)),
                                      static_cast<std::uint32_t>(number(0))};
      case 3:
        return wire::StopJobRequest{job(), "why not"};
      default:
        return wire::HeartbeatAck{};  // nothing that the engine answers
    }
  }

  // What is stored makes the same jobs, as far as a restart has to know them.
  void compare_restored() {
    server::Core other({}, *store_, *this);
    server::Core::Recovered recovered;
    std::string error;
    fuzz::require(other.recover([](Micros) {}, recovered, error), "the history is refused", error);
    fuzz::require(recovered.jobs >= core_->engine().job_ids().size(), "a job is lost");
    for (const JobId id : core_->engine().job_ids()) {
      JobSnapshot live;
      JobSnapshot restored;
      fuzz::require(core_->engine().snapshot(id, live), "a job without a snapshot");
      fuzz::require(other.engine().snapshot(id, restored), "a job is lost", live.created.name);
      const std::string job = live.created.name + ", policy " + live.policy;
      fuzz::require(restored.pushes == live.pushes, "pushes are lost, or counted again", job);
      fuzz::require(restored.state == live.state, "a job in another state", job);
      fuzz::require(restored.sequence == live.sequence, "another history", job);
      fuzz::require(restored.policy == live.policy, "another policy", job);
      fuzz::require(restored.workers.size() == live.workers.size(), "workers are lost", job);
      for (std::size_t i = 0; i < live.workers.size(); ++i) {
        const WorkerSnapshot& is = live.workers[i];
        const WorkerSnapshot& was = restored.workers[i];
        fuzz::require(was.pushed == is.pushed && was.incarnation == is.incarnation &&
                          was.own_pushes == is.own_pushes,
                      "a worker changes", job);
        fuzz::require(was.state == is.state && was.dismissal == is.dismissal,
                      "one that was sent away is as if it had not been", job);
        fuzz::require(was.slow_since_us == is.slow_since_us && was.exchange_us == is.exchange_us,
                      "who is slow is forgotten", job);
        // A worker may have ended its lease, which no record says: one that follows may then seem
        // to go on from before. When it ends is known.
        fuzz::require(is.leased_phase.empty() ||
                          (was.leased_phase == is.leased_phase &&
                           was.phase_us + was.phase_lease_us == is.phase_us + is.phase_lease_us),
                      "a lease is lost", job);
      }
    }
  }

  test::ByteChoices& choices_;
  Micros now_ = 1'000'000'000;
  std::unique_ptr<store::Store> store_ = store::make_memory_store();
  std::unique_ptr<server::Core> core_;
  std::unique_ptr<fuzz::EngineWatch> watch_;
  RequestId next_request_ = 1;
  RequestId asking_ = 0;
  std::optional<wire::Body> answer_;  // to the request `asking_`, if it came at once
  std::map<ConnectionId, std::map<RequestId, Standing>> standing_;
  std::deque<KnownWorker> workers_;  // every life that there was; they stay where they are
  KnownWorker* asking_for_ = nullptr;
  std::deque<Plan> plans_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  syncd::test::ByteChoices choices({data, size});
  World world(choices);
  world.run();
  return 0;
}
