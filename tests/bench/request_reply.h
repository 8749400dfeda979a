// A closed loop of begin and push: every worker has one request standing at any time. The load of
// bench_echo. One thread.
#pragma once

#include <sys/types.h>

#include <vector>

#include "tests/bench/client.h"
#include "tests/bench/workers.h"

namespace syncd::bench {

struct RequestReplyRound {
  double messages_per_s = 0;      // requests answered
  double cpu_us_per_message = 0;  // the server's, for one request and its answer
  std::vector<double> begin_us;   // from the request's being encoded to its answer's being decoded
  std::vector<double> push_us;
};

class RequestReply {
 public:
  // `workers` are connected through `client`, which must outlive this.
  RequestReply(Client& client, std::vector<Worker> workers);

  // Keeps every worker busy for `seconds`, then lets what is under way be answered. `server` is the
  // process whose processor time counts.
  RequestReplyRound run(pid_t server, double seconds);

 private:
  void send_next(std::size_t worker);
  void on_answer(const wire::Message& message, RequestReplyRound& round);

  Client& client_;
  std::vector<Worker> workers_;
  std::vector<bool> computing_;  // granted: what is sent next is its push
  std::vector<std::int64_t> sent_ns_;
  std::size_t standing_ = 0;
  std::int64_t stop_ns_ = 0;  // nothing new is sent after this
};

}  // namespace syncd::bench
