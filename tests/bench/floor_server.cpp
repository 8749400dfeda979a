// See floor_server.h. One thread, the loop's.
//
// Both are as lean as libuv allows: one read buffer for all connections, uv_try_write() (which,
// unlike uv_write(), costs no callback and no second trip through the loop), one write for all that
// one read asked for, nothing allocated for a message.
#include "tests/bench/floor_server.h"

#include <uv.h>

#include <cstring>

#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kPrefixBytes = 4;
constexpr int kBacklog = 4096;

struct Peer {
  uv_pipe_t handle{};
  std::vector<char> partial;  // the beginning of a frame
  std::vector<char> held;     // frames that wait for the barrier
};

struct FloorServer {
  FloorOptions options;
  uv_loop_t loop{};
  char read_buffer[kReadBytes];
  std::vector<char> answers;  // to the frames of one read
  std::uint32_t waiting = 0;
  std::vector<Peer*> holders;  // peers whose `held` is not empty
};
FloorServer* server = nullptr;

uv_stream_t* stream_of(Peer& peer) {
  return reinterpret_cast<uv_stream_t*>(&peer.handle);
}

void check(int code, const char* what) {
  if (code < 0) fail(std::string(what) + ": " + uv_strerror(code));
}

struct Remainder {
  uv_write_t request{};
  std::vector<char> bytes;
};

// What the socket did not take at once.
void write_later(Peer& peer, const char* bytes, std::size_t count) {
  auto* rest = new Remainder{{}, {bytes, bytes + count}};
  rest->request.data = rest;
  const uv_buf_t buffer = uv_buf_init(rest->bytes.data(), static_cast<unsigned>(count));
  uv_write(&rest->request, stream_of(peer), &buffer, 1,
           [](uv_write_t* request, int) { delete static_cast<Remainder*>(request->data); });
}

void write(Peer& peer, const char* bytes, std::size_t count) {
  const uv_buf_t buffer = uv_buf_init(const_cast<char*>(bytes), static_cast<unsigned>(count));
  const int written = uv_try_write(stream_of(peer), &buffer, 1);
  const std::size_t done = written > 0 ? static_cast<std::size_t>(written) : 0;
  if (done < count) write_later(peer, bytes + done, count - done);
}

void hold(Peer& peer, const char* frame, std::size_t count) {
  if (peer.held.empty()) server->holders.push_back(&peer);
  peer.held.insert(peer.held.end(), frame, frame + count);
  if (++server->waiting < server->options.workers) return;
  for (Peer* holder : server->holders) {
    write(*holder, holder->held.data(), holder->held.size());
    holder->held.clear();
  }
  server->holders.clear();
  server->waiting = 0;
}

// Hands out the whole frames among `count` bytes. Returns how many bytes they were.
std::size_t take_frames(Peer& peer, const char* bytes, std::size_t count) {
  std::size_t at = 0;
  while (count - at >= kPrefixBytes) {
    std::uint32_t length = 0;
    std::memcpy(&length, bytes + at, sizeof length);
    const std::size_t whole = kPrefixBytes + length;
    if (count - at < whole) break;
    if (whole == server->options.begin_bytes) {
      hold(peer, bytes + at, whole);
    } else {
      server->answers.insert(server->answers.end(), bytes + at, bytes + at + whole);
    }
    at += whole;
  }
  if (!server->answers.empty()) write(peer, server->answers.data(), server->answers.size());
  server->answers.clear();
  return at;
}

void on_frames(Peer& peer, const char* bytes, std::size_t count) {
  if (peer.partial.empty()) {
    const std::size_t taken = take_frames(peer, bytes, count);
    peer.partial.assign(bytes + taken, bytes + count);
    return;
  }
  peer.partial.insert(peer.partial.end(), bytes, bytes + count);
  const std::size_t taken = take_frames(peer, peer.partial.data(), peer.partial.size());
  peer.partial.erase(peer.partial.begin(),
                     peer.partial.begin() + static_cast<std::ptrdiff_t>(taken));
}

void on_read(uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
  auto& peer = *static_cast<Peer*>(stream->data);
  if (count < 0) {
    uv_close(reinterpret_cast<uv_handle_t*>(stream),
             [](uv_handle_t* handle) { delete static_cast<Peer*>(handle->data); });
  } else if (server->options.workers == 0) {
    write(peer, buffer->base, static_cast<std::size_t>(count));
  } else {
    on_frames(peer, buffer->base, static_cast<std::size_t>(count));
  }
}

void on_connection(uv_stream_t* listener, int status) {
  check(status, "listening");
  auto* peer = new Peer{};
  check(uv_pipe_init(&server->loop, &peer->handle, 0), "uv_pipe_init");
  peer->handle.data = peer;
  check(uv_accept(listener, stream_of(*peer)), "uv_accept");
  const auto allocate = [](uv_handle_t*, std::size_t, uv_buf_t* buffer) {
    *buffer = uv_buf_init(server->read_buffer, kReadBytes);
  };
  check(uv_read_start(stream_of(*peer), allocate, on_read), "uv_read_start");
}

}  // namespace

std::vector<std::string> floor_arguments(const FloorOptions& options) {
  return {kFloorFlag, options.socket_path, std::to_string(options.workers),
          std::to_string(options.begin_bytes)};
}

bool parse_floor_arguments(int argc, char** argv, FloorOptions& options) {
  if (argc != 5 || std::strcmp(argv[1], kFloorFlag) != 0) return false;
  options.socket_path = argv[2];
  options.workers = static_cast<std::uint32_t>(std::stoul(argv[3]));
  options.begin_bytes = static_cast<std::uint32_t>(std::stoul(argv[4]));
  return true;
}

void run_floor_server(const FloorOptions& options) {
  static FloorServer instance;
  server = &instance;
  server->options = options;
  check(uv_loop_init(&server->loop), "uv_loop_init");
  static uv_pipe_t listener;
  check(uv_pipe_init(&server->loop, &listener, 0), "uv_pipe_init");
  // The name appears when it listens, so that whoever sees it may connect.
  const std::string fresh = options.socket_path + ".new";
  check(uv_pipe_bind(&listener, fresh.c_str()), "uv_pipe_bind");
  check(uv_listen(reinterpret_cast<uv_stream_t*>(&listener), kBacklog, on_connection), "uv_listen");
  if (std::rename(fresh.c_str(), options.socket_path.c_str()) != 0) fail("rename failed");
  uv_run(&server->loop, UV_RUN_DEFAULT);
  fail("the floor's loop has ended");
}

}  // namespace syncd::bench
