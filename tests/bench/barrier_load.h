// The load of bench_barrier: N workers that push, begin, and wait for each other. One thread.
#pragma once

#include <sys/types.h>

#include <vector>

#include "tests/bench/client.h"
#include "tests/bench/workers.h"

namespace syncd::bench {

struct CycleRound {
  double barriers_per_s = 0;
  double cpu_us_per_worker = 0;  // the server's, for one worker's part in one barrier
};

class BarrierLoad {
 public:
  // What a worker sends for one barrier.
  enum class Requests {
    kPushAndBegin,  // both in one write; each has an answer of its own
    kBeginAlone,    // for the plainest floor: one frame in, one frame out
  };

  BarrierLoad(Client& client, std::vector<Worker> workers, Requests requests);

  // Everybody's first begin, which no push comes before. Call once, first.
  void start();

  // One barrier: everybody but one has pushed and begun, and holds the answer to its push. Returns
  // the time in microseconds from the last one's sending to the last answer's arrival.
  // Precondition: kPushAndBegin.
  double release_us();

  // Barrier after barrier for `seconds`, every worker going on as soon as it has its answers.
  CycleRound cycle(pid_t server, double seconds);

 private:
  struct State {
    std::int64_t granted = -1;  // the iteration that it computes
    std::int64_t asked = -1;    // the iteration of its latest begin
    bool push_standing = false;
  };
  void send_push(std::size_t worker);
  void send_begin(std::size_t worker);
  void send_requests(std::size_t worker);
  void on_answer(const wire::Message& message);
  void poll_until_answered(std::size_t begins_left, std::size_t pushes_left);

  Client& client_;
  const std::vector<Worker> workers_;
  const Requests requests_;
  std::vector<State> states_;
  std::size_t begins_standing_ = 0;
  std::size_t pushes_standing_ = 0;
  bool cycling_ = false;             // answers lead to new requests ...
  std::int64_t last_iteration_ = 0;  // ... up to this iteration
  std::int64_t highest_asked_ = -1;
  std::int64_t stop_ns_ = 0;
  std::size_t next_last_ = 0;  // who comes last in the next release_us()
};

}  // namespace syncd::bench
