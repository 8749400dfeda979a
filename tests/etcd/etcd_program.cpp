// See etcd_program.h.
#include "etcd_program.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "proto/base/environment.h"
#include "proto/base/text.h"

namespace syncd::test {

std::string find_program(const std::string& name) {
  const std::string path = environment("PATH");
  for (const std::string_view folder : split(path, ':')) {
    const std::string file = std::string(folder) + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

// ---- ports

FreePorts::FreePorts(int count) {
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockets_.push_back(fd);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("no port is free");
    }
    ports_.push_back(ntohs(address.sin_port));
  }
}

void FreePorts::release() {
  for (const int fd : sockets_) close(fd);
  sockets_.clear();
}

void FreePorts::listen(int index) const {
  if (::listen(sockets_.at(static_cast<std::size_t>(index)), 16) != 0) {
    throw std::runtime_error("cannot listen");
  }
}

// ---- servers

EtcdServers::EtcdServers(Setup setup) : setup_(std::move(setup)) {
  setup_.options.silence = kTimeout;
  // Another process may take a port between its choice and etcd's start.
  for (attempt_ = 0; attempt_ < 5; ++attempt_) {
    if (try_start()) return;
  }
  throw std::runtime_error("etcd does not start: " + log());
}

bool EtcdServers::try_start() {
  FreePorts ports(2 * setup_.members);
  setup_.options.endpoints.clear();
  peers_.clear();
  processes_.clear();
  for (int i = 0; i < setup_.members; ++i) {
    setup_.options.endpoints.push_back((setup_.tls ? "https://127.0.0.1:" : "http://127.0.0.1:") +
                                       std::to_string(ports.at(2 * i)));
    peers_.push_back("http://127.0.0.1:" + std::to_string(ports.at(2 * i + 1)));
  }
  ports.release();
  for (int i = 0; i < setup_.members; ++i) processes_.emplace_back(command(i));
  return wait_for_all();
}

Command EtcdServers::command(int member) const {
  std::string all;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    all += (i == 0 ? "" : ",") + ("m" + std::to_string(i)) + "=" + peers_[i];
  }
  const std::string name = "m" + std::to_string(member);
  const std::string& client = endpoint(member);
  const std::string& peer = peers_.at(static_cast<std::size_t>(member));
  // One member alone elects itself in half a second, and its leases may be as short as one. Several
  // have the time that etcd gives them, which a busy machine needs.
  const int scale = setup_.members == 1 ? 1 : 2;
  Command command;
  command.argv = {find_program("etcd"),
                  "--name",
                  name,
                  "--data-dir",
                  directory_.file(name + "." + std::to_string(attempt_)),
                  "--listen-client-urls",
                  client,
                  "--advertise-client-urls",
                  client,
                  "--listen-peer-urls",
                  peer,
                  "--initial-advertise-peer-urls",
                  peer,
                  "--initial-cluster",
                  all,
                  "--heartbeat-interval",
                  std::to_string(50 * scale),
                  "--election-timeout",
                  std::to_string(500 * scale)};
  command.argv.insert(command.argv.end(), setup_.flags.begin(), setup_.flags.end());
  command.stdout_path = log_path(member);
  return command;
}

bool EtcdServers::wait_for_all() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    cluster::EtcdOptions options = setup_.options;
    options.endpoints = {setup_.options.endpoints[i]};
    const auto etcd = open_client(options);
    bool ended = false;
    wait_until("etcd to answer", [&] {
      const cluster::Answer answer = etcd->transact(just({get("ready")}), 0, kSeconds);
      ended = !processes_[i].running();
      return ended || answer.kind == cluster::Answer::Kind::kThen ||
             answer.error.find("user name is empty") != std::string::npos;
    });
    if (ended) return false;
  }
  return true;
}

void EtcdServers::stop(int member) {
  process(member).signal(SIGSTOP);
  const std::string tasks = "/proc/" + std::to_string(process(member).pid()) + "/task";
  wait_until("etcd to be stopped", [&] {
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      const std::string stat = read_file(task.path() / "stat");
      const std::size_t name_end = stat.rfind(") ");
      if (name_end == std::string::npos || stat[name_end + 2] != 'T') return false;
    }
    return true;
  });
}

void EtcdServers::start_again(int member) {
  processes_.at(static_cast<std::size_t>(member)) = Process(command(member));
  if (!wait_for_all()) throw std::runtime_error("etcd does not start again: " + log(member));
}

void EtcdServers::etcdctl(const std::vector<std::string>& words, const std::string& user) {
  std::vector<std::string> argv{
      find_program("etcdctl"), "--endpoints", endpoint(), "--dial-timeout", "50s",
      "--command-timeout",     "50s"};
  if (!user.empty()) argv.insert(argv.end(), {"--user", user});
  argv.insert(argv.end(), words.begin(), words.end());
  const RunResult result = run(argv, directory_.path(), {{"ETCDCTL_API", "3"}});
  if (result.ending != exited(0)) {
    throw std::runtime_error("etcdctl " + words.front() + " failed: " + result.out + result.err);
  }
}

std::unique_ptr<cluster::Etcd> open_client(const cluster::EtcdOptions& options) {
  std::string error;
  auto etcd = cluster::open_etcd(options, error);
  if (etcd == nullptr) throw std::runtime_error(error);
  return etcd;
}

// ---- transactions

std::string text(const cluster::Answer& answer) {
  std::string out;
  for (const cluster::KeyValue& item : answer.got) {
    out += (out.empty() ? "" : " ") + item.key + "=" + item.value;
  }
  return out;
}

namespace {

std::string to_string(cluster::Answer::Kind kind) {
  switch (kind) {
    case cluster::Answer::Kind::kThen:
      return "kThen";
    case cluster::Answer::Kind::kElse:
      return "kElse";
    case cluster::Answer::Kind::kUnknown:
      return "kUnknown";
    case cluster::Answer::Kind::kRefused:
      return "kRefused";
  }
  return "?";
}

}  // namespace

testing::AssertionResult is(cluster::Answer::Kind kind, const cluster::Answer& answer,
                            const std::string& part) {
  if (answer.kind == kind && answer.error.find(part) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << to_string(answer.kind) << ", '" << answer.error << "'; expected " << to_string(kind)
         << " with '" << part << "'";
}

testing::AssertionResult happened(const cluster::Answer& answer) {
  return is(cluster::Answer::Kind::kThen, answer, "");
}

bool appears(cluster::Etcd& etcd, const std::string& key, Milliseconds timeout) {
  const Deadline deadline(timeout);
  do {
    const cluster::Answer answer = etcd.transact(just({get(key)}), 0, kTimeout);
    if (answer.kind == cluster::Answer::Kind::kThen && !answer.got.empty()) return true;
    std::this_thread::sleep_for(Milliseconds(5));
  } while (!deadline.passed());
  return false;
}

}  // namespace syncd::test
