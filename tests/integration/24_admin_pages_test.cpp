// The pages over HTTP: what they say, who may read them, and that nobody can hold them up.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <memory>

#include "support/daemon.h"
#include "support/http.h"
#include "support/json.h"
#include "support/raw_client.h"
#include "tests/support/tls_files.h"

namespace syncd::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kOps = "ops-secret-0123456789abcdef";
constexpr const char* kScraper = "scraper-secret-0123456789ab";
constexpr const char* kTeam = "team-secret-0123456789abcdef";

std::string bearer(const std::string& token) {
  return "Authorization: Bearer " + token + "\r\n";
}

class AdminPages : public ::testing::Test {
 protected:
  DaemonOptions options(const std::string& config = "") const {
    return {.store = "memory", .admin = "127.0.0.1:0", .config = config};
  }
  std::string auth(const std::string& more = "") const {
    write_private_file(directory_.file("tokens"), std::string("[ops] ") + kOps + "\n[scraper] " +
                                                      kScraper + "\n[team] " + kTeam + "\n");
    return "[auth]\ntoken_file = \"" + directory_.file("tokens") + "\"\n" + more;
  }
  TempDir directory_;
};

TEST_F(AdminPages, ShowAJobAsItRuns) {
  Daemon daemon(directory_, options());
  RawClient client = greeted(daemon.address());
  RawWorker fast(client, join_of("job", 0, 2, "ssp:3"));
  RawWorker slow(client, join_of("job", 1, 2, "ssp:3"));
  const std::uint64_t first = client.send(wire::Begin{fast.ref(), 0});
  slow.begin(0);
  client.answer(first);
  fast.push(0);
  fast.begin(1);
  EXPECT_TRUE(fast.push(1).iteration == 1);
  client.call(fast.push_body(1));  // the same once more

  const HttpReply reply = http_get(daemon.admin_address(), "/metrics");
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.head, HasSubstr("text/plain; version=0.0.4"));
  const std::string& text = reply.body;
  EXPECT_EQ(sample(text, "syncd_job_members{job_name=\"job\",state=\"running\"}"), 2);
  EXPECT_EQ(sample(text, "syncd_job_clock_min{job_name=\"job\"}"), 0);
  EXPECT_EQ(sample(text, "syncd_job_clock_max{job_name=\"job\"}"), 2);
  EXPECT_EQ(sample(text, "syncd_job_clock_lag{job_name=\"job\"}"), 2);
  EXPECT_EQ(sample(text, "syncd_job_pushes_total{job_name=\"job\"}"), 2);
  EXPECT_EQ(sample(text, "syncd_job_duplicate_pushes_total{job_name=\"job\"}"), 1);
  EXPECT_EQ(sample(text, "syncd_job_grants_total{job_name=\"job\"}"), 3);
  EXPECT_EQ(sample(text, "syncd_job_begin_wait_seconds_count{job_name=\"job\"}"), 3);
  EXPECT_EQ(sample(text, "syncd_job_joins_total{job_name=\"job\"}"), 2);
  EXPECT_EQ(sample(text, "syncd_sessions"), 1);
  EXPECT_EQ(sample(text, "syncd_store_read_only"), 0);
  EXPECT_GT(sample(text, "syncd_store_commit_seconds_count"), 0);
  EXPECT_GT(sample(text, "syncd_received_bytes_total"), 0);
  EXPECT_EQ(sample(text, "syncd_connections_refused_total{reason=\"auth\"}"), 0);

  const std::string status = http_get(daemon.admin_address(), "/status").body;
  EXPECT_EQ(json_value(status, "/ready"), "true");
  EXPECT_EQ(json_value(status, "/jobs/0/name"), "job");
  EXPECT_EQ(json_value(status, "/jobs/0/clock_lag"), "2");
  EXPECT_EQ(json_value(status, "/jobs/0/members/running"), "2");
  fast.leave();
  slow.leave();
}

TEST_F(AdminPages, NothingCanBeDoneOverThem) {
  Daemon daemon(directory_, options());
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"}) {
    for (const char* path : {"/status", "/metrics", "/healthz", "/readyz"}) {
      EXPECT_EQ(http_get(daemon.admin_address(), path, "", method).status, 405) << method << path;
    }
  }
  for (const char* path : {"/", "/jobs", "/metrics/", "/healthz%20", "//status", "/../status"}) {
    EXPECT_EQ(http_get(daemon.admin_address(), path).status, 404) << path;
  }
  const HttpReply head = http_get(daemon.admin_address(), "/status", "", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(http_get(daemon.admin_address(), "/status", "Content-Length: 5\r\n").status, 413);
  EXPECT_EQ(
      http_get(daemon.admin_address(), "/status", "X: " + std::string(9'000, 'x') + "\r\n").status,
      431);
}

TEST_F(AdminPages, WithATokenFileOnlyHealthIsForEverybody) {
  Daemon daemon(directory_,
                options(auth("admin = [\"token:ops\"]\nmetrics = [\"token:scraper\"]\n")));
  const std::string address = daemon.admin_address();
  for (const char* path : {"/metrics", "/status"}) {
    EXPECT_EQ(http_get(address, path).status, 401);
    EXPECT_EQ(http_get(address, path, bearer("wrong-secret-0123456789abcdef")).status, 401);
    EXPECT_EQ(http_get(address, path, "Authorization: Basic b3BzOm9wcw==\r\n").status, 401);
    EXPECT_EQ(http_get(address, path, bearer(kTeam)).status, 403);
    EXPECT_EQ(http_get(address, path, bearer(kScraper)).status, 200);
    EXPECT_EQ(http_get(address, path, bearer(kOps)).status, 200);
    EXPECT_THAT(http_get(address, path).body, Not(HasSubstr("syncd_")));
  }
  EXPECT_EQ(http_get(address, "/healthz").body, "ok\n");
  EXPECT_EQ(http_get(address, "/readyz").body, "ready\n");
  for (const char* secret : {kOps, kScraper, kTeam}) EXPECT_FALSE(daemon.logged(secret));
}

TEST_F(AdminPages, SpeakTlsWhereTheDaemonDoes) {
  TlsFiles files(directory_.path());
  files.make_server();
  Daemon daemon(directory_, options("[tls]\ncertificate = \"" + files.certificate("server") +
                                    "\"\nkey = \"" + files.key("server") + "\"\n" + auth()));
  EXPECT_TRUE(daemon.logged("endpoint=https:"));
  const tls::ClientSettings client{files.ca(), "", "", false};
  EXPECT_EQ(https_get(daemon.admin_address(), "/status", client).status, 401);
  EXPECT_EQ(https_get(daemon.admin_address(), "/status", client, bearer(kTeam)).status, 200);
  // What is no TLS gets no answer.
  HttpSocket plain(daemon.admin_address());
  plain.send("GET /status HTTP/1.1\r\n\r\n");
  EXPECT_THAT(plain.receive_all(), Not(HasSubstr("HTTP/1.1 200")));
}

TEST_F(AdminPages, ACertificateSaysWhoReads) {
  TlsFiles files(directory_.path());
  files.make_server();
  for (const char* name : {"ops", "scraper", "team"}) files.make_client(name, {name});
  Daemon daemon(directory_,
                options("[tls]\ncertificate = \"" + files.certificate("server") + "\"\nkey = \"" +
                        files.key("server") + "\"\nclient_ca = \"" + files.ca() +
                        "\"\nrequire_client_certificate = false\n"
                        "[auth]\nallow = [\"cert:team t-*\"]\n"
                        "admin = [\"cert:ops\"]\nmetrics = [\"cert:scraper\"]\n"));
  const auto get = [&](const std::string& name, const std::string& path) {
    tls::ClientSettings client{files.ca(), "", "", false};
    if (!name.empty()) client = {files.ca(), files.certificate(name), files.key(name), false};
    return https_get(daemon.admin_address(), path, client).status;
  };
  for (const char* path : {"/metrics", "/status"}) {
    EXPECT_EQ(get("", path), 403);
    EXPECT_EQ(get("team", path), 403);
    EXPECT_EQ(get("scraper", path), 200);
    EXPECT_EQ(get("ops", path), 200);
  }
  EXPECT_EQ(get("", "/readyz"), 200);
}

// As `syncctl tls init` sets it up: what asks whether the daemon is well has no certificate.
TEST_F(AdminPages, HealthIsForEverybodyWhereCertificatesAreRequired) {
  TlsFiles files(directory_.path());
  files.make_server();
  files.make_client("worker", {"worker"});
  const std::string tls = "[tls]\ncertificate = \"" + files.certificate("server") + "\"\nkey = \"" +
                          files.key("server") + "\"\nclient_ca = \"" + files.ca() + "\"\n";
  const tls::ClientSettings nobody{files.ca(), "", "", false};
  const tls::ClientSettings worker{files.ca(), files.certificate("worker"), files.key("worker"),
                                   false};
  const auto expect_closed = [&](const std::string& address, const std::string& headers) {
    for (const char* path : {"/healthz", "/readyz"}) {
      EXPECT_EQ(https_get(address, path, nobody).status, 200) << path;
    }
    for (const char* path : {"/metrics", "/status"}) {
      const HttpReply reply = https_get(address, path, nobody, headers);
      EXPECT_EQ(reply.status, 403) << path;
      EXPECT_THAT(reply.body, HasSubstr("client certificate"));
      EXPECT_EQ(https_get(address, path, worker, headers).status, 200) << path;
    }
  };
  {
    Daemon daemon(directory_, options(tls));
    expect_closed(daemon.admin_address(), "");
    // A reload leaves it so.
    daemon.reload(" reloaded ");
    expect_closed(daemon.admin_address(), "");
  }
  // Beside the certificate a token is wanted where there are tokens, and is no stand-in for it.
  DaemonOptions with_tokens = options(tls + auth());
  with_tokens.name = "with_tokens";
  Daemon daemon(directory_, with_tokens);
  expect_closed(daemon.admin_address(), bearer(kTeam));
  EXPECT_EQ(https_get(daemon.admin_address(), "/status", worker).status, 401);
}

// Of which each costs a key exchange and a signature.
TEST_F(AdminPages, OneMachineMayBeginSoManyHandshakes) {
  TlsFiles files(directory_.path());
  files.make_server();
  Daemon daemon(directory_,
                options("[tls]\ncertificate = \"" + files.certificate("server") + "\"\nkey = \"" +
                        files.key("server") + "\"\n[limits]\nhandshakes_per_machine_per_s = 1\n"));
  std::vector<std::unique_ptr<HttpSocket>> begun;
  for (int i = 0; i < 60; ++i)
    begun.push_back(std::make_unique<HttpSocket>(daemon.admin_address()));
  const tls::ClientSettings client{files.ca(), "", "", false};
  const HttpReply reply = https_get(daemon.admin_address(), "/metrics", client, "", "127.0.0.2");
  EXPECT_EQ(reply.status, 200);
  EXPECT_GT(sample(reply.body, "syncd_admin_requests_total{result=\"refused\"}"), 20);
}

TEST_F(AdminPages, RulesHoldWithoutATokenFileToo) {
  Daemon daemon(directory_, options("[auth]\nadmin = [\"uid:0\"]\n"));
  EXPECT_EQ(http_get(daemon.admin_address(), "/status").status, 403);
  EXPECT_EQ(http_get(daemon.admin_address(), "/metrics").status, 403);
  EXPECT_EQ(http_get(daemon.admin_address(), "/healthz").status, 200);
}

// More of them than are served at once, none of which ever ends its request, and one after the
// other a byte of each: the next that asks is answered, and so are workers.
TEST_F(AdminPages, SlowReadersAndWritersHoldNobodyUp) {
  Daemon daemon(directory_, options());
  Bystander bystander(daemon.address());
  std::vector<std::unique_ptr<HttpSocket>> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(std::make_unique<HttpSocket>(daemon.admin_address()));
    slow.back()->send(i % 2 == 0 ? "GET /metrics HTTP/1.1\r\nX:" : "");
    if (i % 50 != 0) continue;
    EXPECT_EQ(http_get(daemon.admin_address(), "/healthz").status, 200);
    bystander.expect_progress(1);
  }
  for (const auto& one : slow) one->send("x");
  const std::string text = http_get(daemon.admin_address(), "/metrics").body;
  EXPECT_GT(sample(text, "syncd_admin_requests_total{result=\"refused\"}"), 100);
  bystander.expect_progress();
  // Whoever is still there is cut off when its time is over.
  EXPECT_EQ(slow.back()->receive_all(), "");
}

TEST_F(AdminPages, AStoreThatCannotBeWrittenIsNotReady) {
  DaemonOptions durable = options();
  durable.store = "";
  durable.flags = {};
  Daemon daemon(directory_, durable);
  EXPECT_EQ(http_get(daemon.admin_address(), "/readyz").status, 200);
  RawClient client = greeted(daemon.address());
  RawWorker worker(client, join_of("job", 0, 1, "asp"));
  worker.begin(0);
  // A limit on the size of files stands for a full disk.
  const rlimit none{1, RLIM_INFINITY};
  ASSERT_EQ(prlimit(daemon.pid(), RLIMIT_FSIZE, &none, nullptr), 0);
  client.send(worker.push_body(0));
  wait_until("the daemon not to be ready",
             [&] { return http_get(daemon.admin_address(), "/readyz").status == 503; });
  EXPECT_EQ(http_get(daemon.admin_address(), "/readyz").body, "the store cannot be written\n");
  const std::string status = http_get(daemon.admin_address(), "/status").body;
  EXPECT_EQ(json_value(status, "/not_ready"), "the store cannot be written");
  EXPECT_NE(json_value(status, "/store/reason"), "");
  EXPECT_EQ(http_get(daemon.admin_address(), "/healthz").status, 200);
  EXPECT_EQ(sample(http_get(daemon.admin_address(), "/metrics").body, "syncd_store_read_only"), 1);
  const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
  ASSERT_EQ(prlimit(daemon.pid(), RLIMIT_FSIZE, &all, nullptr), 0);
  wait_until("the daemon to be ready again",
             [&] { return http_get(daemon.admin_address(), "/readyz").status == 200; });
}

TEST_F(AdminPages, AForgottenPortIsNoReasonToFailAndAChosenOneIs) {
  Daemon first(directory_, options());
  DaemonOptions second = options();
  second.name = "second";
  second.admin = first.admin_address();
  EXPECT_THROW(Daemon(directory_, second), std::runtime_error);
  const std::string log = read_file(directory_.file("second-1.log"));
  EXPECT_THAT(log, HasSubstr("exit_code=4"));
  EXPECT_THAT(log, HasSubstr("listen.admin"));
}

}  // namespace
}  // namespace syncd::test
