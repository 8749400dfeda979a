// One listening socket on a libuv loop. Owns its uv handle; runs on the loop thread.
//
// It accepts by itself (accept4 on a polled descriptor) rather than through uv_listen(), because
// libuv keeps calling back in a loop when the process has no descriptor left and its spare one is
// taken. Here a shortage just pauses accepting: clients wait in the kernel's backlog.
#pragma once

#include <uv.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/edge/net/listen_socket.h"

namespace syncd::net {

// A connection that was accepted and has no owner yet.
struct Accepted {
  UniqueFd fd;
  bool is_tcp = true;
  bool is_control = false;  // as its socket
  std::string peer;         // "127.0.0.1:53114", "unix:pid=4711,uid=1000"
  // Of TCP: what the connections of one machine have in common, which is its IPv4 address or the
  // first half of its IPv6 address.
  std::string machine;
  uid_t uid = static_cast<uid_t>(-1);  // of a Unix socket, where the system tells it
  gid_t gid = static_cast<gid_t>(-1);
  std::vector<gid_t> groups;  // the user's others, where the system tells them
};

// Takes a connection that waits in the backlog. False: errno is EAGAIN if there is none, or says
// why the system does not give it, as EMFILE does.
bool accept_one(const ListenSocket& socket, Accepted& accepted);

class Listener {
 public:
  using OnAccept = std::function<void(Accepted)>;
  // The argument is the errno that stopped accepting, such as EMFILE.
  using OnShortage = std::function<void(int)>;

  // After this the object is owned by its handle: it frees itself when close() has gone through the
  // loop. Null, with the reason in `error`, if libuv refuses.
  static Listener* open(uv_loop_t* loop, ListenSocket socket, OnAccept on_accept,
                        OnShortage on_shortage, std::string& error);

  void pause();  // leaves newcomers in the backlog
  void resume();
  // Stops listening and removes a Unix socket's file; `on_gone` is called when the handle is gone.
  void close(std::function<void()> on_gone);

  const std::string& endpoint() const { return socket_.endpoint; }
  bool is_control() const { return socket_.is_control; }

 private:
  Listener(ListenSocket socket, OnAccept on_accept, OnShortage on_shortage);
  ~Listener() = default;
  static void on_readable(uv_poll_t* poll, int status, int events);
  void accept_some();

  uv_poll_t poll_;
  ListenSocket socket_;
  OnAccept on_accept_;
  OnShortage on_shortage_;
  std::function<void()> on_gone_;
};

}  // namespace syncd::net
