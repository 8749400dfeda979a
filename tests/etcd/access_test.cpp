// Who may do what at etcd: users and roles, certificates.
#include <gtest/gtest.h>

#include <string>

#include "etcd_program.h"
#include "tests/support/tls_files.h"

namespace syncd::test {
namespace {

using cluster::Answer;
using cluster::EtcdOptions;

constexpr char kPassword[] = "a-secret-of-the-test";

// A user "syncd" that may do everything below /syncd/. `on`: etcd asks for users from now on.
void make_user(EtcdServers& servers) {
  servers.etcdctl({"user", "add", "root:r"});
  servers.etcdctl({"user", "grant-role", "root", "root"});
  servers.etcdctl({"role", "add", "syncd"});
  servers.etcdctl({"role", "grant-permission", "syncd", "--prefix=true", "readwrite", "/syncd/"});
  servers.etcdctl({"user", "add", std::string("syncd:") + kPassword});
  servers.etcdctl({"user", "grant-role", "syncd", "syncd"});
}

EtcdOptions as_user(const EtcdServers& servers, const std::string& password = kPassword) {
  EtcdOptions options = servers.options();
  options.user = "syncd";
  options.password = password;
  return options;
}

TEST(EtcdUsers, ARoleEndsAtItsPrefix) {
  SYNCD_NEEDS_ETCD();
  SYNCD_NEEDS_ETCDCTL();
  EtcdServers servers;
  make_user(servers);
  servers.etcdctl({"auth", "enable"});
  const auto etcd = open_client(as_user(servers));
  ASSERT_TRUE(
      happened(etcd->transact(when({{.key = "/syncd/a"}}, {put("/syncd/a", "1")}), 0, kTimeout)));
  EXPECT_EQ(text(etcd->transact(just({get("/syncd/", "/syncd0")}), 0, kTimeout)), "/syncd/a=1");
  ASSERT_TRUE(etcd->grant(5, 60 * kSeconds, kTimeout).known);
  ASSERT_TRUE(happened(etcd->transact(just({put_on_lease("/syncd/b", "1")}), 5, kTimeout)));
  EXPECT_EQ(etcd->keep_alive(5, kTimeout).ttl, 60 * kSeconds);
  std::string error;
  EXPECT_TRUE(etcd->revoke(5, kTimeout, error)) << error;
  cluster::Etcd::Status status;
  EXPECT_TRUE(etcd->status(status, kTimeout, error)) << error;

  const std::string denied = "permission denied (PERMISSION_DENIED)";
  EXPECT_TRUE(is(Answer::Kind::kRefused, etcd->transact(just({put("/other/a", "1")}), 0, kTimeout),
                 denied));
  EXPECT_TRUE(
      is(Answer::Kind::kRefused, etcd->transact(just({get("/other/a")}), 0, kTimeout), denied));
  EXPECT_TRUE(is(Answer::Kind::kRefused,
                 etcd->transact(when({{.key = "/other/a"}}, {put("/syncd/a", "2")}), 0, kTimeout),
                 denied));
}

TEST(EtcdUsers, WrongPasswordsAndNoneAreNoWordAboutTheTransaction) {
  SYNCD_NEEDS_ETCD();
  SYNCD_NEEDS_ETCDCTL();
  EtcdServers servers;
  make_user(servers);
  servers.etcdctl({"auth", "enable"});
  const std::string wrong = "another-secret";
  const Answer answer =
      open_client(as_user(servers, wrong))->transact(just({put("/syncd/a", "1")}), 0, kTimeout);
  EXPECT_TRUE(is(Answer::Kind::kUnknown, answer, "user 'syncd'"));
  EXPECT_TRUE(is(Answer::Kind::kUnknown, answer, "authentication failed"));
  EXPECT_EQ(answer.error.find(wrong), std::string::npos) << answer.error;

  EXPECT_TRUE(
      is(Answer::Kind::kUnknown,
         open_client(servers.options())->transact(just({put("/syncd/a", "1")}), 0, kTimeout),
         "user name is empty (UNAUTHENTICATED): set cluster.user"));
}

TEST(EtcdUsers, ATokenThatEtcdForgotIsReplaced) {
  SYNCD_NEEDS_ETCD();
  SYNCD_NEEDS_ETCDCTL();
  EtcdServers servers;
  make_user(servers);
  // Opened while nobody has to say who they are.
  const auto etcd = open_client(as_user(servers));
  ASSERT_TRUE(happened(etcd->transact(just({put("/syncd/a", "1")}), 0, kTimeout)));
  servers.etcdctl({"auth", "enable"});
  ASSERT_TRUE(happened(etcd->transact(just({put("/syncd/a", "2")}), 0, kTimeout)));
  EXPECT_TRUE(etcd->grant(5, 60 * kSeconds, kTimeout).known);

  // It keeps tokens in memory. The transaction itself meets the new process.
  servers.process().kill();
  servers.start_again();
  const Answer answer = etcd->transact(
      when({{.key = "/syncd/a", .value = "2"}}, {put("/syncd/a", "3")}), 0, kTimeout);
  EXPECT_TRUE(happened(answer));
  EXPECT_EQ(etcd->keep_alive(5, kTimeout).ttl, 60 * kSeconds);

  // A change of users makes tokens old.
  servers.etcdctl({"user", "add", "other:o"}, "root:r");
  EXPECT_TRUE(happened(etcd->transact(just({put("/syncd/a", "4")}), 0, kTimeout)));
  servers.etcdctl({"auth", "disable"}, "root:r");
  EXPECT_TRUE(happened(etcd->transact(just({put("/syncd/a", "5")}), 0, kTimeout)));
}

class EtcdTls : public testing::Test {
 protected:
  // The server wants a certificate of clients, too.
  EtcdServers::Setup setup() const {
    EtcdServers::Setup setup;
    setup.flags = {"--cert-file",        files_.certificate("server"), "--key-file",
                   files_.key("server"), "--client-cert-auth",         "--trusted-ca-file",
                   files_.ca()};
    setup.tls = true;
    setup.options.ca_file = files_.ca();
    setup.options.certificate_file = files_.certificate("member");
    setup.options.key_file = files_.key("member");
    return setup;
  }
  void SetUp() override {
    // etcd is a client of itself.
    files_.make("server",
                {.names = {"127.0.0.1", "localhost"}, .for_server = true, .for_client = true});
    files_.make_client("member", {"member"});
  }

  TempDir directory_;
  TlsFiles files_{directory_.path()};
};

TEST_F(EtcdTls, BothSidesShowACertificate) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers(setup());
  // Beside an endpoint without TLS, which is dead.
  EtcdOptions options = servers.options();
  FreePorts ports(1);
  options.endpoints.insert(options.endpoints.begin(),
                           "http://127.0.0.1:" + std::to_string(ports.at(0)));
  const auto etcd = open_client(options);
  ASSERT_TRUE(happened(etcd->transact(just({put("a", "1")}), 0, kTimeout)));
  EXPECT_EQ(text(etcd->transact(just({get("a")}), 0, kTimeout)), "a=1");
  ASSERT_TRUE(etcd->grant(5, 60 * kSeconds, kTimeout).known);
  EXPECT_EQ(etcd->keep_alive(5, kTimeout).ttl, 60 * kSeconds);
}

TEST_F(EtcdTls, ItsLackIsNoWordAboutTheTransaction) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers(setup());
  const auto expect_unknown = [&](const EtcdOptions& options, const std::string& part) {
    const Answer answer = open_client(options)->transact(just({put("a", "1")}), 0, kTimeout);
    EXPECT_TRUE(is(Answer::Kind::kUnknown, answer, options.endpoints[0]));
    EXPECT_TRUE(is(Answer::Kind::kUnknown, answer, part));
  };
  EtcdOptions options = servers.options();
  options.certificate_file.clear();
  options.key_file.clear();
  expect_unknown(options, "");  // who ends the connection first depends

  const TlsFiles stranger(directory_.path(), "stranger");
  options = servers.options();
  options.ca_file = stranger.ca();
  expect_unknown(options, "certificate verify failed");

  options = servers.options();
  options.endpoints[0].replace(0, 5, "http");
  expect_unknown(options, "");

  EXPECT_EQ(text(open_client(servers.options())->transact(just({get("a")}), 0, kTimeout)), "");
}

}  // namespace
}  // namespace syncd::test
