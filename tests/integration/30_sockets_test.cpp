// A daemon that is started with sockets that listen already, as systemd starts it for a .socket
// unit: what they are for, what they replace, and what is refused.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "support/daemon.h"
#include "support/raw_client.h"
#include "support/raw_tls_client.h"
#include "tests/support/tls_files.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Stands for the service manager's sockets: they outlive every daemon.
class Given {
 public:
  explicit Given(int fd) : fd_(fd) {
    if (fd < 0) throw std::runtime_error(std::strerror(errno));
  }
  ~Given() { close(fd_); }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;
  operator int() const { return fd_; }

 private:
  int fd_;
};

int unix_socket(const std::string& path, int type = SOCK_STREAM) {
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0) << path;
  EXPECT_TRUE(type != SOCK_STREAM || listen(fd, 64) == 0);
  return fd;
}

int tcp_socket(const char* host) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, host, &address.sin_addr);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << host;
  EXPECT_EQ(listen(fd, 64), 0);
  return fd;
}

std::string port_of(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return std::to_string(ntohs(address.sin_port));
}

class Sockets : public ::testing::Test {
 protected:
  // What a daemon says that must not start, and with which exit code.
  std::string refusal(int code, const std::vector<int>& sockets, const std::string& names,
                      const std::string& config = "[listen]\ntcp = \"off\"\n") {
    write_file(directory_.file("own.toml"), config);
    Command command;
    command.argv = {program("syncd"), "--config", directory_.file("own.toml"), "--store", "memory",
                    "--admin",        "off"};
    command.environment = {{"HOME", directory_.path()}};
    command.stdout_path = directory_.file("said");
    command.sockets = sockets;
    command.socket_names = names;
    EXPECT_EQ(Process(command).wait(), exited(code)) << names;
    return read_file(directory_.file("said"));
  }
  std::string path() const { return directory_.file("given.sock"); }

  TempDir directory_;
};

TEST_F(Sockets, StandInPlaceOfTheConfiguredOnesAndOutliveTheDaemon) {
  const Given local(unix_socket(path()));
  const Given tcp(tcp_socket("127.0.0.1"));
  Daemon daemon(directory_,
                {.tcp = "127.0.0.1:0", .sockets = {local, tcp}, .socket_names = "syncd:syncd"});
  EXPECT_THAT(daemon.log(), HasSubstr("in_place_of=\"listen.tcp and listen.unix\""));
  EXPECT_EQ(daemon.tcp_address(), "127.0.0.1:" + port_of(tcp));
  EXPECT_FALSE(exists(daemon.socket_path())) << "it has listened on the configured one, too";
  RawClient over_tcp = greeted(daemon.tcp_address());
  RawClient over_unix = greeted("unix:" + path());
  // Only this machine reaches them, so a join may create its job.
  RawWorker worker(over_unix, join_of("job", 0, 1, "asp"));

  EXPECT_EQ(daemon.stop(), exited(0));
  EXPECT_TRUE(exists(path())) << "the file is whoever's who made it";
  // Who comes while nobody serves waits in the backlog.
  RawClient waiting("unix:" + path());
  daemon.start();
  waiting.hello();
  EXPECT_EQ(waiting.call_for<wire::JobsReply>(wire::JobsRequest{}).jobs.size(), 1U);
}

TEST_F(Sockets, ForControlReplaceItsSettingAlone) {
  const Given control(unix_socket(directory_.file("control.sock")));
  Daemon daemon(directory_, {.store = "memory",
                             .config = "[limits]\nworkers_per_job_max = 1\n",
                             .sockets = {control},
                             .socket_names = "control"});
  const wire::CreateJobRequest create{"job", "asp", 1, 0};
  RawClient worker = greeted(daemon.address());
  EXPECT_THAT(RawClient::as<wire::Error>(worker.call(create)).message, HasSubstr("listen.control"));
  RawClient operator_ = greeted("unix:" + directory_.file("control.sock"));
  operator_.call_for<wire::Ok>(create);
}

TEST_F(Sockets, StayThroughAReload) {
  const Given local(unix_socket(path()));
  const Given control(unix_socket(directory_.file("control.sock")));
  Daemon daemon(directory_, {.store = "memory",
                             .config = "[limits]\nworkers_per_job_max = 1\n",
                             .sockets = {local, control},
                             .socket_names = "syncd:control"});
  write_file(directory_.file("syncd.toml"),
             "[listen]\ncontrol = \"/nowhere/else.sock\"\n[limits]\nworkers_per_job_max = 2\n");
  daemon.reload(" reloaded ");
  EXPECT_THAT(daemon.log(), AllOf(HasSubstr("limits.workers_per_job_max: 1 -> 2"),
                                  HasSubstr("needs_restart=nothing")));
  for (const char* name : {"given.sock", "control.sock"}) {
    RawClient client = greeted("unix:" + directory_.file(name));
  }
}

TEST_F(Sockets, AreCheckedAsConfiguredAddressesAre) {
  const Given open(tcp_socket("0.0.0.0"));
  const std::string said = refusal(2, {open}, "syncd");
  EXPECT_THAT(said, AllOf(HasSubstr("sockets that syncd was started with: listen.tcp"),
                          HasSubstr("0.0.0.0:" + port_of(open)), HasSubstr("listen.insecure")));
  EXPECT_THAT(refusal(2, {open}, "control"), HasSubstr("listen.control = \"0.0.0.0:"));

  TlsFiles files(directory_.path());
  files.make_server();
  files.make_client("worker", {"worker.example"});
  Daemon daemon(directory_, {.store = "memory",
                             .config = "[tls]\ncertificate = \"" + files.certificate("server") +
                                       "\"\nkey = \"" + files.key("server") + "\"\nclient_ca = \"" +
                                       files.ca() + "\"\n",
                             .sockets = {open},
                             .socket_names = "syncd"});
  EXPECT_THAT(daemon.log(), HasSubstr("endpoint=tls:0.0.0.0:" + port_of(open)));
  RawTlsClient client(
      "127.0.0.1:" + port_of(open),
      tls::ClientSettings{files.ca(), files.certificate("worker"), files.key("worker")});
  client.hello();
}

TEST_F(Sockets, ThatNobodyCanServeAreRefusedWithWhatIsAllowed) {
  const Given local(unix_socket(path()));
  EXPECT_THAT(refusal(4, {local}, "syncd.socket"),
              AllOf(HasSubstr("'syncd.socket'"), HasSubstr("FileDescriptorName=syncd "),
                    HasSubstr("FileDescriptorName=control ")));
  EXPECT_THAT(refusal(4, {local}, ""), HasSubstr("FileDescriptorName=syncd "));
  const Given second(unix_socket(directory_.file("second.sock")));
  EXPECT_THAT(refusal(4, {local, second}, "syncd:syncd"), HasSubstr("beside " + path()));
  const Given datagrams(unix_socket(directory_.file("datagrams"), SOCK_DGRAM));
  EXPECT_THAT(refusal(4, {datagrams}, "syncd"), HasSubstr("of another kind"));
  const Given abstract(unix_socket(std::string("\0syncd-test-", 12) + std::to_string(getpid())));
  EXPECT_THAT(refusal(4, {abstract}, "syncd"), HasSubstr("without a path"));
  const Given silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_THAT(refusal(4, {silent}, "syncd"), HasSubstr("Accept=no"));
  const Given file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(refusal(4, {file}, "control"), HasSubstr("is no socket"));
}

// A process that inherits the variables, but was not meant, must not take what lies there.
TEST_F(Sockets, OfAnotherProcessAreLeftAlone) {
  Daemon daemon(directory_, {.store = "memory",
                             .environment = {{"LISTEN_PID", std::to_string(getpid())},
                                             {"LISTEN_FDS", "1"},
                                             {"LISTEN_FDNAMES", "beauty"}}});
  EXPECT_THAT(daemon.log(), Not(HasSubstr("sockets_inherited")));
  RawClient client = greeted(daemon.address());
}

}  // namespace
}  // namespace syncd::test
