// The load generator's connections: many non-blocking sockets behind one epoll set, real frames in
// both directions. The same code speaks to syncd and to the floors. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "proto/wire.h"
#include "tests/bench/endpoint.h"

namespace syncd::bench {

class Client {
 public:
  using Handler = std::function<void(std::size_t connection, const wire::Message& message)>;

  Client();
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Opens one more connection to a server that listens. Returns its number, from 0.
  std::size_t add(const Endpoint& endpoint);
  std::size_t connections() const { return peers_.size(); }

  // Appends a frame to what goes out over a connection with the next flush().
  void send(std::size_t connection, const wire::Message& message);
  // One write for each connection that something is to be sent over.
  void flush();

  // Waits up to `timeout` for something to read, hands every whole frame to `handler`, and
  // flushes after each connection. Heartbeats are answered here. Returns false if nothing came in
  // time. Ends the benchmark when a connection is closed or carries anything but messages.
  bool poll(std::chrono::nanoseconds timeout, const Handler& handler);

 private:
  struct Peer;
  void read_from(std::size_t connection, const Handler& handler);
  void write_to(Peer& peer);

  int epoll_ = -1;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::size_t> dirty_;  // connections with something to send
  std::vector<std::uint8_t> read_buffer_;
  wire::Encoder encoder_;
  wire::Message message_;
};

// How long anything that must happen may take before the benchmark gives up and says so.
inline constexpr std::chrono::milliseconds kPatience{20'000};

}  // namespace syncd::bench
