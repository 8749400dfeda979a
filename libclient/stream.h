// One connection, TCP (with TLS or without) or Unix socket. The loop makes it and closes it;
// whoever holds the owner's lock reads and writes bytes, on any thread. Bytes that arrive wake the
// thread that sleeps in the epoll `readers`, or the loop if none does; the connection's end wakes
// both. It frees itself after close(). A child of fork() closes its copy of the socket at once, so
// that the daemon sees the parent's end.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <uv.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/file.h"
#include "proto/base/out_buffer.h"
#include "proto/transport/tls.h"

namespace syncd::client {

class Stream {
 public:
  // Loop thread, without any lock, and with the owner that connect() was given: the connection is
  // made or refused (is_connecting()), there is something to read, or room for what write() kept.
  // May close the stream.
  using OnReady = void (*)(void* owner) noexcept;

  // Loop thread. Begins to connect. Null, with the reason in `error`, if that fails at once; the
  // owner then hears nothing. `readers` outlives the stream.
  static Stream* connect(uv_loop_t& loop, int readers, const sockaddr_storage& address,
                         OnReady on_ready, void* owner, std::string& error);

  // Loop thread, under the owner's lock, in on_ready() while is_connecting(): whether it is
  // connected now.
  bool finish_connect();
  bool is_connecting() const { return descriptor_ < 0; }
  // After finish_connect(): `channel` seals what is written and opens what is read. `first`: its
  // first bytes for the peer. As write().
  bool encrypt(std::unique_ptr<tls::Channel> channel, std::vector<std::uint8_t> first);
  // Why one of the functions above and below has answered false.
  const std::string& error() const { return error_; }

  // ---- Any thread, under the owner's lock, once it is connected.

  // Writes at once what the socket takes and keeps the rest for write_rest(); `bytes` is empty
  // afterwards. False: the connection is broken.
  bool write(OutBuffer& bytes);
  bool write_rest();
  // What has come, valid until the next read(): nothing, if nothing has. False: the connection has
  // ended.
  bool read(std::span<const std::uint8_t>& bytes);
  // Whether there is something left to write, when there is room.
  bool is_writing() const { return writing_watched_; }
  // Whether read() may have left bytes behind. The thread that was woken must read them, too:
  // no other was.
  bool has_more() const { return has_more_; }
  // Why TLS has failed; kOk: it has not.
  Status tls_status() const { return tls_ != nullptr ? tls_->status() : Status::kOk; }

  // Loop thread, under the owner's lock. The owner hears nothing more.
  void close() noexcept;

 private:
  Stream(int readers, OnReady on_ready, void* owner)
      : readers_(readers), on_ready_(on_ready), owner_(owner) {}
  ~Stream();
  int start(uv_loop_t& loop, const sockaddr_storage& address);
  static void close_in_child();
  bool put(std::span<const std::uint8_t>& bytes);
  bool watch_rest();
  [[gnu::always_inline]] inline bool receive(std::span<const std::uint8_t>& bytes);
  int watch() noexcept;
  int add(int epoll, std::uint32_t events) const noexcept;

  const int readers_;
  const OnReady on_ready_;
  void* owner_;  // null once closed
  UniqueFd socket_;
  Stream* next_ = nullptr;  // among those whose sockets a child of fork() closes
  Stream** previous_ = nullptr;
  int descriptor_ = -1;  // the socket, while it is connected
  // The loop watches this epoll, which watches the socket: what it looks for may be changed from
  // any thread, which a libuv handle does not allow.
  UniqueFd epoll_;
  uv_poll_t poll_;
  bool writing_watched_ = true;  // until it is connected
  bool has_more_ = false;
  std::string error_;
  std::unique_ptr<tls::Channel> tls_;
  std::vector<std::uint8_t> plain_;  // what the peer said under TLS, until the next read()
  std::vector<std::uint8_t> unsent_;
  std::size_t unsent_from_ = 0;
  std::array<std::uint8_t, 64 * 1024> buffer_;
};

}  // namespace syncd::client
