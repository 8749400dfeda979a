// See host.h.
#include "daemon/edge/cluster/host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <utility>

#include "daemon/edge/cluster/administration.h"
#include "daemon/edge/net/loop_guard.h"

namespace syncd::cluster {
namespace {

struct Kept {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
};
Kept kept;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// Signals that came while no loop took them.
volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t hangups = 0;

void on_signal(int number) {
  if (number == SIGHUP) {
    hangups = 1;
  } else {
    stop_signal = number;
  }
}

}  // namespace

void keep_command_line(char** argv, char** environment) {
  for (; *argv != nullptr; ++argv) kept.arguments.emplace_back(*argv);
  for (; *environment != nullptr; ++environment) kept.environment.emplace_back(*environment);
}

Host::Host(const config::Config& config, Options options)
    : config_(config), options_(std::move(options)) {}

Host::~Host() = default;

std::unique_ptr<store::Store> Host::lead(std::string& error) {
  EtcdOptions etcd;
  if (!etcd_options(config_, etcd, error)) return nullptr;
  etcd_ = open_etcd(etcd, error);
  if (etcd_ == nullptr) return nullptr;
  MembershipOptions member;
  member.cluster = config_.cluster.name;
  member.member = config_.cluster.member_name();
  member.version = options_.version;
  for (const net::TcpAddress& address : config_.tcp) member.addresses.push_back(address.text());
  member.lease = config_.cluster.lease_us;
  member.old_etcd = config_.cluster.old_etcd;
  member.store = options_.store;
  member.log = options_.log;
  member.on_deposed = [this](const std::string& reason) { restart(reason); };
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaction(number, &action, nullptr);
  const std::string status = fmt::format("follows in cluster '{}', as member '{}'",
                                         config_.cluster.name, config_.cluster.member_name());
  const auto wait = [this, status] {
    options_.on_waiting(status);
    if (hangups == 0) return;
    hangups = 0;
    hung_up_ = true;
    options_.on_hangup();
  };
  member.progress = wait;
  membership_ = std::make_unique<Membership>(std::move(member), *etcd_);
  std::unique_ptr<store::Store> store;
  const auto is_stopped = [&] {
    wait();
    return stop_signal != 0;
  };
  const Membership::Outcome outcome = membership_->follow(is_stopped, store, error);
  if (stop_signal != 0) store.reset();
  if (store == nullptr) membership_->leave();
  if (stop_signal != 0 && outcome != Membership::Outcome::kFailed) error.clear();
  return store;
}

void Host::raise_signals() {
  if (hung_up_ || hangups != 0) raise(SIGHUP);
  if (stop_signal != 0) raise(stop_signal);
}

void Host::watch(uv_loop_t* loop) {
  uv_timer_init(loop, &timer_);
  timer_.data = this;
  is_open_ = true;
  membership_->hold_lease(false);
  const auto every_ms =
      static_cast<std::uint64_t>(std::max<Micros>(config_.cluster.lease_us / 20'000, 1));
  uv_timer_start(&timer_,
                 net::guarded([](uv_timer_t* timer) { static_cast<Host*>(timer->data)->check(); }),
                 every_ms, every_ms);
}

void Host::close() {
  if (is_open_) uv_close(reinterpret_cast<uv_handle_t*>(&timer_), nullptr);
  is_open_ = false;
}

void Host::restart(const std::string& reason) {
  static std::mutex once;  // several threads may notice it
  const std::lock_guard lock(once);
  if (is_stopping_) {
    options_.log(
        {LogLevel::kWarn, "deposed", {{"cluster", config_.cluster.name}, {"reason", reason}}});
    options_.on_restart();
    _exit(0);  // all that was acknowledged is in etcd
  }
  options_.log({LogLevel::kWarn,
                "deposed",
                {{"cluster", config_.cluster.name},
                 {"reason", reason},
                 {"hint", "the program starts anew and follows"}}});
  options_.on_restart();
  execve("/proc/self/exe", pointers(kept.arguments).data(), pointers(kept.environment).data());
  options_.log({LogLevel::kError, "restart_failed", {{"errno", std::to_string(errno)}}});
  _exit(1);  // the service manager starts another one
}

}  // namespace syncd::cluster
