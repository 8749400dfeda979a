// Whole iterations of N workers. One thread.
#include "tests/bench/iteration_load.h"

#include <algorithm>
#include <limits>

#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

}  // namespace

IterationLoad::IterationLoad(Client& client, std::vector<Worker> workers, Requests requests,
                             Ending ending)
    : client_(client),
      workers_(std::move(workers)),
      requests_(requests),
      ending_(ending),
      states_(workers_.size()) {
  for (std::size_t i = 0; i < workers_.size(); ++i) states_[i].granted = workers_[i].iteration - 1;
}

void IterationLoad::send_push(std::size_t worker) {
  State& state = states_[worker];
  state.pushed_ns = now_ns();
  client_.send(workers_[worker].connection, push_message(workers_[worker], worker, state.granted));
  state.push_standing = true;
  ++pushes_standing_;
}

void IterationLoad::send_begin(std::size_t worker) {
  State& state = states_[worker];
  state.asked = state.granted + 1;
  highest_asked_ = std::max(highest_asked_, state.asked);
  client_.send(workers_[worker].connection, begin_message(workers_[worker], worker, state.asked));
  ++begins_standing_;
}

void IterationLoad::send_requests(std::size_t worker) {
  if (requests_ == Requests::kPushAndBegin) send_push(worker);
  send_begin(worker);
}

void IterationLoad::on_answer(const wire::Message& message) {
  const std::size_t worker = worker_of(message.id);
  if (worker >= workers_.size()) fail("an answer has the id of no standing request");
  State& state = states_[worker];
  if (is_push_id(message.id)) {
    on_pushed(state, message);
  } else {
    on_granted(state, message);
  }
  if (running_ && !state.push_standing && state.granted == state.asked && may_go_on(state)) {
    compute(worker);
  }
}

void IterationLoad::compute(std::size_t worker) {
  if (mean_ns_ == 0) return send_requests(worker);
  std::uniform_int_distribution<std::int64_t> time_ns(mean_ns_ / 2, mean_ns_ + mean_ns_ / 2);
  computing_.emplace(now_ns() + time_ns(generator_), worker);
}

void IterationLoad::end_computations() {
  while (!computing_.empty() && computing_.top().first <= now_ns()) {
    const std::size_t worker = computing_.top().second;
    computing_.pop();
    send_requests(worker);
  }
}

std::chrono::nanoseconds IterationLoad::until_next_end() const {
  if (computing_.empty()) return kPatience;
  return std::chrono::nanoseconds(std::max<std::int64_t>(0, computing_.top().first - now_ns()));
}

void IterationLoad::on_pushed(State& state, const wire::Message& message) {
  // The grant may have come first: an acknowledgement waits for the store, a grant does not.
  check_answer(message, state.asked - 1);
  if (!state.push_standing) fail("a push was acknowledged twice");
  state.push_standing = false;
  --pushes_standing_;
  if (running_) push_us_.push_back(static_cast<double>(now_ns() - state.pushed_ns) / 1e3);
}

void IterationLoad::on_granted(State& state, const wire::Message& message) {
  check_answer(message, state.asked);
  if (state.granted == state.asked) fail("an iteration was granted twice");
  state.granted = state.asked;
  --begins_standing_;
  ++grants_;
}

bool IterationLoad::may_go_on(const State& state) {
  if (last_iteration_ == kNoEnd && now_ns() >= stop_ns_) {
    last_iteration_ = ending_ == Ending::kTogether ? highest_asked_ : -1;
  }
  return state.granted < last_iteration_;
}

void IterationLoad::poll_until_answered(std::size_t begins_left, std::size_t pushes_left) {
  const auto handler = [this](std::size_t, const wire::Message& message) { on_answer(message); };
  client_.flush();
  while (begins_standing_ > begins_left || pushes_standing_ > pushes_left || !computing_.empty()) {
    const bool wakes = !computing_.empty();
    if (!client_.poll(until_next_end(), handler) && !wakes) {
      fail("a begin or a push is not answered");
    }
    end_computations();
  }
}

void IterationLoad::start() {
  for (std::size_t i = 0; i < workers_.size(); ++i) send_begin(i);
  poll_until_answered(0, 0);
}

double IterationLoad::release_us() {
  const std::size_t last = next_last_++ % workers_.size();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (i != last) send_requests(i);
  }
  poll_until_answered(workers_.size() - 1, 0);
  const std::int64_t start = now_ns();
  send_requests(last);
  poll_until_answered(0, 0);
  return static_cast<double>(now_ns() - start) / 1e3;
}

IterationRound IterationLoad::run(pid_t server, double seconds) {
  const std::int64_t cpu_before = process_cpu_ns(server);
  const std::uint64_t grants_before = grants_;
  const std::int64_t start = now_ns();
  stop_ns_ = start + static_cast<std::int64_t>(seconds * 1e9);
  last_iteration_ = kNoEnd;
  push_us_.clear();
  running_ = true;
  for (std::size_t i = 0; i < workers_.size(); ++i) compute(i);
  poll_until_answered(0, 0);
  running_ = false;
  const auto elapsed_ns = static_cast<double>(now_ns() - start);
  const auto cpu_ns = static_cast<double>(process_cpu_ns(server) - cpu_before);
  const auto iterations = static_cast<double>(grants_ - grants_before);
  return {iterations / (elapsed_ns / 1e9), cpu_ns / 1e3 / iterations, push_us_};
}

}  // namespace syncd::bench
