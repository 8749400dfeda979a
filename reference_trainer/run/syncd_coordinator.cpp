// The coordinator over the C interface <syncd/client.h>: see coordinator.h. The client library runs
// a thread of its own for the network; everything here runs on the caller's.
#include <fmt/format.h>
#include <syncd/client.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "reference_trainer/run/coordinator.h"

namespace syncd::trainer {
namespace {

constexpr std::int64_t kSaveLeaseMs = 600'000;
constexpr std::int64_t kAskTimeoutMs = 10'000;

CoordinatorError::Kind kind_of(syncd_status status, const syncd_error* error) {
  if (status == SYNCD_E_FENCED || status == SYNCD_E_WRONG_ITERATION) {
    return CoordinatorError::Kind::kFenced;
  }
  if (status == SYNCD_E_STOPPED) return CoordinatorError::Kind::kStopped;
  return syncd_error_is_retriable(error) != 0 ? CoordinatorError::Kind::kRetry
                                              : CoordinatorError::Kind::kOther;
}

class SyncdCoordinator : public PeerCoordinator {
 public:
  explicit SyncdCoordinator(JoinRequest request) : request_(std::move(request)) { open(); }

  ~SyncdCoordinator() override {
    syncd_client_close(client_);
    syncd_worker_free(worker_);
  }

  SyncdCoordinator(const SyncdCoordinator&) = delete;
  SyncdCoordinator& operator=(const SyncdCoordinator&) = delete;

  void join() override {
    if (worker_ != nullptr) {
      // The old handle is of no use any more; whether the daemon still knows it does not matter.
      syncd_leave(worker_, 0, nullptr);
      syncd_worker_free(worker_);
      worker_ = nullptr;
    }
    const std::string name = fmt::format("worker-{}", request_.worker);
    syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
    options.job = request_.job.c_str();
    options.policy = request_.policy.c_str();
    options.name = name.c_str();
    options.rank = request_.worker;
    options.world_size = static_cast<std::uint32_t>(request_.workers);
    options.resync_flag = request_.resync_flag;
    options.checkpoints = request_.checkpoints ? 1 : 0;
    if (request_.launch != 0) {
      options.launch = "reference_trainer";
      options.launch_number = request_.launch;
    }
    if (request_.resume_at > 0) {
      options.resume = SYNCD_RESUME_CONTINUE;
      options.resume_at = request_.resume_at;
    }
    make(fmt::format("joining job {} with policy {}", request_.job, request_.policy),
         [&](auto error) { return syncd_join(client_, &options, &worker_, error); });
  }

  std::optional<Step> begin(std::int64_t timeout_ms) override {
    syncd_step step = SYNCD_STEP_INIT;
    const auto ask = [&](auto error) { return syncd_begin(worker_, timeout_ms, &step, error); };
    if (make("begin", ask, {SYNCD_E_TIMEOUT}) == SYNCD_E_TIMEOUT) return std::nullopt;
    return Step{.iteration = step.iteration,
                .staleness = step.staleness,
                .pull = (step.flags & SYNCD_STEP_PULL) != 0,
                .barrier = (step.flags & SYNCD_STEP_BARRIER) != 0,
                .skip = (step.flags & SYNCD_STEP_SKIP) != 0,
                .stop = (step.flags & SYNCD_STEP_STOP) != 0,
                .checkpoint = (step.flags & SYNCD_STEP_CHECKPOINT) != 0 ? wanted_checkpoint() : 0};
  }

  std::string waiting_for() const override { return waiting_for_; }

  bool should_resync() const override { return syncd_should_resync(worker_) != 0; }

  void restarted(std::int64_t iteration) override {
    make("restarted",
         [&](auto error) { return syncd_worker_restarted(worker_, iteration, 0, error); });
  }

  bool push(std::int64_t iteration, const PushReport& report) override {
    syncd_push_info info = SYNCD_PUSH_INFO_INIT;
    info.loss = report.loss;
    info.samples = report.samples;
    info.bytes = report.bytes;
    std::uint32_t flags = 0;
    make("push", [&](auto error) {
      return syncd_push(worker_, iteration, &info, SYNCD_TIMEOUT_DEFAULT, &flags, error);
    });
    return (flags & SYNCD_PUSH_LATE) != 0;
  }

  std::optional<std::vector<int>> targets(std::int64_t iteration,
                                          std::int64_t timeout_ms) override {
    const auto ask = [&](auto& ranks, std::size_t& count, auto error) {
      return syncd_worker_targets(worker_, iteration, timeout_ms, ranks.data(), ranks.size(),
                                  &count, error);
    };
    if (!fill("targets", ranks_, ask)) return std::nullopt;
    return std::vector<int>(ranks_.begin(), ranks_.end());
  }

  std::optional<std::vector<PeerUpdate>> collect(std::int64_t iteration,
                                                 std::int64_t timeout_ms) override {
    const auto ask = [&](auto& updates, std::size_t& count, auto error) {
      return syncd_worker_collect(worker_, iteration, timeout_ms, updates.data(), updates.size(),
                                  &count, error);
    };
    if (!fill("collect", updates_, ask)) return std::nullopt;
    std::vector<PeerUpdate> result;
    result.reserve(updates_.size());
    for (const syncd_update& update : updates_) {
      result.push_back(
          {.rank = update.rank, .iteration = update.iteration, .weight = update.weight});
    }
    return result;
  }

  void consumed(std::int64_t iteration) override {
    make("consumed",
         [&](auto error) { return syncd_worker_consumed(worker_, iteration, 0, error); });
  }

  void leave() override {
    make("leave", [&](auto error) { return syncd_leave(worker_, SYNCD_TIMEOUT_DEFAULT, error); });
  }

  bool leave_as(LeaveKind kind, const std::string& reason) override {
    const std::int32_t how = kind == LeaveKind::kFailed      ? SYNCD_LEAVE_FAILED
                             : kind == LeaveKind::kPreempted ? SYNCD_LEAVE_PREEMPTED
                                                             : SYNCD_LEAVE_LEFT;
    const auto ask = [&](auto error) {
      return syncd_leave_as(worker_, how, reason.empty() ? nullptr : reason.c_str(),
                            SYNCD_TIMEOUT_DEFAULT, error);
    };
    return make("leave", ask, {SYNCD_E_CHECKPOINT}) == SYNCD_OK;
  }

  std::uint64_t request_checkpoint(const std::string& reason, bool leaving) override {
    std::uint64_t number = 0;
    make("asking for a checkpoint", [&](auto error) {
      return syncd_worker_request_checkpoint(worker_, reason.c_str(),
                                             leaving ? SYNCD_CHECKPOINT_LEAVING : 0, kAskTimeoutMs,
                                             &number, error);
    });
    return number;
  }

  std::uint64_t wanted_checkpoint() const override { return syncd_worker_checkpoint(worker_); }

  void saving() override {
    make("phase", [&](auto error) {
      return syncd_worker_phase(worker_, "checkpoint", kSaveLeaseMs, 0, error);
    });
  }

  void checkpointed(std::uint64_t number, const std::string& location) override {
    const auto ask = [&](auto error) {
      return syncd_worker_checkpointed(worker_, number, static_cast<std::uint32_t>(request_.worker),
                                       static_cast<std::uint32_t>(request_.workers),
                                       location.c_str(), SYNCD_TIMEOUT_DEFAULT, error);
    };
    make("checkpointed", ask, {SYNCD_E_STATE});
    syncd_worker_phase(worker_, nullptr, 0, 0, nullptr);
  }

 private:
  void open() {
    const std::string name = fmt::format("reference_trainer worker {}", request_.worker);
    syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
    options.addresses = request_.addresses.c_str();
    options.client_name = name.c_str();
    make("connecting to syncd",
         [&](auto error) { return syncd_client_open(&options, &client_, error); });
  }

  // Makes a call, which takes where its error goes. Throws what is neither SYNCD_OK nor one of
  // `also`; a wait that has timed out leaves behind who is waited for.
  template <typename Call>
  syncd_status make(std::string_view call, const Call& ask,
                    std::initializer_list<syncd_status> also = {}) {
    syncd_error* made = nullptr;
    const syncd_status status = ask(&made);
    const std::unique_ptr<syncd_error, decltype(&syncd_error_free)> error(made, syncd_error_free);
    if (status == SYNCD_OK) return status;
    if (std::find(also.begin(), also.end(), status) == also.end()) {
      throw CoordinatorError(
          kind_of(status, made),
          fmt::format("{}: {}: {}", call, syncd_strerror(status), syncd_error_message(made)));
    }
    if (status == SYNCD_E_TIMEOUT) waiting_for_ = syncd_error_message(made);
    return status;
  }

  // Makes a call that fills a buffer, again with more room where that is too small; `buffer` then
  // has the answer's size. False: the call timed out.
  template <typename Item, typename Ask>
  bool fill(std::string_view call, std::vector<Item>& buffer, const Ask& ask) {
    buffer.resize(std::max(buffer.capacity(), static_cast<std::size_t>(request_.workers)));
    for (;;) {
      std::size_t count = 0;
      const auto once = [&](auto error) { return ask(buffer, count, error); };
      const syncd_status status = make(call, once, {SYNCD_E_TIMEOUT, SYNCD_E_BUFFER});
      if (status == SYNCD_E_TIMEOUT) return false;
      buffer.resize(count);
      if (status == SYNCD_OK) return true;
    }
  }

  JoinRequest request_;
  std::vector<std::int32_t> ranks_;
  std::vector<syncd_update> updates_;
  syncd_client* client_ = nullptr;
  syncd_worker* worker_ = nullptr;
  std::string waiting_for_;
};

}  // namespace

std::unique_ptr<PeerCoordinator> connect_to_syncd(const JoinRequest& request) {
  return std::make_unique<SyncdCoordinator>(request);
}

}  // namespace syncd::trainer
