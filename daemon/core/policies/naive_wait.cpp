// See naive_wait.h.
#include "daemon/core/policies/naive_wait.h"

#include <map>

#include "daemon/core/engine/limits.h"
#include "daemon/core/policies/overlay.h"

namespace syncd {
namespace {

constexpr std::uint32_t kTimerRelease = 0;

class NaiveWait final : public OverlayPolicy {
 public:
  NaiveWait(std::int64_t delay_ms, std::unique_ptr<Policy> base)
      : OverlayPolicy(traits_over(*base, delay_ms), std::move(base)), delay_ms_(delay_ms) {}

  std::string name() const override {
    return fmt::format("naive_wait:{}+{}", delay_ms_, base().name());
  }
  void on_exit(PolicyHost& host, Rank rank) override {
    drop(host, rank);
    owed_.erase(rank);
    OverlayPolicy::on_exit(host, rank);
  }
  void on_cancel(PolicyHost& host, Rank rank) override {
    // The base policy has told the worker what it never heard: its next grant says it.
    if (const auto it = held_.find(rank); it != held_.end()) owed_[rank] = it->second.flags;
    drop(host, rank);
    OverlayPolicy::on_cancel(host, rank);
  }
  Reason explain(const PolicyHost& host, Rank rank) const override {
    if (!held_.contains(rank)) return OverlayPolicy::explain(host, rank);
    return {fmt::format("granted by {}, held back for {} ms", base().name(), delay_ms_), {}};
  }

 private:
  static PolicyTraits traits_over(const Policy& base, std::int64_t delay_ms) {
    PolicyTraits traits = base.traits();
    traits.waits = traits.waits || delay_ms > 0;
    traits.grant_delay_us += delay_ms * 1000;
    return traits;
  }

  // The host that the base policy sees: its grants are held back.
  class Host final : public ForwardingHost {
   public:
    explicit Host(NaiveWait& owner) : owner_(owner) {}
    Micros grant_delay() const override {
      return ForwardingHost::grant_delay() + owner_.delay_ms_ * 1000;
    }
    void grant(Rank rank, const Grant& grant) override {
      Grant& held = owner_.held_[rank] = grant;
      if (const auto owed = owner_.owed_.extract(rank)) held.flags |= owed.mapped();
      inner().set_timer(rank, kTimerRelease, now() + owner_.delay_ms_ * 1000);
    }

   private:
    NaiveWait& owner_;
  };

  ForwardingHost& base_host() override { return base_host_; }
  void on_own_timer(PolicyHost& host, std::int64_t rank, std::uint32_t) override {
    const auto it = held_.find(static_cast<Rank>(rank));
    if (it == held_.end()) return;
    Grant grant = it->second;
    held_.erase(it);
    // Others may have gone on since.
    grant.staleness = base().lead(host, static_cast<Rank>(rank));
    host.grant(static_cast<Rank>(rank), grant);
  }
  void drop(PolicyHost& host, Rank rank) {
    if (held_.erase(rank) > 0) host.cancel_timer(rank, kTimerRelease);
  }

  std::int64_t delay_ms_;
  Host base_host_{*this};
  std::map<Rank, Grant> held_;
  std::map<Rank, std::uint32_t> owed_;  // flags of grants that were held back and cancelled
};

}  // namespace

std::unique_ptr<Policy> make_naive_wait(const PolicyText& text, std::unique_ptr<Policy> base,
                                        std::string& error) {
  if (!text.is_one_unnamed()) {
    error =
        policy_error(text,
                     "naive_wait takes one parameter, the delay in ms: naive_wait:MS+BASE, such as "
                     "naive_wait:50+asp");
    return nullptr;
  }
  // Their neighbours' tokens move with a grant, so a grant that is held back would be made again
  // and again.
  if (base->family() == Family::kDecentralized) {
    error = policy_error(text, fmt::format("naive_wait delays parameter-server policies, '{}' is "
                                           "decentralized",
                                           base->name()));
    return nullptr;
  }
  const auto delay_ms =
      parse_policy_integer(text, "MS", text.arguments[0].value, 0, limits::kSpanMax / 1000, error);
  return delay_ms ? std::make_unique<NaiveWait>(*delay_ms, std::move(base)) : nullptr;
}

}  // namespace syncd
