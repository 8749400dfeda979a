// Where the workers of a decentralized run exchange parameters: one update queue per worker, in
// memory that all of them share, with an edge for every worker that might send to it. The edge from
// a worker to itself holds its present parameters, for whoever wants to look at them.
//
// Rules: a worker writes its own edges alone and never waits; any process may read. See
// libclient/update_queue.h for what keeps readers from torn updates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libclient/shared_memory.h"
#include "libclient/update_queue.h"
#include "reference_trainer/params/weighted_mean.h"

namespace syncd::trainer {

// More than this is not allocated: workers * workers * slots * parameters grows quickly.
inline constexpr std::size_t kPeerBytesMax = std::size_t{2} << 30;

class PeerQueues {
 public:
  // What an answer of receive() means for the caller's counters.
  enum class Received : std::uint8_t {
    kWhole,
    kMissing,  // never written, overwritten already, or from a worker that is not of this run
    kTorn,     // still half-written after many tries: its writer died, or two wrote at once
  };

  // The bytes that the queues need. Throws std::invalid_argument, with what needs so much and what
  // helps, if they are more than kPeerBytesMax.
  static std::size_t bytes_needed(int workers, std::int64_t slots, std::size_t parameters);

  // New queues in which every worker's present parameters are `initial`, as update 0. Throws
  // std::invalid_argument (as above) or SharedMemoryError.
  static PeerQueues create(int workers, std::int64_t slots, std::span<const float> initial);

  // The queues behind an inherited descriptor. Throws SharedMemoryError if there are none for so
  // many workers.
  static PeerQueues attach(int fd, int workers);

  int fd() const { return memory_.fd(); }
  int workers() const { return static_cast<int>(queues_.size()); }
  std::size_t parameters() const;
  std::int64_t slots() const;

  // Forgets everything that `worker` wrote in a life before this one. Nobody takes it for new then.
  void start_life(int worker);

  // Puts an update of `from` where `to` reads it. False: there is no such worker.
  bool send(int from, int to, std::int64_t iteration, std::span<const float> parameters);

  // Copies out what `from` sent to `at` in that iteration; `out` is unspecified unless kWhole.
  Received receive(int at, int from, std::int64_t iteration, std::span<float> out) const;

  // Makes a worker's present parameters known; `version` never goes down within a life.
  void publish(int worker, std::int64_t version, std::span<const float> parameters);

  // Copies a worker's present parameters. False: it has none, or died while it published them.
  bool read_published(int worker, std::span<float> out) const;

 private:
  PeerQueues(SharedMemory memory, std::vector<client::UpdateQueue> queues)
      : memory_(std::move(memory)), queues_(std::move(queues)) {}

  SharedMemory memory_;
  std::vector<client::UpdateQueue> queues_;  // by the worker that reads
};

// The mean of what read(worker, span) fills in for each worker that `counts` names; one of which it
// says false is left out. False: so are all.
template <typename Read>
bool average_read(const std::vector<bool>& counts, std::span<float> out, const Read& read) {
  std::vector<float> one(out.size());
  WeightedMean mean(out.size());
  for (std::size_t worker = 0; worker < counts.size(); ++worker) {
    if (counts[worker] && read(static_cast<int>(worker), std::span<float>(one))) mean.add(one, 1);
  }
  return mean.write(out);
}

// The mean of the present parameters of the workers that `counts` names. False: none of them has
// any. `out` is as long as a worker has parameters.
bool average_published(const PeerQueues& queues, const std::vector<bool>& counts,
                       std::span<float> out);

}  // namespace syncd::trainer
