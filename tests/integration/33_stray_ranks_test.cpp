// Clients that say large numbers: hundreds of jobs of a million workers each, of which only the
// last one is there, and listings of them all. What that costs the daemon, and how long another
// client waits meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <sstream>
#include <thread>

#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

constexpr int kJobs = 300;
constexpr std::uint32_t kWorkers = 1'000'000;
constexpr double kMegabytesMax = 200 * SYNCD_TEST_MEMORY_FACTOR;

// The most memory that the process has ever had.
double peak_megabytes(const Daemon& daemon) {
  for (const std::string& line :
       lines_of(read_file("/proc/" + std::to_string(daemon.pid()) + "/status"))) {
    double kilobytes = 0;
    std::string key;
    std::istringstream(line) >> key >> kilobytes;
    if (key == "VmHWM:") return kilobytes / 1024;
  }
  throw std::runtime_error("/proc says no VmHWM of the daemon");
}

// A client that asks for the status again and again.
class Watcher {
 public:
  explicit Watcher(const std::string& address) : client_(address) {
    client_.hello();
    thread_ = std::thread([this] { run(); });
  }
  ~Watcher() {
    stopped_ = true;
    thread_.join();
    EXPECT_EQ(error_, "");
  }
  // Since the last call, in milliseconds, that of the request which waits now included.
  double take_longest_wait() {
    const std::uint64_t waiting = answers_;
    wait_until("the watcher's answer", [&] { return answers_ > waiting; });
    return longest_ms_.exchange(0);
  }

 private:
  void run() try {
    while (!stopped_) {
      const auto since = std::chrono::steady_clock::now();
      client_.call_for<wire::StatusReply>(wire::StatusRequest{});
      const std::chrono::duration<double, std::milli> wait =
          std::chrono::steady_clock::now() - since;
      double longest = longest_ms_;
      while (wait.count() > longest && !longest_ms_.compare_exchange_weak(longest, wait.count())) {
      }
      ++answers_;
    }
  } catch (const std::exception& error) {
    error_ = error.what();
  }

  RawClient client_;
  std::atomic<bool> stopped_ = false;
  std::atomic<double> longest_ms_ = 0;
  std::atomic<std::uint64_t> answers_ = 0;
  std::string error_;  // of the thread
  std::thread thread_;
};

class StrayRanks : public ::testing::TestWithParam<std::string> {};

TEST_P(StrayRanks, CostLittleMemoryAndHoldNobodyUp) {
  TempDir directory;
  Daemon daemon(directory, {.config = "[limits]\nworkers_per_job_max = 1000000\n"});
  {
    Watcher watcher(daemon.address());
    const auto report = [&](const char* what) {
      std::printf("%s, %s: another client waited at most %.1f ms; VmHWM %.0f MB\n",
                  GetParam().c_str(), what, watcher.take_longest_wait(), peak_megabytes(daemon));
    };
    RawClient flood(daemon.address());
    flood.hello();
    std::vector<std::uint64_t> asked;
    for (int i = 0; i < kJobs; ++i) {
      asked.push_back(
          flood.send(join_of("job-" + std::to_string(i), kWorkers - 1, kWorkers, GetParam())));
    }
    std::vector<wire::WorkerRef> workers;
    for (const std::uint64_t id : asked) {
      workers.push_back(RawClient::as<wire::Joined>(flood.answer(id)).worker);
      EXPECT_EQ(workers.back().rank, kWorkers - 1);
    }
    report("300 joins");
    for (const wire::WorkerRef& worker : workers) flood.send(wire::Begin{worker, 0});
    // So many at a time that what they answer fits the buffer of one who does not read.
    constexpr int kAtOnce = 20;
    for (int first = 0; first < kJobs; first += kAtOnce) {
      asked.clear();
      for (int i = first; i < first + kAtOnce; ++i) {
        asked.push_back(flood.send(wire::JobsRequest{}));
        asked.push_back(flood.send(wire::WorkersRequest{"job-" + std::to_string(i)}));
      }
      for (std::size_t i = 0; i < asked.size(); i += 2) {
        const auto jobs = RawClient::as<wire::JobsReply>(flood.answer(asked[i]));
        EXPECT_EQ(jobs.jobs.size() + jobs.omitted, kJobs);
        EXPECT_EQ(jobs.jobs.at(0).note, "waiting for 999999 of 1000000: 0-999998");
        const auto listed = RawClient::as<wire::WorkersReply>(flood.answer(asked[i + 1]));
        EXPECT_EQ(listed.workers.at(0).waiting_for, "0-999998");
      }
    }
    report("300 listings of jobs and of workers");
    for (int i = 0; i < 3; ++i) EXPECT_EQ(syncctl(directory, daemon, {"jobs"}).ending, exited(0));
    report("syncctl jobs");
    EXPECT_LT(peak_megabytes(daemon), kMegabytesMax);
  }
  EXPECT_EQ(daemon.stop(), exited(0));
  daemon.start();
  RawClient client(daemon.address());
  client.hello();
  EXPECT_EQ(client.call_for<wire::StatusReply>(wire::StatusRequest{}).workers, kJobs);
  std::printf("%s, started again: VmHWM %.0f MB\n", GetParam().c_str(), peak_megabytes(daemon));
  EXPECT_LT(peak_megabytes(daemon), kMegabytesMax);
}

INSTANTIATE_TEST_SUITE_P(Policies, StrayRanks, ::testing::Values("bsp", "hop:ring"),
                         [](const auto& policy) { return policy.param.substr(0, 3); });

}  // namespace
}  // namespace syncd::test
