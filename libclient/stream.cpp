// System calls on a socket, and libuv to watch it. See the header for threads.
#include "libclient/stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

namespace syncd::client {
namespace {

// Those that have sockets, for a child of fork(): the lock is held over the fork, so that the list
// is whole there.
std::mutex streams_mutex;
Stream* streams = nullptr;

void lock_streams() {
  streams_mutex.lock();
}
void unlock_streams() {
  streams_mutex.unlock();
}

}  // namespace

// Only closes descriptors, which is allowed there. Nobody in the child uses the streams.
void Stream::close_in_child() {
  for (Stream* stream = streams; stream != nullptr; stream = stream->next_) {
    ::close(stream->socket_.get());
  }
  streams = nullptr;
  unlock_streams();
}

// ---- Connecting and closing: loop thread -------------------------------------------------------

Stream* Stream::connect(uv_loop_t& loop, int readers, const sockaddr_storage& address,
                        OnReady on_ready, void* owner, std::string& error) {
  auto* stream = new Stream(readers, on_ready, owner);
  const int code = stream->start(loop, address);
  if (code == 0) return stream;
  error = uv_strerror(uv_translate_sys_error(code));
  delete stream;
  return nullptr;
}

// 0, or the system's number of what went wrong; nothing is watched then.
int Stream::start(uv_loop_t& loop, const sockaddr_storage& address) {
  static const int watches_forks = pthread_atfork(lock_streams, unlock_streams, close_in_child);
  static_cast<void>(watches_forks);  // without memory for it, children keep their copies
  {
    const std::lock_guard lock(streams_mutex);
    socket_.reset(socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_) return errno;
    next_ = streams;
    previous_ = &streams;
    if (next_ != nullptr) next_->previous_ = &next_;
    streams = this;
  }
  // A frame is small and the peer waits for it. A Unix socket has no such option, nor a delay.
  const int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto* plain = reinterpret_cast<const sockaddr*>(&address);
  const socklen_t size = address.ss_family == AF_UNIX ? sizeof(sockaddr_un) : sizeof address;
  if (::connect(socket_.get(), plain, size) != 0 && errno != EINPROGRESS) return errno;
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_ || watch() != 0) return errno;
  const int code = uv_poll_init(&loop, &poll_, epoll_.get());
  if (code != 0) return -code;
  poll_.data = this;
  uv_poll_start(&poll_, UV_READABLE, [](uv_poll_t* handle, int, int) {
    auto* self = static_cast<Stream*>(handle->data);
    if (self->owner_ != nullptr) self->on_ready_(self->owner_);
  });
  return 0;
}

Stream::~Stream() {
  const std::lock_guard lock(streams_mutex);
  if (previous_ != nullptr) *previous_ = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  socket_.reset();
}

bool Stream::finish_connect() {
  int code = 0;
  socklen_t size = sizeof code;
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &code, &size);
  if (code == 0) {
    descriptor_ = socket_.get();
    writing_watched_ = false;
    // Before the loop's: the kernel goes through those with EPOLLEXCLUSIVE in this order, and stops
    // at the first that has a sleeper.
    if (add(readers_, EPOLLIN) != 0 || watch() != 0) code = errno;
  }
  if (code != 0) error_ = uv_strerror(uv_translate_sys_error(code));
  return code == 0;
}

bool Stream::encrypt(std::unique_ptr<tls::Channel> channel, std::vector<std::uint8_t> first) {
  tls_ = std::move(channel);
  unsent_ = std::move(first);
  return write_rest();
}

void Stream::close() noexcept {
  owner_ = nullptr;
  descriptor_ = -1;
  epoll_ctl(readers_, EPOLL_CTL_DEL, socket_.get(), nullptr);  // a child may have the socket, too
  shutdown(socket_.get(), SHUT_RDWR);  // a child of fork() may have it, too, and would keep it open
  uv_close(reinterpret_cast<uv_handle_t*>(&poll_),
           [](uv_handle_t* handle) { delete static_cast<Stream*>(handle->data); });
}

// ---- Bytes: any thread -------------------------------------------------------------------------

// EPOLLEXCLUSIVE allows no EPOLL_CTL_MOD. Added anew, it comes after the readers' again.
int Stream::watch() noexcept {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
  return add(epoll_.get(), writing_watched_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

// Where the system knows no EPOLLEXCLUSIVE both are woken: one of them finds nothing.
int Stream::add(int epoll, std::uint32_t events) const noexcept {
  epoll_event wanted{};
  wanted.data.fd = socket_.get();
  wanted.events = events | EPOLLEXCLUSIVE;
  const int code = epoll_ctl(epoll, EPOLL_CTL_ADD, socket_.get(), &wanted);
  if (code == 0 || errno != EINVAL) return code;
  wanted.events = events;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, socket_.get(), &wanted);
}

bool Stream::write(OutBuffer& bytes) {
  const bool first = unsent_.empty();
  std::span<const std::uint8_t> rest = bytes.bytes();
  bool written = true;
  if (tls_ != nullptr) {
    // Where that fails, reading tells the reason, after whatever the peer still said.
    static_cast<void>(tls_->send(rest, unsent_));
    if (first) written = write_rest();
  } else {
    if (first) written = put(rest);
    if (!rest.empty()) {
      unsent_.insert(unsent_.end(), rest.begin(), rest.end());
      written = watch_rest() && written;
    }
  }
  bytes.shrink(0);
  return written;
}

bool Stream::write_rest() {
  std::span<const std::uint8_t> rest = std::span(unsent_).subspan(unsent_from_);
  const bool written = put(rest);
  unsent_from_ = unsent_.size() - rest.size();
  if (rest.empty()) {
    unsent_.clear();
    unsent_from_ = 0;
  }
  return watch_rest() && written;
}

// Writes what the socket takes, and leaves the rest in `bytes`. False: the connection is broken.
bool Stream::put(std::span<const std::uint8_t>& bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return true;
    bytes = {};
    // Where the peer has closed it, reading still delivers its last message, which may say why, and
    // then the end.
    if (errno == EPIPE || errno == ECONNRESET) return true;
    error_ = uv_strerror(uv_translate_sys_error(errno));
    return false;
  }
  return true;
}

// The socket is watched for room exactly while something is left to write.
bool Stream::watch_rest() {
  const bool rest = !unsent_.empty();
  if (std::exchange(writing_watched_, rest) == rest || watch() == 0) return true;
  error_ = uv_strerror(uv_translate_sys_error(errno));
  return false;
}

bool Stream::read(std::span<const std::uint8_t>& bytes) {
  if (tls_ == nullptr) return receive(bytes);
  bytes = {};
  if (tls_->failed()) {
    error_ = tls_->error();
    return false;
  }
  std::span<const std::uint8_t> sealed;
  if (!receive(sealed)) return false;
  plain_.clear();
  const bool good = tls_->receive(sealed, plain_, unsent_);
  if (!unsent_.empty()) write_rest();  // a socket that takes nothing is found out by reading
  bytes = plain_;
  if (good) return true;
  // The peer has been told, as far as the socket took it. The loop is to notice, whoever reads now.
  shutdown(descriptor_, SHUT_RDWR);
  error_ = tls_->error();
  return !plain_.empty();
}

bool Stream::receive(std::span<const std::uint8_t>& bytes) {
  const ssize_t size = recv(descriptor_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  bytes = std::span(buffer_).first(size > 0 ? static_cast<std::size_t>(size) : 0);
  has_more_ = bytes.size() == buffer_.size();
  if (size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR))) return true;
  error_ =
      size == 0 ? "the daemon closed the connection" : uv_strerror(uv_translate_sys_error(errno));
  return false;
}

}  // namespace syncd::client
