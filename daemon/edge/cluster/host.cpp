// See host.h.
#include "daemon/edge/cluster/host.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "daemon/edge/cluster/administration.h"
#include "daemon/edge/net/loop_guard.h"
#include "proto/base/clock.h"
#include "proto/base/thread.h"

namespace syncd::cluster {
namespace {

struct Kept {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
};
Kept kept;

// In the environment of a program that was started anew.
const std::string kUnfitFor = "_SYNCD_UNFIT_FOR_US=";
const std::string kCannotRead = "_SYNCD_CANNOT_READ=";
constexpr Micros kUnfitMin = 1'000'000;
constexpr Micros kUnfitMax = 60'000'000;

// A number; 0: it is not there.
Micros take_variable(const std::string& name) {
  Micros value = 0;
  std::erase_if(kept.environment, [&](const std::string& item) {
    if (!item.starts_with(name)) return false;
    value = std::clamp<Micros>(std::atoll(item.c_str() + name.size()), 0, kUnfitMax);
    return true;
  });
  return value;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// A process does not end, nor start anew, while one of its threads waits for a disk that hangs. Who
// is connected, or connects, hears at once that it serves no longer. Descriptors stay: other
// threads use them.
void hang_up() {
  std::set<ino_t> standard;  // which may be sockets of the service manager's
  struct stat found {};
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fstat(fd, &found) == 0) standard.insert(found.st_ino);
  }
  std::error_code ignored;
  std::filesystem::directory_iterator open("/proc/self/fd", ignored);
  for (; !ignored && open != std::filesystem::end(open); open.increment(ignored)) {
    const int fd = std::atoi(open->path().filename().c_str());
    if (fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode) && !standard.contains(found.st_ino)) {
      shutdown(fd, SHUT_RDWR);
    }
  }
}

// How clients reach this member: "tls:node-a:7117".
std::vector<std::string> addresses_of(const config::Config& config) {
  const auto& advertised = config.cluster.advertised;
  const bool has_others = std::ranges::any_of(
      config.tcp, [](const net::TcpAddress& address) { return !address.is_loopback(); });
  std::vector<std::string> addresses;
  for (net::TcpAddress address : advertised.empty() ? config.tcp : advertised) {
    if (address.is_wildcard()) address.host = this_host();
    // Which leads others to themselves.
    if (address.is_loopback() && has_others) continue;
    addresses.push_back((config.has_tls() ? "tls:" : "tcp:") + address.text());
  }
  return addresses;
}

}  // namespace

void keep_command_line(char** argv, char** environment) {
  // After a start by /proc/self/exe the process is called "exe".
  pthread_setname_np(pthread_self(), program_invocation_short_name);
  for (; *argv != nullptr; ++argv) kept.arguments.emplace_back(*argv);
  for (; *environment != nullptr; ++environment) kept.environment.emplace_back(*environment);
}

Host::Host(const config::Config& config, Options options)
    : config_(config), options_(std::move(options)) {}

Host::~Host() = default;

bool Host::follow(uv_loop_t* loop, OnEnd on_end, std::string& error) {
  EtcdOptions etcd;
  if (!etcd_options(config_, etcd, error)) return false;
  etcd_ = open_etcd(etcd, error);
  if (etcd_ == nullptr) return false;
  MembershipOptions member;
  member.cluster = config_.cluster.name;
  member.member = config_.cluster.member_name();
  member.version = options_.version;
  member.shard = config_.cluster.shard;
  member.addresses = addresses_of(config_);
  member.is_hidden = config_.cluster.advertised.empty() &&
                     std::ranges::any_of(config_.tcp, &net::TcpAddress::is_wildcard);
  member.port_gap = port_gap(config_);
  member.lease = config_.cluster.lease_us;
  member.old_etcd = config_.cluster.old_etcd;
  member.etcd_quota_bytes = config_.cluster.etcd_quota_bytes;
  member.auth_hash = auth_hash(config_);
  member.store = options_.store;
  member.log = options_.log;
  member.unfit_for = unfit_for_ = take_variable(kUnfitFor);
  member.cannot_read = cannot_read_ = take_variable(kCannotRead) != 0;
  member.has_new_access = [config = config_, known = etcd_access(config_)] {
    const std::string now = etcd_access(config);
    return !now.empty() && now != known;
  };
  member.on_deposed = [this](const std::string& reason, bool is_unfit) {
    restart(reason, is_unfit);
  };
  membership_ = std::make_unique<Membership>(std::move(member), *etcd_);
  loop_ = loop;
  on_end_ = std::move(on_end);
  ended_.data = this;
  uv_async_init(loop, &ended_, net::guarded([](uv_async_t* handle) {
                  static_cast<Host*>(handle->data)->on_end();
                }));
  if (start_without_signals(
          thread_, [this] { run(); }, error)) {
    return true;
  }
  uv_close(reinterpret_cast<uv_handle_t*>(&ended_), nullptr);
  error = "cannot start the thread that follows: " + error;
  return false;
}

void Host::reloaded(const config::Config& config) {
  membership_->set_auth_hash(auth_hash(config));
}

// The thread that follows.
void Host::run() {
  pthread_setname_np(pthread_self(), "syncd-follow");
  try {
    membership_->follow([this] { return is_stopping_.load(); }, store_, error_);
    if (is_stopping_) store_.reset();
    if (store_ == nullptr) membership_->leave();
  } catch (...) {
    failure_ = std::current_exception();
  }
  uv_async_send(&ended_);
}

void Host::on_end() {
  thread_.join();
  uv_close(reinterpret_cast<uv_handle_t*>(&ended_), nullptr);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  on_end_(std::move(store_), error_);
}

bool Host::watch(std::string& error) {
  attended_.data = this;
  uv_async_init(loop_, &attended_, net::guarded([](uv_async_t* handle) {
                  static_cast<Host*>(handle->data)->on_attended();
                }));
  uv_timer_init(loop_, &timer_);
  timer_.data = this;
  is_watched_ = true;
  watched_at_ns_ = clock_ns(CLOCK_MONOTONIC);
  membership_->hold_lease(false);
  const auto every_ms =
      static_cast<std::uint64_t>(std::max<Micros>(config_.cluster.lease_us / 20'000, 1));
  uv_timer_start(&timer_,
                 net::guarded([](uv_timer_t* timer) { static_cast<Host*>(timer->data)->check(); }),
                 every_ms, every_ms);
  if (start_without_signals(
          attending_, [this] { attend(); }, error)) {
    return true;
  }
  error = "cannot start the thread that watches the cluster: " + error;
  return false;
}

// The thread that attends.
void Host::attend() {
  pthread_setname_np(pthread_self(), "syncd-attend");
  try {
    successor_ = membership_->attend([this] { return is_leaving_ || is_stopping_; },
                                     [this] { return is_going_.load(); });
  } catch (...) {
    failure_ = std::current_exception();
  }
  if (!is_leaving_) uv_async_send(&attended_);
}

void Host::on_attended() {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (!successor_.empty() || is_going_) options_.on_hand_over(successor_);
}

void Host::close() {
  if (!is_watched_) return;
  is_watched_ = false;
  // The thread may not wake a loop that it is no longer in.
  is_leaving_ = true;
  if (attending_.joinable()) attending_.join();
  uv_close(reinterpret_cast<uv_handle_t*>(&timer_), nullptr);
  uv_close(reinterpret_cast<uv_handle_t*>(&attended_), nullptr);
}

void Host::leave() {
  is_leaving_ = true;
  if (attending_.joinable()) attending_.join();
  if (membership_ != nullptr) membership_->leave(successor_);
}

void Host::follow_again() {
  // The loop, which takes these signals, does not turn any more.
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
  membership_->leave(successor_);
  options_.on_restart();
  start_anew();
}

// How long the program, started anew, leaves leading to others: twice as long each time.
Micros Host::unfit_for(bool is_unfit) const {
  if (!is_unfit) return 0;
  const std::int64_t since = watched_at_ns_;
  const bool led = since != 0 && (clock_ns(CLOCK_MONOTONIC) - since) / 1000 > kUnfitMax;
  const Micros again = led ? 0 : 2 * unfit_for_;
  return std::clamp(again, kUnfitMin, kUnfitMax);
}

void Host::cannot_read(const std::string& why) {
  if (cannot_read_) return;
  kept.environment.push_back(kCannotRead + "1");
  restart("it cannot read a job: " + why, true);
}

void Host::restart(const std::string& reason, bool is_unfit) {
  static std::mutex once;  // several threads may notice it
  const std::lock_guard lock(once);
  if (is_stopping_ || is_going_) {
    options_.log(
        {LogLevel::kWarn, "deposed", {{"cluster", config_.cluster.name}, {"reason", reason}}});
    options_.on_restart();
    hang_up();
    _exit(exit_code_);  // all that was acknowledged is in etcd
  }
  options_.log({LogLevel::kWarn,
                "deposed",
                {{"cluster", config_.cluster.name},
                 {"reason", reason},
                 {"hint", "the program starts anew and follows"}}});
  options_.on_restart();
  if (const Micros time = unfit_for(is_unfit); time > 0) {
    kept.environment.push_back(kUnfitFor + std::to_string(time));
  }
  start_anew();
}

void Host::start_anew() {
  hang_up();
  std::signal(SIGHUP, SIG_IGN);  // which would end the program until it takes signals
  // The program inherits the mask of the thread that starts it.
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  execve("/proc/self/exe", pointers(kept.arguments).data(), pointers(kept.environment).data());
  options_.log({LogLevel::kError, "restart_failed", {{"errno", std::to_string(errno)}}});
  _exit(1);  // the service manager starts another one
}

}  // namespace syncd::cluster
