// libuv handles of one connection. Loop thread only.
#include "libclient/stream.h"

#include <memory>
#include <utility>

namespace syncd::client {

// What the socket did not take at once.
struct Stream::Write {
  uv_write_t request;
  std::vector<std::uint8_t> bytes;
};

Stream* Stream::connect_unix(uv_loop_t& loop, Owner& owner, const std::string& path,
                             std::string& error) {
  auto* stream = new Stream(owner);
  const int code = uv_pipe_init(&loop, &stream->uv_.pipe, 0);
  if (code != 0) {
    error = uv_strerror(code);
    delete stream;
    return nullptr;
  }
  stream->uv_.handle.data = stream;
  stream->connect_.data = stream;
  uv_pipe_connect(&stream->connect_, &stream->uv_.pipe, path.c_str(), on_connect);
  return stream;
}

Stream* Stream::connect_tcp(uv_loop_t& loop, Owner& owner, const sockaddr& address,
                            std::string& error) {
  auto* stream = new Stream(owner);
  int code = uv_tcp_init(&loop, &stream->uv_.tcp);
  if (code != 0) {
    error = uv_strerror(code);
    delete stream;
    return nullptr;
  }
  stream->is_tcp_ = true;
  stream->uv_.handle.data = stream;
  stream->connect_.data = stream;
  code = uv_tcp_connect(&stream->connect_, &stream->uv_.tcp, &address, on_connect);
  if (code != 0) {
    error = uv_strerror(code);
    stream->close();
    return nullptr;
  }
  return stream;
}

void Stream::on_connect(uv_connect_t* request, int status) {
  auto* self = static_cast<Stream*>(request->data);
  if (self->owner_ == nullptr) return;
  try {
    if (status == 0) {
      self->start_reading();
    } else {
      self->owner_->stream_closed(uv_strerror(status));
    }
  } catch (...) {
    if (self->owner_ != nullptr) self->owner_->stream_failed();
  }
}

void Stream::start_reading() {
  // A frame is small and the peer waits for it. Where the option fails the connection still works.
  if (is_tcp_) uv_tcp_nodelay(&uv_.tcp, 1);
  const int code = uv_read_start(&uv_.stream, on_alloc, on_read);
  if (code != 0) return owner_->stream_closed(uv_strerror(code));
  owner_->stream_connected();
}

// One buffer serves all reads: the owner is done with the bytes before the next one.
void Stream::on_alloc(uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
  auto* self = static_cast<Stream*>(handle->data);
  *buffer = uv_buf_init(self->buffer_.data(), static_cast<unsigned>(self->buffer_.size()));
}

void Stream::on_read(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer) {
  auto* self = static_cast<Stream*>(stream->data);
  if (self->owner_ == nullptr || size == 0) return;
  try {
    if (size > 0) {
      const auto* data = reinterpret_cast<const std::uint8_t*>(buffer->base);
      self->owner_->stream_bytes({data, static_cast<std::size_t>(size)});
    } else if (size == UV_EOF) {
      self->owner_->stream_closed("the daemon closed the connection");
    } else {
      self->owner_->stream_closed(uv_strerror(static_cast<int>(size)));
    }
  } catch (...) {
    if (self->owner_ != nullptr) self->owner_->stream_failed();
  }
}

bool Stream::write(std::vector<std::uint8_t>& bytes, std::string& error) {
  if (bytes.empty()) return true;
  const uv_buf_t all =
      uv_buf_init(reinterpret_cast<char*>(bytes.data()), static_cast<unsigned>(bytes.size()));
  int code = uv_try_write(&uv_.stream, &all, 1);
  if (code == static_cast<int>(bytes.size())) {
    bytes.clear();
    return true;
  }
  if (code == UV_EPIPE || code == UV_ECONNRESET) {
    // The peer has closed it, perhaps after a last message that says why: reading delivers that,
    // and then the end.
    bytes.clear();
    return true;
  }
  if (code < 0 && code != UV_EAGAIN) {
    error = uv_strerror(code);
    bytes.clear();
    return false;
  }
  auto rest = std::make_unique<Write>();
  rest->bytes = std::move(bytes);
  bytes.clear();
  const std::size_t done = code > 0 ? static_cast<std::size_t>(code) : 0;
  const uv_buf_t left = uv_buf_init(reinterpret_cast<char*>(rest->bytes.data() + done),
                                    static_cast<unsigned>(rest->bytes.size() - done));
  rest->request.data = rest.get();
  code = uv_write(&rest->request, &uv_.stream, &left, 1, on_written);
  if (code != 0) {
    error = uv_strerror(code);
    return false;
  }
  static_cast<void>(rest.release());  // freed when it is written
  return true;
}

// A failed write is not reported here: reading ends with the same error, or the heartbeat does.
void Stream::on_written(uv_write_t* request, int) {
  delete static_cast<Write*>(request->data);
}

void Stream::close() noexcept {
  owner_ = nullptr;
  uv_close(&uv_.handle, on_close);
}

void Stream::on_close(uv_handle_t* handle) {
  delete static_cast<Stream*>(handle->data);
}

}  // namespace syncd::client
