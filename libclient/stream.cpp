// libuv makes and closes the socket; system calls read and write it. See the header for threads.
#include "libclient/stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace syncd::client {

// ---- Connecting and closing: loop thread -------------------------------------------------------

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
      self->owner_->stream_connected();
    } else {
      self->owner_->stream_closed(uv_strerror(status));
    }
  } catch (...) {
    if (self->owner_ != nullptr) self->owner_->stream_failed();
  }
}

void Stream::encrypt(std::unique_ptr<tls::Channel> channel, std::vector<std::uint8_t> first) {
  tls_ = std::move(channel);
  unsent_ = std::move(first);
}

bool Stream::open(std::string& error) {
  const int code = start_watching();
  if (code != 0) {
    error = uv_strerror(code);
    return false;
  }
  return unsent_.empty() || write_rest(error);
}

int Stream::start_watching() {
  // A frame is small and the peer waits for it. Where the option fails the connection still works.
  if (is_tcp_) uv_tcp_nodelay(&uv_.tcp, 1);
  uv_os_fd_t descriptor = -1;
  const int code = uv_fileno(&uv_.handle, &descriptor);
  if (code != 0) return code;
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return uv_translate_sys_error(errno);
  const int initialized = uv_poll_init(uv_.handle.loop, &poll_, epoll_);
  if (initialized != 0) {
    ::close(std::exchange(epoll_, -1));
    return initialized;
  }
  poll_.data = this;
  open_handles_ = 2;
  descriptor_ = descriptor;
  const int watched = watch(EPOLL_CTL_ADD);
  return watched != 0 ? watched : uv_poll_start(&poll_, UV_READABLE, on_ready);
}

void Stream::on_ready(uv_poll_t* handle, int, int) {
  auto* self = static_cast<Stream*>(handle->data);
  if (self->owner_ == nullptr) return;
  try {
    self->owner_->stream_ready();
  } catch (...) {
    if (self->owner_ != nullptr) self->owner_->stream_failed();
  }
}

void Stream::close() noexcept {
  owner_ = nullptr;
  // A child of fork() may have it, too, and would keep it open.
  if (descriptor_ >= 0) shutdown(std::exchange(descriptor_, -1), SHUT_RDWR);
  if (open_handles_ == 2) uv_close(reinterpret_cast<uv_handle_t*>(&poll_), on_poll_closed);
  uv_close(&uv_.handle, on_closed);
}

void Stream::on_poll_closed(uv_handle_t* handle) {
  auto* self = static_cast<Stream*>(handle->data);
  ::close(self->epoll_);
  self->free_if_closed();
}

void Stream::on_closed(uv_handle_t* handle) {
  static_cast<Stream*>(handle->data)->free_if_closed();
}

void Stream::free_if_closed() noexcept {
  if (--open_handles_ == 0) delete this;
}

// ---- Bytes: any thread -------------------------------------------------------------------------

int Stream::watch(int operation) noexcept {
  epoll_event wanted{};
  if (reading_watched_) wanted.events |= EPOLLIN;
  if (writing_watched_) wanted.events |= EPOLLOUT;
  return epoll_ctl(epoll_, operation, descriptor_, &wanted) == 0 ? 0
                                                                 : uv_translate_sys_error(errno);
}

void Stream::watch_reading(bool watched) noexcept {
  reading_watched_ = watched;
  watch(EPOLL_CTL_MOD);
}

bool Stream::write(std::vector<std::uint8_t>& bytes, std::string& error) {
  const bool first = unsent_.empty();
  if (tls_ == nullptr) {
    if (first) {
      unsent_.swap(bytes);
    } else {
      unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
    }
  } else {
    // Where that fails, reading tells the reason, after whatever the peer still said.
    static_cast<void>(tls_->send(bytes, unsent_));
  }
  bytes.clear();
  return first ? write_rest(error) : true;
}

bool Stream::write_rest(std::string& error) {
  bool written = true;
  while (unsent_from_ < unsent_.size()) {
    const ssize_t sent = send(descriptor_, unsent_.data() + unsent_from_,
                              unsent_.size() - unsent_from_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      unsent_from_ += static_cast<std::size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) break;
    // Where the peer has closed it, reading still delivers its last message, which may say why, and
    // then the end.
    written = errno == EPIPE || errno == ECONNRESET;
    if (!written) error = uv_strerror(uv_translate_sys_error(errno));
    unsent_from_ = unsent_.size();
  }
  const bool rest = unsent_from_ < unsent_.size();
  if (!rest) {
    unsent_.clear();
    unsent_from_ = 0;
  }
  if (std::exchange(writing_watched_, rest) != rest) watch(EPOLL_CTL_MOD);
  return written;
}

bool Stream::read(std::span<const std::uint8_t>& bytes, std::string& error) {
  if (tls_ == nullptr) return receive(bytes, error);
  bytes = {};
  if (tls_->failed()) {
    error = tls_->error();
    return false;
  }
  std::span<const std::uint8_t> sealed;
  if (!receive(sealed, error)) return false;
  plain_.clear();
  const bool good = tls_->receive(sealed, plain_, unsent_);
  std::string unheard;  // a socket that cannot be written to is found out by reading
  if (!unsent_.empty()) write_rest(unheard);
  bytes = plain_;
  if (good) return true;
  // The peer has been told, as far as the socket took it. The loop is to notice, whoever reads now.
  shutdown(descriptor_, SHUT_RDWR);
  error = tls_->error();
  return !plain_.empty();
}

bool Stream::receive(std::span<const std::uint8_t>& bytes, std::string& error) {
  const ssize_t size = recv(descriptor_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  bytes = std::span(buffer_).first(size > 0 ? static_cast<std::size_t>(size) : 0);
  if (size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR))) return true;
  error =
      size == 0 ? "the daemon closed the connection" : uv_strerror(uv_translate_sys_error(errno));
  return false;
}

}  // namespace syncd::client
