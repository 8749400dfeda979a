// One connection as a libuv stream, TCP or Unix socket. It owns its handle and frees itself in the
// handle's close callback. Loop thread only.
#pragma once

#include <uv.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::client {

class Stream {
 public:
  // Called from libuv callbacks; may close the stream.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void stream_connected() = 0;
    virtual void stream_bytes(std::span<const std::uint8_t> bytes) = 0;
    virtual void stream_closed(std::string_view reason) = 0;  // still to be close()d
    // An exception reached a callback: it must not go on into libuv.
    virtual void stream_failed() noexcept = 0;
  };

  // Begin to connect. Null, with the reason in `error`, if that fails at once; the owner is then
  // not called. Otherwise the owner hears of stream_connected or stream_closed later.
  static Stream* connect_unix(uv_loop_t& loop, Owner& owner, const std::string& path,
                              std::string& error);
  static Stream* connect_tcp(uv_loop_t& loop, Owner& owner, const sockaddr& address,
                             std::string& error);

  // Writes at once what the socket takes and keeps the rest; `bytes` is empty afterwards. Returns
  // false, with the reason in `error`, if the connection is broken.
  bool write(std::vector<std::uint8_t>& bytes, std::string& error);

  // The owner hears nothing more. Frees this object, later.
  void close() noexcept;

 private:
  struct Write;

  explicit Stream(Owner& owner) : owner_(&owner) {}
  static void on_connect(uv_connect_t* request, int status);
  static void on_alloc(uv_handle_t* handle, std::size_t size, uv_buf_t* buffer);
  static void on_read(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer);
  static void on_written(uv_write_t* request, int status);
  static void on_close(uv_handle_t* handle);
  void start_reading();

  Owner* owner_;  // null once closed
  union {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
  } uv_;
  bool is_tcp_ = false;
  uv_connect_t connect_;
  std::array<char, 64 * 1024> buffer_;
};

}  // namespace syncd::client
