// A tool's connection to a running daemon: ask, wait, answer. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "libclient/driver.h"

namespace syncd::ctl {

// Whom to ask, and as whom.
struct Address {
  std::vector<client::Endpoint> endpoints;
  std::string token;
  client::DriverTls tls;
};

// A driver that connects to it, and a client's session as this program.
std::unique_ptr<client::Driver> make_driver(const Address& address,
                                            const client::SessionOptions& options);

class DaemonLink {
 public:
  enum class Failure {
    kNone,
    kUnreachable,  // no daemon answered, or the connection broke
    kRefused,      // the daemon answered with an error
  };

  // Connects to the first endpoint that answers. Blocks for at most timeout_ms per endpoint. False:
  // error() says what was tried and what can be done.
  bool open(const Address& address, std::int64_t timeout_ms);

  // Sends one request and waits for its answer, which is of type Reply, or the call fails.
  template <class Reply>
  bool call(const wire::Body& request, Reply& reply) {
    return ask(request) && take(reply);
  }
  // The same of a request that changes nothing: if the connection broke, it asks once more over a
  // new one.
  template <class Reply>
  bool read(const wire::Body& request, Reply& reply) {
    const bool answered =
        ask(request) || (failure_ == Failure::kUnreachable && connect() && ask(request));
    return answered && take(reply);
  }

  Failure failure() const { return failure_; }
  const std::string& error() const { return error_; }
  const std::string& endpoint() const { return endpoint_; }  // the one that answered

 private:
  bool connect();
  bool ask(const wire::Body& request);
  bool perform(const client::MakeCall& make, std::int64_t timeout_ms);
  bool fail(Failure failure, std::string error);
  template <class Reply>
  bool take(Reply& reply) {
    const auto& answer = *std::get<client::AskResult>(completion_.result).answer;
    if (const auto* wanted = std::get_if<Reply>(&answer)) return reply = *wanted, true;
    return fail(Failure::kRefused,
                "the daemon answered with an unexpected " + std::string(wire::body_name(answer)));
  }

  std::unique_ptr<client::Driver> driver_;
  std::int64_t timeout_ms_ = 0;
  std::int64_t connect_timeout_ms_ = 0;
  client::Completion completion_;
  std::string endpoint_;
  Failure failure_ = Failure::kNone;
  std::string error_;
};

// All workers of a job, in rank order, with what they show to each other if that is asked for;
// `now_us` is the daemon's clock at the last answer. False: the link says why.
bool read_workers(DaemonLink& link, const std::string& job,
                  std::vector<wire::WorkerStatus>& workers, std::int64_t& now_us,
                  bool with_data = false);

// The job of a name (of several, the latest) or "#id"; null: it is not in the list.
const wire::JobStatus* find_job(const std::vector<wire::JobStatus>& jobs,
                                const std::string& wanted);

}  // namespace syncd::ctl
