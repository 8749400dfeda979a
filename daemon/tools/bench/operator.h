// Who asks a daemon at work what operators ask, beside the load. One thread, but for its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/tools/bench/questions.h"
#include "daemon/tools/ctl/daemon_link.h"

namespace syncd::bench {

// Of the steady clock, as the times of answers are.
std::int64_t now_ns();

// Asks as syncctl does, one question after another over one connection, on a thread of its own.
class Operator {
 public:
  struct Answer {
    std::size_t asker = 0;
    Question question = Question::kStatus;
    std::int64_t asked_ns = 0;  // when its turn came
    Status status = Status::kOk;
    std::string message;  // empty if it was answered
  };
  // Called on that thread.
  using OnAnswer = std::function<void(Answer)>;

  // Throws LoadError if no daemon answers.
  Operator(const std::vector<client::Endpoint>& endpoints,
           const ctl::DaemonLink::Credentials& credentials, std::int64_t timeout_ms,
           std::string job, OnAnswer on_answer);
  // Waits for the question under way.
  ~Operator();
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  void ask(std::size_t asker, Question question);

 private:
  void run();
  bool put(Question question);
  bool read_history();
  bool read_workers();

  ctl::DaemonLink link_;
  const std::string job_;
  const OnAnswer on_answer_;
  std::uint64_t next_record_ = 1;
  std::mutex mutex_;
  std::condition_variable come_;
  std::queue<std::pair<std::size_t, Question>> questions_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace syncd::bench
