// Handshake, join and the two requests of the loop. One thread.
#include "tests/bench/workers.h"

#include <variant>

#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

const std::string& complaint_of(const wire::Message& message) {
  static const std::string none;
  const auto* error = std::get_if<wire::Error>(&message.body);
  return error == nullptr ? none : error->message;
}

[[noreturn]] void fail_on(const wire::Message& message, const std::string& expected) {
  fail("expected " + expected + ", got " + std::string(wire::body_name(message.body)) + " " +
       complaint_of(message));
}

void open_connections(Client& client, const Endpoint& endpoint, std::size_t connections) {
  for (std::size_t i = 0; i < connections; ++i) client.add(endpoint);
}

// Polls until `count` answers of one type have come, and hands each to `take`.
template <class Answer, class Take>
void await_answers(Client& client, std::size_t count, const Take& take) {
  std::size_t come = 0;
  const auto handler = [&](std::size_t, const wire::Message& message) {
    const auto* answer = std::get_if<Answer>(&message.body);
    if (answer == nullptr) fail_on(message, std::string(wire::body_name(Answer{})));
    take(message.id, *answer);
    ++come;
  };
  while (come < count) {
    if (!client.poll(kPatience, handler)) fail("syncd does not answer");
  }
}

}  // namespace

wire::Message begin_message(const Worker& worker, std::size_t index, std::int64_t iteration) {
  return {begin_id(index), wire::Begin{worker.ref, iteration}};
}

wire::Message push_message(const Worker& worker, std::size_t index, std::int64_t iteration) {
  return {push_id(index), wire::Push{worker.ref, iteration, 0.25, 128, 0}};
}

std::vector<Worker> connect_to_floor(Client& client, const Endpoint& endpoint, std::size_t count,
                                     std::size_t connections) {
  open_connections(client, endpoint, connections);
  std::vector<Worker> workers(count);
  for (std::size_t i = 0; i < count; ++i) {
    workers[i].connection = i % connections;
    workers[i].ref = {1, static_cast<std::uint32_t>(i), 1, i + 1};
    workers[i].iteration = kFloorIteration;
  }
  return workers;
}

std::vector<Worker> connect_to_syncd(Client& client, const Endpoint& endpoint,
                                     const std::string& job, const std::string& policy,
                                     std::size_t count, std::size_t connections) {
  open_connections(client, endpoint, connections);
  const wire::Hello hello{kProtocolMin, kProtocolMax, "syncd-bench", "1", ""};
  for (std::size_t i = 0; i < connections; ++i) client.send(i, {1, hello});
  await_answers<wire::Welcome>(client, connections, [](std::uint64_t, const wire::Welcome&) {});
  std::vector<Worker> workers(count);
  for (std::size_t i = 0; i < count; ++i) {
    workers[i].connection = i % connections;
    wire::Join join;
    join.job = job;
    join.policy = policy;
    join.name = "worker-" + std::to_string(i);
    join.host = "bench";
    join.rank = static_cast<std::int32_t>(i);
    join.world_size = static_cast<std::uint32_t>(count);
    client.send(workers[i].connection, {begin_id(i), join});
  }
  await_answers<wire::Joined>(client, count, [&](std::uint64_t id, const wire::Joined& joined) {
    Worker& worker = workers[worker_of(id)];
    worker.ref = joined.worker;
    worker.iteration = joined.iteration;
  });
  return workers;
}

void check_answer(const wire::Message& message, std::int64_t iteration) {
  std::int64_t answered = -1;
  if (const auto* granted = std::get_if<wire::Granted>(&message.body)) {
    answered = (granted->flags & wire::kStepStop) == 0 ? granted->iteration : -1;
  } else if (const auto* pushed = std::get_if<wire::Pushed>(&message.body)) {
    answered = pushed->duplicate || pushed->late ? -1 : pushed->iteration;
  } else if (const auto* begin = std::get_if<wire::Begin>(&message.body)) {
    answered = begin->iteration;
  } else if (const auto* push = std::get_if<wire::Push>(&message.body)) {
    answered = push->iteration;
  }
  if (answered != iteration) {
    fail_on(message, "the answer for iteration " + std::to_string(iteration));
  }
}

std::size_t frame_bytes(const wire::Message& message) {
  std::vector<std::uint8_t> out;
  wire::Encoder().append(message, out);
  return out.size();
}

}  // namespace syncd::bench
