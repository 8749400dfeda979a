// See bsp_asp_ssp.h.
#include "daemon/core/policies/bsp_asp_ssp.h"

#include <algorithm>

#include "daemon/core/policies/waiters.h"
#include "proto/wire/wire.h"

namespace syncd {
namespace {

class Asp final : public Policy {
 public:
  Asp() : Policy({.waits = false}) {}

  std::string name() const override { return "asp"; }
  void on_begin(PolicyHost& host, Rank rank) override { host.grant(rank, {}); }
  Reason explain(const PolicyHost&, Rank) const override { return {"begin is always granted", {}}; }
};

class Ssp final : public Policy {
 public:
  explicit Ssp(std::int64_t staleness) : Policy({.gap_bound = staleness}), staleness_(staleness) {}

  std::string name() const override { return "ssp:" + std::to_string(staleness_); }

  // Nobody may be further ahead of it than the bound, nor it of anybody than who waits at the
  // bound.
  bool keeps_clock(const PolicyHost& host, Clock q) const override {
    if (host.clocks().empty()) return true;
    return host.clocks().max() - q <= staleness_ && q - host.clocks().min() <= staleness_ + 1;
  }
  void on_enter(PolicyHost& host, Rank) override { release(host); }
  void on_return(PolicyHost& host, Rank) override { release(host); }
  void on_exit(PolicyHost& host, Rank rank) override {
    waiters_.remove(rank);
    release(host);
  }

  void on_begin(PolicyHost& host, Rank rank) override {
    const Clock needed = host.worker(rank).relative() - staleness_;
    if (host.clocks().min() >= needed) {
      host.grant(rank, {});
    } else {
      waiters_.add(rank, needed, host.worker(rank).waiting->since);
    }
  }
  void on_cancel(PolicyHost&, Rank rank) override { waiters_.remove(rank); }
  void on_push(PolicyHost& host, Rank, bool) override { release(host); }

  Reason explain(const PolicyHost& host, Rank rank) const override {
    const Clock q = host.worker(rank).relative();
    const Clock lowest = host.clocks().min();
    return {"relative clock " + std::to_string(q) + " is " + std::to_string(q - lowest) +
                " ahead of the slowest (" + std::to_string(lowest) + "), allowed " +
                std::to_string(staleness_),
            host.active_below(q - staleness_)};
  }

 private:
  void release(PolicyHost& host) {
    if (waiters_.empty() || host.clocks().empty()) return;
    for (const Rank rank : waiters_.take_due(host.clocks().min())) host.grant(rank, {});
  }

  std::int64_t staleness_;
  Waiters waiters_;  // threshold: the minimum relative clock that is needed
};

class Bsp final : public Policy {
 public:
  Bsp(std::int64_t every, std::int64_t backup)
      : Policy({.gap_bound = every - 1,
                .barrier_every = every,
                .all_meet = backup == 0,
                .jumps = backup > 0}),
        every_(every),
        backup_(backup) {}

  std::string name() const override {
    std::string text = every_ == 1 ? "bsp" : "bsp:" + std::to_string(every_);
    if (backup_ > 0) text += ",backup=" + std::to_string(backup_);
    return text;
  }

  std::string check_workers(std::uint32_t fewest, std::uint32_t) const override {
    if (backup_ < fewest) return {};
    return "policy '" + name() + "': backup is " + std::to_string(backup_) +
           ", which must be less than the " + std::to_string(fewest) +
           " workers that the job may have";
  }

  std::uint64_t barriers() const override { return static_cast<std::uint64_t>(open_); }
  Clock entry_clock(const PolicyHost&) const override { return open_ * every_; }
  bool keeps_clock(const PolicyHost&, Clock q) const override {
    return q >= open_ * every_ && q <= (open_ + 1) * every_;
  }
  void on_enter(PolicyHost& host, Rank) override { release(host); }
  void on_return(PolicyHost& host, Rank) override { release(host); }
  void on_exit(PolicyHost& host, Rank rank) override {
    waiters_.remove(rank);
    release(host);
  }

  void on_begin(PolicyHost& host, Rank rank) override {
    catch_up(host, rank);
    const std::int64_t superstep = host.worker(rank).relative() / every_;
    if (superstep <= open_) {
      host.grant(rank, {});
    } else {
      waiters_.add(rank, superstep, host.worker(rank).waiting->since);
      release(host);
    }
  }
  void on_cancel(PolicyHost&, Rank rank) override { waiters_.remove(rank); }

  PushVerdict judge_push(const PolicyHost& host, Rank rank, Iteration k) const override {
    const Worker& worker = host.worker(rank);
    const Clock first = open_ * every_;  // of the open superstep
    if (backup_ > 0 && k - worker.base < first) return {true, worker.base + first};
    return {false, k + 1};
  }
  void on_push(PolicyHost& host, Rank, bool) override { release(host); }

  Reason explain(const PolicyHost& host, Rank rank) const override {
    const std::int64_t superstep = host.worker(rank).relative() / every_;
    RankList behind = host.active_below(superstep * every_);
    std::string text = "superstep " + std::to_string(superstep) + " opens when " +
                       std::to_string(needed(host)) + " of " +
                       std::to_string(host.clocks().size()) + " workers have finished superstep " +
                       std::to_string(superstep - 1) + ", " +
                       std::to_string(host.clocks().size() - behind.size()) + " so far";
    return {std::move(text), std::move(behind)};
  }

  std::vector<std::int64_t> save() const override { return {open_}; }
  bool load(std::span<const std::int64_t> state) override {
    if (state.size() != 1 || state[0] < 0) return false;
    open_ = state[0];
    return true;
  }

 private:
  std::uint32_t needed(const PolicyHost& host) const {
    const std::int64_t all = host.clocks().size();
    return static_cast<std::uint32_t>(std::max<std::int64_t>(1, all - backup_));
  }

  // A worker left behind by an open superstep goes on with that one's first iteration.
  void catch_up(PolicyHost& host, Rank rank) {
    const Worker& worker = host.worker(rank);
    const Clock first = open_ * every_;
    if (worker.relative() < first) host.advance(rank, worker.base + first);
  }

  void release(PolicyHost& host) {
    if (host.clocks().empty()) return;
    // The open superstep is the largest that enough have reached; it never goes down.
    const std::int64_t reached = host.clocks().nth_largest(needed(host)) / every_;
    if (reached <= open_) return;
    open_ = reached;
    for (const Rank rank : waiters_.take_due(open_)) {
      catch_up(host, rank);
      host.grant(rank, {});
    }
  }

  std::int64_t every_;
  std::int64_t backup_;
  std::int64_t open_ = 0;  // never goes down
  Waiters waiters_;        // threshold: the superstep to open
};

}  // namespace

std::unique_ptr<Policy> make_asp(const PolicyText& text, std::string& error) {
  if (!text.arguments.empty()) {
    error = policy_error(text, "asp takes no parameters");
    return nullptr;
  }
  return std::make_unique<Asp>();
}

std::unique_ptr<Policy> make_ssp(const PolicyText& text, std::string& error) {
  if (text.arguments.size() != 1 || !text.arguments[0].key.empty()) {
    error =
        policy_error(text, "ssp takes one parameter, the staleness bound: ssp:S, such as ssp:3");
    return nullptr;
  }
  const auto staleness =
      parse_policy_integer(text, "S", text.arguments[0].value, 0, kParameterMax, error);
  return staleness ? std::make_unique<Ssp>(*staleness) : nullptr;
}

std::unique_ptr<Policy> make_bsp(const PolicyText& text, std::string& error) {
  std::int64_t every = 1;
  std::int64_t backup = 0;
  for (std::size_t i = 0; i < text.arguments.size(); ++i) {
    const PolicyArgument& argument = text.arguments[i];
    std::optional<std::int64_t> number;
    if (argument.key.empty() && i == 0) {
      number = parse_policy_integer(text, "K", argument.value, 1, kParameterMax, error);
      if (number) every = *number;
    } else if (argument.key == "backup") {
      number = parse_policy_integer(text, "backup", argument.value, 0, kParameterMax, error);
      if (number) backup = *number;
    } else {
      error = policy_error(text, "unknown parameter '" +
                                     (argument.key.empty() ? argument.value : argument.key) +
                                     "'; bsp takes bsp[:K][,backup=B], such as bsp:5,backup=1");
    }
    if (!number) return nullptr;
  }
  return std::make_unique<Bsp>(every, backup);
}

}  // namespace syncd
