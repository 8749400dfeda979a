// One client's byte stream: reads frames, collects answers, writes them in one go, and knows its
// own deadlines. It knows nothing of what the frames mean. Loop thread.
#pragma once

#include <uv.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/core/engine/types.h"
#include "daemon/edge/net/admission.h"
#include "daemon/edge/net/listener.h"
#include "daemon/edge/net/network_limits.h"
#include "daemon/edge/net/turn_budget.h"
#include "proto/base/out_buffer.h"
#include "proto/transport/tls.h"
#include "proto/wire/wire.h"

namespace syncd::net {

class Connection;

// What a connection tells its network. Every call is made on the loop thread from a libuv callback.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  // Memory to read into, shared by all connections: it is used up before the next read.
  virtual std::span<std::uint8_t> read_buffer() = 0;
  // Likewise for what a TLS connection's bytes say.
  virtual std::vector<std::uint8_t>& plain_buffer() = 0;
  // One whole frame, valid during the call. Whether must_wait() is to be asked after it.
  virtual bool on_payload(Connection& connection, std::span<const std::uint8_t> payload) = 0;
  // All whole frames of what was read have been handed over, or as many as it may have now.
  virtual void on_read_end(Connection& connection) { (void)connection; }
  // Whether it has had its part of this turn: it reads no further until resume().
  virtual bool must_wait(const Connection& connection) = 0;
  virtual void on_held(Connection& connection) = 0;
  // The bytes cannot be split into frames, or TLS failed; the connection reads no further.
  virtual void on_broken(Connection& connection, Status status, const std::string& text) = 0;
  // Its buffers may have grown or shrunk by what was read or written.
  virtual void on_buffered(Connection& connection) = 0;
  // TLS has something to say by itself: flush() is to be called at the end of this turn.
  virtual void on_output(Connection& connection) = 0;
  // The connection has closed itself (the peer has gone, or a write failed). `by_peer`: the other
  // side closed or reset it.
  virtual void on_lost(Connection& connection, const std::string& reason, bool by_peer) = 0;
  // Its next deadline may be earlier now than it was.
  virtual void on_deadline_moved(Connection& connection) = 0;
  // The last call: the handle is gone and the object will be.
  virtual void on_gone(Connection& connection) = 0;
};

class Connection {
 public:
  enum class State {
    kHandshake,
    kOpen,
    kFinishing,  // a last message is on its way out; what comes in is thrown away
    kClosed,     // the handle is being closed
  };
  enum class Expired { kNothing, kHandshake, kIdle, kWrite, kFinish };

  // After this the object belongs to its handle and frees itself when close() has gone through the
  // loop. Null, with the reason in `error`, if the descriptor cannot be used. `tls`: null for a
  // connection that speaks plainly.
  static Connection* open(uv_loop_t* loop, ConnectionHost& host, const ConnectionLimits& limits,
                          ConnectionId id, Accepted accepted,
                          const std::shared_ptr<tls::Context>& tls, std::string& error);

  ConnectionId id() const { return id_; }
  const std::string& peer() const { return accepted_.peer; }
  // What it was accepted with; the descriptor is the handle's now.
  const Accepted& accepted() const { return accepted_; }
  // What its certificate says of the client, once TLS has begun.
  const std::vector<std::string>& certificate_names() const;
  std::string certificate_digest() const;  // of one without names
  State state() const { return state_; }
  // Whether messages still make sense to it.
  bool usable() const { return state_ == State::kHandshake || state_ == State::kOpen; }

  // Encode frames into this; they are written by the next flush().
  OutBuffer& out() { return out_; }
  // Bytes that the peer has not taken yet, in memory of this process.
  std::size_t outbound_bytes() const {
    return out_.size() + sealed_.size() + (write_in_flight_ ? bytes_in_flight() : 0);
  }
  // Memory of its buffers, in both directions.
  std::size_t buffered_bytes() const {
    return partial_.held_bytes() + out_.capacity() + sealed_.capacity() + writing_.capacity();
  }

  void established() {
    state_ = State::kOpen;
    was_established_ = true;
    partial_.set_max_frame_bytes(frame_bytes_max());
  }
  bool was_established() const { return was_established_; }
  // Writes what is in out(): at once as far as the kernel takes it, the rest when it can.
  void flush();
  // Sends what is in out(), tells the peer that nothing more comes, and closes when it has closed
  // its side, at the latest linger_ms later, and in no case after `deadline_ms` of the loop's
  // clock.
  void finish(std::uint64_t deadline_ms);
  // Closes at once. Nothing is told to the host but on_gone().
  void close();

  // The earliest moment, on the loop's clock, at which expired() may answer something; UINT64_MAX:
  // never.
  std::uint64_t deadline_ms() const;
  std::uint64_t idle_timeout_ms() const { return std::min(limits_.idle_timeout_ms, idle_most_ms_); }
  // From now on it ends after less silence, if that is less.
  void lower_idle_timeout(std::uint64_t ms) { idle_most_ms_ = std::min(idle_most_ms_, ms); }
  Expired expired(std::uint64_t now_ms);

  // Whether it waits for resume(), which goes on with what has been read, and then reads again.
  bool held() const { return held_; }
  void resume();

  // For the host's own book-keeping.
  Identity identity;
  TurnBudget::Share turn_share;
  // Of all its client's connections; null: it has not introduced itself.
  std::shared_ptr<TurnBudget::Share> client_share;
  std::size_t counted_bytes = 0;  // of buffered_bytes()
  bool dirty = false;
  std::uint64_t scheduled_ms = 0;
  std::string closed_why;
  bool closed_by_peer = false;

 private:
  Connection(ConnectionHost& host, const ConnectionLimits& limits, ConnectionId id,
             Accepted accepted);
  ~Connection() = default;
  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(&handle_); }
  const uv_stream_t* stream() const { return reinterpret_cast<const uv_stream_t*>(&handle_); }
  std::uint64_t now_ms() const { return uv_now(handle_.tcp.loop); }
  std::size_t bytes_in_flight() const { return uv_stream_get_write_queue_size(stream()); }

  std::size_t frame_bytes_max() const {
    return was_established_ ? limits_.frame_bytes_max : limits_.hello_bytes_max;
  }

  static void on_allocate(uv_handle_t* handle, size_t suggested, uv_buf_t* buffer);
  static void on_read(uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer);
  void take_read(ssize_t count, const char* base);
  static void on_written(uv_write_t* request, int status);
  void end_write(int status);
  void consume_sealed(std::span<const std::uint8_t> bytes);
  void consume(std::span<const std::uint8_t> bytes);
  void consume_partial();
  std::span<const std::uint8_t> consume_in_place(std::span<const std::uint8_t> bytes);
  void hold_if_due();
  void read_on();
  void end_with_tls();
  void lose(const std::string& reason, bool by_peer);
  void lose_by(const char* what, int code);
  void write_later(std::span<const std::uint8_t> bytes);
  bool seal();
  void half_close();

  ConnectionHost& host_;
  const ConnectionLimits& limits_;
  const ConnectionId id_;
  Accepted accepted_;
  State state_ = State::kHandshake;
  bool was_established_ = false;
  bool half_closed_ = false;
  bool held_ = false;

  union {
    uv_tcp_t tcp;
    uv_pipe_t pipe;
  } handle_;
  uv_write_t write_;
  bool write_in_flight_ = false;

  wire::FrameSplitter partial_;        // holds only what no whole frame has been made of yet
  std::unique_ptr<tls::Channel> tls_;  // null: what is in out() leaves as it is
  bool tls_begun_ = false;             // the client's first bytes have come
  std::size_t sealed_before_hello_ = 0;
  bool tls_closed_ = false;           // its end has been said
  std::vector<std::uint8_t> sealed_;  // what tls_ has made of out_, and says by itself
  OutBuffer out_;
  std::vector<std::uint8_t> writing_;  // handed to libuv

  std::uint64_t opened_ms_ = 0;
  std::uint64_t last_read_ms_ = 0;
  std::uint64_t write_progress_ms_ = 0;
  std::size_t write_left_ = 0;  // at write_progress_ms_
  std::uint64_t finish_ms_ = UINT64_MAX;
  std::uint64_t idle_most_ms_ = UINT64_MAX;  // what its workers ask for
};

}  // namespace syncd::net
