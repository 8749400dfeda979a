// A small daemon on real sockets for tests of the client's threads: grants and confirms everything
// at once, unless told to hold begins, or to treat a connection badly. One thread of its own; the
// functions of the test's thread are marked so and are thread-safe.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "proto/base/shard.h"
#include "proto/wire/wire.h"

namespace syncd::client {

// ThreadSanitizer ends a forked child of a threaded process as soon as that starts a thread,
// whatever the program does; the other builds test it.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kChildMayStartThreads = false;
#else
inline constexpr bool kChildMayStartThreads = true;
#endif

class FakeServer {
 public:
  struct Behaviour {
    std::uint16_t protocol = kProtocolMax;
    Status refuse_hello = Status::kOk;  // anything else: Hello is answered with it
    std::uint32_t heartbeat_interval_ms = 1000;
    std::uint32_t heartbeat_timeout_ms = 5000;
    bool hold_begins = false;              // begins wait until release_begins()
    bool silent = false;                   // nothing is answered after the Welcome
    bool mute = false;                     // nothing is answered at all
    std::map<std::string, Status> refuse;  // requests by their type's name
    std::uint32_t grant_flags = 0;
    std::int64_t staleness = 0;
    bool late = false;
    bool resync = false;         // every grant is followed by a ResyncNotice
    std::size_t filling = 0;     // so many bytes of heartbeats' answers are between the two
    bool hold_collects = false;  // they are never answered
    std::size_t cut_every = 0;   // so many pushes, every connection is closed; 0: never
    std::vector<std::uint32_t> targets = {4, 0, 7};
    std::uint32_t shard = 0;
    std::uint32_t shards = 1;
    std::map<std::int32_t, std::string> others;  // shards whose daemon is elsewhere, by address
    std::vector<wire::JobStatus> jobs;           // that it shows
    std::uint64_t checkpoint = 0;                // the latest one of every job; 0: not answered
  };

  // On a Unix socket in a directory of its own, or on a free TCP port of 127.0.0.1.
  enum class Kind { kUnix, kTcp };
  explicit FakeServer(Kind kind = Kind::kUnix) : kind_(kind) {
    char directory[] = "/tmp/syncd-fake-XXXXXX";
    if (mkdtemp(directory) == nullptr) throw std::runtime_error("mkdtemp");
    directory_ = directory;
    if (pipe(wake_) != 0) throw std::runtime_error("pipe");
    listen();
    thread_ = std::thread([this] { run(); });
  }
  ~FakeServer() {
    stop_ = true;
    wake();
    thread_.join();
    for (auto& [fd, connection] : connections_) ::close(fd);
    if (listener_ >= 0) ::close(listener_);
    ::close(wake_[0]);
    ::close(wake_[1]);
    unlink(path().c_str());
    rmdir(directory_.c_str());
  }

  // ---- The test's thread.

  std::string address() const {
    return kind_ == Kind::kUnix ? "unix:" + path() : "tcp:127.0.0.1:" + std::to_string(port_);
  }
  std::string path() const { return directory_ + "/s"; }
  const std::string& directory() const { return directory_; }

  void behave(const std::function<void(Behaviour&)>& change) {
    const std::lock_guard lock(mutex_);
    change(behaviour_);
  }
  void release_begins() {
    behave([](Behaviour& behaviour) { behaviour.hold_begins = false; });
    post([this] {
      for (auto& held : std::exchange(held_, {})) grant(held.first, held.second);
    });
  }
  // Closes every connection; `accepting` says whether new ones are taken from then on.
  void cut(bool accepting = true) {
    post([this, accepting] {
      std::vector<int> all;
      for (auto& [fd, connection] : connections_) all.push_back(fd);
      for (const int fd : all) drop(fd);
      if (!accepting && listener_ >= 0) {
        ::close(std::exchange(listener_, -1));
        unlink(path().c_str());
      }
      if (accepting && listener_ < 0) listen();
    });
  }
  void accept_again() {
    post([this] {
      if (listener_ < 0) listen();
    });
  }
  void notify_all(wire::Body body) {
    post([this, body = std::move(body)] {
      for (auto& [fd, connection] : connections_) send(fd, 0, body);
    });
  }

  // Waits until `count` messages of this type, such as "Begin", have come in all.
  void await(const std::string& type, std::size_t count) {
    std::unique_lock lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(30), [&] { return received_[type] >= count; });
    if (!came) throw std::runtime_error("the client never sent " + type);
  }
  std::size_t received(const std::string& type) {
    const std::lock_guard lock(mutex_);
    return received_[type];
  }
  wire::Join last_join() {
    const std::lock_guard lock(mutex_);
    return last_join_;
  }
  wire::Hello last_hello() {
    const std::lock_guard lock(mutex_);
    return last_hello_;
  }
  wire::Phase last_phase() {
    const std::lock_guard lock(mutex_);
    return last_phase_;
  }
  wire::Push last_push() {
    const std::lock_guard lock(mutex_);
    return last_push_;
  }
  // (rank, iteration) of every push that counted.
  std::set<std::pair<std::uint32_t, std::int64_t>> pushes() {
    const std::lock_guard lock(mutex_);
    return pushes_;
  }
  std::size_t duplicates() {
    const std::lock_guard lock(mutex_);
    return duplicates_;
  }

 private:
  struct Connection {
    wire::FrameSplitter splitter;
  };
  struct HeldBegin {
    std::uint64_t id = 0;
    wire::Begin begin;
  };

  void listen() {
    listener_ = socket(kind_ == Kind::kUnix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bound = -1;
    if (kind_ == Kind::kUnix) {
      sockaddr_un address = {};
      address.sun_family = AF_UNIX;
      std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
      bound = bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    } else {
      const int on = 1;
      setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(port_);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof(address);
      bound = bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
      port_ = ntohs(address.sin_port);
    }
    if (bound != 0 || ::listen(listener_, 64) != 0) throw std::runtime_error("listen");
  }

  void wake() {
    const char byte = 0;
    if (::write(wake_[1], &byte, 1) != 1) std::abort();
  }
  void post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(work));
    }
    wake();
  }

  // ---- The server's thread.

  void run() {
    while (!stop_) {
      std::vector<pollfd> fds = {{wake_[0], POLLIN, 0}};
      if (listener_ >= 0) fds.push_back({listener_, POLLIN, 0});
      for (auto& [fd, connection] : connections_) fds.push_back({fd, POLLIN, 0});
      if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) std::abort();
      for (const pollfd& ready : fds) {
        if (ready.revents == 0) continue;
        if (ready.fd == wake_[0]) {
          do_posted();
        } else if (ready.fd == listener_) {
          const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
          if (fd >= 0) connections_[fd] = std::make_unique<Connection>();
        } else if (connections_.count(ready.fd) != 0) {
          read(ready.fd);
        }
      }
    }
  }

  void do_posted() {
    char bytes[64];
    if (::read(wake_[0], bytes, sizeof(bytes)) < 0) std::abort();
    std::vector<std::function<void()>> posted;
    {
      const std::lock_guard lock(mutex_);
      posted.swap(posted_);
    }
    for (auto& work : posted) work();
  }

  void read(int fd) {
    std::uint8_t bytes[65536];
    const ssize_t size = ::read(fd, bytes, sizeof(bytes));
    if (size <= 0) return drop(fd);
    wire::FrameSplitter& splitter = connections_[fd]->splitter;
    splitter.append({bytes, static_cast<std::size_t>(size)});
    std::span<const std::uint8_t> payload;
    std::string error;
    while (splitter.next(payload, error) == wire::FrameSplitter::Result::kFrame) {
      wire::Message message;
      if (!wire::decode(payload, message, error)) std::abort();
      handle(fd, message);
    }
  }

  void drop(int fd) {
    connections_.erase(fd);
    std::erase_if(held_, [&](const auto& held) { return held.first == fd; });
    ::close(fd);
  }

  void handle(int fd, const wire::Message& message) {
    const std::string type(wire::body_name(message.body));
    const bool answers = note(type, message);
    if (type == "Push" && now_.cut_every != 0 && received(type) % now_.cut_every == 0) cut();
    if (answers) {
      const auto refusal = now_.refuse.find(type);
      if (refusal != now_.refuse.end()) {
        send(fd, message.id, wire::Error{refusal->second, type + " is refused"});
      } else {
        std::visit([&](const auto& body) { on(fd, message.id, body); }, message.body);
      }
    }
  }

  // Keeps what tests look at, before the answer lets them go on; false where the behaviour is to
  // say nothing.
  bool note(const std::string& type, const wire::Message& message) {
    const std::lock_guard lock(mutex_);
    now_ = behaviour_;
    if (const auto* join = std::get_if<wire::Join>(&message.body)) last_join_ = *join;
    if (const auto* hello = std::get_if<wire::Hello>(&message.body)) last_hello_ = *hello;
    if (const auto* push = std::get_if<wire::Push>(&message.body)) last_push_ = *push;
    ++received_[type];
    changed_.notify_all();
    return !now_.mute && (!now_.silent || type == "Hello");
  }

  template <typename Body>
  void on(int, std::uint64_t, const Body&) {}
  void on(int fd, std::uint64_t id, const wire::Hello& hello) {
    if (now_.refuse_hello != Status::kOk) {
      return send(fd, id, wire::Error{now_.refuse_hello, "not you"});
    }
    const auto other = now_.others.find(hello.shard);
    if (other != now_.others.end()) {
      send(fd, id, wire::Redirect{static_cast<std::uint32_t>(hello.shard), other->second, 10});
      ::shutdown(fd, SHUT_WR);
      return;
    }
    wire::Welcome welcome;
    welcome.shard = now_.shard;
    welcome.shards = now_.shards;
    welcome.protocol = now_.protocol;
    welcome.session = 1;
    welcome.server_version = "0.0.1";
    welcome.max_frame_bytes = 65536;
    welcome.heartbeat_interval_ms = now_.heartbeat_interval_ms;
    welcome.heartbeat_timeout_ms = now_.heartbeat_timeout_ms;
    send(fd, id, welcome);
  }
  void on(int fd, std::uint64_t id, const wire::Heartbeat&) { send(fd, id, wire::HeartbeatAck{}); }
  void on(int fd, std::uint64_t id, const wire::Join& join) {
    auto [known, fresh] = ranks_.try_emplace(join.name, static_cast<std::uint32_t>(ranks_.size()));
    if (fresh && join.rank >= 0) known->second = static_cast<std::uint32_t>(join.rank);
    wire::Joined joined;
    joined.worker = {1, known->second, 1, join.incarnation != 0 ? join.incarnation : 100};
    joined.iteration = next_[known->second];
    joined.policy = join.policy.empty() ? "bsp" : join.policy;
    joined.world_size = join.world_size;
    joined.durable = true;
    joined.resumed = join.incarnation != 0;
    send(fd, id, joined);
  }
  void on(int fd, std::uint64_t id, const wire::Begin& begin) {
    if (now_.hold_begins) {
      held_.push_back({fd, {id, begin}});
    } else {
      grant(fd, {id, begin});
    }
  }
  void grant(int fd, const HeldBegin& held) {
    std::vector<std::uint8_t> bytes;
    encoder_.append(
        {held.id, wire::Granted{held.begin.iteration, now_.grant_flags, now_.staleness}}, bytes);
    while (bytes.size() < now_.filling) encoder_.append({1, wire::HeartbeatAck{}}, bytes);
    if (now_.resync) {
      encoder_.append({0, wire::ResyncNotice{held.begin.worker, held.begin.iteration}}, bytes);
    }
    write_all(fd, bytes);
  }
  void on(int fd, std::uint64_t id, const wire::Push& push) {
    bool fresh = false;
    {
      const std::lock_guard lock(mutex_);
      fresh = pushes_.emplace(push.worker.rank, push.iteration).second;
      if (!fresh) ++duplicates_;
    }
    next_[push.worker.rank] = push.iteration + 1;
    send(fd, id, wire::Pushed{push.iteration, now_.late, !fresh});
  }
  void on(int fd, std::uint64_t id, const wire::Targets& targets) {
    send(fd, id, wire::TargetsReply{targets.iteration, now_.targets});
  }
  void on(int fd, std::uint64_t id, const wire::Collect& collect) {
    if (now_.hold_collects) return;
    const std::uint32_t own = collect.worker.rank;
    const std::int64_t k = collect.iteration;
    send(fd, id, wire::CollectReply{k, {{own, k, 0.75}, {own + 1, k - 1, 0.25}}});
  }
  void on(int fd, std::uint64_t id, const wire::Consumed&) { send(fd, id, wire::Ok{}); }
  void on(int fd, std::uint64_t id, const wire::Restarted&) { send(fd, id, wire::Ok{}); }
  void on(int fd, std::uint64_t id, const wire::Phase& phase) {
    {
      const std::lock_guard lock(mutex_);
      last_phase_ = phase;
    }
    send(fd, id, wire::Ok{});
  }
  void on(int fd, std::uint64_t id, const wire::JobsRequest&) {
    send(fd, id, wire::JobsReply{now_.jobs, 0});
  }
  void on(int fd, std::uint64_t id, const wire::StatusRequest&) {
    wire::StatusReply reply;
    reply.server_version = "0.0.1";
    reply.pid = 1000 + now_.shard;
    send(fd, id, reply);
  }
  void on(int fd, std::uint64_t id, const wire::StopJobRequest&) { send(fd, id, wire::Ok{}); }
  void on(int fd, std::uint64_t id, const wire::CheckpointRequest&) { send(fd, id, wire::Ok{}); }
  void on(int fd, std::uint64_t id, const wire::LatestCheckpoint&) {
    if (now_.checkpoint == 0) return;
    wire::LatestCheckpointReply reply;
    reply.number = now_.checkpoint;
    send(fd, id, reply);
  }
  void on(int fd, std::uint64_t id, const wire::Leave&) { send(fd, id, wire::Ok{}); }
  void on(int fd, std::uint64_t id, const wire::CancelBegin&) { send(fd, id, wire::Ok{}); }
  void on(int fd, std::uint64_t id, const wire::Explain&) {
    Explanation explanation;
    explanation.rule = "bsp";
    explanation.text = "the fake server holds every begin";
    explanation.iteration = 0;
    explanation.waited_for_count = 1;
    explanation.ranks = "9";
    explanation.workers = {{9, "w9", "node-z", 4, 1'500'000, ""}};
    send(fd, id, explanation);
  }

  void send(int fd, std::uint64_t id, wire::Body body) {
    std::vector<std::uint8_t> bytes;
    encoder_.append({id, std::move(body)}, bytes);
    write_all(fd, bytes);
  }
  static void write_all(int fd, const std::vector<std::uint8_t>& bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t size = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (size <= 0) return;  // the client is gone
      done += static_cast<std::size_t>(size);
    }
  }

  const Kind kind_;
  std::string directory_;
  std::atomic<std::uint16_t> port_{0};
  int wake_[2] = {-1, -1};
  std::atomic<bool> stop_{false};
  std::thread thread_;

  int listener_ = -1;
  std::map<int, std::unique_ptr<Connection>> connections_;
  std::vector<std::pair<int, HeldBegin>> held_;
  std::map<std::string, std::uint32_t> ranks_;
  std::map<std::uint32_t, std::int64_t> next_;
  Behaviour now_;
  wire::Encoder encoder_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  Behaviour behaviour_;
  std::vector<std::function<void()>> posted_;
  std::map<std::string, std::size_t> received_;
  wire::Join last_join_;
  wire::Hello last_hello_;
  wire::Push last_push_;
  wire::Phase last_phase_;
  std::set<std::pair<std::uint32_t, std::int64_t>> pushes_;
  std::size_t duplicates_ = 0;
};

// A cluster with a daemon for each shard. They know each other.
class FakeCluster {
 public:
  explicit FakeCluster(std::uint32_t shards) {
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      daemons_.push_back(std::make_unique<FakeServer>(FakeServer::Kind::kTcp));
    }
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      daemons_[shard]->behave([&](FakeServer::Behaviour& behaviour) {
        behaviour.shard = shard;
        behaviour.shards = shards;
        for (std::uint32_t other = 0; other < shards; ++other) {
          if (other != shard) {
            behaviour.others[static_cast<std::int32_t>(other)] = daemons_[other]->address();
          }
        }
      });
    }
  }
  FakeServer& operator[](std::uint32_t shard) { return *daemons_[shard]; }

  // The name of a job of this shard.
  std::string job(std::uint32_t shard) const {
    for (int i = 0;; ++i) {
      std::string name = "job-" + std::to_string(i);
      if (shard_of(name, static_cast<std::uint32_t>(daemons_.size())) == shard) return name;
    }
  }

 private:
  std::vector<std::unique_ptr<FakeServer>> daemons_;
};

inline void PrintTo(FakeServer::Kind kind, std::ostream* out) {
  *out << (kind == FakeServer::Kind::kUnix ? "Unix" : "Tcp");
}

}  // namespace syncd::client
