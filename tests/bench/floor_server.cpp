// The bare libuv echo, the bare libuv barrier, and a server that answers once a store has it. One
// thread, the loop's; beside it, where there is a store, one that writes to it.
//
// All are as lean as libuv allows: one read buffer for all connections, uv_try_write() (which,
// unlike uv_write(), costs no callback and no second trip through the loop), one write for all that
// one read asked for, nothing allocated per message.
#include "tests/bench/floor_server.h"

#include <uv.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kPrefixBytes = 4;

struct Peer {
  uv_any_handle handle;
  std::vector<char> partial;  // a frame that has not come wholly yet
  std::vector<char> held;     // frames that wait for the barrier
};

// Frames that wait for the store, one after the other.
struct Batch {
  std::vector<char> bytes;
  std::vector<std::pair<Peer*, std::size_t>> frames;  // whose, and how many bytes
};

struct Server {
  FloorOptions options;
  uv_loop_t loop;
  char read_buffer[kReadBytes];
  std::vector<char> answers;  // to the frames of the read that is being handled
  std::uint32_t waiting = 0;
  std::vector<Peer*> holders;  // peers whose `held` is not empty

  std::mutex mutex;
  std::condition_variable came;
  Batch queued;               // with mutex
  std::vector<Batch> stored;  // with mutex
  uv_async_t on_stored;
};
Server* server = nullptr;

uv_stream_t* stream_of(Peer& peer) {
  return reinterpret_cast<uv_stream_t*>(&peer.handle);
}

void check(int code, const char* what) {
  if (code < 0) fail(std::string(what) + ": " + uv_strerror(code));
}

struct Remainder {
  uv_write_t request;
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
}

void release() {
  for (Peer* holder : server->holders) {
    write(*holder, holder->held.data(), holder->held.size());
    holder->held.clear();
  }
  server->holders.clear();
}

void hold_for_barrier(Peer& peer, const char* frame, std::size_t count) {
  hold(peer, frame, count);
  if (++server->waiting < server->options.workers) return;
  release();
  server->waiting = 0;
}

void store(Peer& peer, const char* frame, std::size_t count) {
  const std::lock_guard lock(server->mutex);
  Batch& queued = server->queued;
  if (queued.frames.empty()) server->came.notify_one();
  queued.bytes.insert(queued.bytes.end(), frame, frame + count);
  queued.frames.emplace_back(&peer, count);
}

[[noreturn]] void store_for_ever(const std::function<void(std::size_t records)>& commit) {
  for (;;) {
    Batch batch;
    {
      std::unique_lock lock(server->mutex);
      server->came.wait(lock, [] { return !server->queued.frames.empty(); });
      batch = std::exchange(server->queued, {});
    }
    commit(batch.frames.size());
    {
      const std::lock_guard lock(server->mutex);
      server->stored.push_back(std::move(batch));
    }
    uv_async_send(&server->on_stored);
  }
}

void answer_stored(uv_async_t*) {
  std::vector<Batch> stored;
  {
    const std::lock_guard lock(server->mutex);
    stored.swap(server->stored);
  }
  for (const Batch& batch : stored) {
    const char* frame = batch.bytes.data();
    for (const auto& [peer, count] : batch.frames) {
      hold(*peer, frame, count);
      frame += count;
    }
  }
  release();
}

// Hands out the whole frames among `count` bytes; returns how many bytes they were.
std::size_t take_frames(Peer& peer, const char* bytes, std::size_t count) {
  std::size_t at = 0;
  while (count - at >= kPrefixBytes) {
    std::uint32_t length = 0;
    std::memcpy(&length, bytes + at, sizeof length);
    const std::size_t whole = kPrefixBytes + length;
    if (count - at < whole) break;
    const bool is_begin = whole == server->options.begin_bytes;
    const bool stores = !server->options.store.empty();
    if (is_begin && !stores) {
      hold_for_barrier(peer, bytes + at, whole);
    } else if (!is_begin && stores) {
      store(peer, bytes + at, whole);
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
  peer.partial.erase(peer.partial.begin(), peer.partial.begin() + static_cast<long>(taken));
}

void on_read(uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
  auto& peer = *static_cast<Peer*>(stream->data);
  if (count < 0) {
    uv_close(reinterpret_cast<uv_handle_t*>(stream),
             [](uv_handle_t* handle) { delete static_cast<Peer*>(handle->data); });
  } else if (server->options.workers == 0 && server->options.store.empty()) {
    write(peer, buffer->base, static_cast<std::size_t>(count));
  } else {
    on_frames(peer, buffer->base, static_cast<std::size_t>(count));
  }
}

void on_connection(uv_stream_t* listener, int status) {
  check(status, "listening");
  auto* peer = new Peer{};
  if (server->options.endpoint.unix_path.empty()) {
    check(uv_tcp_init(&server->loop, &peer->handle.tcp), "uv_tcp_init");
  } else {
    check(uv_pipe_init(&server->loop, &peer->handle.pipe, 0), "uv_pipe_init");
  }
  peer->handle.handle.data = peer;
  check(uv_accept(listener, stream_of(*peer)), "uv_accept");
  if (server->options.endpoint.unix_path.empty()) uv_tcp_nodelay(&peer->handle.tcp, 1);
  const auto allocate = [](uv_handle_t*, std::size_t, uv_buf_t* buffer) {
    *buffer = uv_buf_init(server->read_buffer, kReadBytes);
  };
  check(uv_read_start(stream_of(*peer), allocate, on_read), "uv_read_start");
}

void listen_on(const Endpoint& endpoint, uv_any_handle& handle) {
  if (endpoint.unix_path.empty()) {
    sockaddr_in address{};
    uv_ip4_addr("127.0.0.1", endpoint.port, &address);
    check(uv_tcp_init(&server->loop, &handle.tcp), "uv_tcp_init");
    check(uv_tcp_bind(&handle.tcp, reinterpret_cast<sockaddr*>(&address), 0), "uv_tcp_bind");
  } else {
    check(uv_pipe_init(&server->loop, &handle.pipe, 0), "uv_pipe_init");
    check(uv_pipe_bind(&handle.pipe, endpoint.unix_path.c_str()), "uv_pipe_bind");
  }
  check(uv_listen(reinterpret_cast<uv_stream_t*>(&handle), 4096, on_connection), "uv_listen");
}

}  // namespace

std::vector<std::string> floor_command(const FloorOptions& options) {
  return {kFloorFlag,
          options.endpoint.text(),
          std::to_string(options.workers),
          std::to_string(options.begin_bytes),
          options.store,
          std::to_string(options.record_bytes)};
}

bool parse_floor_command(int argc, char** argv, FloorOptions& options) {
  if (argc != 7 || std::strcmp(argv[1], kFloorFlag) != 0) return false;
  options.endpoint = Endpoint::parse(argv[2]);
  options.workers = static_cast<std::uint32_t>(std::stoul(argv[3]));
  options.begin_bytes = static_cast<std::uint32_t>(std::stoul(argv[4]));
  options.store = argv[5];
  options.record_bytes = static_cast<std::uint32_t>(std::stoul(argv[6]));
  return true;
}

void run_floor_server(const FloorOptions& options,
                      const std::function<void(std::size_t records)>& commit) {
  static Server instance;
  server = &instance;
  server->options = options;
  check(uv_loop_init(&server->loop), "uv_loop_init");
  if (!options.store.empty()) {
    check(uv_async_init(&server->loop, &server->on_stored, answer_stored), "uv_async_init");
    std::thread([&commit] { store_for_ever(commit); }).detach();
  }
  static uv_any_handle listener;
  listen_on(options.endpoint, listener);
  uv_run(&server->loop, UV_RUN_DEFAULT);
  fail("the floor's loop has ended");
}

}  // namespace syncd::bench
