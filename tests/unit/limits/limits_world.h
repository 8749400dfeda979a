// Engine and commit gate with as many workers as a test wants, over a store that keeps nothing;
// what leaves is encoded as on a real connection, and thrown away. One thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/server/core.h"
#include "proto/base/clock.h"
#include "tests/unit/server/fake_store.h"

namespace syncd::server {

class LimitsWorld final : private Core::Host {
 public:
  explicit LimitsWorld(EngineOptions options = {}) : core_(std::move(options), store_, *this) {
    store_.start([this](const store::CommitReport& report) { core_.report(report); });
  }

  Core& core() { return core_; }
  void ask(ConnectionId connection, wire::Body body) {
    core_.on_request({{connection, ++request_}, std::move(body)});
  }
  // Ends turns until everything is committed and answered.
  void settle() {
    do {
      settle_store();
      core_.fire_timers();
      core_.end_turn();
    } while (!core_.idle());
    answers_.clear();
  }
  // Ends the turn, and everything that it has brought is committed.
  void settle_store() {
    core_.end_turn();
    store_.commit_all();
    store_.submitted.clear();
    core_.end_turn();
  }
  // A worker of each rank below `count`, with names of the given lengths.
  std::vector<wire::WorkerRef> join(const std::string& job, const std::string& policy,
                                    std::uint32_t count, wire::Join join = {}) {
    join.job = job;
    join.policy = policy;
    join.world_size = count;
    const std::string name = join.name;
    std::vector<wire::WorkerRef> workers;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      join.rank = static_cast<std::int32_t>(rank);
      const std::string number = std::to_string(rank);
      join.name = number + name.substr(std::min(name.size(), number.size()));
      ask(connection_of(rank), join);
      settle_store();
      const auto* joined = answers_.empty() ? nullptr : std::get_if<wire::Joined>(&answers_.back());
      if (joined == nullptr) return {};
      workers.push_back(joined->worker);
      answers_.clear();
    }
    return workers;
  }
  static ConnectionId connection_of(Rank rank) { return 1 + rank % limits::kConnectionsMax; }
  // What has been answered since the last settle().
  const std::vector<wire::Body>& answers() const { return answers_; }
  void pass(Micros span) { now_ += span; }
  // From now on time also passes as the work takes it.
  void run_clock() { runs_since_ns_ = clock_ns(CLOCK_THREAD_CPUTIME_ID); }

 private:
  // Core::Host
  Micros now() const override {
    if (runs_since_ns_ == 0) return now_;
    const std::int64_t ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - runs_since_ns_;
    return now_ + ns / 1'000;
  }
  void send(ConnectionId, RequestId id, wire::Body&& body) override {
    out_.clear();
    encoder_.append(id, body, out_);
    if (id != 0) answers_.push_back(std::move(body));
  }
  void start_plan(Plan&&) override {}
  void log(LogLine&&) override {}

  Micros now_ = 1'000'000;
  std::int64_t runs_since_ns_ = 0;
  FakeStore store_;
  wire::Encoder encoder_;
  std::vector<std::uint8_t> out_;
  std::vector<wire::Body> answers_;
  RequestId request_ = 0;
  Core core_;
};

}  // namespace syncd::server
