// Read-only HTTP beside the daemon: /metrics, /healthz, /readyz and /status. It has a thread of its
// own, which polls few connections and needs no event loop, so that nothing a client of it does can
// hold up the daemon, whose loop only copies a Snapshot when one is asked for. Every connection
// serves one request, has a deadline as a whole, however slowly its bytes drip, and makes room for
// newer ones when there are too many: the oldest one of the machine that has the most.
//
// The constructor, stop() and secure() belong to the daemon's loop thread.
#pragma once

#include <uv.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "daemon/edge/admin/http.h"
#include "daemon/edge/admin/snapshot.h"
#include "daemon/edge/net/admission.h"
#include "daemon/edge/net/handshake_budget.h"
#include "daemon/edge/net/listen_socket.h"
#include "proto/base/file.h"
#include "proto/transport/tls.h"

namespace syncd::admin {

struct AdminLimits {
  std::size_t connections_max = 64;
  std::uint64_t request_timeout_ms = 5'000;  // from its being accepted to its answer's being taken
  std::uint64_t loop_timeout_ms = 2'000;     // for the daemon's loop to answer
  std::uint64_t snapshot_age_ms_max =
      20;  // one so young is shown again: a flood costs the loop little
};

// Who may read, and over what.
struct AdminSecurity {
  std::shared_ptr<tls::Context> tls;                // null: plain HTTP
  std::shared_ptr<const net::Admission> admission;  // null: everybody may
  // For /metrics and /status, whatever else is shown: `tls` itself asks for one, but takes
  // connections without.
  bool wants_certificate = false;
  // TLS handshakes that one machine may begin; 0: there is no limit.
  std::uint32_t handshakes_per_machine_per_s = 0;
};

class AdminServer {
 public:
  // Called on the daemon's loop thread.
  using MakeSnapshot = std::function<std::shared_ptr<const Snapshot>()>;

  // Serves `sockets` at once. `loop` is the daemon's, which must run (or have ended) whenever
  // stop() is called, and must outlive this. Null, with a sentence in `error`: the thread cannot be
  // made.
  static std::unique_ptr<AdminServer> start(uv_loop_t* loop, std::vector<net::ListenSocket> sockets,
                                            AdminSecurity security, MakeSnapshot make,
                                            AdminLimits limits, std::string& error);
  ~AdminServer();  // precondition: stop() was called
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  // For connections from now on.
  void secure(AdminSecurity security);
  // Closes all connections and ends the thread; the object may be destroyed once the loop
  // has closed the handle, after which it calls back.
  void stop(std::function<void()> on_stopped);

 private:
  struct Client;
  AdminServer(std::vector<net::ListenSocket> sockets, AdminSecurity security, MakeSnapshot make,
              AdminLimits limits);

  bool open(uv_loop_t* loop, std::string& error);
  void on_asked();

  // Called on the admin thread.
  void run();
  bool serve_turn();
  bool take_news();
  void accept(const net::ListenSocket& socket);
  void make_room();
  void check_deadline(Client& client);
  void read(Client& client);
  void take(Client& client, std::string_view bytes);
  void route(Client& client);
  bool may_read(Client& client, HttpAnswer& refusal);
  void answer(Client& client);
  void respond(Client& client, const HttpAnswer& answer);
  void write(Client& client);

  const MakeSnapshot make_;
  const AdminLimits limits_;

  // ---- the daemon's loop thread
  uv_async_t ask_{};
  std::function<void()> on_stopped_;

  // ---- any thread, guarded
  std::mutex mutex_;
  std::shared_ptr<const Snapshot> fresh_;
  AdminSecurity security_;
  bool stopping_ = false;
  std::exception_ptr failure_;  // what has ended the admin thread

  // ---- the admin thread
  std::thread thread_;
  UniqueFd wake_;  // eventfd
  std::vector<net::ListenSocket> sockets_;
  std::uint64_t accept_from_ms_ = 0;  // out of descriptors: who connects waits in the backlog
  std::list<Client> clients_;         // by age
  std::uint64_t now_ms_ = 0;
  net::HandshakeBudget handshakes_;
  bool asked_ = false;
  std::shared_ptr<const Snapshot> latest_;
  std::uint64_t latest_ms_ = 0;
  AdminFigures figures_;
};

}  // namespace syncd::admin
