// One synchronous connection of a tool to a running daemon: ask, wait, answer. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libclient/endpoint.h"
#include "proto/transport/tls.h"
#include "proto/wire/wire.h"

namespace syncd::ctl {

class DaemonLink {
 public:
  enum class Failure {
    kNone,
    kUnreachable,  // nobody answered, or the connection broke
    kRefused,      // the daemon answered with an error
  };

  DaemonLink() = default;
  ~DaemonLink();
  DaemonLink(const DaemonLink&) = delete;
  DaemonLink& operator=(const DaemonLink&) = delete;

  struct Credentials {
    std::string token;
    std::shared_ptr<tls::Context> tls;  // for endpoints of kind kTls; null: there are none
    std::string server_name;            // empty: each endpoint's host
  };

  // Connects to the first endpoint that answers and shakes hands. Blocks for at most timeout_ms per
  // endpoint. False: error() says what was tried and what can be done.
  bool open(const std::vector<client::Endpoint>& endpoints, Credentials credentials,
            std::int64_t timeout_ms);

  // After the connection broke: the same again from the start. A daemon closes connections that are
  // silent for its heartbeat timeout, which a tool is whose output nobody takes for a while.
  bool reopen();

  // Sends one request and waits for its answer; notifications are skipped. The answer is of type
  // Reply, or the call fails.
  template <class Reply>
  bool call(wire::Body request, Reply& reply) {
    wire::Body body;
    if (!exchange(std::move(request), body)) return false;
    if (auto* wanted = std::get_if<Reply>(&body)) {
      reply = std::move(*wanted);
      return true;
    }
    return fail(Failure::kRefused,
                "the daemon answered with an unexpected " + std::string(wire::body_name(body)));
  }

  Failure failure() const { return failure_; }
  const std::string& error() const { return error_; }
  const std::string& endpoint() const { return endpoint_; }  // the one that answered

 private:
  void disconnect();
  bool connect_to(const client::Endpoint& endpoint, std::string& why);
  bool exchange(wire::Body request, wire::Body& answer);
  bool begin_tls(const client::Endpoint& endpoint);
  bool take(std::span<const std::uint8_t> bytes);
  bool send_all(std::span<const std::uint8_t> bytes);
  bool send_raw(std::span<const std::uint8_t> bytes);
  bool receive(wire::Message& message);
  bool fail(Failure failure, std::string error);

  int fd_ = -1;
  std::vector<client::Endpoint> endpoints_;
  Credentials credentials_;
  std::unique_ptr<tls::Channel> tls_;
  std::int64_t timeout_ms_ = 0;
  std::uint64_t next_id_ = 1;
  std::string endpoint_;
  wire::Encoder encoder_;
  wire::FrameSplitter splitter_;
  Failure failure_ = Failure::kNone;
  std::string error_;
};

}  // namespace syncd::ctl
