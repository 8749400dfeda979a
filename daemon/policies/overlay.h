// What an overlay is made of: a PolicyHost that passes everything on, of which an overlay replaces
// what it wants to see or to hold back, and a Policy that passes everything to its base policy. Run
// on the engine's thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/engine/policy.h"

namespace syncd {

// Timer kinds below this are the overlay's own; the base policy's are moved up by it.
inline constexpr std::uint32_t kOverlayTimerKinds = 8;

class ForwardingHost : public PolicyHost {
 public:
  explicit ForwardingHost(PolicyHost& inner) : inner_(inner) {}

  Micros now() const override { return inner_.now(); }
  const Worker& worker(Rank rank) const override { return inner_.worker(rank); }
  const std::vector<Rank>& active() const override { return inner_.active(); }
  const RelativeClocks& clocks() const override { return inner_.clocks(); }
  Clock highest_relative() const override { return inner_.highest_relative(); }
  std::uint64_t pushes() const override { return inner_.pushes(); }
  std::uint64_t pushes_by_others_since_pull(Rank rank) const override {
    return inner_.pushes_by_others_since_pull(rank);
  }
  void grant(Rank rank, const Grant& grant) override { inner_.grant(rank, grant); }
  void advance(Rank rank, Clock clock) override { inner_.advance(rank, clock); }
  void barrier(std::int64_t superstep, Micros predicted_us, Micros wait_us) override {
    inner_.barrier(superstep, predicted_us, wait_us);
  }
  void resync(Rank rank) override { inner_.resync(rank); }
  void answer_targets(Rank rank, std::vector<Rank> targets) override {
    inner_.answer_targets(rank, std::move(targets));
  }
  void answer_collect(Rank rank, std::vector<PeerUpdate> updates) override {
    inner_.answer_collect(rank, std::move(updates));
  }
  void set_timer(std::int64_t rank, std::uint32_t kind, Micros at) override {
    inner_.set_timer(rank, kind + kOverlayTimerKinds, at);
  }
  void cancel_timer(std::int64_t rank, std::uint32_t kind) override {
    inner_.cancel_timer(rank, kind + kOverlayTimerKinds);
  }
  std::uint64_t request_plan(std::shared_ptr<const PlanWork> work) override {
    return inner_.request_plan(std::move(work));
  }
  void note(RecordKind kind, std::int64_t rank, std::string reason,
            std::vector<std::int64_t> values) override {
    inner_.note(kind, rank, std::move(reason), std::move(values));
  }

 protected:
  PolicyHost& inner() { return inner_; }

 private:
  PolicyHost& inner_;
};

}  // namespace syncd
