// A client as blocking calls from any thread, over a session that the callers and a loop thread
// drive in turn. All functions are thread-safe. In a child of fork() every call answers kForked and
// touches nothing that the parent's threads may have held.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "libclient/endpoint.h"
#include "libclient/fork_mark.h"
#include "libclient/session.h"
#include "proto/transport/tls.h"

namespace syncd::client {

class Driver;

// What a call answers with kForked.
inline constexpr const char* kForkedText =
    "this client was opened before fork(); open a new one in the child";

struct ClientOptions {
  std::vector<Endpoint> endpoints;  // at least one
  std::string client_name;
  std::string client_version;
  std::string token;
  tls::ClientSettings tls;  // for endpoints of kind kTls
  std::string server_name;  // for which their certificates must be made out; empty: their hosts
  TimeUs connect_timeout_us = 10'000'000;  // kNever: no limit, as in all of these
  TimeUs reconnect_timeout_us = 60'000'000;
};

class Client {
 public:
  // Connects and waits for the daemon's welcome. On success `client` is set; otherwise the
  // completion has the reason: kInvalid (files of `tls` that cannot be used), kUnreachable,
  // kProtocol, kAuth, kLimit (also one of this process: no descriptors or threads left), or
  // whatever else a daemon refused us for.
  static Completion open(ClientOptions options, std::shared_ptr<Client>& client);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Makes one call of the session's, `make(session, ask)`, and blocks until it is completed; see
  // Session for what each means. `timeout_us` from now, or kNever.
  template <typename Make>
  Completion call(TimeUs timeout_us, const Make& make) {
    return perform(std::cref(make), timeout_us);
  }
  // Begin without waiting: `done` is called once, when begin is answered or fails, on the client's
  // thread or on any that is in a call of this client, this one included. It must be quick, and may
  // not call the client or throw.
  void begin_then(WorkerId worker, std::function<void(Completion)> done);

  // The worker's handle is gone. Does not block.
  void release(WorkerId worker) noexcept;

  // Cancels all calls, ends the connection and the thread; calls after it answer kClosed. Blocks
  // for a few milliseconds. The first call counts. Not on the client's own thread.
  void close() noexcept;
  // Whether this is the client's own thread, on which events are delivered.
  bool on_own_thread() const noexcept;
  // On that thread: no event is delivered any more. Before close() elsewhere.
  void silence() noexcept;

  // True in a child of the process that opened this client.
  bool forked() const noexcept { return fork_mark_.forked(); }

 private:
  explicit Client(std::unique_ptr<Driver> driver);
  Completion perform(const MakeCall& make, TimeUs timeout_us);

  const ForkMark fork_mark_;
  std::unique_ptr<Driver> driver_;
};

}  // namespace syncd::client
