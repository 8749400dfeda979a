// The workers' side of a simulation: their processes, which follow the trainer's loop with computed
// times. One thread at a time.
#pragma once

#include <cstdint>
#include <queue>
#include <tuple>
#include <variant>

#include "daemon/core/engine/policy.h"
#include "daemon/tools/sim/shared_link.h"
#include "daemon/tools/sim/world.h"

namespace syncd::sim {

class WorkerSide {
 public:
  // The end of a worker's computing, or of a transfer over its own link. `token` differs if the
  // worker dropped it.
  struct End {
    Micros at = 0;
    std::uint64_t order = 0;
    Rank worker = 0;
    std::uint32_t token = 0;
    bool operator>(const End& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  explicit WorkerSide(World& world);

  void finish();  // counts every worker's time up to now
  // The next end; null: no worker computes or uses its own link.
  const End* next_end() const { return ends_.empty() ? nullptr : &ends_.top(); }
  void ended();  // precondition: there is a next end
  const SharedLink& server_link() const { return server_link_; }
  void transfer_ended();                 // precondition: the server's link is not idle
  void deliver(const Message& message);  // precondition: one to a worker
  void happens(std::size_t index);       // the event of this index in the options
  void start_process(Rank rank);

 private:
  using Stage = SimWorker::Stage;

  void end_process(Rank rank, Stage stage);
  void end_wait(SimWorker& worker);
  Model* model() const { return world_.options.model; }
  void note_computed(Rank rank, bool dropped);
  void stop_transferring(SimWorker& worker);
  void end_transferring(SimWorker& worker);
  std::size_t host_of(Rank rank) const;
  Rank rank_of_worker(const SimWorker& worker) const {
    return static_cast<Rank>(&worker - world_.workers.data());
  }
  template <class Body>
  void call(Rank rank, Stage stage, Body&& body);
  void collect(Rank rank, Stage stage, Iteration k);
  void go(Rank rank, bool leaves);
  void begin(Rank rank);
  void enter_iteration(Rank rank);
  void ask_targets(Rank rank);
  void pull(Rank rank);
  void compute(Rank rank);
  Micros compute_time(Rank rank, Iteration k) const;
  void start_computing(Rank rank);
  void computed(Rank rank);
  void transfer(Rank rank, Stage stage);
  void send_next(Rank rank);
  void send(Rank rank);
  void sent(Rank rank);
  void post(Rank rank);
  std::vector<wire::PeerUpdate> read_slots(SimWorker& worker,
                                           const std::vector<wire::PeerUpdate>& named);
  void push(Rank rank);
  // What comes for a worker.
  void on(Rank rank, const wire::Joined& joined);
  void on(Rank rank, const wire::Granted& granted);
  void on(Rank rank, const wire::Pushed& pushed);
  void on(Rank rank, const wire::TargetsReply& targets);
  void on(Rank rank, const wire::CollectReply& collected);
  void on(Rank rank, const wire::ResyncNotice& resync);
  void on(Rank rank, const wire::StopNotice&) { end_process(rank, Stage::kStopped); }
  void on(Rank rank, const Data& data);
  void on(Rank rank, const DataArrived&) { push(rank); }
  void on(Rank rank, const std::unique_ptr<wire::Body>& body) {
    std::visit([&](const auto& what) { on(rank, what); }, *body);
  }
  template <class Other>
  void on(Rank, const Other&) {}

  World& world_;
  Durations durations_;
  bool decentralized_ = false;
  PeerLoop loop_;
  bool compute_first_ = false;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  SharedLink server_link_;
  std::vector<std::uint64_t> host_ends_;  // the first rank behind each host's; empty: one each
};

}  // namespace syncd::sim
