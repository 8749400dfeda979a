// Workers and tools over TLS, with the real programs: who is let in, who is not, and what each side
// says about it.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "support/daemon.h"
#include "support/raw_tls_client.h"
#include "support/workers.h"
#include "syncd/client.h"
#include "tests/support/tls_files.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Opened {
  syncd_status status = SYNCD_OK;
  std::string message;
};

class OverTls : public ::testing::Test {
 protected:
  OverTls() {
    files_.make_server();
    files_.make_client("worker", {"worker.example"});
  }

  std::string config(bool wants_certificate, const std::string& more = "") const {
    return "[tls]\ncertificate = \"" + files_.certificate("server") + "\"\nkey = \"" +
           files_.key("server") + "\"\n" +
           (wants_certificate ? "client_ca = \"" + files_.ca() + "\"\n" : "") + more;
  }
  DaemonOptions options(bool wants_certificate, const std::string& more = "") const {
    return {.tcp = "127.0.0.1:0", .config = config(wants_certificate, more)};
  }
  tls::ClientSettings settings(const std::string& certificate = "") const {
    if (certificate.empty()) return {files_.ca(), "", ""};
    return {files_.ca(), files_.certificate(certificate), files_.key(certificate)};
  }
  // Opens a client of the library and closes it again.
  static Opened open(const std::string& address, const tls::ClientSettings& tls,
                     const std::string& server_name = "") {
    syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
    const auto or_null = [](const std::string& text) {
      return text.empty() ? nullptr : text.c_str();
    };
    options.addresses = address.c_str();
    options.ca_file = or_null(tls.ca_file);
    options.certificate_file = or_null(tls.certificate_file);
    options.key_file = or_null(tls.key_file);
    options.server_name = or_null(server_name);
    options.connect_timeout_ms = 60'000;
    syncd_client* client = nullptr;
    syncd_error* error = nullptr;
    Opened opened{syncd_client_open(&options, &client, &error), {}};
    if (error != nullptr) opened.message = syncd_error_message(error);
    syncd_error_free(error);
    syncd_client_close(client);
    return opened;
  }

  TempDir directory_;
  TlsFiles files_{directory_.path()};
};

TEST_F(OverTls, WorkersTrainAndOutliveTheDaemonsRestart) {
  // The port must be the same after the restart: the first life chooses it.
  DaemonOptions options = this->options(true);
  {
    Daemon first(directory_, options);
    options.tcp = first.tcp_address();
    ASSERT_EQ(first.stop(), exited(0));
  }
  Daemon daemon(directory_, options);
  EXPECT_TRUE(daemon.logged("endpoint=tls:" + options.tcp)) << daemon.log();
  const WorkerGroupOptions group = {
      .address = "tls:" + options.tcp,
      .policy = "ssp:3",
      .workers = 4,
      .iterations = 60,
      .environment = {{"SYNCD_CA_FILE", files_.ca()},
                      {"SYNCD_CERTIFICATE_FILE", files_.certificate("worker")},
                      {"SYNCD_KEY_FILE", files_.key("worker")}}};
  WorkerGroup workers(directory_, group);
  for (int rank = 0; rank < 4; ++rank) workers.wait_for_line(rank, "pushed 10 ");
  daemon.kill();
  daemon.start();
  workers.expect_all_finish();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(workers.acknowledged(rank).size(), 60U);
}

TEST_F(OverTls, AClientIsToldWhyItIsNotLetIn) {
  const TlsFiles others(directory_.path(), "others");
  others.make_client("stranger", {"worker.example"});
  files_.make("expired", {.names = {"worker.example"},
                          .for_client = true,
                          .valid_from_s = -7200,
                          .valid_until_s = -3600});
  Daemon daemon(directory_, options(true));
  const std::string address = "tls:" + daemon.tcp_address();
  const auto expect_refused = [&](const tls::ClientSettings& tls, const std::string& reason) {
    const Opened opened = open(address, tls);
    EXPECT_EQ(opened.status, SYNCD_E_AUTH) << opened.message;
    EXPECT_THAT(opened.message, HasSubstr(reason));
  };
  EXPECT_EQ(open(address, settings("worker")).status, SYNCD_OK);
  expect_refused(settings(), "wants a client certificate");
  expect_refused(settings("expired"), "expired");
  expect_refused(settings("server"), "the daemon does not accept our certificate");
  expect_refused({files_.ca(), others.certificate("stranger"), others.key("stranger")},
                 "does not know who signed our certificate");
  expect_refused({others.ca(), "", ""}, "the daemon's certificate is not accepted");
  EXPECT_THAT(daemon.log(),
              AllOf(HasSubstr("the client shows no certificate"),
                    HasSubstr("certificate has expired"), HasSubstr("connection_rejected"),
                    HasSubstr("is not accepted: unsuitable certificate purpose")));
}

TEST_F(OverTls, TheDaemonMustBeTheOneThatTheCertificateNames) {
  Daemon daemon(directory_, options(false));
  const std::string address = "tls:" + daemon.tcp_address();
  EXPECT_EQ(open(address, settings()).status, SYNCD_OK);
  EXPECT_EQ(open(address, settings(), "localhost").status, SYNCD_OK);
  const Opened opened = open(address, settings(), "elsewhere.example");
  EXPECT_EQ(opened.status, SYNCD_E_AUTH);
  EXPECT_THAT(opened.message, HasSubstr("'elsewhere.example'"));
}

TEST_F(OverTls, PlainClientsAndPlainDaemonsAreTold) {
  Daemon daemon(directory_, options(false));
  const Opened plain = open("tcp:" + daemon.tcp_address(), {});
  EXPECT_EQ(plain.status, SYNCD_E_AUTH) << plain.message;
  EXPECT_THAT(plain.message, HasSubstr("speaks TLS alone"));
  Daemon other(directory_, {.name = "other", .tcp = "127.0.0.1:0"});
  const Opened encrypted = open("tls:" + other.tcp_address(), settings());
  EXPECT_EQ(encrypted.status, SYNCD_E_PROTOCOL) << encrypted.message;
  EXPECT_THAT(encrypted.message, HasSubstr("does not speak TLS"));
}

TEST_F(OverTls, FilesThatCannotBeUsedAreNamed) {
  const Opened opened = open("tls:127.0.0.1:1", {directory_.file("none.crt"), "", ""});
  EXPECT_EQ(opened.status, SYNCD_E_INVALID);
  EXPECT_THAT(opened.message, HasSubstr("none.crt"));
}

TEST_F(OverTls, ToolsUseItToo) {
  Daemon daemon(directory_, options(true));
  const auto status = [&](const std::vector<std::string>& more) {
    std::vector<std::string> argv = {program("syncctl"), "--addr", "tls:" + daemon.tcp_address(),
                                     "--ca", files_.ca()};
    argv.insert(argv.end(), more.begin(), more.end());
    argv.push_back("status");
    return run(argv, directory_.path());
  };
  const RunResult good =
      status({"--certificate", files_.certificate("worker"), "--key", files_.key("worker")});
  EXPECT_EQ(good.ending, exited(0)) << good.err;
  EXPECT_THAT(good.out, HasSubstr("tls:" + daemon.tcp_address()));
  const RunResult bad = status({});
  EXPECT_EQ(bad.ending, exited(1)) << bad.err;
  EXPECT_THAT(bad.err, HasSubstr("wants a client certificate"));
}

// New connections are those of the new authority; the others go on.
TEST_F(OverTls, CertificatesAndAuthorityAreReplacedByAReload) {
  Daemon daemon(directory_, options(true));
  const std::string address = "tls:" + daemon.tcp_address();
  const TlsFiles others(directory_.path(), "others");
  others.make_server("server-new");
  others.make_client("worker-new", {"worker.example"});
  const tls::ClientSettings of_new = {others.ca(), others.certificate("worker-new"),
                                      others.key("worker-new")};
  RawTlsClient before(daemon.tcp_address(), settings("worker"));
  before.hello();
  EXPECT_EQ(open(address, settings("worker")).status, SYNCD_OK);
  EXPECT_EQ(open(address, of_new).status, SYNCD_E_AUTH);
  write_file(directory_.file("syncd.toml"),
             "[tls]\ncertificate = \"" + others.certificate("server-new") + "\"\nkey = \"" +
                 others.key("server-new") + "\"\nclient_ca = \"" + others.ca() + "\"\n");
  daemon.reload(" reloaded ");
  EXPECT_TRUE(daemon.logged("files=\"tls.certificate, tls.client_ca, tls.key\""));
  EXPECT_EQ(open(address, of_new).status, SYNCD_OK);
  EXPECT_EQ(open(address, settings("worker")).status, SYNCD_E_AUTH);
  // Who trusts the new authority, and shows what the old one has signed.
  EXPECT_EQ(open(address, {others.ca(), files_.certificate("worker"), files_.key("worker")}).status,
            SYNCD_E_AUTH);
  before.call_for<wire::StatusReply>(wire::StatusRequest{});
}

// --check-config is for finding it out before; a daemon that starts serves its Unix socket at
// least.
TEST_F(OverTls, CertificatesThatAreNotInForceAreNamedAndNoReloadTakesThemOn) {
  const auto in_force = [](std::int64_t from_s, std::int64_t until_s) {
    return ctl::CertificateOptions{.names = {"127.0.0.1"},
                                   .for_server = true,
                                   .valid_from_s = from_s,
                                   .valid_until_s = until_s};
  };
  files_.make("expired", in_force(-7200, -3600));
  files_.make("early", in_force(3600, 7200));
  const auto config_of = [&](const std::string& name) {
    return "[tls]\ncertificate = \"" + files_.certificate(name) + "\"\nkey = \"" +
           files_.key(name) + "\"\n";
  };
  for (const auto& [name, why] :
       {std::pair{"expired", "expired.crt has expired: it was valid until"},
        std::pair{"early", "early.crt is not valid before"}}) {
    write_file(directory_.file("checked.toml"), config_of(name));
    const RunResult checked = run({program("syncd"), "--config", directory_.file("checked.toml"),
                                   "--store", "memory", "--check-config"},
                                  directory_.path());
    EXPECT_EQ(checked.ending, exited(2)) << checked.out;
    EXPECT_THAT(checked.err, HasSubstr(why));
  }

  Daemon daemon(directory_, options(false));
  EXPECT_THAT(daemon.log(), HasSubstr("warn certificate_ends_soon file=" +
                                      files_.certificate("server") + " of=daemon until=20"));
  const std::string address = "tls:" + daemon.tcp_address();
  write_file(directory_.file("syncd.toml"), config_of("expired"));
  daemon.reload("not_reloaded");
  EXPECT_THAT(daemon.log(), HasSubstr("expired.crt has expired"));
  EXPECT_EQ(open(address, settings()).status, SYNCD_OK);
  write_file(directory_.file("old.crt"), ctl::make_authority("old", -100).certificate);
  write_file(directory_.file("syncd.toml"),
             config_of("server") + "client_ca = \"" + directory_.file("old.crt") + "\"\n");
  daemon.signal(SIGHUP);
  wait_until("the refusal",
             [&] { return daemon.logged("old.crt has expired: it was valid until"); });
  EXPECT_FALSE(daemon.logged(" reloaded "));

  Daemon late(directory_, {.name = "late", .tcp = "127.0.0.1:0", .config = config_of("expired")});
  EXPECT_THAT(late.log(), AllOf(HasSubstr("error certificate_not_in_force file=" +
                                          files_.certificate("expired")),
                                HasSubstr("no client accepts it over TLS")));
  EXPECT_EQ(open(late.address(), {}).status, SYNCD_OK);
  EXPECT_THAT(open("tls:" + late.tcp_address(), settings()).message, HasSubstr("expired"));
  // What is in force is no better: other settings need not wait for a new certificate.
  write_file(directory_.file("late.toml"),
             config_of("expired") + "[limits]\nconnections_max = 99\n");
  late.signal(SIGHUP);
  wait_until("the reload", [&] { return late.logged(" reloaded "); });
  write_file(directory_.file("late.toml"), config_of("server"));
  late.signal(SIGHUP);
  wait_until("a new client",
             [&] { return open("tls:" + late.tcp_address(), settings()).status == SYNCD_OK; });
}

// No ticket of before lets somebody in whom the new authority does not know.
TEST_F(OverTls, AReloadEndsSessionsToo) {
  Daemon daemon(directory_, options(true));
  const auto context = RawTlsClient::context(settings("worker"));
  for (const bool resumed : {false, true}) {
    RawTlsClient client(daemon.tcp_address(), context);
    client.hello();
    EXPECT_EQ(client.resumed(), resumed);
  }
  const TlsFiles others(directory_.path(), "others");
  others.make_client("worker-new", {"worker.example"});
  write_file(directory_.file("syncd.toml"),
             "[tls]\ncertificate = \"" + files_.certificate("server") + "\"\nkey = \"" +
                 files_.key("server") + "\"\nclient_ca = \"" + others.ca() + "\"\n");
  daemon.reload(" reloaded ");
  EXPECT_THROW(
      {
        RawTlsClient client(daemon.tcp_address(), context);
        client.hello();
      },
      std::runtime_error);
  // The daemon's own certificate is what it was: it is the client's that is refused.
  RawTlsClient client(daemon.tcp_address(),
                      {files_.ca(), others.certificate("worker-new"), others.key("worker-new")});
  client.hello();
}

// As somebody does it who has read the output of the first command alone.
TEST_F(OverTls, AFirstSecureSetUpIsThreeCommands) {
  const std::string made = directory_.file("new/made");
  const RunResult init =
      run({program("syncctl"), "tls", "init", made, "--host", "head.example"}, directory_.path());
  ASSERT_EQ(init.ending, exited(0)) << init.err;
  EXPECT_THAT(init.out, AllOf(HasSubstr("syncd --config " + made + "/syncd.toml"),
                              HasSubstr("SYNCD_ADDR=tls:head.example:7117")));
  for (const char* name : {"ca", "server", "worker"}) {
    struct stat found {};
    ASSERT_EQ(stat((made + "/" + name + ".key").c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, 0600U) << name;
  }
  Daemon daemon(directory_, {.tcp = "0.0.0.0:0", .config = read_file(made + "/syncd.toml")});
  const std::string log = daemon.log();
  const std::size_t at = log.find("endpoint=tls:0.0.0.0:");
  ASSERT_NE(at, std::string::npos) << log;
  const std::string port = log.substr(at + 21, log.find('\n', at) - at - 21);
  const std::string address = "tls:127.0.0.1:" + port;
  EXPECT_EQ(open(address, {made + "/ca.crt", made + "/worker.crt", made + "/worker.key"}).status,
            SYNCD_OK);
  EXPECT_EQ(
      open(address, {made + "/ca.crt", made + "/worker.crt", made + "/worker.key"}, "head.example")
          .status,
      SYNCD_OK);
  EXPECT_EQ(open(address, {made + "/ca.crt", "", ""}).status, SYNCD_E_AUTH);
  RawTlsClient worker("127.0.0.1:" + port,
                      {made + "/ca.crt", made + "/worker.crt", made + "/worker.key"});
  worker.hello();
  worker.call_for<wire::Joined>(join_of("first", 0, 1, "asp"));  // which makes the job

  const RunResult again = run({program("syncctl"), "tls", "init", made}, directory_.path());
  EXPECT_TRUE(ended(again, 4, "nothing is written over"));
  const RunResult issued =
      run({program("syncctl"), "tls", "issue", made, "team-a"}, directory_.path());
  EXPECT_EQ(issued.ending, exited(0)) << issued.err;
  EXPECT_EQ(open(address, {made + "/ca.crt", made + "/team-a.crt", made + "/team-a.key"}).status,
            SYNCD_OK);
  EXPECT_TRUE(daemon.logged("identity=cert:team-a"));
  for (const std::string bad : {"../x", "ca", "a b", "10.0.0.1"}) {
    EXPECT_EQ(run({program("syncctl"), "tls", "issue", made, bad}, directory_.path()).ending,
              exited(2));
  }
}

TEST_F(OverTls, CertificatesAreRenewedForTheSameKeys) {
  const std::string made = directory_.file("made");
  const std::string others = directory_.file("others");
  const auto tls = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {program("syncctl"), "tls"});
    return run(words, directory_.path());
  };
  ASSERT_EQ(tls({"init", made, "--host", "head.example"}).ending, exited(0));
  ASSERT_EQ(tls({"init", others}).ending, exited(0));
  Daemon daemon(directory_, {.tcp = "0.0.0.0:0", .config = read_file(made + "/syncd.toml")});
  const std::string log = daemon.log();
  const std::size_t at = log.find("endpoint=tls:0.0.0.0:") + 21;
  const std::string address = "tls:127.0.0.1:" + log.substr(at, log.find('\n', at) - at);

  const std::string key = read_file(made + "/server.key");
  const std::string old = read_file(made + "/server.crt");
  ASSERT_EQ(chmod((made + "/server.crt").c_str(), 0640), 0);
  const RunResult server = tls({"renew", made, "server", "--days", "700"});
  ASSERT_EQ(server.ending, exited(0)) << server.err;
  EXPECT_THAT(server.out, HasSubstr("systemctl reload syncd"));
  EXPECT_EQ(read_file(made + "/server.key"), key);
  EXPECT_NE(read_file(made + "/server.crt"), old);
  struct stat found {};
  ASSERT_EQ(stat((made + "/server.crt").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0640U);
  ASSERT_EQ(tls({"renew", made, "worker"}).ending, exited(0));
  daemon.reload(" reloaded ");
  EXPECT_EQ(
      open(address, {made + "/ca.crt", made + "/worker.crt", made + "/worker.key"}, "head.example")
          .status,
      SYNCD_OK);

  EXPECT_TRUE(ended(tls({"renew", made, "nobody"}), 4, "nobody.crt cannot be read"));
  EXPECT_EQ(tls({"renew", made, "ca"}).ending, exited(2));
  std::filesystem::copy(others + "/worker.crt", made + "/foreign.crt");
  EXPECT_TRUE(ended(tls({"renew", made, "foreign"}), 4, "this authority has not signed"));
}

TEST_F(OverTls, AHostThatIsNoneAndADirectoryOfOthersAreRefused) {
  const auto init = [&](const std::string& directory, const std::string& host) {
    return run({program("syncctl"), "tls", "init", directory, "--host", host}, directory_.path());
  };
  for (const char* host : {"head.example:7117", "http://head.example", "*", "", "a b"}) {
    const RunResult result = init(directory_.file("hosts"), host);
    EXPECT_EQ(result.ending, exited(2)) << host;
    EXPECT_THAT(result.err, HasSubstr("allowed: a DNS name or a numeric address, without a port"));
  }
  EXPECT_EQ(init(directory_.file("hosts"), "2001:db8::1").ending, exited(0));
  const std::string open = directory_.file("open");
  ASSERT_EQ(mkdir(open.c_str(), 0700), 0);
  ASSERT_EQ(chmod(open.c_str(), 0777), 0);
  const RunResult result = init(open, "head.example");
  EXPECT_TRUE(ended(result, 4, "others may write in it"));
  EXPECT_TRUE(std::filesystem::is_empty(open));
}

TEST_F(OverTls, AnAuthorityThatCannotBeMadeWhollyIsNotMadeAtAll) {
  const std::string made = directory_.file("half");
  ASSERT_EQ(mkdir(made.c_str(), 0700), 0);
  write_file(made + "/syncd.toml", "# mine\n");
  const RunResult half = run({program("syncctl"), "tls", "init", made}, directory_.path());
  EXPECT_EQ(half.ending, exited(4));
  EXPECT_THAT(half.err, HasSubstr("syncd.toml: File exists; nothing is written over"));
  std::size_t left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(made)) {
    EXPECT_EQ(entry.path().filename(), "syncd.toml");
    ++left;
  }
  EXPECT_EQ(left, 1U);
  EXPECT_EQ(read_file(made + "/syncd.toml"), "# mine\n");
  ASSERT_EQ(unlink((made + "/syncd.toml").c_str()), 0);
  const RunResult again = run({program("syncctl"), "tls", "init", made}, directory_.path());
  EXPECT_EQ(again.ending, exited(0)) << again.err;
}

TEST_F(OverTls, TheExampleOfASecureConfigurationIsGood) {
  std::string text = read_file(SYNCD_TEST_SOURCE_DIR "/../packaging/syncd-secure.toml");
  ASSERT_FALSE(text.empty());
  const auto replace = [&](const std::string& from, const std::string& to) {
    std::size_t count = 0;
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
      text.replace(at, from.size(), to);
      at += to.size();
      ++count;
    }
    EXPECT_GT(count, 0U) << from;
  };
  replace("/etc/syncd/tls", directory_.path());
  write_file(directory_.file("secure.toml"), text);
  const RunResult checked =
      run({program("syncd"), "--config", directory_.file("secure.toml"), "--check-config"},
          directory_.path());
  EXPECT_EQ(checked.ending, exited(0)) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("require_client_certificate = true"));
}

// Single bytes of a first message, each sealed: 23 bytes for one.
TEST_F(OverTls, BeforeTheHelloSoMuchIsTakenAndNoMore) {
  Daemon daemon(directory_, options(false));
  RawTlsClient attacker(daemon.tcp_address(), settings());
  wait_until("the handshake", [&] {
    try {
      attacker.receive(Milliseconds(10));
    } catch (const std::runtime_error&) {  // nothing was said
    }
    return attacker.established();
  });
  const std::uint8_t length[] = {0x00, 0x1f, 0, 0};  // 7,936 bytes
  const std::uint8_t byte[] = {0};
  attacker.send_bytes(length);
  EXPECT_THROW(
      {
        for (int i = 0; i < 6'000; ++i) attacker.send_bytes(byte);
        attacker.hello();
      },
      std::runtime_error);
  wait_until("the reason",
             [&] { return daemon.logged("bytes of TLS came before the first message"); });
  RawTlsClient(daemon.tcp_address(), settings()).hello();
}

TEST_F(OverTls, ConnectionsInAnyStateDoNotKeepTheDaemonFromStopping) {
  Daemon daemon(directory_, options(false));
  RawTlsClient greeted(daemon.tcp_address(), settings());
  greeted.hello();
  RawTlsClient shaking(daemon.tcp_address(), settings());
  RawClient silent(daemon.tcp_address());
  EXPECT_EQ(daemon.stop(), exited(0));
  greeted.notification<wire::ShutdownNotice>();
}

TEST_F(OverTls, MistakesOfTheConfigurationAreNamed) {
  const auto expect_mistake = [&](const std::string& text, const std::string& reason) {
    const std::string path = directory_.file("bad.toml");
    write_file(path, text);
    const RunResult checked =
        run({program("syncd"), "--config", path, "--store", "memory", "--check-config"},
            directory_.path());
    EXPECT_EQ(checked.ending, exited(2)) << checked.out;
    EXPECT_THAT(checked.err, AllOf(HasSubstr(path + ":"), HasSubstr(reason)));
  };
  const std::string certificate = "certificate = \"" + files_.certificate("server") + "\"\n";
  expect_mistake("[tls]\n" + certificate, "tls.key is not");
  expect_mistake("[tls]\n" + certificate + "key = \"" + files_.key("worker") + "\"\n",
                 "does not belong");
  expect_mistake("[tls]\n" + certificate + "key = \"/none\"\n", "/none: No such file");
  expect_mistake("[tls]\ncertificate = \"/none\"\nkey = \"" + files_.key("server") + "\"\n",
                 "/none: it cannot be read as a PEM file: No such file");
  expect_mistake(config(false, "require_client_certificate = true\n"), "tls.client_ca is not");
  expect_mistake("[tls]\ncertificate = \"" + files_.certificate("worker") + "\"\nkey = \"" +
                     files_.key("worker") + "\"\n",
                 "worker.crt: it is not for a server");
  expect_mistake(config(false, "client_ca = \"" + files_.certificate("worker") + "\"\n"),
                 "worker.crt: /CN=worker is no authority's certificate");
  write_private_file(files_.key("shown"), read_file(files_.key("server")), 0644);
  expect_mistake("[tls]\n" + certificate + "key = \"" + files_.key("shown") + "\"\n", "mode 0644");
}

}  // namespace
}  // namespace syncd::test
