// Who may administer: over which socket, what others see of jobs that are not theirs, and how much
// one client may take of what is there for all.
#include <gmock/gmock.h>

#include <csignal>

#include "support/daemon.h"
#include "support/raw_client.h"
#include "tests/support/tls_files.h"

namespace syncd::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kA = "team-a-secret-0123456789abc";
constexpr const char* kB = "team-b-secret-0123456789abc";
constexpr const char* kOperator = "ops-secret-0123456789abcdef";

class Control : public ::testing::Test {
 protected:
  std::string auth(const std::string& more = "") const {
    write_private_file(directory_.file("tokens"), std::string("[team-a] ") + kA + "\n[team-b] " +
                                                      kB + "\n[ops] " + kOperator + "\n");
    return "[auth]\ntoken_file = \"" + directory_.file("tokens") + "\"\n" + more;
  }
  static constexpr const char* kTeams =
      "allow = [\"token:team-a a-*\", \"token:team-b b-*\"]\nadmin = [\"token:ops\"]\n";
  DaemonOptions options(const std::string& config) const {
    return {.store = "memory", .tcp = "127.0.0.1:0", .config = config};
  }
  static wire::Body create(const std::string& name) {
    wire::CreateJobRequest request;
    request.name = name;
    request.policy = "asp";
    request.expected_workers = 1;
    return request;
  }
  static wire::Error refusal(RawClient& client, wire::Body body) {
    return RawClient::as<wire::Error>(client.call(std::move(body)));
  }
  static std::vector<std::string> jobs_of(RawClient& client) {
    std::vector<std::string> names;
    for (const auto& job : client.call_for<wire::JobsReply>(wire::JobsRequest{}).jobs) {
      names.push_back(job.name);
    }
    return names;
  }
  TempDir directory_;
};

TEST_F(Control, WhereThereIsASocketForItNothingElseChangesJobs) {
  const std::string control = directory_.file("control.sock");
  Daemon daemon(directory_, options("[listen]\ncontrol = \"" + control + "\"\n"));
  RawClient worker = greeted(daemon.address());
  const std::vector<wire::Body> requests = {create("job"), wire::StopJobRequest{"job", ""},
                                            wire::SetPolicyRequest{"job", "bsp"},
                                            wire::CheckpointRequest{directory_.file("copy")}};
  for (const wire::Body& request : requests) {
    const wire::Error error = refusal(worker, request);
    EXPECT_EQ(error.status, Status::kAuth);
    EXPECT_THAT(error.message, HasSubstr("listen.control"));
  }
  EXPECT_EQ(refusal(worker, join_of("mine", 0, 1, "asp")).status, Status::kUnknownJob)
      << "a join that makes its job changes what there is";

  RawClient operator_ = greeted(std::string("unix:") + control);
  operator_.call_for<wire::Ok>(create("job"));
  operator_.call_for<wire::Ok>(wire::SetPolicyRequest{"job", "bsp"});
  EXPECT_THAT(jobs_of(operator_), ::testing::ElementsAre("job"));
  RawWorker(worker, join_of("job", 0, 1, "")).begin(0);
  operator_.call_for<wire::Ok>(wire::StopJobRequest{"job", ""});
  EXPECT_EQ(daemon.stop(), exited(0));
  EXPECT_FALSE(exists(control));
}

TEST_F(Control, AJoinMayMakeItsJobBesideOneWhereThatIsSaid) {
  Daemon daemon(directory_, options("[listen]\ncontrol = \"" + directory_.file("control.sock") +
                                    "\"\nauto_create = true\n"));
  RawClient worker = greeted(daemon.address());
  RawWorker(worker, join_of("mine", 0, 1, "asp")).begin(0);
}

// The wire's counterpart of HTTP without a token.
TEST_F(Control, WithoutAnIdentityNobodyAdministers) {
  Daemon daemon(directory_, options("[listen]\ncontrol = \"127.0.0.1:0\"\n" + auth()));
  std::string control;
  for (const std::string& line : lines_of(daemon.log())) {
    const std::size_t at = line.find("127.0.0.1:");
    if (line.find("for=control") != std::string::npos)
      control = line.substr(at, line.find(' ', at) - at);
  }
  ASSERT_FALSE(control.empty());
  for (const std::string& address : {control, daemon.tcp_address()}) {
    RawClient silent(address);
    silent.send(create("job"));
    const auto messages = silent.drain_until_closed();
    ASSERT_FALSE(messages.empty());
    EXPECT_EQ(RawClient::as<wire::Error>(messages[0].body).status, Status::kProtocol);
    RawClient unknown(address);
    EXPECT_THROW(unknown.hello(), std::runtime_error);
  }
  RawClient known = greeted(control, kOperator);
  known.call_for<wire::Ok>(create("job"));
}

TEST_F(Control, JobsOfOthersAreNotShown) {
  Daemon daemon(directory_, options(auth(kTeams)));
  RawClient a(daemon.tcp_address());
  RawClient b(daemon.tcp_address());
  RawClient ops(daemon.tcp_address());
  a.hello(kA);
  b.hello(kB);
  ops.hello(kOperator);
  RawWorker(a, join_of("a-1", 0, 1, "asp")).begin(0);
  RawWorker(b, join_of("b-1", 0, 1, "asp")).begin(0);
  RawWorker(b, join_of("b-2", 0, 1, "asp")).begin(0);
  EXPECT_THAT(jobs_of(a), ::testing::ElementsAre("a-1"));
  EXPECT_THAT(jobs_of(b), ::testing::ElementsAre("b-1", "b-2"));
  EXPECT_THAT(jobs_of(ops), ::testing::ElementsAre("a-1", "b-1", "b-2"));
  EXPECT_EQ(a.call_for<wire::StatusReply>(wire::StatusRequest{}).jobs, 1U);
  EXPECT_EQ(b.call_for<wire::StatusReply>(wire::StatusRequest{}).jobs, 2U);
  EXPECT_EQ(b.call_for<wire::StatusReply>(wire::StatusRequest{}).workers, 2U);
  EXPECT_EQ(ops.call_for<wire::StatusReply>(wire::StatusRequest{}).jobs, 3U);
  EXPECT_EQ(refusal(a, wire::WorkersRequest{"b-1", 0}).status, Status::kAuth);
  EXPECT_EQ(refusal(a, wire::WorkersRequest{"#2", 0}).status, Status::kAuth);
  EXPECT_EQ(a.call_for<wire::WorkersReply>(wire::WorkersRequest{"#1", 0}).workers.size(), 1U);
  // Nor by asking as one of its workers: every such request is answered as for a job that is not
  // there.
  for (const std::uint32_t job : {2U, 3U, 4U}) {
    const wire::WorkerRef guess{job, 0, 1, 1};
    for (const wire::Body& body :
         {wire::Body(wire::Begin{guess, 0}), wire::Body(wire::Push{guess, 0, {}, 0, 0}),
          wire::Body(wire::CancelBegin{guess, 0}), wire::Body(wire::Explain{guess}),
          wire::Body(wire::Leave{guess}), wire::Body(wire::Restarted{guess, 0}),
          wire::Body(wire::Phase{guess, "x", 1}), wire::Body(wire::MembersRequest{guess, 0}),
          wire::Body(wire::Targets{guess, 0}), wire::Body(wire::Collect{guess, 0}),
          wire::Body(wire::Consumed{guess, 0})}) {
      const wire::Error error = refusal(a, body);
      EXPECT_EQ(error.status, Status::kUnknownJob) << wire::body_name(body);
      EXPECT_EQ(error.message,
                "there is no job #" + std::to_string(job) + " at this daemon: join again");
    }
  }
}

// Whatever the pattern makes of the text "#1".
TEST_F(Control, ANumberIsNoWayAroundARule) {
  Daemon daemon(directory_, options(auth("allow = [\"token:team-a [!p]*\", \"token:team-b *1\"]\n"
                                         "admin = [\"token:ops\"]\n")));
  RawClient ops = greeted(daemon.tcp_address(), kOperator);
  ops.call_for<wire::Ok>(create("prod"));
  for (const char* token : {kA, kB}) {
    RawClient client = greeted(daemon.tcp_address(), token);
    for (const wire::Body& body :
         {wire::Body(wire::WorkersRequest{"#1", 0}), wire::Body(wire::HistoryRequest{"#1", 1}),
          wire::Body(join_of("#1", 0, 1, "asp"))}) {
      const wire::Error error = refusal(client, body);
      EXPECT_EQ(error.status, Status::kAuth) << wire::body_name(body);
      EXPECT_THAT(error.message, HasSubstr("may not use job '#1'"));
      EXPECT_THAT(error.message, ::testing::Not(HasSubstr("prod")));
    }
  }
}

TEST_F(Control, OneClientMayMakeSoManyJobs) {
  Daemon daemon(directory_,
                options(auth("admin = [\"token:*\"]\n") +
                        "[limits]\njobs_per_identity_max = 2\n[listen]\nauto_create = true\n"));
  RawClient a = greeted(daemon.tcp_address(), kA);
  a.call_for<wire::Ok>(create("one"));
  RawWorker second(a, join_of("two", 0, 1, "asp"));
  for (const wire::Body& third : {create("three"), wire::Body(join_of("three", 0, 1, "asp"))}) {
    const wire::Error error = refusal(a, third);
    EXPECT_EQ(error.status, Status::kLimit);
    EXPECT_THAT(error.message, HasSubstr("limits.jobs_per_identity_max"));
  }
  RawWorker(a, join_of("one", 0, 1, "asp")).begin(0);  // joining what is there makes nothing
  RawClient b = greeted(daemon.tcp_address(), kB);
  b.call_for<wire::Ok>(create("three"));
  a.call_for<wire::Ok>(wire::StopJobRequest{"one", ""});
  a.call_for<wire::Ok>(create("four"));
}

// At the most jobs that are kept the one who has made most of them loses one, and not the one whose
// job is the oldest.
TEST_F(Control, ManyJobsOfOneClientDoNotWashAwayAnothers) {
  Daemon daemon(directory_, options(auth("admin = [\"token:*\"]\n") +
                                    "[listen]\nauto_create = true\n[store]\npath = \"memory\"\n"
                                    "[log]\nlevel = \"warn\"\n"));
  {
    RawClient b = greeted(daemon.tcp_address(), kB);
    b.call_for<wire::Ok>(create("of-b"));
    b.call_for<wire::Ok>(wire::StopJobRequest{"of-b", ""});
  }
  RawClient a = greeted(daemon.tcp_address(), kA);
  constexpr int kJobs = 10'010;  // ten more than are kept, and one of b
  for (int i = 0; i < kJobs; ++i) {
    const std::string name = "a" + std::to_string(i);
    a.call_for<wire::Ok>(create(name));
    a.call_for<wire::Ok>(wire::StopJobRequest{name, ""});
  }
  // Anew: on a slow machine a connection that is silent meanwhile is cut off.
  RawClient b = greeted(daemon.tcp_address(), kB);
  EXPECT_FALSE(b.call_for<wire::HistoryReply>(wire::HistoryRequest{"of-b", 0, 0}).records.empty());
  EXPECT_EQ(refusal(a, wire::HistoryRequest{"a10", 0, 0}).status, Status::kUnknownJob);
  EXPECT_FALSE(a.call_for<wire::HistoryReply>(wire::HistoryRequest{"a11", 0, 0}).records.empty());
}

TEST_F(Control, OneClientMayHaveSoManyConnections) {
  Daemon daemon(directory_, options(auth() + "[limits]\nconnections_per_identity_max = 2\n"));
  RawClient first = greeted(daemon.tcp_address(), kA);
  {
    RawClient second = greeted(daemon.tcp_address(), kA);
    EXPECT_THROW(RawClient(daemon.tcp_address()).hello(kA), std::runtime_error);
    EXPECT_TRUE(daemon.logged("limits.connections_per_identity_max"));
    RawClient(daemon.tcp_address()).hello(kB);
  }
  wait_until("a place to be free", [&] {
    try {
      RawClient(daemon.tcp_address()).hello(kA);
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  });
}

TEST_F(Control, AJobMayHaveSoManyWorkers) {
  Daemon daemon(directory_, options("[limits]\nworkers_per_job_max = 3\n"));
  RawClient client = greeted(daemon.address());
  for (const wire::Body& large : {wire::Body(join_of("large", 0, 4, "asp")),
                                  wire::Body(wire::CreateJobRequest{
                                      .name = "large", .policy = "asp", .expected_workers = 4})}) {
    const wire::Error error = refusal(client, large);
    EXPECT_EQ(error.status, Status::kLimit);
    EXPECT_THAT(error.message, HasSubstr("limits.workers_per_job_max"));
  }
  RawWorker first(client, join_of("job", 0, 3, "asp"));
  RawWorker second(client, join_of("job", 1, 3, "asp"));
  // A limit that is lowered holds for workers to come.
  write_file(directory_.file("syncd.toml"), "[limits]\nworkers_per_job_max = 2\n");
  daemon.reload(" reloaded ");
  EXPECT_EQ(refusal(client, join_of("job", 2, 3, "asp")).status, Status::kLimit);
  second.leave();
  RawWorker third(client, join_of("job", 2, 3, "asp"));
}

}  // namespace
}  // namespace syncd::test
