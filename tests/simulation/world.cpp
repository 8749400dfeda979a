// See world.h.
#include "world.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "members.h"
#include "violation.h"

namespace syncd::simulation {
namespace {

constexpr Micros kMs = 1'000;
constexpr Micros kSecond = 1'000'000;
// Calm lasts at most so long: the longest of all timeouts several times over.
constexpr Micros kCalmMax = 1'800 * kSecond;
constexpr std::uint64_t kEventsMax = 3'000'000;

class World {
 public:
  World(const Workload& workload, std::uint64_t seed, bool traced,
        std::optional<ClusterMistake> in_cluster = {})
      : workload_(workload),
        random_(seed),
        network_(agenda_, random_),
        checks_(workload.policies, workload.decentralized, in_cluster.has_value(),
                traced ? [this](const std::string& what) { print(what); }
                       : std::function<void(const std::string&)>()) {
    if (in_cluster) {
      members_ = std::make_unique<Members>(agenda_, random_, network_, disk_, checks_, *in_cluster);
    }
    choose();
  }

  Outcome run() {
    if (members_) {
      members_->is_awaited = [this] {
        return std::ranges::any_of(clients_, [](const auto& client) { return client->waits(); });
      };
      members_->start(plan_.daemons, options_);
    } else {
      start_daemon();
    }
    for (auto& client : clients_) {
      agenda_.in(static_cast<Micros>(random_.below(kSecond)), [&client] { client->start(); });
    }
    next_fault();
    agenda_.at(calm_at_, [this] { become_calm(); });
    while (!over()) {
      if (!agenda_.step()) stuck("nothing is left to happen");
      if (members_) members_->check();
      if (++events_ >= kEventsMax) stuck("no end after many events");
      if (agenda_.now() >= calm_at_ + kCalmMax) stuck("no end in calm");
    }
    finish();
    if (members_) members_->count_figures();
    return {checks_.counts(), events_, agenda_.now(), fingerprint()};
  }

 private:
  [[noreturn]] void stuck(const char* why) const {
    throw Violation(std::string(why) + ": " + describe());
  }
  void print(const std::string& what) const {
    std::printf("%12.3f %s\n", static_cast<double>(agenda_.now()) / kMs, what.c_str());
  }
  bool chance(std::uint64_t one_in) { return random_.one_in(one_in); }
  Micros span(Micros most) {
    return 1 + static_cast<Micros>(random_.below(static_cast<std::uint64_t>(most)));
  }

  // What this seed is about.
  void choose() {
    TrainerPlan& plan = plan_;
    if (members_) plan.daemons = random_.one_in(3) ? 2 : 3;
    plan.decentralized = workload_.decentralized;
    plan.compute_first = workload_.compute_first;
    plan.acknowledges = workload_.acknowledges;
    plan.rounds = workload_.rounds;
    plan.iteration_us = random_.between(members_ ? 50 : 2, 400) * kMs;
    // About as long as there are faults. A take-over takes seconds.
    calm_at_ = random_.between(members_ ? 10 : 1, 30) * kSecond;
    plan.iterations = std::clamp<std::int64_t>(2 * calm_at_ / plan.iteration_us, 5, 150);
    plan.slow_one_in = chance(2) ? 40 : 0;
    const int wanted = static_cast<int>(random_.between(workload_.workers_min, 7));
    int workers = 0;
    for (std::size_t host = 0; workers < wanted; ++host) {
      const int here = std::min<int>(wanted - workers, static_cast<int>(random_.between(1, 3)));
      clients_.push_back(
          std::make_unique<Client>(agenda_, random_, network_, checks_, host, here, plan));
      workers += here;
    }
    if (members_) {
      options_.idle_timeout_us = Cluster::kLease;  // as server_options() in a cluster
    } else {
      options_.mode = chance(4) ? store::Mode::kFast : store::Mode::kDurable;
    }
    const bool bounded = std::any_of(workload_.policies.begin(), workload_.policies.end(),
                                     [](const Rule& rule) { return rule.bound.has_value(); });
    options_.one_request_a_turn = bounded || chance(2);
    options_.wall_clock_offset_us = 1'700'000'000 * kSecond;
    options_.engine.snapshot_every_records = static_cast<std::uint64_t>(random_.between(5, 200));
    JobSpec& job = options_.job;
    job.name = "job";
    job.policy = workload_.policies.front().policy;
    job.expected_workers = static_cast<std::uint32_t>(workers);
    if (!workload_.decentralized && !workload_.rounds && workers > 2 && chance(3)) {
      job.min_workers = 2;
      job.start_timeout_us = 3 * kSecond;
    }
    job.worker_grace_us = random_.between(500, 10'000) * kMs;
    // By numbers of their own, so that earlier seeds mean what they meant.
    test::Random exits(random_);
    if (exits.one_in(2)) job.exit_grace_us = exits.between(0, 5'000) * kMs;
    job.evict_after_us = chance(2) ? random_.between(3'000, 20'000) * kMs : 0;
    job.warn_after_us = job.evict_after_us / 2;
    if (chance(3)) job.warn_after_us = job.evict_after_us = kAutoSpan;
    network_.latency_us = random_.between(50, 20'000);
    if (chance(3)) network_.stall_one_in = 200;
    disk_.latency_us = usual_latency_us_ = random_.between(100, 10'000);
    fault_every_us_ = random_.between(50, 3'000) * kMs;
  }

  // ---- The daemon

  void start_daemon() {
    if (daemon_ != nullptr) return;
    checks_.check_history(disk_);
    Checks::check_recovery(disk_, options_.engine);
    checks_.on_restart(disk_);
    const auto open = [this](std::function<void()> awake) {
      return std::make_unique<SimStore>(agenda_, disk_, random_, options_.mode, std::move(awake));
    };
    daemon_ = std::make_unique<Daemon>(agenda_, random_, network_, open, options_, checks_);
  }

  void end_daemon() {
    daemon_.reset();
    // Somebody sets the clock meanwhile, now and then.
    if (chance(4)) options_.wall_clock_offset_us += random_.between(-3'600, 3'600) * kSecond;
    const Micros down = chance(3) ? span(8 * kSecond) : span(200 * kMs);
    agenda_.in(calm_ ? 0 : down, [this] { start_daemon(); });
  }

  void stop_daemon() {
    daemon_->stop();
    await_stop();
  }
  void await_stop() {
    if (daemon_ == nullptr) return;
    if (daemon_->done()) return end_daemon();
    agenda_.in(kMs, [this] { await_stop(); });
  }

  // ---- What goes wrong

  void next_fault() {
    agenda_.in(span(2 * fault_every_us_), [this] {
      if (calm_) return;
      fault();
      next_fault();
    });
  }

  // Who serves the clients; null: nobody.
  Daemon* daemon() const { return members_ ? members_->leader() : daemon_.get(); }
  Client& any_client() { return *clients_[random_.below(clients_.size())]; }

  void fault() {
    if (workload_.policies.size() > 1 && daemon() != nullptr && chance(3)) return switch_policy();
    const std::uint64_t what = random_.below(14);
    const bool is_of_daemon = what >= 6 && what <= 11;
    if (members_ && is_of_daemon) {
      // They have faults of their own. A worker is lost meanwhile, now and then.
      if (daemon() != nullptr && chance(2)) manage_worker(wire::WorkerAction::kKick);
      return;
    }
    switch (what) {
      case 0:
      case 1: {
        const auto open = network_.open_connections();
        if (open.empty()) return;
        checks_.count("fault cut");
        return network_.cut(open[random_.below(open.size())]);
      }
      case 2:
        checks_.count("fault partition");
        return network_.cut_off(random_.below(clients_.size()), agenda_.now() + span(12 * kSecond));
      case 3:
      case 4:
        return kill_client();
      case 5:
        checks_.count("fault client frozen");
        return any_client().freeze(agenda_.now() + span(8 * kSecond));
      case 6:
      case 7:
        if (daemon_ == nullptr) return;
        checks_.count("fault daemon killed");
        return end_daemon();
      case 8:
        if (daemon_ == nullptr) return;
        checks_.count("fault power cut");
        daemon_->lose_power();
        daemon_.reset();
        disk_.cut_power(random_);
        checks_.note_power_cut();
        if (options_.mode == store::Mode::kFast) {
          checks_.forgive();
          end_lost_ = end_lost_ || stopped_;
        }
        return end_daemon();
      case 9:
        if (daemon_ == nullptr) return;
        checks_.count("fault daemon stopped");
        return stop_daemon();
      case 10:
        if (daemon_ == nullptr) return;
        checks_.count("fault daemon frozen");
        return daemon_->freeze(agenda_.now() + span(3 * kSecond));
      case 11:
        return spoil_disk();
      default:
        if (daemon() != nullptr && chance(2)) operate();
    }
  }

  // An operator sends a worker away, says that it is in a long phase, or ends the job, of which the
  // next daemon makes another one by the same name.
  void operate() {
    if (chance(20)) {
      checks_.count("fault job stopped");
      stopped_ = true;
      return daemon()->operate(wire::StopJobRequest{"job", "enough"});
    }
    constexpr wire::WorkerAction kActions[] = {
        wire::WorkerAction::kDrain, wire::WorkerAction::kKick, wire::WorkerAction::kLease};
    manage_worker(kActions[random_.below(3)]);
  }

  void manage_worker(wire::WorkerAction action) {
    const bool drains = action == wire::WorkerAction::kDrain;
    const bool kicks = action == wire::WorkerAction::kKick;
    checks_.count(drains  ? "fault worker drained"
                  : kicks ? "fault worker kicked"
                          : "fault worker leased");
    drained_ = drained_ || drains;
    kicked_ = kicked_ || kicks;
    wire::ManageWorkerRequest request;
    request.job = "job";
    request.worker = std::to_string(random_.below(options_.job.expected_workers));
    request.action = action;
    request.text = "evaluation";
    request.lease_us = span(10 * kSecond);
    daemon()->operate(std::move(request));
  }

  void switch_policy() {
    checks_.count("fault policy switched");
    const Rule& rule = workload_.policies[random_.below(workload_.policies.size())];
    daemon()->operate(wire::SetPolicyRequest{"job", rule.policy});
  }

  // All processes are killed, and a launcher starts them again, some sooner than others.
  void relaunch() {
    checks_.count("fault all clients killed");
    const Micros away = span(20 * kSecond);
    for (auto& client : clients_) {
      if (client->running()) restart_later(*client, away + span(5 * kSecond));
    }
  }

  void restart_later(Client& client, Micros away) {
    client.kill(chance(3));
    agenda_.in(away, [this, &client] {
      if (!client.running()) client.start();
      if (calm_) client.calm();
    });
  }

  void kill_client() {
    if (chance(8)) return relaunch();
    Client& client = any_client();
    if (!client.running()) return;
    checks_.count("fault client killed");
    restart_later(client, chance(3) ? span(15 * kSecond) : span(500 * kMs));
  }

  void spoil_disk() {
    if (chance(2)) {
      checks_.count("fault disk slow");
      disk_.latency_us = span(2 * kSecond);
      agenda_.in(span(5 * kSecond), [this] { disk_.latency_us = usual_latency_us_; });
      return;
    }
    checks_.count("fault disk full");
    disk_.error = "No space left on device";
    agenda_.in(span(5 * kSecond), [this] { disk_.error.clear(); });
  }

  // ---- The end

  void become_calm() {
    calm_ = true;
    if (members_) members_->become_calm();
    network_.stall_one_in = 0;
    for (std::size_t host = 0; host < clients_.size(); ++host) {
      network_.cut_off(host, agenda_.now());
      clients_[host]->calm();
    }
  }

  bool over() const {
    if (!calm_ || daemon() == nullptr || !daemon()->idle()) return false;
    bool finished = true;
    for (const auto& client : clients_) {
      finished = finished && client->finished();
      if (client->finished() || (client->running() && client->waits_to_start())) continue;
      return false;
    }
    return finished || is_stranded();
  }

  // Those who were away when the others finished and left have made a new job by joining, and wait
  // for more workers than there are. So do those of a job of which an operator has drained a worker
  // before it started; also before its store knew that it had started, as in fast mode a power cut
  // may take that away. Workers that have heard of a job's end do not come back either, where the
  // store has lost it. Nor do the others of a round end whose last members have finished unheard.
  bool is_stranded() const {
    const Engine& engine = daemon()->engine();
    const std::vector<JobId> jobs = engine.job_ids();
    JobSnapshot first, last;
    if (jobs.empty() || !engine.snapshot(jobs.back(), last)) return false;
    const bool made_again = jobs.size() > 1 && engine.snapshot(jobs[jobs.size() - 2], first) &&
                            first.state == JobState::kStopped;
    if (workload_.rounds) {
      std::size_t left = 0;
      for (const auto& client : clients_) left += client->unfinished();
      return (made_again || drained_ || kicked_ || stopped_ || checks_.leaves_outside()) &&
             left < workload_.policies.front().members_min;
    }
    const auto members = std::count_if(last.workers.begin(), last.workers.end(),
                                       [](const auto& worker) { return is_member(worker.state); });
    return (made_again || drained_ || end_lost_) && last.state == JobState::kWaiting &&
           static_cast<std::uint32_t>(members) < options_.job.expected_workers;
  }

  void finish() {
    if (is_stranded()) checks_.count("stranded");
    checks_.check_history(disk_);
    Checks::check_recovery(disk_, options_.engine);
    if (members_) members_->check_copies();
    // What the living engine says of the job is what comes of its history.
    for (const JobId id : disk_.jobs()) {
      Engine restored(options_.engine);
      std::string error;
      require(restored.restore(nullptr, disk_.history(id), error), error);
      JobSnapshot live, stored;
      require(daemon()->engine().snapshot(id, live) && restored.snapshot(id, stored),
              "the job is gone");
      require(live.pushes == stored.pushes,
              "the engine has counted " + std::to_string(live.pushes) + " pushes, its history " +
                  std::to_string(stored.pushes));
    }
  }

  std::uint64_t fingerprint() const {
    std::uint64_t hash = 14695981039346656037U;
    store::RecordEncoder encoder;
    for (const JobId id : disk_.jobs()) {
      for (const Record& record : disk_.history(id)) {
        for (const std::uint8_t byte : encoder.encode(record)) {
          hash = (hash ^ byte) * 1099511628211U;
        }
      }
    }
    return hash;
  }

  std::string describe() const {
    std::string text = "at " + std::to_string(agenda_.now() / kMs) + " ms";
    if (daemon() == nullptr) text += ", no daemon";
    for (const auto& client : clients_) text += "; " + client->describe();
    return text;
  }

  const Workload workload_;
  test::Random random_;
  Agenda agenda_;
  Network network_;
  Disk disk_;  // of a cluster what is in its log
  Checks checks_;
  Daemon::Options options_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Members> members_;  // instead
  TrainerPlan plan_;
  std::vector<std::unique_ptr<Client>> clients_;
  Micros fault_every_us_ = kSecond;
  Micros usual_latency_us_ = 0;  // of the disk
  Micros calm_at_ = 0;
  bool calm_ = false;
  bool drained_ = false;  // an operator has
  bool kicked_ = false;   // likewise
  bool stopped_ = false;  // likewise
  bool end_lost_ = false;
  std::uint64_t events_ = 0;
};

}  // namespace

const std::vector<Workload>& workloads() {
  // Under ElasticBSP with R foreseen iterations: max(R, 2 R - 1) (POLICIES).
  const Rule bsp = {"bsp", 0}, bsp3 = {"bsp:3", 2}, backup = {"bsp,backup=1", 0, 1};
  const Rule ssp0 = {"ssp:0", 0}, ssp3 = {"ssp:3", 3}, dssp = {"dssp:1-4", 4};
  const Rule elastic = {"elastic_bsp:5", 9, 0, true}, elastic1 = {"elastic_bsp:1", 1, 0, true};
  const Rule asp = {"asp"}, spec = {"specsync+asp"}, naive = {"naive_wait:10+asp"};
  const Rule spec3 = {"specsync:fixed,20,0.5+ssp:3", 3};
  const auto alone = [](const Rule& rule, int workers_min = 1) {
    return Workload{rule.policy, {rule}, false, false, false, false, workers_min};
  };
  const auto peers = [](const std::string& policy, bool compute_first, bool acknowledges,
                        int workers_min) {
    return Workload{policy, {{policy}}, true, compute_first, acknowledges, false, workers_min};
  };
  const auto rounds = [](const std::string& policy, std::size_t least, std::size_t most) {
    Workload workload{policy, {{policy, {}, 0, false, least, most}}};
    workload.rounds = true;
    workload.workers_min = static_cast<int>(least);
    return workload;
  };
  static const std::vector<Workload> all = {
      alone(asp),
      alone(bsp),
      alone(bsp3),
      alone(backup, 3),
      alone(ssp0),
      alone(ssp3),
      alone(dssp),
      alone(elastic),
      alone(elastic1),
      alone(spec),
      alone({"specsync:adaptive,scope=forecast,auto_off=off+asp"}),
      alone(spec3),
      alone(naive),
      {"switches", {bsp, ssp3, asp, elastic, dssp, bsp3, backup, spec, spec3, naive}},
      peers("hop:ring,max_ig=2", false, false, 2),
      peers("hop:ring,max_ig=3,backup=1", false, false, 3),
      peers("hop:complete,max_ig=3,staleness=2", true, false, 2),
      peers("hop:complete,max_ig=4,backup=1,skip=4,skip_trigger=2", false, false, 3),
      peers("notify_ack:ring_directed", true, true, 2),
      peers("notify_ack:star", true, true, 2),
      rounds("gather:2-4", 2, 4),
      rounds("gather:3", 3, 3),
  };
  return all;
}

Outcome run_world(const Workload& workload, std::uint64_t seed, bool traced) {
  return World(workload, seed, traced).run();
}

Outcome run_cluster_world(const Workload& workload, std::uint64_t seed, bool traced,
                          ClusterMistake mistake) {
  return World(workload, seed, traced, mistake).run();
}

}  // namespace syncd::simulation
