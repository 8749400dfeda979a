// Clients that push as fast as the daemon lets them, through the C interface and each with a
// connection of its own, in threads of the test's process; and what they saw acknowledged. The
// functions are for the test's main thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/c_api.h"
#include "support/history.h"
#include "tests/support/random.h"

namespace syncd::test {

struct PusherOptions {
  std::string address = {};
  std::string job = "job";
  std::string policy = {};
  int clients = 8;
  int workers_each = 1;    // of one client, each in a thread of its own
  int world_size = 0;      // 0: as many as they are
  std::uint64_t seed = 1;  // of the callers' patience
};

// Whatever becomes of the connection and the daemon, a call may end in SYNCD_OK, or in
// SYNCD_E_TIMEOUT where its own timeout was over, and then it is made again. Any other answer is a
// failure, and so is an iteration that is not the one after the last.
class Pushers {
 public:
  // Starts them; they connect, join and push from now on.
  explicit Pushers(PusherOptions options);
  // Ends them where they are, without a leave.
  ~Pushers();
  Pushers(const Pushers&) = delete;
  Pushers& operator=(const Pushers&) = delete;

  // Pushes that have returned SYNCD_OK, of all workers together.
  std::size_t acknowledged() const { return acknowledged_.load(); }
  // Calls that have ended in their own timeout.
  std::size_t timeouts() const { return timeouts_.load(); }
  // Waits until so many more than now are acknowledged. Throws at the deadline, and at once when a
  // call has failed, with what it answered.
  void await(std::size_t more, Milliseconds timeout = kPatience);
  // Lets every worker push on until it has at least so many in all, and leave. Throws as await().
  void finish(std::size_t each, Milliseconds timeout = kPatience);

  int size() const { return static_cast<int>(workers_.size()); }
  // Iterations whose push returned SYNCD_OK, in the order in which they did. After finish().
  const std::vector<std::int64_t>& pushes(int rank) const;

 private:
  struct Worker {
    int rank = 0;
    Random random{0};
    ApiWorker handle;
    std::vector<std::int64_t> pushed;
  };
  struct Client {
    std::unique_ptr<ApiClient> handle;
    std::once_flag opened;
  };

  void run(Client& client, Worker& worker);
  void iterate(Worker& worker);
  std::int64_t patience_ms(Worker& worker);
  template <typename Call>
  void insist(Worker& worker, const char* name, Call&& call);
  bool enough(const Worker& worker) const;
  void fail(const std::string& text);
  void throw_if_failed() const;

  const PusherOptions options_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Worker>> workers_;  // by rank
  std::vector<std::thread> threads_;
  std::atomic<std::size_t> acknowledged_{0};
  std::atomic<std::size_t> timeouts_{0};
  std::atomic<std::size_t> last_push_;  // of every worker, counted from 1
  std::atomic<bool> abandoned_{false};
  std::atomic<int> running_{0};
  mutable std::mutex mutex_;  // guards failure_
  std::string failure_;
};

// Expects of each worker in the history exactly the pushes that it saw acknowledged, in their
// order, and that none was ever given up for lost.
void expect_exactly_once(const History& history, const Pushers& pushers);

}  // namespace syncd::test
