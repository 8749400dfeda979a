// The load of benchmarks: workers that only iterate, `depth` of them over each connection. A worker
// sends its push and its next begin together, and goes on when both are answered. What the workers
// of a connection send after one read of it is one write. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "proto/wire/wire.h"
#include "tests/bench/wire_client.h"

namespace syncd::bench {

struct WireLoadOptions {
  std::string address = {};  // "unix:PATH"
  std::size_t connections = 64;
  std::size_t depth = 16;
  std::string policy = "asp";
  std::size_t jobs = 1;  // which the workers join by turns
  // Of a floor, which answers with what it was sent. There is no handshake and no join.
  bool is_echo = false;
  // Of a floor: each worker sends one frame, a begin, where it would send a push and a begin.
  bool single_frame = false;
  bool is_timed = false;  // keep how long each step took: see took_us()
};

class WireLoad {
 public:
  // Connects, joins, and waits until the first begin of every worker is granted.
  explicit WireLoad(const WireLoadOptions& options);

  // Iterates until so many requests are answered, or so much time is over. Returns the number of
  // answers. Then the server has nothing to do: what is still unanswered waits for other workers.
  std::uint64_t run(std::uint64_t messages);
  std::uint64_t run_for(double seconds);

  // How long each step of a worker took in the latest run, from sending to the last answer.
  std::vector<double>& took_us() { return took_us_; }

  // Which end of a barrier is measured.
  enum class Barrier {
    kBurst,    // all pushes are acknowledged, then all begin: from the last begin
    kRelease,  // all but one wait for it: from its push and begin, which are one write
  };
  // One barrier under bsp, or at a floor's barrier, where nobody pushes: the time in nanoseconds
  // from the last sending until the last answer is here. Precondition: a depth of 1.
  std::int64_t barrier_ns(Barrier barrier);

 private:
  struct Worker {
    std::size_t connection = 0;
    wire::WorkerRef ref;
    std::int64_t iteration = -1;  // granted
    std::size_t step = 0;         // of the iteration
    std::size_t unanswered = 0;
    std::int64_t sent_ns = 0;  // if the load is timed
  };
  // A request's id: which worker asks, and which of the step's requests.
  static constexpr std::uint64_t id_of(std::size_t worker, std::size_t slot) {
    return 2 * worker + slot + 1;
  }

  void join();
  void send_step(std::size_t worker);
  void send(std::size_t worker, std::size_t slot, wire::Body body);
  void send_push(std::size_t worker);
  void send_begin(std::size_t worker);
  wire::Body request(std::size_t worker, std::size_t slot) const;
  std::size_t steps() const { return is_decentralized_ ? 3 : 1; }
  std::size_t requests_of(const Worker& worker) const;
  void on_payload(std::size_t connection, std::span<const std::uint8_t> payload);
  void on_answer(std::size_t connection);
  void end_step(std::size_t worker);
  std::uint64_t run_until(const std::function<bool()>& is_over);
  void poll();
  void settle();
  void await_answers();

  const WireLoadOptions options_;
  const bool is_decentralized_;
  WireClient client_;
  wire::Message message_;
  std::vector<Worker> workers_;
  std::function<bool()> is_over_;  // of a run; empty between runs
  std::size_t unanswered_ = 0;
  std::size_t pushes_unanswered_ = 0;
  std::size_t heartbeats_unanswered_ = 0;
  std::uint64_t answered_ = 0;
  std::vector<double> took_us_;
};

// The size of the frame that a begin of the echo's workers becomes, length prefix included.
std::uint32_t begin_frame_bytes();

}  // namespace syncd::bench
