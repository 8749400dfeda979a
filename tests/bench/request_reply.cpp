// The closed loop of begin and push. One thread.
#include "tests/bench/request_reply.h"

#include "tests/bench/measure.h"

namespace syncd::bench {

RequestReply::RequestReply(Client& client, std::vector<Worker> workers)
    : client_(client),
      workers_(std::move(workers)),
      computing_(workers_.size(), false),
      sent_ns_(workers_.size(), 0) {}

void RequestReply::send_next(std::size_t worker) {
  const Worker& w = workers_[worker];
  sent_ns_[worker] = now_ns();
  client_.send(w.connection, computing_[worker] ? push_message(w, worker, w.iteration)
                                                : begin_message(w, worker, w.iteration));
  ++standing_;
}

void RequestReply::on_answer(const wire::Message& message, RequestReplyRound& round) {
  const std::size_t worker = worker_of(message.id);
  if (worker >= workers_.size() || is_push_id(message.id) != computing_[worker]) {
    fail("an answer has the id of no standing request");
  }
  check_answer(message, workers_[worker].iteration);
  const std::int64_t now = now_ns();
  const double latency_us = static_cast<double>(now - sent_ns_[worker]) / 1e3;
  --standing_;
  if (computing_[worker]) {
    round.push_us.push_back(latency_us);
    ++workers_[worker].iteration;
  } else {
    round.begin_us.push_back(latency_us);
  }
  computing_[worker] = !computing_[worker];
  if (now < stop_ns_) send_next(worker);
}

RequestReplyRound RequestReply::run(pid_t server, double seconds) {
  RequestReplyRound round;
  const std::int64_t cpu_before = process_cpu_ns(server);
  const std::int64_t start = now_ns();
  stop_ns_ = start + static_cast<std::int64_t>(seconds * 1e9);
  for (std::size_t i = 0; i < workers_.size(); ++i) send_next(i);
  const auto handler = [&](std::size_t, const wire::Message& message) {
    on_answer(message, round);
  };
  while (standing_ > 0) {
    if (!client_.poll(kPatience, handler)) fail("the server does not answer");
  }
  const auto elapsed_ns = static_cast<double>(now_ns() - start);
  const auto cpu_ns = static_cast<double>(process_cpu_ns(server) - cpu_before);
  const auto messages = static_cast<double>(round.begin_us.size() + round.push_us.size());
  round.messages_per_s = messages / (elapsed_ns / 1e9);
  round.cpu_us_per_message = cpu_ns / 1e3 / messages;
  return round;
}

}  // namespace syncd::bench
