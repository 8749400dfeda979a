// A client process in the simulated world: the client library's own session over simulated
// connections, and one or more workers that train through it, as trainers in the field do. It can
// be killed and started again. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agenda.h"
#include "libclient/session.h"
#include "network.h"
#include "tests/support/random.h"

namespace syncd::simulation {

// What workers do and see, told to whoever checks it.
class ClientWatcher {
 public:
  virtual ~ClientWatcher() = default;
  // The daemon has acknowledged the push of an iteration, which counts.
  virtual void on_acknowledged(std::uint32_t rank, std::int64_t iteration) = 0;
  // Decentralized: the worker's update of this iteration can be read by these from now on.
  virtual void on_published(std::uint32_t rank, std::int64_t iteration,
                            const std::vector<std::uint32_t>& targets) = 0;
  virtual void on_collected(std::uint32_t rank, std::int64_t iteration,
                            const std::vector<wire::PeerUpdate>& updates) = 0;
  // The worker was told to drop the work of an iteration, and does.
  virtual void on_dropped(std::uint32_t rank, std::int64_t iteration) = 0;
  // Rounds: a worker is told who is in its round.
  virtual void on_members(const std::string& name, const wire::ViewReply& view) = 0;
  // It trains in this round from now on; 0: in none.
  virtual void on_trains(const std::string& name, std::uint64_t round) = 0;
  virtual void on_outcome(const std::string& name, const std::string& call, Status status) = 0;
};

struct TrainerPlan {
  bool decentralized = false;
  bool compute_first = false;  // serial order, NOTIFY-ACK
  bool acknowledges = false;   // NOTIFY-ACK
  std::size_t daemons = 1;     // more: the members of a cluster, of which one serves
  bool rounds = false;         // gather: it trains in rounds, of as many iterations as it has left
  std::int64_t iterations = 10;
  Micros iteration_us = 20'000;   // about
  std::uint64_t slow_one_in = 0;  // iterations that take 50 times as long; 0: none
};

class Client final : public Endpoint {
 public:
  Client(Agenda& agenda, test::Random& random, Network& network, ClientWatcher& watcher,
         std::size_t host, int workers, const TrainerPlan& plan);
  ~Client() override { kill(true); }

  void start();
  // `silent`: nobody is told, as when its machine loses power.
  void kill(bool silent);
  bool running() const { return session_ != nullptr; }
  bool finished() const;
  // One of its workers waits for the answer to a begin.
  bool waits() const;
  // Its workers that have not finished have joined and ask to begin.
  bool waits_to_start() const;
  void freeze(Micros until) { frozen_until_ = until; }
  // From here on callers are patient.
  void calm() { calm_ = true; }
  std::string describe() const;
  std::size_t unfinished() const;

  // Endpoint
  void on_open(ConnectionKey connection) override;
  void on_bytes(ConnectionKey connection, std::span<const std::uint8_t> bytes) override;
  void on_end(ConnectionKey connection, const std::string& reason) override;

 private:
  enum class Phase {
    kJoin,
    kBegin,
    kRenew,  // collect of the iteration before a jump
    kCompute,
    kTargets,
    kPush,
    kCollect,
    kConsumed,
    kRestarted,
    kView,  // rounds: who is in it
    kLeave,
    kDone
  };
  struct Trainer {
    std::string name;
    Phase phase = Phase::kJoin;
    client::OpId op = 0;     // 0: nothing under way
    client::OpId aside = 0;  // an explanation that was asked for
    client::WorkerId worker = client::kNoWorker;
    std::uint32_t rank = 0;
    std::int64_t iteration = -1;         // rounds: the round
    std::vector<std::uint32_t> targets;  // decentralized: of that iteration
    std::int64_t trained = 0;            // rounds: iterations, by all of its processes
    std::shared_ptr<client::WorkerSignals> signals;
  };

  client::TimeUs now() const { return agenda_.now() - born_ + 1'000'000; }
  void later(Micros span, std::function<void()> what);
  void input(std::function<void()> what);
  void handle_inputs();

  // After anything was told to the session.
  void pump();
  void send_output();
  void follow_wish();
  void arm_timer();

  void act(std::size_t index);
  void act_later(std::size_t index, Micros span);
  void call(Trainer& trainer);
  void compute(std::size_t index);
  void trains(Trainer& trainer, bool in_round);
  Phase after_iteration(Trainer& trainer);
  void ended(std::size_t index, const client::Completion& completion);
  void succeeded(std::size_t index, const client::Completion& completion);
  void after_begin(Trainer& trainer, const client::Step& step);
  void start_life_over(Trainer& trainer);
  client::Timeout patience();

  Agenda& agenda_;
  test::Random& random_;
  Network& network_;
  ClientWatcher& watcher_;
  const std::size_t host_;
  const TrainerPlan plan_;
  std::vector<Trainer> trainers_;

  std::unique_ptr<client::Session> session_;
  Micros born_ = 0;  // of this process
  ConnectionKey connection_ = 0;
  bool connected_ = false;
  std::uint64_t number_ = 0;  // of the wish that connection_ is for
  std::uint64_t timer_ = 0;
  client::TimeUs armed_ = client::kNever;
  client::OpId next_op_ = 1;
  std::map<client::OpId, std::size_t> pending_;
  bool pumping_ = false;
  bool calm_ = false;
  Micros frozen_until_ = 0;
  std::vector<std::function<void()>> inputs_;
  std::shared_ptr<bool> alive_;
};

}  // namespace syncd::simulation
