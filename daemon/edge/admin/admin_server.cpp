// The admin pages' connections; see the header. All but the constructor, stop() and secure() runs
// on the admin thread; ask_'s callback runs on the daemon's loop thread.
#include "daemon/edge/admin/admin_server.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "daemon/edge/admin/metrics.h"
#include "daemon/edge/admin/status_page.h"
#include "daemon/edge/net/loop_guard.h"

namespace syncd::admin {
namespace {

constexpr std::uint64_t kSweepMs = 100;
// For a client to take its answer and close, so that what it still sends does not destroy that.
constexpr std::uint64_t kLingerMs = 1'000;

enum class Page { kNone, kMetrics, kHealth, kReady, kStatus };
Page page_of(const std::string& path) {
  if (path == "/metrics") return Page::kMetrics;
  if (path == "/healthz") return Page::kHealth;
  if (path == "/readyz") return Page::kReady;
  if (path == "/status") return Page::kStatus;
  return Page::kNone;
}
bool is_open(Page page) {
  return page == Page::kHealth || page == Page::kReady;
}

HttpAnswer text_answer(int status, std::string text) {
  return {status, "text/plain; charset=utf-8", std::move(text) + "\n"};
}

}  // namespace

// One connection. Owned by its handle: freed in its close callback.
class AdminServer::Client {
 public:
  enum class State { kReading, kWaiting, kWriting, kLingering, kClosed };

  Client(AdminServer& server, std::string machine, std::unique_ptr<tls::Channel> channel)
      : server_(server), machine_(std::move(machine)), channel_(std::move(channel)) {
    begun_ms_ = uv_now(&server_.own_loop_);
  }

  // False: it was not opened, and is gone.
  static bool open(AdminServer& server, net::Accepted accepted,
                   std::unique_ptr<tls::Channel> channel) {
    auto* client = new Client(server, std::move(accepted.machine), std::move(channel));
    uv_tcp_init(&server.own_loop_, &client->handle_);
    client->handle_.data = client;
    server.clients_.push_back(client);
    const int fd = accepted.fd.get();
    if (uv_tcp_open(&client->handle_, fd) != 0) {
      client->close();
      return false;
    }
    accepted.fd.release();
    if (uv_read_start(client->stream(), on_allocate, on_read) == 0) return true;
    client->close();
    return false;
  }

  bool is_administrator = false;  // found out when it asked

  State state() const { return state_; }
  const std::string& machine() const { return machine_; }
  const HttpRequest& request() const { return request_; }
  std::vector<std::string> certificate_names() const {
    return channel_ ? channel_->peer_names() : std::vector<std::string>{};
  }
  std::string certificate_digest() const {
    return channel_ ? channel_->peer_digest() : std::string{};
  }
  void wait() {
    state_ = State::kWaiting;
    waiting_ms_ = uv_now(&server_.own_loop_);
  }

  void respond(const HttpAnswer& answer) {
    if (answer.status < 400) {
      ++server_.figures_.answered;
    } else {
      ++server_.figures_.refused;
    }
    const std::string text = write_http(answer, request_.method == "HEAD");
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    if (channel_ != nullptr) {
      if (!channel_->send({bytes, text.size()}, out_)) return close();
      channel_->close(out_);
    } else {
      out_.insert(out_.end(), bytes, bytes + text.size());
    }
    state_ = State::kWriting;
    last_ = true;
    flush();
  }

  // Whatever it is in, it has taken too long.
  void check_deadline(std::uint64_t now_ms) {
    const AdminLimits& limits = server_.limits_;
    if (state_ == State::kClosed) return;
    if (state_ == State::kLingering) {
      if (now_ms >= linger_ms_ + kLingerMs) close();
    } else if (state_ == State::kWaiting && now_ms >= waiting_ms_ + limits.loop_timeout_ms) {
      respond(text_answer(503,
                          "the daemon's loop has not answered within " +
                              format_duration(static_cast<Micros>(limits.loop_timeout_ms) * 1000)));
    } else if (now_ms >= begun_ms_ + limits.request_timeout_ms) {
      ++server_.figures_.refused;
      close();
    }
  }

  void close() {
    if (state_ == State::kClosed) return;
    state_ = State::kClosed;
    uv_close(reinterpret_cast<uv_handle_t*>(&handle_), net::guarded([](uv_handle_t* handle) {
               auto* self = static_cast<Client*>(handle->data);
               self->server_.forget(*self);
               delete self;
             }));
  }

 private:
  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(&handle_); }

  static void on_allocate(uv_handle_t* handle, size_t, uv_buf_t* buffer) {
    auto* self = static_cast<Client*>(handle->data);
    *buffer = uv_buf_init(self->read_buffer_, sizeof self->read_buffer_);
  }
  static void on_read(uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
    net::run_guarded(stream->loop,
                     [&] { static_cast<Client*>(stream->data)->take_read(count, buffer->base); });
  }
  void take_read(ssize_t count, const char* base) {
    if (count == 0 || state_ == State::kClosed) return;
    if (count < 0) {
      // A client may close its sending side once it has asked.
      if (count == UV_EOF && (state_ == State::kWaiting || state_ == State::kWriting)) return;
      return close();
    }
    if (state_ != State::kReading) return;  // nothing more of it is wanted
    take({reinterpret_cast<const std::uint8_t*>(base), static_cast<std::size_t>(count)});
  }

  void take(std::span<const std::uint8_t> bytes) {
    if (channel_ == nullptr) {
      head_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } else {
      std::vector<std::uint8_t> plain;
      const bool good = channel_->receive(bytes, plain, out_);
      head_.append(reinterpret_cast<const char*>(plain.data()), plain.size());
      if (!good) {
        ++server_.figures_.refused;
        last_ = true;  // an alert, if there is one
        state_ = State::kWriting;
        flush();
        return;
      }
      flush();
      if (state_ == State::kClosed) return;
    }
    int status = 0;
    std::string why;
    switch (parse_http(head_, request_, status, why)) {
      case HttpParse::kMore:
        return;
      case HttpParse::kBad:
        return respond(text_answer(status, why));
      case HttpParse::kDone:
        head_.clear();
        return route();
    }
  }

  void route() {
    const Page page = page_of(request_.path);
    if (page == Page::kNone) {
      return respond(text_answer(404, "the pages are /metrics, /healthz, /readyz and /status"));
    }
    if (request_.method != "GET" && request_.method != "HEAD") {
      return respond(text_answer(405, "these pages are read-only: allowed are GET and HEAD"));
    }
    if (request_.has_body) return respond(text_answer(413, "a request may not have a body here"));
    HttpAnswer refusal;
    if (!is_open(page) && !server_.may_read(*this, refusal)) return respond(refusal);
    server_.want_snapshot(*this);
  }

  void flush() {
    if (writing_.empty() && !out_.empty()) {
      writing_.swap(out_);
      uv_buf_t buffer = uv_buf_init(reinterpret_cast<char*>(writing_.data()),
                                    static_cast<unsigned>(writing_.size()));
      write_.data = this;
      const auto on_written = net::guarded([](uv_write_t* request, int status) {
        auto* self = static_cast<Client*>(request->data);
        self->writing_.clear();
        if (self->state_ == State::kClosed) return;
        if (status != 0) return self->close();
        self->flush();
      });
      const int code = uv_write(&write_, stream(), &buffer, 1, on_written);
      if (code != 0) close();
      return;
    }
    if (!writing_.empty() || !last_ || state_ != State::kWriting) return;
    state_ = State::kLingering;
    linger_ms_ = uv_now(&server_.own_loop_);
    shutdown_.data = this;
    const int code = uv_shutdown(&shutdown_, stream(), [](uv_shutdown_t*, int) {});
    if (code != 0) close();
  }

  AdminServer& server_;
  const std::string machine_;
  std::unique_ptr<tls::Channel> channel_;
  State state_ = State::kReading;
  uv_tcp_t handle_{};
  uv_write_t write_{};
  uv_shutdown_t shutdown_{};
  char read_buffer_[2048];
  std::string head_;
  HttpRequest request_;
  std::vector<std::uint8_t> out_;
  std::vector<std::uint8_t> writing_;  // libuv's until it has called back
  bool last_ = false;
  std::uint64_t begun_ms_ = 0;
  std::uint64_t waiting_ms_ = 0;
  std::uint64_t linger_ms_ = 0;
};

// ---- the daemon's loop thread
// -------------------------------------------------------------------

std::unique_ptr<AdminServer> AdminServer::start(uv_loop_t* loop,
                                                std::vector<net::ListenSocket> sockets,
                                                AdminSecurity security, MakeSnapshot make,
                                                AdminLimits limits, std::string& error) {
  std::unique_ptr<AdminServer> server(new AdminServer(std::move(make), limits));
  server->security_ = std::move(security);
  if (server->open(loop, std::move(sockets), error)) return server;
  // Its handles may be open, and belong to the loops now: the process is about to end.
  static_cast<void>(server.release());
  return nullptr;
}

bool AdminServer::open(uv_loop_t* loop, std::vector<net::ListenSocket> sockets,
                       std::string& error) {
  int code = uv_loop_init(&own_loop_);
  if (code != 0) {
    error = std::string("cannot make the admin listener's loop: ") + uv_strerror(code);
    return false;
  }
  wake_.data = sweep_.data = ask_.data = this;
  uv_async_init(&own_loop_, &wake_, net::guarded([](uv_async_t* handle) {
    static_cast<AdminServer*>(handle->data)->on_wake();
  }));
  uv_timer_init(&own_loop_, &sweep_);
  for (net::ListenSocket& socket : sockets) {
    // Out of descriptors: whoever asks waits in the backlog until the sweep listens again.
    net::Listener* listener = net::Listener::open(
        &own_loop_, std::move(socket),
        [this](net::Accepted accepted) { on_accept(std::move(accepted)); },
        [this](int) {
          for (net::Listener* one : listeners_) one->pause();
          arm_sweep();
        },
        error);
    if (listener != nullptr) listeners_.push_back(listener);
  }
  if (listeners_.empty()) return false;
  uv_async_init(loop, &ask_, net::guarded([](uv_async_t* handle) {
                  auto* self = static_cast<AdminServer*>(handle->data);
                  {
                    const std::lock_guard lock(self->mutex_);
                    if (self->failure_ != nullptr) std::rethrow_exception(self->failure_);
                  }
                  std::shared_ptr<const Snapshot> made = self->make_();
                  const std::lock_guard lock(self->mutex_);
                  self->fresh_ = std::move(made);
                  self->delivered_ = true;
                  uv_async_send(&self->wake_);
                }));
  // Signals are for the daemon's loop.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool good = true;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& failure) {
    error = std::string("cannot start the admin listener's thread: ") + failure.what();
    good = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return good;
}

AdminServer::~AdminServer() = default;

void AdminServer::secure(AdminSecurity security) {
  const std::lock_guard lock(mutex_);
  security_ = std::move(security);
}

void AdminServer::stop(std::function<void()> on_stopped) {
  on_stopped_ = std::move(on_stopped);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    uv_async_send(&wake_);
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
    net::run_loop(&own_loop_);
    uv_loop_close(&own_loop_);
  } catch (...) {  // for the daemon's loop, which ends with it
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    uv_async_send(&ask_);
  }
}

void AdminServer::on_wake() {
  bool stopping = false;
  std::shared_ptr<const Snapshot> made;
  {
    const std::lock_guard lock(mutex_);
    stopping = stopping_;
    if (std::exchange(delivered_, false)) made = std::move(fresh_);
  }
  if (stopping) {
    close_all();
    return;
  }
  if (made == nullptr) return;
  asked_ = false;
  latest_ = std::move(made);
  latest_ms_ = uv_now(&own_loop_);
  for (Client* client : std::vector<Client*>(clients_)) {
    if (client->state() == Client::State::kWaiting) answer(*client, *latest_);
  }
}

void AdminServer::close_all() {
  for (net::Listener* listener : std::exchange(listeners_, {})) listener->close({});
  for (Client* client : std::vector<Client*>(clients_)) client->close();
  uv_timer_stop(&sweep_);
  if (uv_is_closing(reinterpret_cast<uv_handle_t*>(&wake_)) == 0) {
    uv_close(reinterpret_cast<uv_handle_t*>(&wake_), nullptr);
    uv_close(reinterpret_cast<uv_handle_t*>(&sweep_), nullptr);
  }
}

void AdminServer::on_accept(net::Accepted accepted) {
  std::shared_ptr<tls::Context> tls;
  std::uint32_t per_s = 0;
  {
    const std::lock_guard lock(mutex_);
    tls = security_.tls;
    per_s = security_.handshakes_per_machine_per_s;
  }
  if (tls != nullptr && !handshakes_.take(accepted.machine, per_s, uv_now(&own_loop_))) {
    ++figures_.refused;
    return;
  }
  make_room();
  std::unique_ptr<tls::Channel> channel;
  if (tls != nullptr && (channel = tls::Channel::accept(tls)) == nullptr) return;
  Client::open(*this, std::move(accepted), std::move(channel));
  arm_sweep();
}

// So that a flood from one machine costs those of others nothing.
void AdminServer::make_room() {
  std::unordered_map<std::string_view, std::size_t> of_machine;
  std::size_t open = 0;
  std::size_t most = 0;
  for (const Client* client : clients_) {
    if (client->state() == Client::State::kClosed) continue;
    ++open;
    most = std::max(most, ++of_machine[client->machine()]);
  }
  if (open < limits_.connections_max) return;
  const auto oldest = std::find_if(clients_.begin(), clients_.end(), [&](const Client* one) {
    return one->state() != Client::State::kClosed && of_machine[one->machine()] == most;
  });
  ++figures_.refused;
  (*oldest)->close();
}

void AdminServer::arm_sweep() {
  if (uv_is_active(reinterpret_cast<uv_handle_t*>(&sweep_)) != 0) return;
  uv_timer_start(&sweep_, net::guarded([](uv_timer_t* timer) {
    static_cast<AdminServer*>(timer->data)->on_sweep();
  }),
                 kSweepMs, kSweepMs);
}

void AdminServer::on_sweep() {
  const std::uint64_t now_ms = uv_now(&own_loop_);
  for (Client* client : std::vector<Client*>(clients_)) client->check_deadline(now_ms);
  for (net::Listener* listener : listeners_) listener->resume();
  // An idle daemon wakes up for nothing.
  if (clients_.empty()) uv_timer_stop(&sweep_);
}

void AdminServer::want_snapshot(Client& client) {
  const std::uint64_t now_ms = uv_now(&own_loop_);
  if (latest_ != nullptr && now_ms < latest_ms_ + limits_.snapshot_age_ms_max) {
    answer(client, *latest_);
    return;
  }
  client.wait();
  if (std::exchange(asked_, true)) return;
  uv_async_send(&ask_);
}

void AdminServer::answer(Client& client, const Snapshot& snapshot) {
  switch (page_of(client.request().path)) {
    case Page::kMetrics:
      client.respond({200, "text/plain; version=0.0.4; charset=utf-8",
                      metrics_text(snapshot, process_figures(), figures_)});
      return;
    case Page::kStatus:
      client.respond({200, "application/json", status_json(snapshot, client.is_administrator)});
      return;
    case Page::kReady:
      client.respond(snapshot.server.not_ready.empty()
                         ? text_answer(200, "ready")
                         : text_answer(503, snapshot.server.not_ready));
      return;
    case Page::kHealth:
    case Page::kNone:
      client.respond(text_answer(200, "ok"));
      return;
  }
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
  applicant.certificate_names = client.certificate_names();
  applicant.certificate_digest = client.certificate_digest();
  if (wants_certificate && applicant.certificate_names.empty() &&
      applicant.certificate_digest.empty()) {
    refusal = text_answer(403, "a client certificate is needed (tls.client_ca)");
    return false;
  }
  client.is_administrator = admission == nullptr;
  if (admission == nullptr) return true;
  applicant.token = client.request().bearer;
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

void AdminServer::forget(Client& client) {
  std::erase(clients_, &client);
}

}  // namespace syncd::admin
