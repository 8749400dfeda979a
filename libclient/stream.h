// One connection, TCP (with TLS or without) or Unix socket. The loop makes it and closes it, and
// watches it while nobody else does; bytes are read and written by whoever holds the owner's lock,
// on any thread. It owns its handles and frees itself in their close callbacks.
#pragma once

#include <uv.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/transport/tls.h"

namespace syncd::client {

class Stream {
 public:
  // Called from libuv callbacks, without any lock; may close the stream.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void stream_connected() = 0;  // to be open()ed
    // There is something to read, or room for what write() kept.
    virtual void stream_ready() = 0;
    virtual void stream_closed(std::string_view reason) = 0;  // still to be close()d
    // An exception reached a callback: it must not go on into libuv.
    virtual void stream_failed() noexcept = 0;
  };

  // Loop thread. Begin to connect. Null, with the reason in `error`, if that fails at once; the
  // owner is then not called. Otherwise the owner hears of stream_connected or stream_closed later.
  static Stream* connect_unix(uv_loop_t& loop, Owner& owner, const std::string& path,
                              std::string& error);
  static Stream* connect_tcp(uv_loop_t& loop, Owner& owner, const sockaddr& address,
                             std::string& error);

  // Loop thread, under the owner's lock, before open(): what is written is sealed by `channel`, and
  // what is read is what it says. `first`: its first bytes for the peer.
  void encrypt(std::unique_ptr<tls::Channel> channel, std::vector<std::uint8_t> first);
  // Loop thread, under the owner's lock: lets bytes through, and watches for them. False, with the
  // reason in `error`, if this process has no descriptors left or the connection is broken.
  bool open(std::string& error);

  // ---- Any thread, under the owner's lock, once it is open.

  // Writes at once what the socket takes and keeps the rest for write_rest(); `bytes` is empty
  // afterwards. False, with the reason in `error`: the connection is broken.
  bool write(std::vector<std::uint8_t>& bytes, std::string& error);
  bool write_rest(std::string& error);
  // What has come, valid until the next read(): nothing, if nothing has. False, with the reason in
  // `error`: the connection has ended.
  bool read(std::span<const std::uint8_t>& bytes, std::string& error);
  // Whether the loop is woken when something has come. It always is when the connection has ended.
  void watch_reading(bool watched) noexcept;
  // Why TLS has failed; kOk: it has not.
  Status tls_status() const { return tls_ != nullptr ? tls_->status() : Status::kOk; }
  // For poll(); -1 while it is not open.
  int descriptor() const { return descriptor_; }

  // Loop thread, under the owner's lock. The owner hears nothing more. Frees this object, later.
  void close() noexcept;

 private:
  explicit Stream(Owner& owner) : owner_(&owner) {}
  static void on_connect(uv_connect_t* request, int status);
  static void on_ready(uv_poll_t* handle, int status, int events);
  static void on_poll_closed(uv_handle_t* handle);
  static void on_closed(uv_handle_t* handle);
  int start_watching();
  bool receive(std::span<const std::uint8_t>& bytes, std::string& error);
  int watch(int operation) noexcept;
  void free_if_closed() noexcept;

  Owner* owner_;  // null once closed
  union {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
  } uv_;
  bool is_tcp_ = false;
  uv_connect_t connect_;
  int descriptor_ = -1;
  // The loop watches this epoll, which watches the socket: what it looks for may be changed from
  // any thread, which a libuv handle does not allow.
  int epoll_ = -1;
  uv_poll_t poll_;
  int open_handles_ = 1;
  bool reading_watched_ = true;
  bool writing_watched_ = false;
  std::unique_ptr<tls::Channel> tls_;
  std::vector<std::uint8_t> plain_;  // what the peer said under TLS, until the next read()
  std::vector<std::uint8_t> unsent_;
  std::size_t unsent_from_ = 0;
  std::array<std::uint8_t, 64 * 1024> buffer_;
};

}  // namespace syncd::client
