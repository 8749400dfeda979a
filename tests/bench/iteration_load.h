// Whole iterations as load: every worker pushes and begins again in one write, and goes on when
// both are answered. bench_barrier runs it under bsp, bench_durable under asp. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "tests/bench/client.h"
#include "tests/bench/workers.h"

namespace syncd::bench {

struct IterationRound {
  double iterations_per_s = 0;      // of all workers together
  double cpu_us_per_iteration = 0;  // the server's, for one iteration of one worker
  std::vector<double> push_us;  // from the request's being encoded to its answer's being decoded
};

class IterationLoad {
 public:
  // What a worker sends for one iteration.
  enum class Requests {
    kPushAndBegin,  // both in one write; each has an answer of its own
    kBeginAlone,    // for the plainest floor: one frame in, one frame out
  };
  // Where a round ends.
  enum class Ending {
    kTogether,  // everybody at the same iteration, so that a barrier leaves nobody waiting
    kAnywhere,  // everybody as soon as the time is up
  };

  IterationLoad(Client& client, std::vector<Worker> workers, Requests requests, Ending ending);

  // From now on an iteration takes a worker this long on average, evenly between a half and one and
  // a half of it, drawn from a generator with a fixed seed. Zero, as at first: no time at all.
  void set_iteration_time(std::chrono::nanoseconds mean) { mean_ns_ = mean.count(); }

  // Everybody's first begin, which no push comes before. Call once, first.
  void start();

  // One barrier: everybody but one has pushed and begun, and holds the answer to its push. Returns
  // the time in microseconds from the last one's sending to the last answer's arrival.
  // Precondition: kPushAndBegin, and a server that lets nobody go before all have come.
  double release_us();

  // Iteration after iteration for `seconds`.
  IterationRound run(pid_t server, double seconds);

 private:
  struct State {
    std::int64_t granted = -1;  // the iteration that it computes
    std::int64_t asked = -1;    // the iteration of its latest begin
    bool push_standing = false;
    std::int64_t pushed_ns = 0;
  };
  void send_push(std::size_t worker);
  void send_begin(std::size_t worker);
  void send_requests(std::size_t worker);
  void compute(std::size_t worker);
  void end_computations();
  std::chrono::nanoseconds until_next_end() const;
  void on_answer(const wire::Message& message);
  void on_pushed(State& state, const wire::Message& message);
  void on_granted(State& state, const wire::Message& message);
  bool may_go_on(const State& state);
  void poll_until_answered(std::size_t begins_left, std::size_t pushes_left);

  Client& client_;
  const std::vector<Worker> workers_;
  const Requests requests_;
  const Ending ending_;
  std::vector<State> states_;
  std::size_t begins_standing_ = 0;
  std::size_t pushes_standing_ = 0;
  std::uint64_t grants_ = 0;
  std::vector<double> push_us_;
  std::int64_t mean_ns_ = 0;
  std::mt19937_64 generator_{1};
  using End = std::pair<std::int64_t, std::size_t>;  // when, and whose
  std::priority_queue<End, std::vector<End>, std::greater<>> computing_;
  bool running_ = false;             // answers lead to new requests ...
  std::int64_t last_iteration_ = 0;  // ... up to this iteration
  std::int64_t highest_asked_ = -1;
  std::int64_t stop_ns_ = 0;
  std::size_t next_last_ = 0;  // who comes last in the next release_us()
};

}  // namespace syncd::bench
