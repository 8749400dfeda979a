// Reading and writing one client's stream; see the header. Loop thread.
#include "daemon/edge/net/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/edge/net/loop_guard.h"

namespace syncd::net {
namespace {

// Buffers above this are given back when they are empty: thousands of connections that were busy
// once should not keep megabytes each.
constexpr std::size_t kKeptBytes = 16 * 1024;
// Of TLS until the first message is there: a chain of certificates (32 KiB) and a Hello (8 KiB)
// with what surrounds them.
constexpr std::size_t kSealedBeforeHelloMax = 64 * 1024;
constexpr std::size_t kSealedPieceBytes = 4 * 1024;

void release_if_large(std::vector<std::uint8_t>& buffer) {
  buffer.clear();
  if (buffer.capacity() > kKeptBytes) std::vector<std::uint8_t>().swap(buffer);
}
void release_if_large(OutBuffer& buffer) {
  buffer.shrink(0);
  if (buffer.capacity() > kKeptBytes) buffer.release();
}

uv_buf_t to_uv(std::span<const std::uint8_t> bytes) {
  return uv_buf_init(reinterpret_cast<char*>(const_cast<std::uint8_t*>(bytes.data())),
                     static_cast<unsigned>(bytes.size()));
}

std::uint32_t length_prefix(std::span<const std::uint8_t> bytes) {
  return static_cast<std::uint32_t>(bytes[0]) | static_cast<std::uint32_t>(bytes[1]) << 8 |
         static_cast<std::uint32_t>(bytes[2]) << 16 | static_cast<std::uint32_t>(bytes[3]) << 24;
}

}  // namespace

Connection::Connection(ConnectionHost& host, const ConnectionLimits& limits, ConnectionId id,
                       Accepted accepted)
    : host_(host),
      limits_(limits),
      id_(id),
      accepted_(std::move(accepted)),
      partial_(limits.hello_bytes_max) {}

Connection* Connection::open(uv_loop_t* loop, ConnectionHost& host, const ConnectionLimits& limits,
                             ConnectionId id, Accepted given,
                             const std::shared_ptr<tls::Context>& tls, std::string& error) {
  std::unique_ptr<tls::Channel> channel;
  if (tls != nullptr && (channel = tls::Channel::accept(tls)) == nullptr) {
    error = "memory ran out";
    return nullptr;
  }
  auto* connection = new Connection(host, limits, id, std::move(given));
  connection->tls_ = std::move(channel);
  Accepted& accepted = connection->accepted_;
  int code = accepted.is_tcp ? uv_tcp_init(loop, &connection->handle_.tcp)
                             : uv_pipe_init(loop, &connection->handle_.pipe, 0);
  if (code != 0) {
    error = uv_strerror(code);
    delete connection;
    return nullptr;
  }
  connection->stream()->data = connection;
  connection->opened_ms_ = connection->last_read_ms_ = uv_now(loop);
  if (accepted.is_tcp) {
    code = uv_tcp_open(&connection->handle_.tcp, accepted.fd.get());
    if (code == 0) accepted.fd.release();
    if (code == 0) code = uv_tcp_nodelay(&connection->handle_.tcp, 1);
  } else {
    code = uv_pipe_open(&connection->handle_.pipe, accepted.fd.get());
    if (code == 0) accepted.fd.release();
  }
  if (code == 0) code = uv_read_start(connection->stream(), on_allocate, on_read);
  if (code == 0) return connection;
  error = uv_strerror(code);
  connection->state_ = State::kClosed;
  // The host never saw it, so that nobody is told when it is gone.
  uv_close(reinterpret_cast<uv_handle_t*>(connection->stream()),
           guarded([](uv_handle_t* handle) { delete static_cast<Connection*>(handle->data); }));
  return nullptr;
}

const std::vector<std::string>& Connection::certificate_names() const {
  static const std::vector<std::string> none;
  return tls_ != nullptr ? tls_->peer_names() : none;
}

std::string Connection::certificate_digest() const {
  return tls_ != nullptr ? tls_->peer_digest() : std::string{};
}

// ---- reading ------------------------------------------------------------------------------------

void Connection::on_allocate(uv_handle_t* handle, size_t, uv_buf_t* buffer) {
  *buffer = to_uv(static_cast<Connection*>(handle->data)->host_.read_buffer());
}

void Connection::on_read(uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
  run_guarded(stream->loop,
              [&] { static_cast<Connection*>(stream->data)->take_read(count, buffer->base); });
}

void Connection::take_read(ssize_t count, const char* base) {
  if (count == 0 || state_ == State::kClosed) return;
  if (count < 0) {
    if (count == UV_EOF) return lose("the client closed it", true);
    return lose_by("reading failed: ", static_cast<int>(count));
  }
  last_read_ms_ = now_ms();
  if (state_ == State::kFinishing) return;
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(base),
                        static_cast<std::size_t>(count));
  if (tls_ != nullptr) {
    consume_sealed(bytes);
  } else {
    consume(bytes);
  }
  host_.on_read_end(*this);
}

void Connection::consume_sealed(std::span<const std::uint8_t> bytes) {
  if (!std::exchange(tls_begun_, true) && !tls::looks_like_tls(bytes)) {
    tls_.reset();  // so that the client can read why
    host_.on_broken(*this, Status::kAuth,
                    "this address speaks TLS alone: name it as tls:HOST:PORT");
    return;
  }
  std::vector<std::uint8_t>& plain = host_.plain_buffer();
  while (!bytes.empty() && usable()) {
    // In pieces, so that what comes after the first message is not counted with what precedes it.
    const std::size_t most = state_ == State::kHandshake ? kSealedPieceBytes : bytes.size();
    const auto piece = bytes.first(std::min(bytes.size(), most));
    bytes = bytes.subspan(piece.size());
    if (state_ == State::kHandshake &&
        (sealed_before_hello_ += piece.size()) > kSealedBeforeHelloMax) {
      host_.on_broken(*this, Status::kProtocol,
                      "more than " + std::to_string(kSealedBeforeHelloMax) +
                          " bytes of TLS came before the first message");
      return;
    }
    plain.clear();
    tls_->receive(piece, plain, sealed_);
    if (!sealed_.empty()) host_.on_output(*this);
    if (!plain.empty()) consume(plain);
    if (!held_) end_with_tls();
  }
}

// What was said before has been handled.
void Connection::end_with_tls() {
  if (tls_ == nullptr || !usable()) return;
  if (tls_->failed()) {
    host_.on_broken(*this, tls_->status(), tls_->error());
  } else if (tls_->ended()) {
    lose("the client closed it", true);
  }
}

// Hands out the whole frames at the start of `bytes` without copying them; returns the rest. A bad
// length is left for the splitter to name.
std::span<const std::uint8_t> Connection::consume_in_place(std::span<const std::uint8_t> bytes) {
  while (usable() && !held_ && bytes.size() >= sizeof(std::uint32_t)) {
    const std::size_t length = length_prefix(bytes);
    const auto after_prefix = bytes.subspan(sizeof(std::uint32_t));
    if (length == 0 || length > frame_bytes_max() || length > after_prefix.size()) break;
    const bool charged = host_.on_payload(*this, after_prefix.first(length));
    bytes = after_prefix.subspan(length);
    if (charged) hold_if_due();
  }
  return bytes;
}

void Connection::consume(std::span<const std::uint8_t> bytes) {
  hold_if_due();  // others of its client may have used the part up
  if (partial_.pending_bytes() == 0) bytes = consume_in_place(bytes);
  if (bytes.empty() || !usable()) return;
  partial_.append(bytes);
  consume_partial();
  host_.on_buffered(*this);
}

void Connection::consume_partial() {
  std::span<const std::uint8_t> payload;
  std::string error;
  while (usable() && !held_) {
    switch (partial_.next(payload, error)) {
      case wire::FrameSplitter::Result::kFrame:
        if (host_.on_payload(*this, payload)) hold_if_due();
        break;
      case wire::FrameSplitter::Result::kError:
        host_.on_broken(*this, Status::kProtocol, error);
        return;
      case wire::FrameSplitter::Result::kNeedMore:
        if (partial_.pending_bytes() == 0) partial_ = wire::FrameSplitter(frame_bytes_max());
        return;
    }
  }
}

void Connection::hold_if_due() {
  if (held_ || state_ != State::kOpen || !host_.must_wait(*this)) return;
  held_ = true;
  uv_read_stop(stream());
  host_.on_held(*this);
}

void Connection::resume() {
  held_ = false;
  consume_partial();
  host_.on_read_end(*this);
  host_.on_buffered(*this);
  if (held_) return;
  end_with_tls();
  // Also of one that is to end: half_close() waits for the other side's end.
  if (state_ != State::kClosed) read_on();
}

void Connection::read_on() {
  held_ = false;
  last_read_ms_ = now_ms();  // nobody has listened until now
  const int code = uv_read_start(stream(), on_allocate, on_read);
  if (code != 0) lose_by("reading failed: ", code);
}

void Connection::lose(const std::string& reason, bool by_peer) {
  if (state_ == State::kClosed) return;
  close();
  host_.on_lost(*this, reason, by_peer);
}

// Another failure, such as a time that is over, is the network's.
void Connection::lose_by(const char* what, int code) {
  const bool by_peer = code == UV_ECONNRESET || code == UV_EPIPE || code == UV_ECONNABORTED;
  lose(std::string(what) + uv_strerror(code), by_peer);
}

// ---- writing
// --------------------------------------------------------------------------------------

// Puts what is in out_ where it can leave. False: it cannot, and the connection is lost.
bool Connection::seal() {
  if (!out_.empty() && tls_->established()) {
    if (!tls_->failed() && !tls_->send(out_.bytes(), sealed_)) {
      lose(tls_->error(), false);
      return false;
    }
    release_if_large(out_);
  }
  // Nothing can be said to somebody with whom there is no key; an alert is in sealed_ already.
  if (state_ == State::kFinishing) {
    release_if_large(out_);
    if (!std::exchange(tls_closed_, true)) tls_->close(sealed_);
  }
  return true;
}

void Connection::flush() {
  if (state_ == State::kClosed || write_in_flight_) return;
  if (tls_ != nullptr && !seal()) return;
  const std::span<const std::uint8_t> ready = tls_ != nullptr ? sealed_ : out_.bytes();
  if (!ready.empty()) {
    uv_buf_t buffer = to_uv(ready);
    int done = uv_try_write(stream(), &buffer, 1);
    if (done == UV_EAGAIN) done = 0;
    if (done < 0) {
      lose_by("writing failed: ", done);
      return;
    }
    const auto rest = ready.subspan(static_cast<std::size_t>(done));
    if (!rest.empty()) write_later(rest);
    if (tls_ != nullptr) {
      release_if_large(sealed_);
    } else {
      release_if_large(out_);
    }
    if (!rest.empty()) return;
  }
  if (state_ == State::kFinishing) half_close();
}

void Connection::write_later(std::span<const std::uint8_t> bytes) {
  writing_.assign(bytes.begin(), bytes.end());
  write_.data = this;
  write_in_flight_ = true;
  write_progress_ms_ = now_ms();
  write_left_ = writing_.size();
  uv_buf_t buffer = to_uv(writing_);
  const int code = uv_write(&write_, stream(), &buffer, 1, on_written);
  if (code != 0) {
    write_in_flight_ = false;
    lose_by("writing failed: ", code);
    return;
  }
  host_.on_deadline_moved(*this);
}

void Connection::on_written(uv_write_t* request, int status) {
  run_guarded(request->handle->loop,
              [&] { static_cast<Connection*>(request->data)->end_write(status); });
}

void Connection::end_write(int status) {
  write_in_flight_ = false;
  release_if_large(writing_);
  if (state_ == State::kClosed) return;
  if (status < 0) {
    lose_by("writing failed: ", status);
    return;
  }
  flush();
  host_.on_buffered(*this);
}

// ---- ending
// -----------------------------------------------------------------------------------------

void Connection::finish(std::uint64_t deadline_ms) {
  if (!usable()) return;
  state_ = State::kFinishing;
  finish_ms_ = deadline_ms;
  if (held_) read_on();  // to see the other side's end
  flush();
  if (state_ == State::kFinishing) host_.on_deadline_moved(*this);
}

// Closing right away, with bytes of the client unread, would reset the connection and could take
// the last message from it. So this side is closed for writing, and the other one read out for a
// while.
void Connection::half_close() {
  if (half_closed_) return;
  half_closed_ = true;
  uv_os_fd_t fd = -1;
  if (uv_fileno(reinterpret_cast<uv_handle_t*>(stream()), &fd) == 0) ::shutdown(fd, SHUT_WR);
  finish_ms_ = std::min(finish_ms_, now_ms() + limits_.linger_ms);
  host_.on_deadline_moved(*this);
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  uv_close(reinterpret_cast<uv_handle_t*>(stream()), guarded([](uv_handle_t* handle) {
             auto* self = static_cast<Connection*>(handle->data);
             self->host_.on_gone(*self);
             delete self;
           }));
}

// ---- deadlines
// ----------------------------------------------------------------------------------------

std::uint64_t Connection::deadline_ms() const {
  std::uint64_t at = UINT64_MAX;
  if (state_ == State::kHandshake) at = opened_ms_ + limits_.handshake_timeout_ms;
  if (state_ == State::kOpen && !held_) at = last_read_ms_ + idle_timeout_ms();
  if (state_ == State::kFinishing) at = finish_ms_;
  if (usable() && write_in_flight_) {
    at = std::min(at, write_progress_ms_ + limits_.write_timeout_ms);
  }
  return at;
}

Connection::Expired Connection::expired(std::uint64_t now_ms) {
  if (write_in_flight_) {
    // libuv reports only a write's end: that less is left than before shows that the peer reads.
    const std::size_t left = bytes_in_flight();
    if (left < write_left_) {
      write_left_ = left;
      write_progress_ms_ = now_ms;
    }
  }
  if (now_ms < deadline_ms()) return Expired::kNothing;
  switch (state_) {
    case State::kHandshake:
      return Expired::kHandshake;
    case State::kFinishing:
      return Expired::kFinish;
    case State::kClosed:
      return Expired::kNothing;
    case State::kOpen:
      break;
  }
  return now_ms >= last_read_ms_ + idle_timeout_ms() ? Expired::kIdle : Expired::kWrite;
}

}  // namespace syncd::net
