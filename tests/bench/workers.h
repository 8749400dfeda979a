// Workers of the load generator: who they are, how they join a job at syncd. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/wire.h"
#include "tests/bench/client.h"

namespace syncd::bench {

struct Worker {
  std::size_t connection = 0;
  wire::WorkerRef ref;
  std::int64_t iteration = 0;  // the one that is asked for, or computed
};

// Where a floor's workers begin. Not 0, because a field that is 0 takes no place in a frame, and
// every frame is to have the same size.
inline constexpr std::int64_t kFloorIteration = 1;

// A request's id tells which worker asked, and what: unique within a connection as long as a worker
// has at most one request of a kind standing.
constexpr std::uint64_t begin_id(std::size_t worker) {
  return 2 * worker + 1;
}
constexpr std::uint64_t push_id(std::size_t worker) {
  return 2 * worker + 2;
}
constexpr std::size_t worker_of(std::uint64_t id) {
  return static_cast<std::size_t>((id - 1) / 2);
}
constexpr bool is_push_id(std::uint64_t id) {
  return id % 2 == 0;
}

wire::Message begin_message(const Worker& worker, std::size_t index, std::int64_t iteration);
// With loss and samples, as a trainer that reports them sends it.
wire::Message push_message(const Worker& worker, std::size_t index, std::int64_t iteration);

// Opens `connections` to a floor and spreads `count` made-up workers over them.
std::vector<Worker> connect_to_floor(Client& client, const Endpoint& endpoint, std::size_t count,
                                     std::size_t connections);

// Opens `connections` to syncd, shakes hands, and makes `count` workers, spread over them, join
// `job` under `policy`. Their begins are granted once all of them have asked.
std::vector<Worker> connect_to_syncd(Client& client, const Endpoint& endpoint,
                                     const std::string& job, const std::string& policy,
                                     std::size_t count, std::size_t connections);

// Ends the benchmark unless `message` grants this iteration, or acknowledges its push for the first
// time. A floor's answer is the request itself.
void check_answer(const wire::Message& message, std::int64_t iteration);

// The size of the frame that a message becomes, length prefix included.
std::size_t frame_bytes(const wire::Message& message);

}  // namespace syncd::bench
