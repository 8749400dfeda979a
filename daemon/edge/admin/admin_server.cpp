// The admin pages' connections; see the header.
#include "daemon/edge/admin/admin_server.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <unordered_map>
#include <utility>

#include "daemon/edge/admin/metrics.h"
#include "daemon/edge/admin/status_page.h"
#include "daemon/edge/net/listener.h"
#include "daemon/edge/net/loop_guard.h"
#include "proto/base/clock.h"
#include "proto/base/thread.h"

namespace syncd::admin {

struct Shown {
  const Snapshot& snapshot;
  const AdminFigures& figures;
  bool for_administrator;
};
struct Page {
  const char* path;
  bool is_open;  // needs no credential
  HttpAnswer (*make)(const Shown& shown);
};

namespace {

constexpr int kSweepMs = 100;
// For a client to take its answer and close, so that what it still sends does not destroy that.
constexpr std::uint64_t kLingerMs = 1'000;

HttpAnswer text_answer(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text) + "\n"};
}

constexpr Page kPages[] = {
    {"/metrics", false,
     [](const Shown& shown) {
       return HttpAnswer{200, "text/plain; version=0.0.4; charset=utf-8",
                         metrics_text(shown.snapshot, process_figures(), shown.figures)};
     }},
    {"/healthz", true, [](const Shown&) { return text_answer(200, "ok"); }},
    {"/readyz", true,
     [](const Shown& shown) {
       const std::string& not_ready = shown.snapshot.server.not_ready;
       return not_ready.empty() ? text_answer(200, "ready") : text_answer(503, not_ready);
     }},
    {"/status", false,
     [](const Shown& shown) {
       return HttpAnswer{200, "application/json",
                         status_json(shown.snapshot, shown.for_administrator)};
     }},
};

}  // namespace

struct AdminServer::Client {
  enum class State {
    kReading,    // its request
    kWaiting,    // for the daemon's loop
    kWriting,    // the answer, or an alert of TLS
    kLingering,  // until it closes
  };

  void enter(State next, std::uint64_t now_ms) {
    state = next;
    since_ms = now_ms;
  }
  short wanted() const {
    const bool reads = state == State::kReading || state == State::kLingering;
    return static_cast<short>((reads ? POLLIN : 0) | (out.empty() ? 0 : POLLOUT));
  }

  UniqueFd fd;  // none: it is closed
  std::string machine;
  std::unique_ptr<tls::Channel> channel;  // null: plain HTTP
  std::uint64_t begun_ms = 0;
  State state = State::kReading;
  std::uint64_t since_ms = 0;
  std::string head;
  HttpRequest request;
  const Page* page = nullptr;
  bool is_administrator = false;  // found out when it asked
  std::vector<std::uint8_t> out;
};

// ---- the daemon's loop thread
// -------------------------------------------------------------------

AdminServer::AdminServer(std::vector<net::ListenSocket> sockets, AdminSecurity security,
                         MakeSnapshot make, AdminLimits limits)
    : make_(std::move(make)),
      limits_(limits),
      security_(std::move(security)),
      sockets_(std::move(sockets)) {}

AdminServer::~AdminServer() = default;

std::unique_ptr<AdminServer> AdminServer::start(uv_loop_t* loop,
                                                std::vector<net::ListenSocket> sockets,
                                                AdminSecurity security, MakeSnapshot make,
                                                AdminLimits limits, std::string& error) {
  std::unique_ptr<AdminServer> server(
      new AdminServer(std::move(sockets), std::move(security), std::move(make), limits));
  if (server->open(loop, error)) return server;
  // Its handle may be open, and belongs to the loop now: the process is about to end.
  static_cast<void>(server.release());
  return nullptr;
}

bool AdminServer::open(uv_loop_t* loop, std::string& error) {
  wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) {
    error = std::string("cannot make the admin listener's loop: ") + std::strerror(errno);
    return false;
  }
  ask_.data = this;
  uv_async_init(loop, &ask_, net::guarded([](uv_async_t* handle) {
                  static_cast<AdminServer*>(handle->data)->on_asked();
                }));
  if (start_without_signals(
          thread_, [this] { run(); }, error))
    return true;
  error = "cannot start the admin listener's thread: " + error;
  return false;
}

void AdminServer::on_asked() {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }
  std::shared_ptr<const Snapshot> made = make_();
  const std::lock_guard lock(mutex_);
  fresh_ = std::move(made);
  eventfd_write(wake_.get(), 1);
}

void AdminServer::secure(AdminSecurity security) {
  const std::lock_guard lock(mutex_);
  security_ = std::move(security);
}

void AdminServer::stop(std::function<void()> on_stopped) {
  on_stopped_ = std::move(on_stopped);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    eventfd_write(wake_.get(), 1);
  }
  thread_.join();
  uv_close(reinterpret_cast<uv_handle_t*>(&ask_), net::guarded([](uv_handle_t* handle) {
             const auto done = std::move(static_cast<AdminServer*>(handle->data)->on_stopped_);
             done();
           }));
}

// ---- the admin thread
// ---------------------------------------------------------------------------

void AdminServer::run() {
  pthread_setname_np(pthread_self(), "syncd-admin");
  try {
    while (serve_turn()) continue;
  } catch (...) {  // for the daemon's loop, which ends with it
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    uv_async_send(&ask_);
  }
  clients_.clear();
  sockets_.clear();
}

// False: the thread is to end.
bool AdminServer::serve_turn() {
  const bool accepts = now_ms_ >= accept_from_ms_;
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  for (const net::ListenSocket& socket : sockets_) {
    polled.push_back({accepts ? socket.fd.get() : -1, POLLIN, 0});
  }
  for (const Client& client : clients_) polled.push_back({client.fd.get(), client.wanted(), 0});
  // An idle daemon wakes up for nothing.
  poll(polled.data(), polled.size(), accepts && clients_.empty() ? -1 : kSweepMs);
  now_ms_ = static_cast<std::uint64_t>(clock_ns(CLOCK_MONOTONIC)) / 1'000'000;

  auto entry = polled.begin();
  if ((entry++)->revents != 0 && !take_news()) return false;
  const auto first_socket = entry;
  entry += static_cast<std::ptrdiff_t>(sockets_.size());
  for (Client& client : clients_) {
    const int events = (entry++)->revents;
    if (client.fd && (events & POLLIN) != 0) read(client);
    if (client.fd && (events & POLLOUT) != 0) write(client);
    if ((events & (POLLIN | POLLOUT)) == 0 && events != 0) client.fd.reset();  // it has gone
    if (!client.fd) continue;
    check_deadline(client);
  }
  std::erase_if(clients_, [](const Client& client) { return !client.fd; });
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    if (first_socket[static_cast<std::ptrdiff_t>(i)].revents != 0) accept(sockets_[i]);
  }
  return true;
}

bool AdminServer::take_news() {
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
  std::shared_ptr<const Snapshot> made;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    made = std::exchange(fresh_, nullptr);
  }
  if (made == nullptr) return true;
  asked_ = false;
  latest_ = std::move(made);
  latest_ms_ = now_ms_;
  for (Client& client : clients_) {
    if (client.state == Client::State::kWaiting) answer(client);
  }
  return true;
}

void AdminServer::accept(const net::ListenSocket& socket) {
  net::Accepted accepted;
  if (!net::accept_one(socket, accepted)) {
    if (errno != EAGAIN) accept_from_ms_ = now_ms_ + kSweepMs;
    return;
  }
  std::shared_ptr<tls::Context> tls;
  std::uint32_t per_s = 0;
  {
    const std::lock_guard lock(mutex_);
    tls = security_.tls;
    per_s = security_.handshakes_per_machine_per_s;
  }
  if (tls != nullptr && !handshakes_.take(accepted.machine, per_s, now_ms_)) {
    ++figures_.refused;
    return;
  }
  make_room();
  std::unique_ptr<tls::Channel> channel;
  if (tls != nullptr && (channel = tls::Channel::accept(tls)) == nullptr) return;
  Client& client = clients_.emplace_back();
  client.fd = std::move(accepted.fd);
  client.machine = std::move(accepted.machine);
  client.channel = std::move(channel);
  client.begun_ms = now_ms_;
}

// So that a flood from one machine costs those of others nothing.
void AdminServer::make_room() {
  if (clients_.size() < limits_.connections_max) return;
  std::unordered_map<std::string_view, std::size_t> of_machine;
  std::size_t most = 0;
  for (const Client& client : clients_) most = std::max(most, ++of_machine[client.machine]);
  ++figures_.refused;
  clients_.erase(std::ranges::find_if(
      clients_, [&](const Client& client) { return of_machine[client.machine] == most; }));
}

// Whatever it is in, it has taken too long.
void AdminServer::check_deadline(Client& client) {
  if (client.state == Client::State::kLingering) {
    if (now_ms_ >= client.since_ms + kLingerMs) client.fd.reset();
  } else if (client.state == Client::State::kWaiting &&
             now_ms_ >= client.since_ms + limits_.loop_timeout_ms) {
    respond(
        client,
        text_answer(503, "the daemon's loop has not answered within " +
                             format_duration(static_cast<Micros>(limits_.loop_timeout_ms) * 1000)));
  } else if (now_ms_ >= client.begun_ms + limits_.request_timeout_ms) {
    ++figures_.refused;
    client.fd.reset();
  }
}

void AdminServer::read(Client& client) {
  char bytes[2048];
  const ssize_t count = ::read(client.fd.get(), bytes, sizeof bytes);
  if (count < 0 && errno == EAGAIN) return;
  if (count <= 0) {
    client.fd.reset();
  } else if (client.state == Client::State::kReading) {
    take(client, {bytes, static_cast<std::size_t>(count)});
  }
}

void AdminServer::take(Client& client, std::string_view bytes) {
  if (client.channel == nullptr) {
    client.head += bytes;
  } else {
    const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
    std::vector<std::uint8_t> plain;
    const bool good = client.channel->receive({first, bytes.size()}, plain, client.out);
    client.head.append(plain.begin(), plain.end());
    if (!good) {
      ++figures_.refused;
      client.enter(Client::State::kWriting, now_ms_);
    }
    write(client);
    if (!good || !client.fd) return;
  }
  int status = 0;
  std::string why;
  switch (parse_http(client.head, client.request, status, why)) {
    case HttpParse::kMore:
      return;
    case HttpParse::kBad:
      return respond(client, text_answer(status, why));
    case HttpParse::kDone:
      return route(client);
  }
}

void AdminServer::route(Client& client) {
  const HttpRequest& request = client.request;
  client.page = std::ranges::find(kPages, request.path, &Page::path);
  if (client.page == std::end(kPages)) {
    return respond(client,
                   text_answer(404, "the pages are /metrics, /healthz, /readyz and /status"));
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return respond(client, text_answer(405, "these pages are read-only: allowed are GET and HEAD"));
  }
  if (request.has_body) {
    return respond(client, text_answer(413, "a request may not have a body here"));
  }
  HttpAnswer refusal;
  if (!client.page->is_open && !may_read(client, refusal)) return respond(client, refusal);
  if (latest_ != nullptr && now_ms_ < latest_ms_ + limits_.snapshot_age_ms_max) {
    return answer(client);
  }
  client.enter(Client::State::kWaiting, now_ms_);
  if (!std::exchange(asked_, true)) uv_async_send(&ask_);
}

bool AdminServer::may_read(Client& client, HttpAnswer& refusal) {
  std::shared_ptr<const net::Admission> admission;
  bool wants_certificate = false;
  {
    const std::lock_guard lock(mutex_);
    admission = security_.admission;
    wants_certificate = security_.wants_certificate;
  }
  net::Applicant applicant;
  if (client.channel != nullptr) {
    applicant.certificate_names = client.channel->peer_names();
    applicant.certificate_digest = client.channel->peer_digest();
  }
  if (wants_certificate && applicant.certificate_names.empty() &&
      applicant.certificate_digest.empty()) {
    refusal = text_answer(403, "a client certificate is needed (tls.client_ca)");
    return false;
  }
  client.is_administrator = admission == nullptr;
  if (admission == nullptr) return true;
  applicant.token = client.request.bearer;
  net::Identity identity;
  std::string why;
  if (!admission->admit(applicant, identity, why)) {
    refusal = text_answer(401, "a token is needed: Authorization: Bearer TOKEN");
    return false;
  }
  client.is_administrator = admission->is_admin(identity);
  if (admission->may_watch(identity, why)) return true;
  refusal = text_answer(403, why);
  return false;
}

void AdminServer::answer(Client& client) {
  respond(client, client.page->make({*latest_, figures_, client.is_administrator}));
}

void AdminServer::respond(Client& client, const HttpAnswer& answer) {
  ++(answer.status < 400 ? figures_.answered : figures_.refused);
  const std::string text = write_http(answer, client.request.method == "HEAD");
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  if (client.channel == nullptr) {
    client.out.assign(bytes, bytes + text.size());
  } else if (client.channel->send({bytes, text.size()}, client.out)) {
    client.channel->close(client.out);
  } else {
    return client.fd.reset();
  }
  client.enter(Client::State::kWriting, now_ms_);
  write(client);
}

// As much as the socket takes now.
void AdminServer::write(Client& client) {
  const ssize_t count = send(client.fd.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
  if (count < 0 && errno != EAGAIN) return client.fd.reset();
  client.out.erase(client.out.begin(), client.out.begin() + std::max<ssize_t>(count, 0));
  if (!client.out.empty() || client.state != Client::State::kWriting) return;
  client.enter(Client::State::kLingering, now_ms_);
  shutdown(client.fd.get(), SHUT_WR);
}

}  // namespace syncd::admin
