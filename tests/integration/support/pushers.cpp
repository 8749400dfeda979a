// See pushers.h.
#include "support/pushers.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace syncd::test {
namespace {

// Thrown in a worker's thread to end it.
struct Abandoned {};

}  // namespace

Pushers::Pushers(PusherOptions options)
    : options_(std::move(options)), last_push_(std::numeric_limits<std::size_t>::max()) {
  Random seeds(options_.seed);
  for (int i = 0; i < options_.clients; ++i) {
    clients_.push_back(std::make_unique<Client>());
    for (int j = 0; j < options_.workers_each; ++j) {
      workers_.push_back(std::make_unique<Worker>());
      workers_.back()->rank = i * options_.workers_each + j;
      workers_.back()->random = Random(seeds.next());
    }
  }
  running_ = size();
  for (auto& worker : workers_) {
    Client& client = *clients_[static_cast<std::size_t>(worker->rank / options_.workers_each)];
    threads_.emplace_back([this, &client, &worker] { run(client, *worker); });
  }
}

Pushers::~Pushers() {
  abandoned_ = true;
  // A call that is blocked ends when its timeout is over, or here: its client is closed.
  for (auto& client : clients_) {
    std::call_once(client->opened, [] {});
    if (client->handle) client->handle->close();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

const std::vector<std::int64_t>& Pushers::pushes(int rank) const {
  return workers_.at(static_cast<std::size_t>(rank))->pushed;
}

void Pushers::run(Client& client, Worker& worker) {
  try {
    std::call_once(client.opened,
                   [&] { client.handle = std::make_unique<ApiClient>(options_.address); });
    if (!client.handle) throw Abandoned{};
    insist(worker, "join", [&](std::int64_t timeout_ms) {
      return client.handle->try_join({.job = options_.job,
                                      .policy = options_.policy,
                                      .host = "host",
                                      .rank = worker.rank,
                                      .world_size = static_cast<std::uint32_t>(
                                          options_.world_size > 0 ? options_.world_size : size()),
                                      .timeout_ms = timeout_ms},
                                     worker.handle);
    });
    while (!enough(worker)) iterate(worker);
    insist(worker, "leave",
           [&](std::int64_t timeout_ms) { return worker.handle.leave(timeout_ms); });
  } catch (const Abandoned&) {
  } catch (const std::exception& error) {
    fail("worker " + std::to_string(worker.rank) + ": " + error.what());
  }
  --running_;
}

bool Pushers::enough(const Worker& worker) const {
  return worker.pushed.size() >= last_push_.load();
}

void Pushers::iterate(Worker& worker) {
  syncd_step step = SYNCD_STEP_INIT;
  insist(worker, "begin",
         [&](std::int64_t timeout_ms) { return worker.handle.begin(step, timeout_ms); });
  const auto due = static_cast<std::int64_t>(worker.pushed.size());
  if (step.iteration != due || (step.flags & SYNCD_STEP_STOP) != 0) {
    throw std::runtime_error("begin granted iteration " + std::to_string(step.iteration) +
                             " with flags " + std::to_string(step.flags) + " where " +
                             std::to_string(due) + " was due");
  }
  insist(worker, "push",
         [&](std::int64_t timeout_ms) { return worker.handle.push(step.iteration, timeout_ms); });
  worker.pushed.push_back(step.iteration);
  ++acknowledged_;
}

// Mostly more than the test takes; else so little that it may well be over first.
std::int64_t Pushers::patience_ms(Worker& worker) {
  return worker.random.one_in(16) ? worker.random.between(1, 20) : kPatience.count();
}

template <typename Call>
void Pushers::insist(Worker& worker, const char* name, Call&& call) {
  for (;;) {
    const std::int64_t timeout_ms = patience_ms(worker);
    const Answer answer = call(timeout_ms);
    if (abandoned_) throw Abandoned{};
    if (answer.ok()) return;
    // A call that waits longer than the test's own patience has hung.
    if (answer.status != SYNCD_E_TIMEOUT || timeout_ms == kPatience.count()) {
      throw std::runtime_error(std::string(name) + " after " +
                               std::to_string(worker.pushed.size()) + " pushes and with " +
                               std::to_string(timeout_ms) + " ms: " + answer.text());
    }
    ++timeouts_;
  }
}

void Pushers::fail(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  failure_ += (failure_.empty() ? "" : "\n") + text;
}

void Pushers::throw_if_failed() const {
  const std::scoped_lock lock(mutex_);
  if (!failure_.empty()) throw std::runtime_error(failure_);
}

void Pushers::await(std::size_t more, Milliseconds timeout) {
  const std::size_t wanted = acknowledged() + more;
  wait_until(
      "push " + std::to_string(wanted) + " of all workers",
      [&] {
        throw_if_failed();
        return acknowledged() >= wanted;
      },
      timeout);
}

void Pushers::finish(std::size_t each, Milliseconds timeout) {
  last_push_ = each;
  wait_until(
      "every worker to leave",
      [&] {
        throw_if_failed();
        return running_ == 0;
      },
      timeout);
  throw_if_failed();
  for (std::thread& thread : threads_) thread.join();
}

void expect_exactly_once(const History& history, const Pushers& pushers) {
  for (std::size_t i = 0; i < history.rows.size(); ++i) {
    ASSERT_EQ(number(history.rows[i], "sequence"), static_cast<std::int64_t>(i + 1));
  }
  for (int rank = 0; rank < pushers.size(); ++rank) {
    EXPECT_EQ(history.pushes(rank), pushers.pushes(rank)) << "of worker " << rank;
  }
  EXPECT_EQ(history.of_kind("push").size(), pushers.acknowledged());
  EXPECT_TRUE(history.of_kind("worker_lost").empty());
}

}  // namespace syncd::test
