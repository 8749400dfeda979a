// See admission.h.
#include "daemon/core/engine/admission.h"

#include <algorithm>

#include "daemon/core/engine/limits.h"

namespace syncd {

bool Admission::refuses(const Caller& caller, const wire::Join& join) const {
  if (!join.policy.empty()) {
    std::string error;
    const auto wanted = make_policy(join.policy, error);
    if (!wanted) {
      answers_.refuse(caller, Status::kInvalid, error);
      return true;
    }
    // MIN and MAX of a round may have been changed since.
    const bool same_kind = loop_.gathers() && wanted->family() == Family::kGather;
    if (!same_kind && wanted->name() != loop_.policy().name()) {
      answers_.refuse(caller, Status::kPolicyMismatch,
                      "job '{}' runs policy '{}', not '{}' as worker '{}' asks", spec_.name,
                      loop_.policy().name(), wanted->name(), join.name);
      return true;
    }
  }
  if (std::string wrong = check_world(join); !wrong.empty()) {
    answers_.refuse(caller, Status::kInvalid, std::move(wrong));
    return true;
  }
  // One far beyond the job's size is a mistake.
  const std::int64_t allowed = std::min<std::int64_t>(
      limits::kWorkersPerJobMax,
      std::max<std::int64_t>(spec_.expected_workers, std::int64_t{roster_.rank_limit()} + 1024));
  if (join.rank < allowed) return false;
  answers_.refuse(caller, Status::kInvalid,
                  "rank {} is too large for job '{}': allowed are 0 to {}", join.rank, spec_.name,
                  allowed - 1);
  return true;
}

bool Admission::refuses_epoch(const Caller& caller, const wire::Join& join) const {
  const Epoch epoch = recorder_.epoch();
  if (join.incarnation == 0 || join.epoch == 0) return false;
  if (join.epoch >= group_.epoch() && join.epoch <= epoch) return false;
  // To a job that no worker has joined yet, it brings the epoch that the store has lost.
  if (join.epoch > epoch && roster_.known() == 0) return false;
  // A member since before the present group began, which was granted nothing until then.
  const Worker* known = roster_.find(join.name, join.host);
  if (join.epoch < epoch && known != nullptr && is_member(known->state) &&
      known->incarnation == join.incarnation) {
    return false;
  }
  answers_.refuse(
      caller, Status::kFenced,
      "worker '{}' is of epoch {} of job '{}', which is in epoch {} (#{}): {}; a new process may "
      "join this one",
      join.name, join.epoch, spec_.name, epoch, engine_.job(),
      join.epoch < epoch ? "the job that it was in has ended"
                         : "this daemon has not the history of the job that it was in");
  return true;
}

bool Admission::refuses_one_more(const Caller& caller, const wire::Join& join,
                                 const Worker* holder) {
  std::string full;
  if (holder == nullptr || !is_member(holder->state)) full = too_many_members();
  if (full.empty() && holder == nullptr) full = too_many_edges(join.host);
  if (full.empty() && holder == nullptr && !engine_.has_room_for_worker()) {
    full = engine_.no_room_for_worker();
  }
  if (full.empty()) return false;
  answers_.refuse(caller, Status::kLimit, std::move(full));
  return true;
}

std::string Admission::too_many_members() const {
  if (roster_.members() < engine_.options().workers_per_job_max) return {};
  return fmt::format(
      "job '{}' has {} workers already, the most allowed (limits.workers_per_job_max)", spec_.name,
      roster_.members());
}

// For a worker that was not in the job before: one that returns makes the graph no larger than it
// was. The job's expected workers were counted when it was made, if their number alone tells.
std::string Admission::too_many_edges(const std::string& host) const {
  const std::size_t most = engine_.options().graph_edges_max;
  const std::size_t members = std::size_t{roster_.members()} + 1;
  if (members * roster_.members() <= most) return {};  // no graph has more than a complete one
  const std::size_t edges = loop_.policy().dense_edges(members, [&] {
    std::vector<std::string> hosts{host};
    roster_.each([&](const Worker& worker) {
      if (is_member(worker.state)) hosts.push_back(worker.host);
    });
    return hosts;
  });
  if (edges <= most) return {};
  const std::uint32_t expected = spec_.expected_workers;
  if (members <= expected && edges <= loop_.policy().dense_edges(expected, nullptr)) return {};
  return fmt::format(
      "job '{}' has {} workers; with one more its graph would have {} edges: this daemon allows {} "
      "(limits.graph_edges_max)",
      spec_.name, roster_.members(), edges, most);
}

// Keeps a group of another size out. A joiner that says no size may come to any job.
std::string Admission::check_world(const wire::Join& join) const {
  if (join.world_size == 0 || join.incarnation != 0) return {};
  const std::string who =
      fmt::format("worker '{}' is of a group of {} (its world size)", join.name, join.world_size);
  if (group_.opened_by(join)) {
    if (std::string wrong = group_.cannot_have(join.world_size); !wrong.empty()) return wrong;
  } else if (join.world_size != spec_.expected_workers) {
    return fmt::format("{}, but job '{}' expects {} workers{}", who, spec_.name,
                       spec_.expected_workers, second_group_hint());
  }
  if (join.rank >= 0 && static_cast<std::uint32_t>(join.rank) >= join.world_size) {
    return fmt::format("{}, which has no rank {}: allowed are 0 to {}", who, join.rank,
                       join.world_size - 1);
  }
  return {};
}

std::string Admission::second_group_hint() const {
  return "; a second group needs a job name of its own, or this job's end (syncctl job stop " +
         spec_.name + ")";
}

std::optional<Rank> Admission::place_for(const Caller& caller, const wire::Join& join) const {
  if (loop_.gathers() && refuses_second_name(caller, join)) return std::nullopt;
  const Worker* known = roster_.find(join.name, join.host);
  if (known != nullptr && (join.rank < 0 || static_cast<Rank>(join.rank) == known->rank)) {
    if (join.incarnation != 0 || !is_member(known->state) || known->connection == 0) {
      return known->rank;
    }
    answers_.refuse(caller, Status::kRankTaken,
                    "{} is connected already: another process has its name{}", label(*known),
                    second_group_hint());
    return std::nullopt;
  }
  if (known != nullptr && is_member(known->state)) {
    answers_.refuse(caller, Status::kRankTaken, "{} is still a member and cannot become rank {}",
                    label(*known), join.rank);
    return std::nullopt;
  }
  if (join.rank >= 0) {
    const Rank rank = static_cast<Rank>(join.rank);
    // Also while its connection is gone: the place is kept for a while.
    const Worker* holder = roster_.find(rank);
    const bool held = holder != nullptr && is_member(holder->state);
    if (join.incarnation != 0 && holder != nullptr &&
        (held || join.incarnation < holder->incarnation)) {
      // It was lost or sent away, and another worker got its place. That also fences it once the
      // other has gone: asking again would not help.
      answers_.refuse(
          caller, Status::kFenced, "incarnation {} of rank {} was given up, and its place {}{}",
          join.incarnation, rank, held ? "is held by " : "was given to ", label(*holder));
      return std::nullopt;
    }
    if (!held) return rank;
    answers_.refuse(
        caller, Status::kRankTaken, "rank {} of job '{}' is held by {}{}", rank, spec_.name,
        label(*holder),
        holder->disconnected_at >= 0
            ? fmt::format(", {}: its place is kept for {}", liveness_.describe(*holder, false),
                          format_duration(holder->grace_us))
            : second_group_hint());
    return std::nullopt;
  }
  if (join.world_size != 0 && roster_.members() >= spec_.expected_workers) {
    const Worker* first = nullptr;
    roster_.walk(0, [&](const Worker& worker) {
      if (is_member(worker.state)) first = &worker;
      return first == nullptr;
    });
    answers_.refuse(caller, Status::kRankTaken,
                    "job '{}' has its {} workers already, the first of them {}{}", spec_.name,
                    spec_.expected_workers, label(*first), second_group_hint());
    return std::nullopt;
  }
  const Rank free = roster_.free_rank();
  if (free < limits::kWorkersPerJobMax) return free;
  answers_.refuse(caller, Status::kLimit, "job '{}' is full: at most {} workers", spec_.name,
                  limits::kWorkersPerJobMax);
  return std::nullopt;
}

// Members of a round are known by their names.
bool Admission::refuses_second_name(const Caller& caller, const wire::Join& join) const {
  const Worker* living = roster_.find_member(join.name);
  if (living == nullptr) return false;
  const bool comes_back = join.incarnation != 0 || living->connection == 0;
  if (living->host == join.host && comes_back) return false;
  answers_.refuse(caller, Status::kRankTaken,
                  "worker '{}' of job '{}' is a member already, on host '{}': each needs a name of "
                  "its own",
                  join.name, spec_.name, living->host);
  return true;
}

Clock Admission::own_clock(const Worker* known, const wire::Join& join) const {
  const Clock before = known != nullptr ? known->clock : Clock{loop_.decentralized() ? -1 : 0};
  if (join.incarnation == 0) return before;
  const Clock reported =
      loop_.decentralized() ? Clock{join.granted} : std::max(join.pushed + 1, join.granted);
  return std::max(before, reported);
}

std::pair<Clock, Clock> Admission::entry_clocks(Clock own, Clock base, bool returns) const {
  const RelativeClocks& clocks = roster_.absolute_clocks();
  if (loop_.gathers()) return {std::max<Clock>(own, loop_.due_round() - 1), 0};
  if (loop_.decentralized()) {
    // Its first grant is the lowest iteration that any worker is in, or the first that no worker
    // was in; it counts as being just before that.
    return {std::max(clocks.empty() ? roster_.highest_clock(-1) : clocks.min() - 1, own), 0};
  }
  // A worker that returns resumes its clock if the policy's bound still allows that.
  if (returns && !spec_.views && loop_.policy().keeps_clock(loop_, own - base)) return {own, base};
  // Otherwise it enters at the minimum clock or, if no worker is active, at the highest ever
  // reached. Invariant I1: a place's clock never goes down.
  Clock clock = std::max(clocks.empty() ? roster_.highest_clock(0) : clocks.min(), own);
  // Where the others form views, it enters with the next one.
  const bool too_late = spec_.views && loop_.view_is_granted();
  const Clock ahead = too_late ? loop_.policy().traits().barrier_every : 0;
  clock += ahead;
  return {clock, clock - loop_.policy().entry_clock(loop_) - ahead};
}

}  // namespace syncd
