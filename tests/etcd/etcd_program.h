// Real etcd servers as child processes, on free ports of the loopback interface, with their data in
// a temporary directory. They meet no etcd that the system runs. One thread.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/cluster/etcd.h"
#include "support/files.h"
#include "support/process.h"

namespace syncd::test {

// On the PATH; empty: there is none.
std::string find_program(const std::string& name);

// For tests that start etcd, and for those that also set it up with etcdctl.
#define SYNCD_NEEDS_PROGRAM(name, package)                                        \
  if (::syncd::test::find_program(name).empty()) {                                \
    GTEST_SKIP() << "skipped: " name                                              \
                    " is not installed (packaging/install_packages cluster-test " \
                    "installs it, with the package " package ")";                 \
  }
#define SYNCD_NEEDS_ETCD() SYNCD_NEEDS_PROGRAM("etcd", "etcd-server")
#define SYNCD_NEEDS_ETCDCTL() SYNCD_NEEDS_PROGRAM("etcdctl", "etcd-client")

class EtcdServers {
 public:
  struct Setup {
    int members = 1;
    std::vector<std::string> flags = {};
    bool tls = false;                   // the flags name its files
    cluster::EtcdOptions options = {};  // of the client that waits until all answer
  };
  EtcdServers() : EtcdServers(Setup()) {}
  explicit EtcdServers(Setup setup);

  // Of clients: the set-up's, with the endpoints.
  const cluster::EtcdOptions& options() const { return setup_.options; }
  const std::string& endpoint(int member = 0) const {
    return setup_.options.endpoints.at(static_cast<std::size_t>(member));
  }
  Process& process(int member = 0) { return processes_.at(static_cast<std::size_t>(member)); }
  std::string log(int member = 0) const { return read_file(log_path(member)); }
  const TempDir& directory() const { return directory_; }

  // SIGSTOP, and waits until no thread of it runs any more. SIGCONT.
  void stop(int member = 0);
  void go_on(int member = 0) { process(member).signal(SIGCONT); }
  // Starts a member again that was killed, with its data, and waits until it answers.
  void start_again(int member = 0);
  // Fails the test if it does.
  void etcdctl(const std::vector<std::string>& words, const std::string& user = {});

 private:
  bool try_start();
  Command command(int member) const;
  // False: a process has ended.
  bool wait_for_all();
  std::string log_path(int member) const {
    return directory_.file("log." + std::to_string(member) + "." + std::to_string(attempt_));
  }

  TempDir directory_;
  Setup setup_;
  int attempt_ = 0;
  std::vector<std::string> peers_;
  std::vector<Process> processes_;
};

// Opens a client; throws if that fails.
std::unique_ptr<cluster::Etcd> open_client(const cluster::EtcdOptions& options);

// A port of the loopback interface that nothing listens at.
class FreePorts {
 public:
  explicit FreePorts(int count);
  ~FreePorts() { release(); }
  FreePorts(const FreePorts&) = delete;
  FreePorts& operator=(const FreePorts&) = delete;

  int at(int index) const { return ports_.at(static_cast<std::size_t>(index)); }
  // Until then no other process gets them.
  void release();
  // Connections to it are accepted by the kernel and never answered.
  void listen(int index) const;

 private:
  std::vector<int> sockets_;
  std::vector<int> ports_;
};

// ---- transactions in a line

inline constexpr Micros kSeconds = 1'000'000;
// As long as a busy machine may keep a healthy etcd from answering, and each endpoint a third of
// it: EtcdServers' clients have no shorter patience, unless a test is about that.
inline constexpr Micros kTimeout = 60 * kSeconds;

inline cluster::Op get(std::string key, std::string end = {}) {
  return {.kind = cluster::Op::Kind::kGet, .key = std::move(key), .end = std::move(end)};
}
inline cluster::Op put(std::string key, std::string value) {
  return {.kind = cluster::Op::Kind::kPut, .key = std::move(key), .value = std::move(value)};
}
inline cluster::Op put_on_lease(std::string key, std::string value) {
  return {.kind = cluster::Op::Kind::kPutOnLease, .key = std::move(key), .value = std::move(value)};
}
inline cluster::Op remove(std::string key, std::string end = {}) {
  return {.kind = cluster::Op::Kind::kDelete, .key = std::move(key), .end = std::move(end)};
}

inline cluster::Transaction when(std::vector<cluster::Compare> compares,
                                 std::vector<cluster::Op> then,
                                 std::vector<cluster::Op> otherwise = {}) {
  return {std::move(compares), std::move(then), std::move(otherwise)};
}
inline cluster::Transaction just(std::vector<cluster::Op> then) {
  return when({}, std::move(then));
}

// "key=value ..." of what was got.
std::string text(const cluster::Answer& answer);
// For EXPECT_TRUE.
testing::AssertionResult happened(const cluster::Answer& answer);
testing::AssertionResult is(cluster::Answer::Kind kind, const cluster::Answer& answer,
                            const std::string& part);

// Until the key has a value, or for `timeout`.
bool appears(cluster::Etcd& etcd, const std::string& key, Milliseconds timeout);

}  // namespace syncd::test
