// See wire_load.h.
#include "tests/bench/wire_load.h"

#include <variant>

#include "daemon/core/policies/registry.h"
#include "proto/base/defaults.h"
#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

// Where the workers of an echo begin. Not 0, because a field that is 0 takes no place in a frame.
constexpr std::int64_t kEchoIteration = 1;

wire::WorkerRef echo_worker(std::size_t index) {
  return {1, static_cast<std::uint32_t>(index), 1, index + 1};
}

// The iteration that an answer is about. An echo's answer is the request itself.
std::int64_t iteration_of(const wire::Body& body) {
  return std::visit(
      [&](const auto& answer) -> std::int64_t {
        using T = std::decay_t<decltype(answer)>;
        if constexpr (std::is_same_v<T, wire::Granted>) {
          return (answer.flags & wire::kStepStop) == 0 ? answer.iteration : -1;
        } else if constexpr (std::is_same_v<T, wire::Pushed>) {
          return answer.late || answer.duplicate ? -1 : answer.iteration;
        } else if constexpr (std::is_same_v<T, wire::Begin> || std::is_same_v<T, wire::Push> ||
                             std::is_same_v<T, wire::TargetsReply> ||
                             std::is_same_v<T, wire::CollectReply>) {
          return answer.iteration;
        } else {
          return -1;
        }
      },
      body);
}

// Whether it is about the iteration after the worker's own.
bool is_about_next(const wire::Body& answer) {
  return std::holds_alternative<wire::Granted>(answer) ||
         std::holds_alternative<wire::Begin>(answer);
}

bool is_push_answer(const wire::Body& answer) {
  return std::holds_alternative<wire::Pushed>(answer) || std::holds_alternative<wire::Push>(answer);
}

[[noreturn]] void fail_on(const wire::Body& body) {
  std::string message;
  if (const auto* error = std::get_if<wire::Error>(&body)) message = error->message;
  if (const auto* fenced = std::get_if<wire::FencedNotice>(&body)) message = fenced->message;
  fail("the load did not expect " + std::string(wire::body_name(body)) + " " + message);
}

}  // namespace

WireLoad::WireLoad(const WireLoadOptions& options)
    : options_(options),
      is_decentralized_(traits_or_none(options.policy).family == Family::kDecentralized),
      workers_(options.connections * options.depth) {
  for (std::size_t i = 0; i < options_.connections; ++i) client_.add(options_.address);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].connection = i % options_.connections;
    workers_[i].ref = echo_worker(i);
    workers_[i].iteration = kEchoIteration;
  }
  if (options_.is_echo) return;
  join();
  for (std::size_t i = 0; i < workers_.size(); ++i) send_begin(i);
  await_answers();
  for (Worker& worker : workers_) ++worker.iteration;
}

void WireLoad::join() {
  std::size_t missing = client_.connections();
  const auto on_welcome = [&](std::size_t, std::span<const std::uint8_t> payload) {
    std::string error;
    if (!wire::decode(payload, message_, error)) fail("no message: " + error);
    if (!std::holds_alternative<wire::Welcome>(message_.body)) fail_on(message_.body);
    --missing;
  };
  for (std::size_t i = 0; i < client_.connections(); ++i) {
    client_.send(i, {1, wire::Hello{kProtocolMin, kProtocolMax, "bench", "1", ""}});
  }
  while (missing > 0) client_.poll(on_welcome);

  for (std::size_t i = 0; i < workers_.size(); ++i) {
    wire::Join join;
    join.job = "bench-" + std::to_string(i % options_.jobs);
    join.policy = options_.policy;
    join.name = "worker-" + std::to_string(i);
    join.host = "bench";
    join.rank = static_cast<std::int32_t>(i / options_.jobs);
    join.world_size = static_cast<std::uint32_t>(workers_.size() / options_.jobs);
    send(i, 0, std::move(join));
  }
  await_answers();
}

void WireLoad::send(std::size_t index, std::size_t slot, wire::Body body) {
  Worker& worker = workers_[index];
  if (std::holds_alternative<wire::Push>(body)) ++pushes_unanswered_;
  ++worker.unanswered;
  ++unanswered_;
  client_.send(worker.connection, {id_of(index, slot), std::move(body)});
}

void WireLoad::send_push(std::size_t worker) {
  send(worker, 1, wire::Push{workers_[worker].ref, workers_[worker].iteration, 0.25, 128, 0});
}

void WireLoad::send_begin(std::size_t worker) {
  send(worker, 0, wire::Begin{workers_[worker].ref, workers_[worker].iteration + 1});
}

std::size_t WireLoad::requests_of(const Worker& worker) const {
  // Targets stands alone: what follows depends on its answer.
  const bool is_targets = is_decentralized_ && worker.step == 0;
  return options_.single_frame || is_targets ? 1 : 2;
}

// What a worker asks for in a step. As the papers have it, a worker of Hop sends its update to its
// neighbours, collects theirs, and says that they may be overwritten.
wire::Body WireLoad::request(std::size_t index, std::size_t slot) const {
  const Worker& worker = workers_[index];
  const std::int64_t k = worker.iteration;
  const wire::Push push{worker.ref, k, 0.25, 128, 0};
  const wire::Begin begin{worker.ref, k + 1};
  if (options_.single_frame) return begin;
  if (!is_decentralized_) return slot == 0 ? wire::Body(push) : begin;
  switch (worker.step) {
    case 0:
      return wire::Targets{worker.ref, k};
    case 1:
      return slot == 0 ? wire::Body(push) : wire::Collect{worker.ref, k};
    default:
      return slot == 0 ? wire::Body(wire::Consumed{worker.ref, k}) : begin;
  }
}

void WireLoad::send_step(std::size_t worker) {
  if (options_.is_timed) workers_[worker].sent_ns = now_ns();
  const std::size_t count = requests_of(workers_[worker]);
  for (std::size_t slot = 0; slot < count; ++slot) send(worker, slot, request(worker, slot));
}

void WireLoad::on_payload(std::size_t connection, std::span<const std::uint8_t> payload) {
  std::string error;
  if (!wire::decode(payload, message_, error)) fail("the server sent no message: " + error);
  const wire::Body& body = message_.body;
  if (std::holds_alternative<wire::HeartbeatAck>(body) ||
      (options_.is_echo && std::holds_alternative<wire::Heartbeat>(body))) {
    if (heartbeats_unanswered_ == 0) fail("an acknowledgement of no heartbeat");
    --heartbeats_unanswered_;
  } else if (std::holds_alternative<wire::Heartbeat>(body)) {
    client_.send(connection, {0, wire::HeartbeatAck{}});
  } else if (message_.id == 0) {
    // A worker need not restart when a policy proposes it.
    if (!std::holds_alternative<wire::ResyncNotice>(body)) fail_on(body);
  } else {
    on_answer(connection);
  }
}

void WireLoad::on_answer(std::size_t connection) {
  const std::size_t index = static_cast<std::size_t>(message_.id - 1) / 2;
  if (index >= workers_.size() || workers_[index].connection != connection) fail_on(message_.body);
  Worker& worker = workers_[index];
  if (const auto* joined = std::get_if<wire::Joined>(&message_.body)) {
    worker.ref = joined->worker;
    worker.iteration = joined->iteration - 1;
  } else if (!std::holds_alternative<wire::Ok>(message_.body)) {
    const std::int64_t expected = worker.iteration + (is_about_next(message_.body) ? 1 : 0);
    if (iteration_of(message_.body) != expected) fail_on(message_.body);
  }
  if (is_push_answer(message_.body)) --pushes_unanswered_;
  ++answered_;
  --unanswered_;
  if (--worker.unanswered == 0 && is_over_) end_step(index);
}

void WireLoad::end_step(std::size_t index) {
  Worker& worker = workers_[index];
  if (options_.is_timed) took_us_.push_back(static_cast<double>(now_ns() - worker.sent_ns) / 1e3);
  worker.step = (worker.step + 1) % steps();
  if (worker.step == 0) ++worker.iteration;
  if (!is_over_()) send_step(index);
}

void WireLoad::poll() {
  client_.poll([this](std::size_t connection, std::span<const std::uint8_t> payload) {
    on_payload(connection, payload);
  });
}

void WireLoad::await_answers() {
  while (unanswered_ > 0) poll();
}

// Answers come in the order of requests, but for what waits: for other workers, or a push for the
// store.
void WireLoad::settle() {
  for (std::size_t i = 0; i < client_.connections(); ++i) client_.send(i, {0, wire::Heartbeat{}});
  heartbeats_unanswered_ += client_.connections();
  while (heartbeats_unanswered_ > 0 || pushes_unanswered_ > 0) poll();
}

std::uint64_t WireLoad::run_until(const std::function<bool()>& is_over) {
  const std::uint64_t before = answered_;
  is_over_ = is_over;
  took_us_.clear();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].unanswered == 0) send_step(i);
  }
  while (!is_over_()) poll();
  settle();
  is_over_ = {};
  return answered_ - before;
}

std::uint64_t WireLoad::run(std::uint64_t messages) {
  const std::uint64_t end = answered_ + messages;
  return run_until([this, end] { return answered_ >= end; });
}

std::uint64_t WireLoad::run_for(double seconds) {
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  return run_until([end_ns] { return now_ns() >= end_ns; });
}

std::int64_t WireLoad::barrier_ns(Barrier barrier) {
  const std::size_t last = workers_.size() - 1;
  const bool is_release = barrier == Barrier::kRelease;
  if (!options_.is_echo) {
    for (std::size_t i = 0; i < (is_release ? last : last + 1); ++i) send_push(i);
    await_answers();
  }
  for (std::size_t i = 0; i < last; ++i) {
    send_begin(i);
    if (!is_release) continue;
    // Its acknowledgement says that the begin before it has arrived.
    client_.send(workers_[i].connection, {0, wire::Heartbeat{}});
    ++heartbeats_unanswered_;
  }
  client_.flush();
  while (heartbeats_unanswered_ > 0) poll();
  if (is_release && unanswered_ != last) fail("a barrier let workers go before the last had come");

  // Decoded when the time has been taken: how long that takes is the load's own affair.
  std::vector<std::pair<std::size_t, std::vector<std::uint8_t>>> answers;
  answers.reserve(workers_.size() + 1);
  const std::int64_t start_ns = now_ns();
  if (is_release && !options_.is_echo) send_push(last);
  send_begin(last);
  while (answers.size() < unanswered_) {
    client_.poll([&](std::size_t connection, std::span<const std::uint8_t> payload) {
      answers.emplace_back(connection, std::vector<std::uint8_t>(payload.begin(), payload.end()));
    });
  }
  const std::int64_t took_ns = now_ns() - start_ns;
  for (const auto& [connection, payload] : answers) on_payload(connection, payload);
  await_answers();
  for (Worker& worker : workers_) ++worker.iteration;
  return took_ns;
}

std::uint32_t begin_frame_bytes() {
  std::vector<std::uint8_t> frame;
  wire::Encoder().append({1, wire::Begin{echo_worker(0), kEchoIteration + 1}}, frame);
  return static_cast<std::uint32_t>(frame.size());
}

}  // namespace syncd::bench
