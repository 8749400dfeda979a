// See gather.h.
#include "daemon/core/policies/gather.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/core/engine/exit_reason.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/policies/gather_tally.h"
#include "daemon/core/policies/state_reader.h"

namespace syncd {
namespace {

constexpr Micros kSecond = 1'000'000;
// Members hear of changes of their round at once, and of further ones after that.
constexpr Micros kNoticeEvery = kSecond / 10;
// So long after a restart of the daemon a round waits for workers that were there before.
constexpr Micros kAmnesty = 30 * kSecond;
constexpr std::uint32_t kCheck = 0;  // the timer
constexpr std::size_t kNamesShownMax = 4;
constexpr std::size_t kCauseBytesMax = 120;
constexpr std::string_view kFinishedLine = "finished ", kExcludedLine = "excluded ";
constexpr std::string_view kExclude = "exclude", kAdmit = "admit";

struct Settings {
  std::int64_t min = 1;
  std::int64_t max = 1;
  Micros last_call = 2 * kSecond;
  Micros regroup_wait = 0;
  Micros straggle_wait = 60 * kSecond;
};
struct Span {
  std::string_view key;
  Micros Settings::*value;
};
constexpr Span kSpans[] = {{"last_call", &Settings::last_call},
                           {"regroup_wait", &Settings::regroup_wait},
                           {"straggle_wait", &Settings::straggle_wait}};

const char* verb(Fate fate) {
  constexpr const char* kVerbs[] = {"is in it", "finished",      "left",
                                    "failed",   "was preempted", "was lost"};
  return kVerbs[static_cast<std::size_t>(fate)];
}

Fate fate_of(const Record& record) {
  if (says(record.reason, to_string(wire::LeaveKind::kFinished))) return Fate::kFinished;
  if (says(record.reason, to_string(wire::LeaveKind::kFailed))) return Fate::kFailed;
  if (says(record.reason, to_string(wire::LeaveKind::kPreempted))) return Fate::kPreempted;
  return record.kind == RecordKind::kWorkerLost ? Fate::kLost : Fate::kLeft;
}

// Empty: it breaks no round.
std::optional<RoundBreak> break_of(Fate fate) {
  switch (fate) {
    case Fate::kIn:
    case Fate::kFinished:
      return {};
    case Fate::kLeft:
      return RoundBreak::kLeft;
    case Fate::kFailed:
      return RoundBreak::kFailed;
    case Fate::kPreempted:
      return RoundBreak::kPreempted;
    case Fate::kLost:
      return RoundBreak::kLost;
  }
  return {};
}

// What the reason says beside that.
std::string cause_of(const Record& record, Fate fate) {
  std::string_view text = record.reason;
  const bool says_how =
      fate == Fate::kFinished || fate == Fate::kFailed || fate == Fate::kPreempted;
  if (says_how) text.remove_prefix(std::min(text.size(), text.find(':')));
  while (says_how && !text.empty() && (text[0] == ':' || text[0] == ' ')) text.remove_prefix(1);
  return std::string(text);
}

using Member = GatherMember;
using Waiter = GatherWaiter;

std::string cut(std::string text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

// "'a', 'b' and 3 more": the first of `size` names.
std::string list(const std::vector<std::string>& names, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamesShownMax; ++i) {
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  }
  if (size > kNamesShownMax) text += fmt::format(" and {} more", size - kNamesShownMax);
  return text;
}
std::string list(const std::vector<std::string>& names) {
  return list(names, names.size());
}

class Gather final : public Policy {
 public:
  explicit Gather(const Settings& settings)
      : Policy({.family = Family::kGather,
                .tells_barriers = true,
                .round_max = static_cast<std::uint32_t>(settings.max)}),
        settings_(settings) {}

  std::string name() const override {
    std::string text = fmt::format("gather:{}", settings_.min);
    if (settings_.max != settings_.min) text += fmt::format("-{}", settings_.max);
    const Settings defaults;
    for (const Span& span : kSpans) {
      if (settings_.*span.value == defaults.*span.value) continue;
      text += fmt::format(",{}={}", span.key, span_text(settings_.*span.value));
    }
    return text;
  }

  std::uint64_t barriers() const override { return formed_; }
  Clock entry_clock(const PolicyHost&) const override { return 0; }
  void number_from(std::uint64_t round) override { state_.round = round; }
  RoundState round() const override { return state_; }
  bool in_round(Rank rank) const override {
    const Member* member = find(rank);
    return member != nullptr && !member->anew;
  }

  // ---- membership
  void on_enter(PolicyHost&, Rank rank) override { back_active_ += back_.contains(rank) ? 1 : 0; }
  void on_return(PolicyHost& host, Rank rank) override {
    Member* member = find(rank);
    if (back_.insert(rank).second) {  // also before on_restored(), which may come a moment later
      ++back_active_;
      if (member != nullptr) change(host, *member, [](Member& one) { one.back = true; });
    }
    // Another process has its place.
    if (member != nullptr && member->incarnation != host.worker(rank).incarnation) {
      end(host, *member, Fate::kLost, host.now(), "another process of its name joined");
    }
    update(host);
  }
  void on_gone(PolicyHost& host, const Record& record) override {
    const auto rank = static_cast<Rank>(record.rank);
    heard(rank);
    remove_waiter(rank);
    back_active_ -= back_.contains(rank) ? 1 : 0;
    const Fate fate = fate_of(record);
    if (Member* member = find(rank)) {
      end(host, *member, fate, record.time_us, cut(cause_of(record, fate), kCauseBytesMax));
      if (fate == Fate::kFinished) add_finished(host.worker(rank).name);
    }
    update(host);
  }

  // ---- the loop: a begin or a cancel among n workers costs O(log n), unless a round forms
  void on_begin(PolicyHost& host, Rank rank) override {
    const Worker& worker = host.worker(rank);
    heard(rank);
    if (finished_names_.contains(worker.name)) {
      host.stop_begin(rank,
                      fmt::format("finished: '{}' has said that its work is done", worker.name));
      return;
    }
    if (Member* member = find(rank)) {
      if (!member->anew) {
        broken(host, told_.room > 0 ? RoundBreak::kNewcomer : RoundBreak::kRestarted);
      }
      change(host, *member, [&](Member& one) {
        one.anew = one.waits = true;
        one.since = worker.waiting->since;
      });
    } else {
      const auto known = waiters_.find(rank);
      const std::uint64_t turn = known == waiters_.end() ? 0 : known->second.turn;
      remove_waiter(rank);
      Waiter& waiter = waiters_[rank] = {.since = worker.waiting->since, .turn = turn};
      fill(host, rank, waiter);
      if (!stale_) tally_.add(rank, waiter);
    }
    update(host);
  }
  // It may be on its way out of the job, or be cut off: what follows comes with the next turn.
  void on_cancel(PolicyHost& host, Rank rank) override {
    remove_waiter(rank);
    if (Member* member = find(rank)) {
      change(host, *member, [&](Member& one) {
        one.waits = false;
        one.since = host.now();
      });
    }
    host.set_timer(kNoRank, kCheck, host.now());
  }

  void on_timer(PolicyHost& host, std::int64_t, std::uint32_t) override { update(host); }

  // ---- a restart of the daemon
  void on_restored(PolicyHost& host) override {
    amnesty_until_ = host.now() + kAmnesty;
    unheard_list_.reset();
    for (const Rank rank : host.active()) {
      if (!host.worker(rank).waiting) unheard_.insert(rank);
    }
    update(host);
  }

  void on_note(PolicyHost& host, const Record& record) override {
    if (record.kind == RecordKind::kView) {
      std::vector<Member> members;
      for (const ViewMember& member : record.members) {
        members.push_back({.rank = member.rank, .incarnation = member.incarnation, .cause = {}});
      }
      install(static_cast<std::uint64_t>(record.iteration), std::move(members));
    } else if (record.kind == RecordKind::kPolicyNote) {
      apply_exclusion(host, record);
    }
  }

  std::vector<std::int64_t> save() const override {
    std::vector<std::int64_t> out = {static_cast<std::int64_t>(state_.round),
                                     static_cast<std::int64_t>(members_.size())};
    for (const Member& member : members_) {
      out.insert(out.end(),
                 {member.rank, static_cast<std::int64_t>(member.incarnation),
                  static_cast<std::int64_t>(member.fate), member.spared ? 1 : 0, member.gone_at});
    }
    return out;
  }
  bool load(std::span<const std::int64_t> state) override {
    StateReader in(state);
    const auto round = static_cast<std::uint64_t>(in.next(0, limits::kStoredMax));
    const std::int64_t count = in.next(0, limits::kWorkersPerJobMax);
    std::vector<Member> members;
    for (std::int64_t i = 0; i < count && in.ok(); ++i) {
      Member& member = members.emplace_back();
      member.rank = static_cast<Rank>(in.next(0, limits::kWorkersPerJobMax - 1));
      member.incarnation = static_cast<Incarnation>(in.next(0));
      member.fate = static_cast<Fate>(in.next(0, static_cast<int>(Fate::kLost)));
      member.spared = in.next(0, 1) != 0;
      member.gone_at = in.next(0, limits::kStoredMax);
    }
    if (!in.ok() || !in.at_end()) return false;
    install(round, std::move(members));
    return true;
  }
  std::string save_text() const override {
    std::string text;
    for (const std::string& name : finished_) text.append(kFinishedLine).append(name) += '\n';
    for (const std::string& host : excluded_) text.append(kExcludedLine).append(host) += '\n';
    return text;
  }
  bool load_text(std::string_view text) override {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      if (end == std::string_view::npos) return false;
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end + 1);
      if (line.starts_with(kFinishedLine)) {
        add_finished(std::string(line.substr(kFinishedLine.size())));
      } else if (line.starts_with(kExcludedLine)) {
        excluded_.emplace(line.substr(kExcludedLine.size()));
      } else {
        return false;
      }
    }
    return true;
  }

  // ---- an operator's changes
  bool take_over(PolicyHost& host, const Policy& before) override {
    const auto* gather = dynamic_cast<const Gather*>(&before);
    if (gather == nullptr) return false;
    const Settings settings = settings_;
    const PolicyTraits traits = this->traits();
    *this = *gather;
    settings_ = settings;
    set_traits(traits);
    stale_ = true;
    std::int64_t places = settings_.max;
    for (Member& member : members_) {
      if (!member.living() || member.spared || is_excluded(host, member.rank)) continue;
      if (--places >= 0) continue;
      member.spared = true;  // the highest ranks
      broken(host, RoundBreak::kSpared);
    }
    return true;
  }

  std::string exclude(PolicyHost& host, const wire::ExcludeRequest& request) override {
    if (request.undo) {
      if (!excluded_.contains(request.host)) {
        return fmt::format("host '{}' is not excluded{}", request.host,
                           excluded_.empty()
                               ? ""
                               : ": excluded are " + list({excluded_.begin(), excluded_.end()}));
      }
    } else {
      if (excluded_.contains(request.host)) {
        return fmt::format("host '{}' is excluded already", request.host);
      }
      if (excluded_.size() >= limits::kExcludedHostsMax) {
        return fmt::format("{} hosts are excluded already, the most allowed", excluded_.size());
      }
      std::int64_t here = 0, others = 0;
      for (const Member& member : members_) {
        if (!member.living() || member.spared || is_excluded(host, member.rank)) continue;
        ++(host.worker(member.rank).host == request.host ? here : others);
      }
      if (here > 0 && others < settings_.min && !request.force) {
        return fmt::format(
            "without host '{}' round {} has {} of the {} members that it needs (MIN): exclude it "
            "with --force all the same",
            request.host, state_.round, others, settings_.min);
      }
    }
    Fact fact;
    fact.name = request.undo ? kAdmit : kExclude;
    fact.host = request.host;
    fact.reason = request.reason;
    apply_exclusion(host, fact);
    host.note(std::move(fact));
    update(host);
    return {};
  }

  // ---- for people
  Reason explain(const PolicyHost& host, Rank rank) const override {
    const Micros now = host.now();
    const std::uint64_t next = state_.round + 1;
    if (is_excluded(host, rank)) {
      return {fmt::format("host '{}' is excluded from this job's rounds until syncctl exclude "
                          "--undo",
                          host.worker(rank).host),
              {}};
    }
    if (!host.can_note()) {
      return {fmt::format("round {} waits until the daemon can write its history (STORE)", next),
              {}};
    }
    const bool is_member = find(rank) != nullptr;
    if (!finished_.empty() && !is_member) {
      return {fmt::format("{} finished: no other worker is taken any more, and the job ends with "
                          "its last member",
                          list(finished_)),
              {}};
    }
    const Count count = this->count(host);
    if (count.late > 0) return explain_blocked(host, rank, count);
    if (now < amnesty_until_ && !unheard_.empty()) {
      if (!unheard_list_) {
        unheard_list_.emplace(std::vector<Rank>(unheard_.begin(), unheard_.end()));
      }
      RankList waited = *unheard_list_;
      return {fmt::format("the daemon was started again: round {} waits up to {} for those that "
                          "were there",
                          next, format_duration(amnesty_until_ - now)),
              std::move(waited)};
    }
    if (count.regroup_until > now) {
      return {fmt::format("round {} waits {} more for members that were lost (regroup_wait)", next,
                          format_duration(count.regroup_until - now)),
              {}};
    }
    const std::int64_t eligible = count.eligible;
    if (eligible < settings_.min) {
      return {fmt::format("round {} needs {} members, {} so far", next, settings_.min, eligible),
              {}};
    }
    return {fmt::format("round {} has {} of {} members and begins without the rest in {}, unless "
                        "another arrives (last_call)",
                        next, eligible, settings_.max,
                        format_duration(
                            std::max<Micros>(0, count.latest_arrival + settings_.last_call - now))),
            {}};
  }

  RoundFigures round_figures(const PolicyHost& host) const override {
    RoundFigures out;
    out.excluded_hosts = static_cast<std::uint32_t>(excluded_.size());
    const auto add = [&](Rank rank, RoundPart part) {
      if (part != RoundPart::kIn && is_excluded(host, rank)) part = RoundPart::kExcluded;
      ++out.workers[static_cast<std::size_t>(part)];
    };
    for (const Member& member : members_) {
      if (!member.living()) continue;
      if (!member.anew) {
        add(member.rank, RoundPart::kIn);
      } else if (member.waits) {
        add(member.rank, member.spared ? RoundPart::kSpare : RoundPart::kWaiting);
      }
    }
    const bool is_full = free_places(host) <= 0;
    for (const auto& [rank, waiter] : waiters_) {
      add(rank, waiter.turn != 0 || is_full ? RoundPart::kSpare : RoundPart::kWaiting);
    }
    return out;
  }

  std::string describe(const PolicyHost& host) const override {
    std::size_t waiting = 0, spares = 0;
    for (const auto& [rank, waiter] : waiters_) {
      if (!is_excluded(host, rank)) ++(is_spare(host, waiter) ? spares : waiting);
    }
    std::size_t in = 0, anew = 0;
    for (const Member& member : members_) {
      if (!member.living()) continue;
      ++in;
      anew += member.anew ? 1 : 0;
    }
    std::string text =
        state_.round == 0 || members_.empty()
            ? std::string("no round yet")
            : fmt::format("round {}: {} of {} members", state_.round, in, members_.size());
    if (anew > 0) text += fmt::format(", {} of them began anew", anew);
    if (waiting > 0) text += fmt::format(", {} waiting", waiting);
    if (spares > 0) text += fmt::format(", {} spare{}", spares, spares == 1 ? "" : "s");
    const std::string changes = describe_gone(host);
    if (!changes.empty()) text += "; " + changes;
    if (!excluded_.empty()) {
      text += "; excluded: " + list({excluded_.begin(), excluded_.end()});
    }
    return text;
  }

  std::string describe(const PolicyHost& host, Rank rank) const override {
    const auto placed = places_.find(rank);
    if (placed == places_.end()) return {};
    const std::size_t at = placed->second;
    const Member& member = members_[at];
    if (member.incarnation != host.worker(rank).incarnation) return {};
    std::string text = fmt::format("in round {}, rank {} of {}", state_.round, at, members_.size());
    if (!member.living()) {
      text = fmt::format("{} ({})", text, verb(member.fate));
      if (!member.cause.empty()) text += ": " + member.cause;
    } else if (member.anew) {
      text += ", has begun anew";
    } else if (member.spared) {
      text += ", a spare from the next one on";
    }
    return text;
  }

 private:
  // Where the next round stands.
  struct Count {
    std::int64_t unfinished = 0;  // living members of the last round with a place in the next
    std::int64_t late = 0;        // living ones that neither wait nor have ended
    Micros first_since = kNever;  // since when the first of them has waited for the others
    Micros fence_at = kNever;     // when the first late one has taken too long
    Micros regroup_until = 0;
    std::int64_t eligible = 0;  // for the next
    Micros latest_arrival = 0;
  };
  // One that may be taken. `place`: its place in the last round, if it keeps that.
  struct Pick {
    Rank rank = 0;
    std::int64_t place = -1;
    int order = 0;  // members of the last round before spares before newcomers
    Micros since = 0;
    std::uint64_t turn = 0;
  };

  Member* find(Rank rank) {
    const auto it = places_.find(rank);
    return it == places_.end() || !members_[it->second].living() ? nullptr : &members_[it->second];
  }
  const Member* find(Rank rank) const { return const_cast<Gather*>(this)->find(rank); }
  // Also who came when the round was full.
  bool is_spare(const PolicyHost& host, const Waiter& waiter) const {
    return waiter.turn != 0 || free_places(host) <= 0;
  }
  std::int64_t free_places(const PolicyHost& host) const {
    return settings_.max - tally(host).placed();
  }

  // ---- what is counted
  const GatherTally& tally(const PolicyHost& host) const {
    if (stale_) const_cast<Gather*>(this)->count_anew(host);
    return tally_;
  }
  // After a change of more than one: O(n log n).
  void count_anew(const PolicyHost& host) {
    stale_ = false;
    tally_ = {};
    for (std::size_t at = 0; at < members_.size(); ++at) {
      Member& member = members_[at];
      member.excluded = member.living() && is_excluded(host, member.rank);
      member.back = back_.contains(member.rank);
      tally_.add(at, member, lost_name(host, member));
    }
    for (auto& [rank, waiter] : waiters_) {
      fill(host, rank, waiter);
      tally_.add(rank, waiter);
    }
  }
  template <class Change>
  void change(const PolicyHost& host, Member& member, Change change) {
    const auto at = static_cast<std::size_t>(&member - members_.data());
    if (!stale_) tally_.remove(at, member);
    change(member);
    if (!stale_) tally_.add(at, member, lost_name(host, member));
  }
  void fill(const PolicyHost& host, Rank rank, Waiter& waiter) const {
    waiter.excluded = is_excluded(host, rank);
    waiter.name = settings_.regroup_wait > 0 ? host.worker(rank).name : std::string();
  }
  // Empty: regroup_wait does not concern it.
  std::string lost_name(const PolicyHost& host, const Member& member) const {
    const bool counts = member.fate == Fate::kLost && settings_.regroup_wait > 0;
    return counts ? name_of(host, member) : std::string();
  }
  void remove_waiter(Rank rank) {
    const auto it = waiters_.find(rank);
    if (it == waiters_.end()) return;
    if (!stale_) tally_.remove(rank, it->second);
    waiters_.erase(it);
  }
  void heard(Rank rank) {
    if (unheard_.erase(rank) > 0) unheard_list_.reset();
  }
  void add_finished(const std::string& name) {
    finished_.push_back(name);
    finished_names_.insert(name);
  }

  bool is_excluded(const PolicyHost& host, Rank rank) const {
    return !excluded_.empty() && excluded_.contains(host.worker(rank).host);
  }
  // Of a member of the last round, who may have another place or none by now.
  std::string name_of(const PolicyHost& host, const Member& member) const {
    const View* view = host.view();
    const auto at = static_cast<std::size_t>(&member - members_.data());
    if (view == nullptr || view->number != state_.round || at >= view->members.size()) return "?";
    return view->members[at].name;
  }

  void broken(PolicyHost& host, RoundBreak why) {
    if (!std::exchange(broken_, true)) host.round_broken(why);
  }

  void end(PolicyHost& host, Member& member, Fate fate, Micros at, std::string cause) {
    if (const auto why = break_of(fate)) broken(host, *why);
    change(host, member, [&](Member& one) {
      one.fate = fate;
      one.gone_at = at;
      one.waits = false;
      one.cause = std::move(cause);
    });
  }

  void install(std::uint64_t round, std::vector<Member> members) {
    members_ = std::move(members);
    places_.clear();
    for (std::size_t at = 0; at < members_.size(); ++at) places_[members_[at].rank] = at;
    stale_ = true;
    state_ = told_ = {round, 0, 0};
    notice_at_ = 0;
    broken_ = std::any_of(members_.begin(), members_.end(), [](const Member& member) {
      return member.living() ? member.spared : break_of(member.fate).has_value();
    });
  }

  void apply_exclusion(PolicyHost& host, const Record& record) {
    stale_ = true;
    if (record.name == kAdmit) {
      excluded_.erase(record.host);
      return;
    }
    excluded_.insert(record.host);
    for (Member& member : members_) {
      if (!member.living() || host.worker(member.rank).host != record.host) continue;
      member.spared = true;
      broken(host, RoundBreak::kExcluded);
    }
  }

  // ---- what follows from the facts
  // Does all that is due now. What it does may call this policy again.
  void update(PolicyHost& host) {
    if (host.replaying()) return;
    again_ = true;
    if (busy_) return;
    busy_ = true;
    while (std::exchange(again_, false) && !ended_) step(host);
    busy_ = false;
    if (!ended_) set_timer(host);
  }

  void step(PolicyHost& host) {
    end_amnesty(host);
    const Count count = this->count(host);
    if (fence_stragglers(host, count)) return;
    if (!finished_.empty() && finish(host, count)) return;
    if (may_form(host, count)) form(host);
    tell(host);
  }

  Count count(const PolicyHost& host) const {
    const GatherTally& tally = this->tally(host);
    Count out;
    out.unfinished = tally.unfinished();
    out.late = tally.late();
    out.first_since = tally.first_since();
    if (out.late > 0 && out.first_since != kNever) {
      out.fence_at = fence_at(tally.late_since(), out);
    }
    if (const auto lost_at = tally.latest_missed()) {
      out.regroup_until = *lost_at + settings_.regroup_wait;
    }
    out.latest_arrival = tally.latest_ready();
    if (!finished_.empty()) {
      out.eligible = tally.ready_placed();
      return out;
    }
    out.eligible = tally.ready() + tally.waiting();
    out.latest_arrival = std::max(out.latest_arrival, tally.latest_waiter());
    return out;
  }

  // One that has waited meanwhile begins anew to be waited for.
  Micros fence_at(Micros late_since, const Count& count) const {
    return std::max(count.first_since, late_since) + settings_.straggle_wait;
  }

  // True: some were, and all is to be looked at again.
  bool fence_stragglers(PolicyHost& host, const Count& count) {
    if (host.now() < count.fence_at) return false;
    const std::string reason =
        fmt::format("it has not begun round {} within {} of '{}' (straggle_wait)", state_.round + 1,
                    format_duration(settings_.straggle_wait),
                    host.worker(members_[tally(host).first()].rank).name);
    std::vector<Rank> stragglers;
    for (const Member& member : members_) {
      if (!member.living() || member.waits) continue;
      if (host.now() >= fence_at(member.since, count)) stragglers.push_back(member.rank);
    }
    for (const Rank rank : stragglers) host.fence(rank, reason);
    again_ = true;
    return true;
  }

  // Some have finished. True: no round can follow.
  bool finish(PolicyHost& host, const Count& count) {
    if (count.unfinished == 0) {
      ended_ = true;
      host.end_job(fmt::format("finished: the work of round {} is done (by {})", state_.round,
                               list(finished_)));
      return true;
    }
    if (count.unfinished >= settings_.min) return false;
    const std::string reason =
        fmt::format("finished: {} finished, and {} of the {} members that a round needs are left",
                    list(finished_), count.unfinished, settings_.min);
    std::vector<Rank> waiting;
    for (const std::size_t at : tally(host).begun()) waiting.push_back(members_[at].rank);
    for (const Rank rank : waiting) host.stop_begin(rank, reason);
    return false;
  }

  bool may_form(const PolicyHost& host, const Count& count) const {
    const Micros now = host.now();
    const std::int64_t eligible = count.eligible;
    if (eligible < settings_.min || count.late > 0 || !host.can_note()) return false;
    if (now < amnesty_until_ && !unheard_.empty()) return false;
    if (count.unfinished > 0) return now >= count.regroup_until;
    return eligible >= settings_.max || now >= count.latest_arrival + settings_.last_call;
  }

  void form(PolicyHost& host) {
    std::vector<Pick> picks;
    std::set<Rank> back;  // lost ones that keep their places
    for (std::size_t at = 0; at < members_.size(); ++at) {
      const Member& member = members_[at];
      if (member.living()) {
        if (is_excluded(host, member.rank)) continue;
        if (member.spared && !finished_.empty()) continue;
        picks.push_back(
            {member.rank, static_cast<std::int64_t>(at), member.spared ? 1 : 0, member.since, 0});
      } else if (member.fate == Fate::kLost && settings_.regroup_wait > 0 && finished_.empty()) {
        const auto waiter = tally(host).waiter_named(name_of(host, member));
        if (!waiter || !back.insert(*waiter).second) continue;
        picks.push_back({*waiter, static_cast<std::int64_t>(at), 0, waiters_.at(*waiter).since, 0});
      }
    }
    if (finished_.empty()) {
      for (const auto& [rank, waiter] : waiters_) {
        if (back.contains(rank) || is_excluded(host, rank)) continue;
        picks.push_back({rank, -1, waiter.turn != 0 ? 1 : 2, waiter.since, waiter.turn});
      }
    }
    const auto urgency = [](const Pick& pick) {
      return std::tuple(pick.order, pick.turn, pick.order == 0 ? pick.place : pick.since,
                        pick.rank);
    };
    std::sort(picks.begin(), picks.end(),
              [&](const Pick& a, const Pick& b) { return urgency(a) < urgency(b); });
    // Those that wait on are spares from now on, in this order.
    std::map<Rank, Waiter> spares;
    for (std::size_t i = static_cast<std::size_t>(settings_.max); i < picks.size(); ++i) {
      spares[picks[i].rank] = {.since = picks[i].since, .turn = ++turn_};
    }
    if (picks.size() > static_cast<std::size_t>(settings_.max)) {
      picks.resize(static_cast<std::size_t>(settings_.max));
    }
    // Ranks: those of the last round keep their order, the others follow by name.
    std::sort(picks.begin(), picks.end(), [&](const Pick& a, const Pick& b) {
      if ((a.place < 0) != (b.place < 0)) return b.place < 0;
      if (a.place >= 0) return a.place < b.place;
      const std::string &x = host.worker(a.rank).name, &y = host.worker(b.rank).name;
      return std::tie(x, a.rank) < std::tie(y, b.rank);
    });

    Fact fact;
    fact.kind = RecordKind::kView;
    fact.iteration = static_cast<Iteration>(state_.round) + 1;
    std::vector<Member> members;
    std::vector<std::string> newcomers;
    std::set<Rank> taken;
    for (const Pick& pick : picks) {
      taken.insert(pick.rank);
      const Worker& worker = host.worker(pick.rank);
      fact.values.push_back(pick.rank);
      members.push_back({.rank = pick.rank, .incarnation = worker.incarnation, .cause = {}});
      if (find(pick.rank) == nullptr) newcomers.push_back(worker.name);
    }
    fact.reason =
        members_.empty() ? "the first round" : change_text(describe_gone(host, taken), newcomers);
    // Nor are the excluded ones taken, and those that came after the first has finished.
    for (const Member& member : members_) {
      if (member.living() && member.waits)
        spares.try_emplace(member.rank, Waiter{.since = member.since});
    }
    for (const auto& [rank, waiter] : waiters_) spares.try_emplace(rank, waiter);
    for (const Pick& pick : picks) spares.erase(pick.rank);
    waiters_ = std::move(spares);
    stale_ = true;
    const auto round = static_cast<std::uint64_t>(fact.iteration);
    host.note(std::move(fact));
    install(round, std::move(members));
    ++formed_;
    for (const Pick& pick : picks) host.grant(pick.rank, {.iteration = round, .staleness = 0});
  }

  void tell(PolicyHost& host) {
    state_ = assess(host);
    if (state_ == told_ || members_.empty() || host.now() < notice_at_) return;
    told_ = state_;
    notice_at_ = host.now() + kNoticeEvery;
    for (const Member& member : members_) {
      if (member.living() && !member.anew) host.tell_round(member.rank, state_);
    }
  }

  RoundState assess(const PolicyHost& host) const {
    const GatherTally& tally = this->tally(host);
    RoundState out{state_.round, static_cast<std::uint32_t>(tally.gone()), 0};
    if (members_.empty() || !finished_.empty()) return out;
    const std::int64_t places = free_places(host);
    const std::int64_t room = std::min(tally.waiting(), places);
    const bool counts =
        tally.waiting() >= places || host.now() >= tally.latest_waiter() + settings_.last_call;
    if (room > 0 && counts) out.room = static_cast<std::uint32_t>(room);
    return out;
  }

  // Once most are back, the others may be missed.
  void end_amnesty(PolicyHost& host) {
    if (amnesty_until_ == 0) return;
    std::int64_t known = tally(host).living(), back = tally(host).back();
    if (known == 0) {
      known = static_cast<std::int64_t>(host.active().size());
      back = back_active_;
    }
    const bool enough = 4 * back >= 3 * known;
    if (!enough && host.now() < amnesty_until_) return;
    if (!std::exchange(missed_, true)) host.end_amnesty();
    if (host.now() < amnesty_until_ && !unheard_.empty()) return;
    amnesty_until_ = 0;
    missed_ = false;
    unheard_.clear();
    back_.clear();
    back_active_ = 0;
    stale_ = true;
  }

  // When it has to look again without being told of anything.
  void set_timer(PolicyHost& host) const {
    const Micros now = host.now();
    const Count count = this->count(host);
    Micros at = kNever;
    const auto not_before = [&](Micros time) {
      if (time > now) at = std::min(at, time);
    };
    if (count.fence_at != kNever) not_before(count.fence_at);
    if (count.eligible > 0) {
      not_before(count.regroup_until);
      not_before(count.latest_arrival + settings_.last_call);
    }
    const Micros latest = tally(host).latest_waiter();
    if (latest > 0) not_before(latest + settings_.last_call);
    not_before(amnesty_until_);
    if (state_ != told_) not_before(notice_at_);
    if (at == kNever) {
      host.cancel_timer(kNoRank, kCheck);
    } else {
      host.set_timer(kNoRank, kCheck, at);
    }
  }

  // ---- texts
  // "'node-c' was lost: its connection closed, 'node-d' began anew"
  // `taken`: into the next round.
  std::string describe_gone(const PolicyHost& host, const std::set<Rank>& taken = {}) const {
    std::string text;
    std::size_t shown = 0, left_out = 0;
    for (const Member& member : members_) {
      if (member.living() && (!member.spared || taken.contains(member.rank))) continue;
      if (++shown > kNamesShownMax) {
        ++left_out;
        continue;
      }
      if (!text.empty()) text += ", ";
      text += "'" + name_of(host, member) + "' ";
      text += member.living()
                  ? std::string(is_excluded(host, member.rank) ? "was excluded" : "became a spare")
                  : verb(member.fate);
      if (!member.living() && !member.cause.empty()) text += " (" + member.cause + ")";
    }
    if (left_out > 0) text += fmt::format(" and {} more", left_out);
    return text;
  }

  std::string change_text(std::string gone, const std::vector<std::string>& newcomers) const {
    if (!newcomers.empty()) {
      gone += (gone.empty() ? "" : "; ") + list(newcomers) + " joined";
    }
    if (gone.empty()) {
      for (const Member& member : members_) {
        if (member.anew) return cut("members began anew", limits::kReasonBytesMax - 3);
      }
    }
    return cut(std::move(gone), limits::kReasonBytesMax - 3);
  }

  Reason explain_blocked(const PolicyHost& host, Rank rank, const Count& count) const {
    const std::uint64_t next = state_.round + 1;
    const GatherTally::Late& late =
        tally(host).late_list(kNamesShownMax, [&](std::size_t at) { return members_[at].rank; });
    if (count.first_since == kNever) {
      if (state_.room > 0 || state_.gone > 0) {
        return {fmt::format("round {} begins once the members of round {} begin anew, as they have "
                            "been told",
                            next, state_.round),
                late.ranks};
      }
      const auto waiter = waiters_.find(rank);
      if (waiter != waiters_.end() && is_spare(host, waiter->second)) {
        return {fmt::format("it is a spare: round {} has its {} members (MAX), and it enters the "
                            "next round that has room",
                            state_.round, settings_.max),
                late.ranks};
      }
      return {fmt::format("the members of round {} are told of it after last_call, {} from the "
                          "latest arrival",
                          state_.round, format_duration(settings_.last_call)),
              late.ranks};
    }
    std::vector<std::string> names;
    for (const std::size_t at : late.first) names.push_back(name_of(host, members_[at]));
    return {fmt::format("round {} waits for {}, which still {} workers, {}; then fenced at {}",
                        next, list(names, static_cast<std::size_t>(count.late)),
                        count.late == 1 ? "ends its" : "end their",
                        format_duration(host.now() - count.first_since),
                        format_duration(settings_.straggle_wait)),
            late.ranks};
  }

  Settings settings_;
  // ---- what the records say
  std::vector<Member> members_;         // of the last round, in its order
  std::map<Rank, std::size_t> places_;  // of its members
  std::vector<std::string> finished_;   // also in earlier rounds
  std::set<std::string, std::less<>> finished_names_;
  std::set<std::string> excluded_;  // hosts
  // ---- of this life of the daemon
  RoundState state_;
  RoundState told_;  // as the members know it
  bool broken_ = false;
  Micros notice_at_ = 0;
  std::map<Rank, Waiter> waiters_;
  std::uint64_t turn_ = 0;  // the latest spare's
  std::uint64_t formed_ = 0;
  Micros amnesty_until_ = 0;      // after a restart: until then some may come back; 0: no more
  bool missed_ = false;           // so many are back that the others may be lost
  std::set<Rank> unheard_;        // they have not begun again
  std::set<Rank> back_;           // they have connected to it
  std::int64_t back_active_ = 0;  // of them, those that have not gone again
  mutable std::optional<RankList> unheard_list_;  // of `unheard_`, once somebody has asked
  GatherTally tally_;
  bool stale_ = true;  // it must be counted anew
  bool busy_ = false;
  bool again_ = false;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<Policy> make_gather(const PolicyText& text, std::string& error) {
  constexpr const char* kTakes =
      "gather takes gather:MIN[-MAX][,last_call=T][,regroup_wait=T][,straggle_wait=T], such as "
      "gather:2-4";
  if (!text.begins_unnamed()) {
    error = policy_error(text, kTakes);
    return nullptr;
  }
  constexpr std::int64_t kMost = limits::kWorkersPerJobMax;
  Settings settings;
  const std::string_view members = text.arguments[0].value;
  const std::size_t dash = members.find('-', 1);
  const auto min = parse_policy_integer(text, "MIN", members.substr(0, dash), 1, kMost, error);
  if (!min) return nullptr;
  settings.min = settings.max = *min;
  if (dash != std::string_view::npos) {
    const auto max =
        parse_policy_integer(text, "MAX", members.substr(dash + 1), *min, kMost, error);
    if (!max) return nullptr;
    settings.max = *max;
  }
  for (std::size_t i = 1; i < text.arguments.size(); ++i) {
    const PolicyArgument& argument = text.arguments[i];
    const auto* const span =
        std::find_if(std::begin(kSpans), std::end(kSpans),
                     [&](const Span& each) { return each.key == argument.key; });
    if (span == std::end(kSpans)) {
      error = unknown_parameter(text, argument, kTakes);
      return nullptr;
    }
    const auto us = parse_policy_span(text, span->key, argument.value, error);
    if (!us) return nullptr;
    settings.*span->value = *us;
  }
  return std::make_unique<Gather>(settings);
}

}  // namespace syncd
