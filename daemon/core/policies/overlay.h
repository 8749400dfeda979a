// What an overlay is made of: a PolicyHost that passes everything on, of which an overlay replaces
// what it wants to see or to hold back, and a Policy that passes everything to its base policy. Run
// on the engine's thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/policy.h"

namespace syncd {

// Timer kinds below this are the overlay's own; the base policy's are moved up by it.
inline constexpr std::uint32_t kOverlayTimerKinds = 8;

class ForwardingHost : public PolicyHost {
 public:
  // To be called before any other: where to pass everything on to.
  void forward_to(PolicyHost& inner) { inner_ = &inner; }

  Micros now() const override { return inner_->now(); }
  bool replaying() const override { return inner_->replaying(); }
  const Worker& worker(Rank rank) const override { return inner_->worker(rank); }
  const std::vector<Rank>& active() const override { return inner_->active(); }
  const RelativeClocks& clocks() const override { return inner_->clocks(); }
  Clock highest_relative() const override { return inner_->highest_relative(); }
  const RelativeClocks& exchanges() const override { return inner_->exchanges(); }
  std::uint64_t pushes() const override { return inner_->pushes(); }
  std::uint64_t pushes_by_others_since_pull(Rank rank) const override {
    return inner_->pushes_by_others_since_pull(rank);
  }
  RankList active_below(Clock q) const override { return inner_->active_below(q); }
  Micros grant_delay() const override { return inner_->grant_delay(); }
  void grant(Rank rank, const Grant& grant) override { inner_->grant(rank, grant); }
  void barrier(Clock q) override { inner_->barrier(q); }
  void advance(Rank rank, Clock clock) override { inner_->advance(rank, clock); }
  bool resync(Rank rank) override { return inner_->resync(rank); }
  void answer_targets(Rank rank, std::vector<Rank> targets) override {
    inner_->answer_targets(rank, std::move(targets));
  }
  void answer_collect(Rank rank, std::vector<PeerUpdate> updates) override {
    inner_->answer_collect(rank, std::move(updates));
  }
  void preset_collect(Rank rank, Iteration iteration, std::vector<PeerUpdate> updates) override {
    inner_->preset_collect(rank, iteration, std::move(updates));
  }
  void set_timer(std::int64_t rank, std::uint32_t kind, Micros at) override {
    inner_->set_timer(rank, kind + kOverlayTimerKinds, at);
  }
  void cancel_timer(std::int64_t rank, std::uint32_t kind) override {
    inner_->cancel_timer(rank, kind + kOverlayTimerKinds);
  }
  std::uint64_t request_plan(std::shared_ptr<const PlanWork> work) override {
    return inner_->request_plan(std::move(work));
  }
  void note(Fact fact) override { inner_->note(std::move(fact)); }

 protected:
  PolicyHost& inner() { return *inner_; }

 private:
  PolicyHost* inner_ = nullptr;
};

// A policy over another: everything goes on to the base policy, which talks to the host that
// base_host() is. An overlay overrides what it wants to know, and calls this class's own
// method there.
class OverlayPolicy : public Policy {
 public:
  // `traits`: the base policy's, and what the overlay changes in them. The base is a reference, so
  // that it is not moved from before `traits` are made of it.
  OverlayPolicy(const PolicyTraits& traits, std::unique_ptr<Policy>&& base)
      : Policy(traits), base_(std::move(base)) {}

  std::uint64_t barriers() const override { return base_->barriers(); }
  std::string check_workers(std::uint32_t fewest, std::uint32_t expected) const override {
    return base_->check_workers(fewest, expected);
  }
  Clock entry_clock(const PolicyHost& host) const override { return base_->entry_clock(host); }
  bool keeps_clock(const PolicyHost& host, Clock q) const override {
    return base_->keeps_clock(host, q);
  }
  void on_enter(PolicyHost& host, Rank rank) override { base_->on_enter(under(host), rank); }
  void on_exit(PolicyHost& host, Rank rank) override { base_->on_exit(under(host), rank); }
  void on_return(PolicyHost& host, Rank rank) override { base_->on_return(under(host), rank); }
  void on_created(PolicyHost& host) override { base_->on_created(under(host)); }
  void on_start(PolicyHost& host) override { base_->on_start(under(host)); }
  void on_disband(PolicyHost& host) override { base_->on_disband(under(host)); }
  void on_restored(PolicyHost& host) override { base_->on_restored(under(host)); }
  void on_begin(PolicyHost& host, Rank rank) override { base_->on_begin(under(host), rank); }
  void on_cancel(PolicyHost& host, Rank rank) override { base_->on_cancel(under(host), rank); }
  std::optional<std::int64_t> lead(const PolicyHost& host, Rank rank) const override {
    return base_->lead(host, rank);
  }
  PushVerdict judge_push(const PolicyHost& host, Rank rank, Iteration k) const override {
    return base_->judge_push(host, rank, k);
  }
  void on_push(PolicyHost& host, Rank rank, bool late) override {
    base_->on_push(under(host), rank, late);
  }
  void on_restarted(PolicyHost& host, Rank rank) override {
    base_->on_restarted(under(host), rank);
  }
  void on_targets(PolicyHost& host, Rank rank) override { base_->on_targets(under(host), rank); }
  void on_collect(PolicyHost& host, Rank rank) override { base_->on_collect(under(host), rank); }
  void on_consumed(PolicyHost& host, Rank rank) override { base_->on_consumed(under(host), rank); }
  void on_timer(PolicyHost& host, std::int64_t rank, std::uint32_t kind) final {
    if (kind < kOverlayTimerKinds) return on_own_timer(host, rank, kind);
    base_->on_timer(under(host), rank, kind - kOverlayTimerKinds);
  }
  void on_plan(PolicyHost& host, std::uint64_t plan,
               std::span<const std::int64_t> result) override {
    base_->on_plan(under(host), plan, result);
  }
  void on_note(PolicyHost& host, const Record& record) override {
    base_->on_note(under(host), record);
  }
  Reason explain(const PolicyHost& host, Rank rank) const override {
    return base_->explain(host, rank);
  }
  std::vector<std::int64_t> save() const override { return base_->save(); }
  bool load(std::span<const std::int64_t> state) override { return base_->load(state); }

 protected:
  // The overlay's member, one and the same.
  virtual ForwardingHost& base_host() = 0;
  virtual void on_own_timer(PolicyHost& host, std::int64_t rank, std::uint32_t kind) = 0;
  const Policy& base() const { return *base_; }
  Policy& base() { return *base_; }

 private:
  PolicyHost& under(PolicyHost& host) {
    ForwardingHost& own = base_host();
    own.forward_to(host);
    return own;
  }

  std::unique_ptr<Policy> base_;
};

}  // namespace syncd
