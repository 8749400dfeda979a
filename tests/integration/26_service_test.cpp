// As a service: what the manager is told, in order, and a configuration that is read again as a
// whole or not at all.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "support/daemon.h"
#include "support/http.h"
#include "support/raw_client.h"
#include "tests/support/tls_files.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A socket that stands for the service manager.
class Manager {
 public:
  explicit Manager(const std::string& path) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("cannot bind " + path);
    }
  }
  ~Manager() { close(fd_); }
  // The next datagram that holds `text`; others on the way are kept in all().
  std::string next(const std::string& text) {
    const Deadline deadline;
    while (true) {
      pollfd waiting{fd_, POLLIN, 0};
      if (poll(&waiting, 1, deadline.left_ms()) <= 0) {
        throw std::runtime_error("the manager was never told " + text + " but\n" + all_);
      }
      char bytes[1024];
      const ssize_t count = recv(fd_, bytes, sizeof bytes, 0);
      const std::string told(bytes, static_cast<std::size_t>(std::max<ssize_t>(0, count)));
      all_ += told + "\n--\n";
      if (told.find(text) != std::string::npos) return told;
    }
  }
  const std::string& all() const { return all_; }

 private:
  int fd_;
  std::string all_;
};

TEST(Service, TheManagerIsToldWhatTheDaemonDoes) {
  TempDir directory;
  Manager manager(directory.file("notify"));
  DaemonOptions options{.config = "[timeouts]\nwarn_after = \"1m\"\n"};
  options.environment = {{"NOTIFY_SOCKET", directory.file("notify")}, {"WATCHDOG_USEC", "20000"}};
  Daemon daemon(directory, options);
  EXPECT_THAT(manager.next("STATUS=recovering"), HasSubstr("EXTEND_TIMEOUT_USEC="));
  EXPECT_THAT(manager.all(), Not(HasSubstr("READY=1")));
  EXPECT_THAT(manager.next("READY=1"), HasSubstr("STATUS=serving: 0 jobs, 0 workers"));
  RawClient client = greeted(daemon.address());
  RawWorker worker(client, join_of("job", 0, 1, "asp"));
  manager.next("WATCHDOG=1\nSTATUS=serving: 1 jobs, 1 workers");
  manager.next("WATCHDOG=1");
  EXPECT_THAT(manager.all(), Not(HasSubstr("RELOADING")));
  daemon.signal(SIGHUP);
  EXPECT_THAT(manager.next("RELOADING=1"), HasSubstr("\nMONOTONIC_USEC="));
  manager.next("READY=1");
  EXPECT_THAT(manager.all(), Not(HasSubstr("STOPPING")));
  daemon.signal(SIGTERM);
  EXPECT_THAT(manager.next("STOPPING=1"), AllOf(HasSubstr("STATUS=stopping: it got SIGTERM"),
                                                HasSubstr("EXTEND_TIMEOUT_USEC=30000000\n")));
  EXPECT_EQ(daemon.wait(), exited(0));
}

class Reload : public ::testing::Test {
 protected:
  Daemon start(const std::string& config) {
    return Daemon(directory_, {.store = "memory", .admin = "127.0.0.1:0", .config = config});
  }
  void configure(const std::string& config) { write_file(directory_.file("syncd.toml"), config); }
  TempDir directory_;
};

std::string last_line_with(const Daemon& daemon, const std::string& text) {
  std::string found;
  for (const std::string& line : lines_of(daemon.log())) {
    if (line.find(text) != std::string::npos) found = line;
  }
  return found;
}

TEST_F(Reload, WhatMayChangeDoesAndTheRestIsNamed) {
  Daemon daemon = start("[limits]\nworkers_per_job_max = 1\n");
  RawClient client = greeted(daemon.address());
  EXPECT_EQ(RawClient::as<wire::Error>(client.call(join_of("job", 0, 2, "asp"))).status,
            Status::kLimit);
  configure(
      "[limits]\nworkers_per_job_max = 2\n[timeouts]\nwarn_after = \"7s\"\nheartbeat_timeout = "
      "\"1h\"\n[[job]]\nname = \"new\"\nexpected_workers = 2\n");
  daemon.reload(" reloaded ");
  const std::string line = last_line_with(daemon, " reloaded ");
  EXPECT_THAT(line, AllOf(HasSubstr("limits.workers_per_job_max: 1 -> 2"),
                          HasSubstr("timeouts.warn_after")));
  EXPECT_THAT(line.substr(line.find("needs_restart")),
              AllOf(HasSubstr("timeouts.heartbeat_timeout"), HasSubstr("[[job]]"),
                    Not(HasSubstr("limits"))));
  RawWorker(client, join_of("job", 0, 2, "asp"));
  const std::string text = http_get(daemon.admin_address(), "/metrics").body;
  EXPECT_EQ(sample(text, "syncd_config_reloads_total{result=\"good\"}"), 1);
  EXPECT_EQ(sample(text, "syncd_config_reload_success"), 1);
}

TEST_F(Reload, OneMistakeAnywhereChangesNothing) {
  Daemon daemon = start("[limits]\nworkers_per_job_max = 1\n");
  const std::pair<const char*, const char*> wrong[] = {
      {"[limits]\nworkers_per_job_max = 2\n[store]\nmode = \"fats\"\n", "store.mode"},
      {"[limits]\nworkers_per_job_max = 2\n[auth]\ntoken_file = \"/nowhere/tokens\"\n",
       "/nowhere/tokens"},
      {"[limits]\nworkers_per_job_max = 2\nno toml\n", "not valid TOML"},
  };
  int failed = 0;
  for (const auto& [config, reason] : wrong) {
    configure(config);
    daemon.signal(SIGHUP);
    wait_until("the refusal", [&, reason = reason] {
      return last_line_with(daemon, "not_reloaded").find(reason) != std::string::npos;
    });
    RawClient client = greeted(daemon.address());
    EXPECT_EQ(RawClient::as<wire::Error>(client.call(join_of("job", 0, 2, "asp"))).status,
              Status::kLimit);
    ++failed;
    // What is shown may be some milliseconds old.
    std::string text;
    wait_until("the metric", [&] {
      text = http_get(daemon.admin_address(), "/metrics").body;
      return sample(text, "syncd_config_reloads_total{result=\"failed\"}") == failed;
    });
    EXPECT_EQ(sample(text, "syncd_config_reload_success"), 0);
  }
}

// A line for each change of state, and none for an iteration.
TEST_F(Reload, TheLogSaysNothingOfPushes) {
  Daemon daemon = start("");
  RawClient client = greeted(daemon.address());
  RawWorker worker(client, join_of("job", 0, 1, "asp"));
  worker.begin(0);
  worker.push(0);
  const std::size_t before = lines_of(daemon.log()).size();
  for (std::int64_t iteration = 1; iteration <= 100; ++iteration) {
    worker.begin(iteration);
    worker.push(iteration);
  }
  EXPECT_EQ(lines_of(daemon.log()).size(), before) << daemon.log();
}

// Whoever rotates logs gives the file another name and then the signal.
TEST_F(Reload, LinesGoIntoTheFileThatHasTheNameNow) {
  const std::string path = directory_.file("rotated.log");
  Daemon daemon = start("[log]\nfile = \"" + path + "\"\n");
  EXPECT_THAT(read_file(path), HasSubstr(" starting "));
  std::filesystem::rename(path, path + ".1");
  configure("[log]\nfile = \"" + path + "\"\nlevel = \"nonsense\"\n");
  daemon.signal(SIGHUP);
  wait_until("the refusal", [&] {
    return exists(path) && read_file(path).find(" not_reloaded ") != std::string::npos;
  });
  EXPECT_THAT(read_file(path), Not(HasSubstr(" starting ")));
  EXPECT_THAT(read_file(path + ".1"), Not(HasSubstr(" not_reloaded ")));
  // Where it cannot be opened nothing is lost, and the line of before says so.
  std::filesystem::rename(path, path + ".2");
  std::filesystem::create_directory(path);
  configure("[log]\nfile = \"" + path + "\"\n");
  daemon.signal(SIGHUP);
  wait_until("the reload",
             [&] { return read_file(path + ".2").find(" reloaded ") != std::string::npos; });
  EXPECT_THAT(read_file(path + ".2"), HasSubstr("error log_not_reopened "));
}

// A disk that is full must not hide who changed what.
TEST_F(Reload, AuditsThatTheFileDoesNotTakeStandOnStandardError) {
  Daemon daemon = start("[log]\nfile = \"/dev/full\"\n");
  RawClient client = greeted(daemon.address());
  RawWorker(client, join_of("job", 0, 1, "asp"));
  EXPECT_THAT(daemon.log(),
              AllOf(HasSubstr(" error log_not_written file=/dev/full "),
                    HasSubstr(" info audit action=create_job job=job "), Not(HasSubstr(" ready"))));
}

// A configuration that is good by itself, but not with the addresses that stay as they are.
TEST_F(Reload, NeverOpensWhatIsListenedOnToEverybody) {
  TlsFiles files(directory_.path());
  files.make_server();
  const std::string tls = "[tls]\ncertificate = \"" + files.certificate("server") + "\"\nkey = \"" +
                          files.key("server") + "\"\n";
  // Flags would win over the file.
  write_file(directory_.file("own.toml"),
             "[listen]\ntcp = \"0.0.0.0:0\"\n" + tls + "client_ca = \"" + files.ca() + "\"\n");
  Command command;
  command.argv = {program("syncd"),
                  "--config",
                  directory_.file("own.toml"),
                  "--store",
                  "memory",
                  "--unix",
                  "off",
                  "--admin",
                  "off",
                  "--ready-file",
                  directory_.file("ready")};
  command.environment = {{"HOME", directory_.path()}};
  command.stdout_path = directory_.file("log");
  Process daemon(command);
  wait_until("syncd to be ready", [&] {
    if (!daemon.running()) throw std::runtime_error(read_file(directory_.file("log")));
    return exists(directory_.file("ready"));
  });
  write_file(directory_.file("own.toml"), "[listen]\ntcp = \"127.0.0.1:0\"\n" + tls);
  daemon.signal(SIGHUP);
  wait_until("the refusal", [&] {
    return read_file(directory_.file("log")).find("not_reloaded") != std::string::npos;
  });
  EXPECT_THAT(read_file(directory_.file("log")), HasSubstr("restart it instead"));
}

// Who may read the pages changes with the tokens.
TEST_F(Reload, TokensAreThoseOfTheFileAlsoForThePages) {
  const std::string first = "first-secret-0123456789abcdef";
  const std::string second = "other-secret-0123456789abcdef";
  write_private_file(directory_.file("tokens"), first);
  Daemon daemon = start("[auth]\ntoken_file = \"" + directory_.file("tokens") + "\"\n");
  const auto status = [&](const std::string& token) {
    return http_get(daemon.admin_address(), "/status", "Authorization: Bearer " + token + "\r\n")
        .status;
  };
  EXPECT_EQ(status(first), 200);
  EXPECT_EQ(status(second), 401);
  write_private_file(directory_.file("tokens"), second);
  daemon.signal(SIGHUP);
  wait_until("the reload", [&] { return status(second) == 200; });
  EXPECT_EQ(status(first), 401);
}

}  // namespace
}  // namespace syncd::test
