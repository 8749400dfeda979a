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

  std::string name() const override { return fmt::format("ssp:{}", staleness_); }

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
    return {fmt::format("relative clock {} is {} ahead of the slowest ({}), allowed {}", q,
                        q - lowest, lowest, staleness_),
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

struct BspSettings {
  std::int64_t every = 1;
  std::int64_t backup = 0;
};
constexpr Parameter<BspSettings> kBspParameters[] = {{"backup", &BspSettings::backup}};

class Bsp final : public Policy {
 public:
  explicit Bsp(const BspSettings& settings)
      : Policy({.gap_bound = settings.every - 1,
                .barrier_every = settings.every,
                .all_meet = settings.backup == 0,
                .jumps = settings.backup > 0}),
        every_(settings.every),
        backup_(settings.backup) {}

  std::string name() const override {
    const std::string every = every_ == 1 ? "" : fmt::format(":{}", every_);
    return "bsp" + every + parameters_text(kBspParameters, BspSettings{every_, backup_});
  }

  std::string check_workers(std::uint32_t fewest, std::uint32_t) const override {
    if (backup_ < fewest) return {};
    return fmt::format(
        "policy '{}': backup is {}, which must be less than the {} workers that the job "
        "may have",
        name(), backup_, fewest);
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
    const std::size_t all = host.clocks().size();
    std::string text = fmt::format(
        "superstep {} opens when {} of {} workers have finished superstep {}, {} so far", superstep,
        needed(host), all, superstep - 1, all - behind.size());
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
    host.barrier(open_ * every_);
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
  if (!text.is_one_unnamed()) {
    error =
        policy_error(text, "ssp takes one parameter, the staleness bound: ssp:S, such as ssp:3");
    return nullptr;
  }
  const auto staleness =
      parse_policy_integer(text, "S", text.arguments[0].value, 0, kParameterMax, error);
  return staleness ? std::make_unique<Ssp>(*staleness) : nullptr;
}

std::unique_ptr<Policy> make_bsp(const PolicyText& text, std::string& error) {
  BspSettings settings;
  for (std::size_t i = 0; i < text.arguments.size(); ++i) {
    const PolicyArgument& argument = text.arguments[i];
    if (argument.key.empty() && i == 0) {
      const auto every = parse_policy_integer(text, "K", argument.value, 1, kParameterMax, error);
      if (!every) return nullptr;
      settings.every = *every;
    } else if (!parse_parameter(text, argument, kBspParameters,
                                "bsp takes bsp[:K][,backup=B], such as bsp:5,backup=1", settings,
                                error)) {
      return nullptr;
    }
  }
  return std::make_unique<Bsp>(settings);
}

}  // namespace syncd
