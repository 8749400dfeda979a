// See naive_wait.h.
#include "daemon/policies/naive_wait.h"

#include <map>

#include "daemon/engine/limits.h"
#include "daemon/policies/overlay.h"

namespace syncd {
namespace {

constexpr std::uint32_t kTimerRelease = 0;

class NaiveWait final : public Policy {
 public:
  NaiveWait(std::int64_t delay_ms, std::unique_ptr<Policy> base)
      : delay_ms_(delay_ms), base_(std::move(base)) {}

  std::string name() const override {
    return "naive_wait:" + std::to_string(delay_ms_) + "+" + base_->name();
  }
  Family family() const override { return base_->family(); }
  std::string check_workers(std::uint32_t workers) const override {
    return base_->check_workers(workers);
  }
  Clock entry_clock(const PolicyHost& host) const override { return base_->entry_clock(host); }
  bool keeps_clock(const PolicyHost& host, Clock q) const override {
    return base_->keeps_clock(host, q);
  }

  void on_enter(PolicyHost& host, Rank rank) override {
    Host own(host, *this);
    base_->on_enter(own, rank);
  }
  void on_return(PolicyHost& host, Rank rank) override {
    Host own(host, *this);
    base_->on_return(own, rank);
  }
  void on_exit(PolicyHost& host, Rank rank) override {
    drop(host, rank);
    Host own(host, *this);
    base_->on_exit(own, rank);
  }
  void on_begin(PolicyHost& host, Rank rank) override {
    Host own(host, *this);
    base_->on_begin(own, rank);
  }
  void on_cancel(PolicyHost& host, Rank rank) override {
    drop(host, rank);
    Host own(host, *this);
    base_->on_cancel(own, rank);
  }
  PushVerdict judge_push(const PolicyHost& host, Rank rank, Iteration k) const override {
    return base_->judge_push(host, rank, k);
  }
  void on_push(PolicyHost& host, Rank rank, bool late) override {
    Host own(host, *this);
    base_->on_push(own, rank, late);
  }
  void on_restarted(PolicyHost& host, Rank rank) override {
    Host own(host, *this);
    base_->on_restarted(own, rank);
  }
  bool on_peer_call(PolicyHost& host, Rank rank, PeerCall call) override {
    Host own(host, *this);
    return base_->on_peer_call(own, rank, call);
  }
  void on_timer(PolicyHost& host, std::int64_t rank, std::uint32_t kind) override {
    if (kind >= kOverlayTimerKinds) {
      Host own(host, *this);
      base_->on_timer(own, rank, kind - kOverlayTimerKinds);
      return;
    }
    const auto it = held_.find(static_cast<Rank>(rank));
    if (it == held_.end()) return;
    const Grant grant = it->second;
    held_.erase(it);
    host.grant(static_cast<Rank>(rank), grant);
  }
  void on_plan(PolicyHost& host, std::uint64_t plan,
               std::span<const std::int64_t> result) override {
    Host own(host, *this);
    base_->on_plan(own, plan, result);
  }
  void on_note(PolicyHost& host, const Record& record) override {
    Host own(host, *this);
    base_->on_note(own, record);
  }
  Reason explain(const PolicyHost& host, Rank rank) const override {
    if (!held_.contains(rank)) return base_->explain(host, rank);
    return {"granted by " + base_->name() + ", held back for " + std::to_string(delay_ms_) + " ms",
            {}};
  }
  std::vector<std::int64_t> save() const override { return base_->save(); }
  bool load(std::span<const std::int64_t> state) override { return base_->load(state); }

 private:
  // The host that the base policy sees: its grants are held back.
  class Host final : public ForwardingHost {
   public:
    Host(PolicyHost& inner, NaiveWait& owner) : ForwardingHost(inner), owner_(owner) {}
    void grant(Rank rank, const Grant& grant) override {
      owner_.held_[rank] = grant;
      inner().set_timer(rank, kTimerRelease, now() + owner_.delay_ms_ * 1000);
    }

   private:
    NaiveWait& owner_;
  };

  void drop(PolicyHost& host, Rank rank) {
    if (held_.erase(rank) > 0) host.cancel_timer(rank, kTimerRelease);
  }

  std::int64_t delay_ms_;
  std::unique_ptr<Policy> base_;
  std::map<Rank, Grant> held_;
};

}  // namespace

std::unique_ptr<Policy> make_naive_wait(const PolicyText& text, std::unique_ptr<Policy> base,
                                        std::string& error) {
  if (text.arguments.size() != 1 || !text.arguments[0].key.empty()) {
    error =
        policy_error(text,
                     "naive_wait takes one parameter, the delay in ms: naive_wait:MS+BASE, such as "
                     "naive_wait:50+asp");
    return nullptr;
  }
  const auto delay_ms =
      parse_policy_integer(text, "MS", text.arguments[0].value, 0, limits::kSpanMax / 1000, error);
  return delay_ms ? std::make_unique<NaiveWait>(*delay_ms, std::move(base)) : nullptr;
}

}  // namespace syncd
