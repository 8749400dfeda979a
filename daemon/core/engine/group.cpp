// See group.h.
#include "daemon/core/engine/group.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "daemon/core/engine/limits.h"

namespace syncd {
namespace {

constexpr std::string_view kName = "launch=", kNumber = "\nlaunch_number=";

std::string label(const Launch& launch) {
  return fmt::format("'{}' (number {})", launch.name, launch.number);
}

}  // namespace

std::string Launch::text() const {
  return fmt::format("{}{}{}{}\n", kName, name, kNumber, number);
}

bool Launch::parse(std::string_view text, Launch& launch) {
  const std::size_t at = text.find(kNumber);
  if (!text.starts_with(kName) || at == std::string_view::npos || !text.ends_with('\n')) {
    return false;
  }
  launch.name = text.substr(kName.size(), at - kName.size());
  const std::string_view digits = text.substr(at + kNumber.size());
  const char* last = digits.data() + digits.size() - 1;
  const auto [end, code] = std::from_chars(digits.data(), last, launch.number);
  return !launch.name.empty() && code == std::errc{} && end == last;
}

// ---- about a joiner
// -------------------------------------------------------------------------------------------

// Workers that have not come back yet since the daemon was started say nothing: they may have lost
// it only.
bool Group::restarted_by(const wire::Join& join) const {
  if (join.incarnation != 0 || !roster_.running() || roster_.active().empty()) return false;
  return std::all_of(roster_.active().begin(), roster_.active().end(), [&](Rank rank) {
    const Worker& worker = roster_.at(rank);
    return worker.connection == 0 && worker.told_epoch != 0;
  });
}

bool Group::opened_by(const wire::Join& join) const {
  if (returns(join)) return false;
  if (superseded_by(join) || restarted_by(join)) return true;
  if (roster_.state() != JobState::kWaiting || roster_.members() > 0) return false;
  const bool other_launch = !launch_.name.empty() && !join.launch.empty() &&
                            Launch{join.launch, join.launch_number} != launch_;
  return reassembling_ || other_launch;
}

Clock Group::first_clock(const wire::Join& join) const {
  const Iteration first = join.resume == wire::Resume::kContinue ? join.resume_at : 0;
  return loop_.decentralized() ? first - 1 : first;
}

// A joiner that says no launch may come to any, as may one whose job has none.
bool Group::refuses_launch(const Caller& caller, const wire::Join& join) const {
  if (launch_.name.empty() || join.launch.empty()) return false;
  const std::string who = fmt::format("worker '{}' is of launch {}", join.name,
                                      label(Launch{join.launch, join.launch_number}));
  if (join.launch == launch_.name) {
    if (join.launch_number >= launch_.number) return false;
    answers_.refuse(caller, Status::kStopped, "{}, which launch {} of job '{}' has superseded", who,
                    label(launch_), spec_.name);
    return true;
  }
  // To come back is not to be started again.
  if (returns(join)) {
    answers_.refuse(caller, Status::kStopped, "{}, but job '{}' is of launch {} now", who,
                    spec_.name, label(launch_));
    return true;
  }
  if (roster_.members() == 0) return false;
  const Worker* first = nullptr;
  roster_.walk(0, [&](const Worker& worker) {
    if (is_member(worker.state)) first = &worker;
    return first == nullptr;
  });
  answers_.refuse(caller, Status::kRankTaken,
                  "{}, but job '{}' is of launch {}, and its {} is still a member", who, spec_.name,
                  label(launch_), syncd::label(*first));
  return true;
}

bool Group::refuses_beginning(const Caller& caller, const wire::Join& join) const {
  if (roster_.state() != JobState::kWaiting || returns(join)) return false;
  if (!reassembling_ && join.incarnation != 0) return false;
  const Clock clock = first_clock(join);
  const auto begins = [&](const Worker& worker) {
    if (!is_member(worker.state) || worker.returned) return false;
    if (worker.granted != kNoIteration) return false;  // the store has lost its first start
    return worker.name != join.name || worker.host != join.host;
  };
  // All begin where the first of them does, because of this check: one of them is enough.
  const Worker* known = roster_.find(beginner_);
  if (known == nullptr || !begins(*known)) {
    known = nullptr;
    roster_.walk(0, [&](const Worker& worker) {
      if (begins(worker)) known = &worker;
      return known == nullptr;
    });
  }
  if (known == nullptr) return false;
  beginner_ = known->rank;
  if (known->clock == clock) return false;
  const Clock other_clock = known->clock;
  RankList others;
  roster_.each([&](const Worker& worker) {
    if (begins(worker) && worker.clock != clock) others.push_back(worker.rank);
  });
  const Clock before_first = loop_.decentralized() ? -1 : 0;
  answers_.refuse(caller, Status::kInvalid,
                  "worker '{}' would begin job '{}' at iteration {}, but {} {} would begin it at "
                  "{}: all must load the same checkpoint, or none",
                  join.name, spec_.name, clock - before_first,
                  others.size() == 1 ? "worker" : "workers", others.text(),
                  other_clock - before_first);
  return true;
}

std::uint32_t Group::wanted() const {
  if (!reassembling_) return spec_.expected_workers;
  return spec_.expected_workers > left_ ? spec_.expected_workers - left_ : 1;
}

std::string Group::cannot_have(std::uint32_t workers) const {
  const EngineOptions& options = engine_.options();
  if (workers > options.workers_per_job_max) {
    return fmt::format(
        "job '{}' cannot have {} workers: this daemon allows {} per job "
        "(limits.workers_per_job_max)",
        spec_.name, workers, options.workers_per_job_max);
  }
  const std::size_t edges = loop_.policy().dense_edges(workers, nullptr);
  if (edges > options.graph_edges_max) {
    return fmt::format(
        "job '{}' cannot have {} workers: its graph would have {} edges, and this daemon allows {} "
        "(limits.graph_edges_max)",
        spec_.name, workers, edges, options.graph_edges_max);
  }
  const std::uint32_t fewest = spec_.min_workers > 0 ? spec_.min_workers : workers;
  return loop_.policy().check_workers(std::min(fewest, workers), workers);
}

// ---- records
// -------------------------------------------------------------------------------------------

void Group::fill_joined(Record& record, const wire::Join& join) const {
  if (waits_again()) {
    record.returned = returns(join);
    if (!record.returned) record.clock = first_clock(join);
  } else if (roster_.state() == JobState::kWaiting && join.incarnation == 0) {
    const Worker* before = roster_.find(static_cast<Rank>(record.rank));
    if (before == nullptr || before->granted == kNoIteration) record.clock = first_clock(join);
  }
  if (opened_by(join) && (reassembling_ || join.world_size != 0)) {
    record.expected_workers = join.world_size != 0 ? join.world_size : wanted();
  }
  const Launch launch{join.launch, join.launch_number};
  if (roster_.members() == 0 && !launch.name.empty() && launch != launch_) {
    record.config = launch.text();
  }
}

void Group::apply_joined(const Record& record) {
  // The epoch of a worker that has come back to an empty store.
  if (record.epoch > recorder_.epoch()) epoch_ = record.epoch;
  if (record.expected_workers != 0) {
    // Those that have left were of another group.
    roster_.each([&](Worker& worker) {
      if (worker.state == WorkerState::kLeft) roster_.begin_anew(worker, record.clock);
    });
    left_ = 0;
    spec_.expected_workers = record.expected_workers;
    roster_.expect(wanted());
  }
  if (!record.config.empty()) Launch::parse(record.config, launch_);
  Worker* worker = roster_.find(static_cast<Rank>(record.rank));
  if (worker == nullptr) return;
  if (waits_again() && !record.returned && !record.resumed) {
    roster_.begin_anew(*worker, record.clock);
  }
}

void Group::apply_left(const Worker& worker) {
  if (!waits_again() || !worker.returned) return;
  ++left_;
  roster_.expect(wanted());
}

void Group::apply_reassembling(const Record& record) {
  recorder_.raise_epoch(record.epoch);
  reassembling_ = true;
  failure_ = record.reason;
  left_ = 0;
  roster_.each([&](const Worker& worker) {
    left_ += worker.state == WorkerState::kLeft && worker.answered() != kNoIteration;
  });
  roster_.expect(wanted());
  roster_.wait();
  // Members that have never begun can begin with the others.
  roster_.each([&](Worker& worker) {
    if (!is_member(worker.state) || worker.returned) return;
    roster_.begin_anew(worker, loop_.decentralized() ? -1 : 0);
    loop_.begin_life(worker, worker.clock);
  });
  loop_.renew_policy();
}

// The group continues if a worker has come back. The others begin at the lowest of their clocks.
void Group::fill_started(Record& record) const {
  if (!reassembling_) {
    // At the first start, too, they may continue what another job has begun.
    roster_.each([&](const Worker& worker) {
      const bool begins = is_member(worker.state) && worker.granted == kNoIteration;
      if (begins) record.clock = std::max(record.clock, worker.clock);
    });
    return;
  }
  Clock of_returned = kNever, of_others = kNever;
  roster_.each([&](const Worker& worker) {
    if (!is_member(worker.state)) return;
    Clock& lowest = worker.returned ? of_returned : of_others;
    lowest = std::min(lowest, worker.clock);
  });
  record.resumed = of_returned != kNever;
  record.clock = record.resumed ? of_returned : of_others;
}

void Group::apply_started(const Record& record) {
  if (!reassembling_) {
    if (record.clock <= 0) return;
    roster_.each([](Worker& worker) { worker.tells_resumed = worker.pushed == kNoIteration; });
    if (!loop_.decentralized()) roster_.rebase();
    return;
  }
  if (!record.resumed) spec_.expected_workers = wanted();
  reassembling_ = false;
  failure_.clear();
  left_ = 0;
  roster_.expect(spec_.expected_workers);
  const bool tells = record.resumed || record.clock > (loop_.decentralized() ? -1 : 0);
  roster_.each([&](Worker& worker) {
    const bool member = is_member(worker.state);
    if (member) worker.tells_resumed = tells;
    if (!record.resumed) {
      roster_.begin_anew(worker, record.clock);
    } else if (member && !worker.returned) {
      roster_.set_clock(worker, std::max(worker.clock, record.clock), 0);
    } else {
      return;
    }
    loop_.begin_life(worker, worker.clock);
  });
  if (!loop_.decentralized()) roster_.rebase();
  if (!record.resumed) epoch_ = recorder_.epoch();
}

void Group::save(JobSnapshot& out) const {
  const bool as_created = spec_.expected_workers == recorder_.creation().expected_workers;
  out.expected_workers = as_created ? 0 : spec_.expected_workers;
  out.left = left_;
  out.reassembling = reassembling_;
  out.group_epoch = epoch_ == recorder_.epoch() ? 0 : epoch_;
  out.launch = launch_.name;
  out.launch_number = launch_.number;
  out.failure = failure_;
}

std::string Group::restore(const JobSnapshot& snapshot) {
  if (snapshot.expected_workers > limits::kWorkersPerJobMax) {
    return fmt::format("its snapshot expects {} workers", snapshot.expected_workers);
  }
  if (snapshot.expected_workers != 0) spec_.expected_workers = snapshot.expected_workers;
  left_ = snapshot.left;
  reassembling_ = snapshot.reassembling;
  launch_ = {snapshot.launch, snapshot.launch_number};
  failure_ = snapshot.failure;
  epoch_ = snapshot.group_epoch != 0 ? snapshot.group_epoch : recorder_.epoch();
  roster_.expect(wanted());
  return {};
}

}  // namespace syncd
