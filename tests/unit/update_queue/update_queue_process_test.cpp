// Processes that share the queue's memory.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tests/unit/update_queue/support.h"

namespace syncd::client {
namespace {

// A forked child that runs `body` and ends with its result.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) : pid_(fork()) {
    if (pid_ == 0) _exit(body());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) kill();
  }
  bool started() const { return pid_ > 0; }
  int exit_code() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_;
};

// Yields until `done`.
template <class Done>
void until(Done done) {
  while (!done()) std::this_thread::yield();
}

// A ring of processes in lockstep, as a trainer without skips and staleness uses the queue: worker
// i writes iteration k at its neighbour's, then waits for that of its other neighbour. Each may be
// one iteration ahead of its reader, which max_ig = 1 allows, so that every read must be whole.
TEST(UpdateQueueProcesses, ExchangeEveryUpdateOfARing) {
  constexpr std::uint32_t kWorkers = 3;
  constexpr std::int64_t kIterations = 300;
  const UpdateQueueShape shape{2, update_queue_slots(1, 0, false), 65 * sizeof(float)};
  const std::size_t bytes = UpdateQueue::bytes_needed(shape).value();
  SharedMemory memory(kWorkers * bytes);
  std::string error;
  for (std::uint32_t i = 0; i < kWorkers; ++i) {
    ASSERT_TRUE(UpdateQueue::create(memory.begin() + i * bytes, bytes, shape, error)) << error;
  }
  // Edge 0 of a worker comes from its left, edge 1 from its right neighbour.
  const auto work = [&](std::uint32_t self) {
    std::string why;
    const auto queue_of = [&](std::uint32_t worker) {
      return *UpdateQueue::attach(memory.begin() + worker % kWorkers * bytes, bytes, why);
    };
    UpdateQueue own = queue_of(self);
    UpdateQueue right = queue_of(self + 1);
    UpdateQueue left = queue_of(self + kWorkers - 1);
    std::vector<float> update(65);
    for (std::int64_t k = 0; k < kIterations; ++k) {
      fill(update, 3 * k + self);
      if (right.write(0, k, std::span(update)) != Written::kOk) return 1;
      if (left.write(1, k, std::span(update)) != Written::kOk) return 2;
      for (std::uint32_t edge = 0; edge < 2; ++edge) {
        until([&] { return own.newest(edge) >= k; });
        if (own.read(edge, k, std::span(update)) != Read::kOk) return 3;
        const std::uint32_t from = edge == 0 ? self + kWorkers - 1 : self + 1;
        if (!is_whole(update, 3 * k + from % kWorkers)) return 4;
      }
    }
    return 0;
  };
  Child first([&] { return work(0); });
  Child second([&] { return work(1); });
  Child third([&] { return work(2); });
  EXPECT_EQ(first.exit_code(), 0);
  EXPECT_EQ(second.exit_code(), 0);
  EXPECT_EQ(third.exit_code(), 0);
}

TEST(UpdateQueueProcesses, AWriterMayDieAnywhereAndAnotherGoOn) {
  const UpdateQueueShape shape{1, 2, 20'000 * sizeof(float)};
  Queue queue(shape);
  std::int64_t next = 0;
  for (int life = 0; life < 20; ++life) {
    Child writer([&] {
      std::vector<float> update(queue.out.size());
      for (std::int64_t k = next; true; ++k) {
        fill(update, k);
        queue.made->write(0, k, std::span(update));
      }
      return 0;
    });
    ASSERT_TRUE(writer.started());
    until([&] { return queue.made->newest(0) >= next + 3; });
    writer.kill();
    // What it finished is whole, what it did not is not there; at most the one that it was writing
    // is in the middle.
    const std::int64_t newest = queue.made->newest(0);
    int torn = 0;
    for (std::int64_t k = newest - 1; k <= newest + 1; ++k) {
      if (queue.read(0, k) == Read::kTorn) ++torn;
    }
    EXPECT_LE(torn, 2);  // a slot under write answers so for either iteration that it serves
    EXPECT_EQ(queue.read(0, newest), Read::kOk);
    next = newest + 1;
    EXPECT_EQ(queue.write(0, next), Written::kOk);
    EXPECT_EQ(queue.read(0, next), Read::kOk);
    ++next;
  }
}

}  // namespace
}  // namespace syncd::client
