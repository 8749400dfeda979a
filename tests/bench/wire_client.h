// Many non-blocking Unix sockets behind one epoll set, which carry frames in both directions. The
// same code speaks to syncd and to the floors. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/wire/wire.h"

namespace syncd::bench {

class WireClient {
 public:
  // The payload of one frame, valid during the call.
  using Handler =
      std::function<void(std::size_t connection, std::span<const std::uint8_t> payload)>;

  WireClient();
  ~WireClient();
  WireClient(const WireClient&) = delete;
  WireClient& operator=(const WireClient&) = delete;

  // Connects once more, to "unix:PATH". Returns the connection's number, from 0.
  std::size_t add(const std::string& address);
  std::size_t connections() const { return peers_.size(); }
  // Closes it, without a word. It keeps its number.
  void drop(std::size_t connection);

  // Appends a frame to what the next flush() sends.
  void send(std::size_t connection, const wire::Message& message);
  // One write for each connection that has something to send.
  void flush();
  // Flushes, waits until something comes, and hands every whole frame to `handler`. Ends the
  // benchmark if nothing comes for long, or a connection breaks.
  void poll(const Handler& handler);

 private:
  struct Peer;
  void read_from(std::size_t connection, const Handler& handler);
  void write_to(Peer& peer);

  int epoll_ = -1;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::size_t> dirty_;  // connections with something to send
  std::vector<std::uint8_t> read_buffer_;
  wire::Encoder encoder_;
};

}  // namespace syncd::bench
