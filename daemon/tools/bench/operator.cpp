// See operator.h.
#include "daemon/tools/bench/operator.h"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "daemon/tools/bench/server.h"

namespace syncd::bench {
namespace {

constexpr std::uint32_t kPageRecords = 256;

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Operator::Operator(const std::vector<client::Endpoint>& endpoints,
                   const ctl::DaemonLink::Credentials& credentials, std::int64_t timeout_ms,
                   std::string job, OnAnswer on_answer)
    : job_(std::move(job)), on_answer_(std::move(on_answer)) {
  if (!link_.open(endpoints, credentials, timeout_ms)) fail_for(link_);
  thread_ = std::thread([this] { run(); });
}

Operator::~Operator() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  come_.notify_one();
  thread_.join();
}

void Operator::ask(std::size_t asker, Question question) {
  {
    const std::lock_guard lock(mutex_);
    questions_.emplace(asker, question);
  }
  come_.notify_one();
}

void Operator::run() {
  while (true) {
    Answer answer;
    {
      std::unique_lock lock(mutex_);
      come_.wait(lock, [this] { return ending_ || !questions_.empty(); });
      if (ending_) return;
      std::tie(answer.asker, answer.question) = questions_.front();
      questions_.pop();
    }
    answer.asked_ns = now_ns();
    bool good = put(answer.question);
    // A daemon closes what has been silent for long.
    const auto broken = ctl::DaemonLink::Failure::kUnreachable;
    if (!good && link_.failure() == broken && link_.reopen()) good = put(answer.question);
    if (!good) {
      answer.status = link_.failure() == broken ? Status::kUnreachable : Status::kAuth;
      answer.message = link_.error();
    }
    on_answer_(std::move(answer));
  }
}

bool Operator::put(Question question) {
  switch (question) {
    case Question::kStatus: {
      wire::StatusReply reply;
      return link_.call(wire::StatusRequest{}, reply);
    }
    case Question::kJobs: {
      wire::JobsReply reply;
      return link_.call(wire::JobsRequest{}, reply);
    }
    case Question::kWorkers:
      return read_workers();
    default:
      return read_history();
  }
}

// All of them, as `syncctl workers` does.
bool Operator::read_workers() {
  wire::WorkersReply page;
  for (std::int64_t next = 0; next >= 0; next = page.next_rank) {
    const wire::WorkersRequest request{job_, static_cast<std::uint32_t>(next)};
    if (!link_.call(request, page)) return false;
  }
  return true;
}

// The next page; from the beginning again once there is no more.
bool Operator::read_history() {
  wire::HistoryReply page;
  if (!link_.call(wire::HistoryRequest{job_, next_record_, kPageRecords}, page)) return false;
  next_record_ = std::max<std::uint64_t>(1, page.next_sequence);
  return true;
}

}  // namespace syncd::bench
