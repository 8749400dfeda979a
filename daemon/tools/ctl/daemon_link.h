// A tool's connection to a running daemon, or to the daemons of a cluster's shards, of which one at
// a time is asked: ask, wait, answer. One thread.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "libclient/drivers.h"

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

  // Connects to the first endpoint that answers, whose daemon is asked from then on. Blocks for at
  // most timeout_ms per endpoint. Of several endpoints each is tried again for timeout_ms, in which
  // another daemon may take over. False: error() says what was tried and what can be done.
  bool open(const Address& address, std::int64_t timeout_ms);

  // After open(): the cluster's shards, 1 without any, and that of the daemon which is asked.
  std::uint32_t shards() const { return drivers_->shards(); }
  std::uint32_t shard() const { return shard_; }
  // Asks the daemon of this job from then on, by its name or "#id"; or that of a shard. False: it
  // cannot be reached. The next time it is not waited for: whoever asks for all, again and again,
  // has the others without delay.
  bool choose(const std::string& job);
  bool choose(std::uint32_t shard);

  // Sends one request and waits for its answer, which is of type Reply, or the call fails.
  template <class Reply>
  bool call(const wire::Body& request, Reply& reply) {
    return ask(request) && take(reply);
  }
  // The same of a request that changes nothing: if the connection broke, it asks once more over a
  // new one.
  template <class Reply>
  bool read(const wire::Body& request, Reply& reply) {
    const bool answered = ask(request) || (failure_ == Failure::kUnreachable &&
                                           connect(connect_timeout_ms_) && ask(request));
    return answered && take(reply);
  }

  Failure failure() const { return failure_; }
  const std::string& error() const { return error_; }
  const std::string& endpoint() const { return endpoint_; }  // the one that answered

 private:
  bool connect(std::int64_t timeout_ms);
  bool ask(const wire::Body& request);
  bool perform(const client::MakeCall& make, std::int64_t timeout_ms);
  bool take(client::Completion completion);
  bool fail(Failure failure, std::string error);
  template <class Reply>
  bool take(Reply& reply) {
    const auto& answer = *std::get<client::AskResult>(completion_.result).answer;
    if (const auto* wanted = std::get_if<Reply>(&answer)) return reply = *wanted, true;
    return fail(Failure::kRefused,
                "the daemon answered with an unexpected " + std::string(wire::body_name(answer)));
  }

  std::shared_ptr<client::Drivers> drivers_;
  std::shared_ptr<client::Driver> driver_;  // that is asked
  std::uint32_t shard_ = 0;
  std::set<std::uint32_t> missing_;  // shards that could not be reached the last time
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
