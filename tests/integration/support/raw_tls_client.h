// A RawClient that speaks TLS, and remembers what it sent over the socket. Failures throw, those of
// TLS with what they say.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/transport/tls.h"
#include "support/raw_client.h"

namespace syncd::test {

class RawTlsClient final : public RawClient {
 public:
  // `address`: "HOST:PORT" with a numeric IPv4 address. Nothing has been answered yet.
  RawTlsClient(const std::string& address, const tls::ClientSettings& settings)
      : RawTlsClient(address, context(settings)) {}
  // One that shares its context with earlier clients of the same `peer` (empty: the address)
  // resumes their session.
  RawTlsClient(const std::string& address, const std::shared_ptr<tls::Context>& context,
               const std::string& peer = {})
      : RawClient(address) {
    std::vector<std::uint8_t> first;
    channel_ = tls::Channel::connect(context, address.substr(0, address.rfind(':')),
                                     peer.empty() ? address : peer, first);
    put(first);
  }

  static std::shared_ptr<tls::Context> context(const tls::ClientSettings& settings) {
    std::string error;
    auto context = tls::Context::client(settings, error);
    if (context == nullptr) throw std::runtime_error(error);
    return context;
  }
  bool established() const { return channel_->established(); }
  // Of the handshake, which is over when something was answered.
  bool resumed() const { return channel_->resumed(); }

  void send_bytes(std::span<const std::uint8_t> bytes) override {
    std::vector<std::uint8_t> sealed;
    if (!channel_->send(bytes, sealed)) throw std::runtime_error(channel_->error());
    put(sealed);
  }
  using RawClient::send_bytes;
  const std::vector<std::uint8_t>& sent_below_tls() const { return sent_; }

 private:
  void put(std::span<const std::uint8_t> bytes) {
    sent_.insert(sent_.end(), bytes.begin(), bytes.end());
    send_to_socket(bytes);
  }
  void arrived(std::span<const std::uint8_t> bytes) override {
    std::vector<std::uint8_t> plain;
    std::vector<std::uint8_t> out;
    const bool good = channel_->receive(bytes, plain, out);
    if (!good && plain.empty()) throw std::runtime_error(channel_->error());
    splitter_.append(plain);
    put(out);
  }

  std::unique_ptr<tls::Channel> channel_;
  std::vector<std::uint8_t> sent_;
};

}  // namespace syncd::test
