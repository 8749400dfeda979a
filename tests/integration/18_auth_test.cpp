// Tokens, certificates and users against the real daemon: who may come in, who may use which job,
// who may change one, and that no secret is ever written anywhere.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "support/daemon.h"
#include "support/http.h"
#include "support/raw_tls_client.h"
#include "syncd/client.h"
#include "tests/support/odd_certificate.h"
#include "tests/support/tls_files.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kToken = "first-secret-0123456789abcdef";
constexpr const char* kOther = "other-secret-0123456789abcdef";
constexpr const char* kWrong = "wrong-secret-0123456789abcdef";

class Auth : public ::testing::Test {
 protected:
  Auth() {
    write_private_file(tokens(), std::string("[team-a] ") + kToken + "\n[ops] " + kOther + "\n");
    files_.make_server();
    files_.make_client("worker", {"w1.team-a.example"});
  }
  std::string tokens() const { return directory_.file("tokens"); }
  std::string auth(const std::string& more = "") const {
    return "[auth]\ntoken_file = \"" + tokens() + "\"\n" + more;
  }
  std::string tls(const std::string& more = "") const {
    return "[tls]\ncertificate = \"" + files_.certificate("server") + "\"\nkey = \"" +
           files_.key("server") + "\"\n" + more;
  }
  DaemonOptions options(const std::string& config) const {
    return {.tcp = "127.0.0.1:0", .config = config};
  }
  // What the library says to one who comes with this token.
  std::string open(const std::string& address, const std::string& token) {
    write_private_file(directory_.file("mine"), token);
    syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
    options.addresses = address.c_str();
    const std::string path = directory_.file("mine");
    options.token_file = token.empty() ? nullptr : path.c_str();
    options.connect_timeout_ms = 60'000;
    syncd_client* client = nullptr;
    syncd_error* error = nullptr;
    syncd_client_open(&options, &client, &error);
    const std::string said =
        error == nullptr ? "welcome"
                         : std::string(syncd_error_name(error)) + ": " + syncd_error_message(error);
    syncd_error_free(error);
    syncd_client_close(client);
    return said;
  }
  static wire::Error refusal(RawClient& client, wire::Body body) {
    return RawClient::as<wire::Error>(client.call(std::move(body)));
  }

  TempDir directory_;
  TlsFiles files_{directory_.path()};
};

TEST_F(Auth, ATokenIsWantedAndAWrongOneIsRefused) {
  Daemon daemon(directory_, options(auth()));
  const std::string address = "tcp:" + daemon.tcp_address();
  EXPECT_EQ(open(address, kToken), "welcome");
  EXPECT_EQ(open(address, std::string(kOther) + "\n"), "welcome");
  EXPECT_THAT(open(address, ""), AllOf(HasSubstr("SYNCD_E_AUTH"), HasSubstr("wants a token")));
  EXPECT_THAT(open(address, kWrong),
              AllOf(HasSubstr("SYNCD_E_AUTH"), HasSubstr("not one of this daemon's"),
                    Not(HasSubstr(kWrong))));
  EXPECT_EQ(open(daemon.address(), ""), "welcome") << "the daemon's own user, on this machine";
}

TEST_F(Auth, NothingCanBeAskedBeforeTheHello) {
  Daemon daemon(directory_, options(auth()));
  const std::vector<wire::Body> requests = {wire::StatusRequest{}, wire::JobsRequest{},
                                            wire::StopJobRequest{"job", "because"},
                                            join_of("job", 0, 1)};
  for (const wire::Body& request : requests) {
    RawClient client(daemon.tcp_address());
    client.send(request);
    const auto answers = client.drain_until_closed();
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(RawClient::as<wire::Error>(answers[0].body).status, Status::kProtocol);
  }
  RawClient client(daemon.tcp_address());
  wire::Hello hello{kProtocolMin, kProtocolMax, "attacker", "1", kWrong};
  client.send(hello);
  client.send(wire::StopJobRequest{"job", "because"});
  const auto answers = client.drain_until_closed();
  ASSERT_EQ(answers.size(), 1U) << "what follows a refused Hello is not read";
  EXPECT_EQ(RawClient::as<wire::Error>(answers[0].body).status, Status::kAuth);
  EXPECT_FALSE(daemon.logged("action=stop_job"));
}

TEST_F(Auth, TokensAreRotatedByAReload) {
  Daemon daemon(directory_, options(auth()));
  const std::string address = "tcp:" + daemon.tcp_address();
  RawClient before = greeted(daemon.tcp_address(), kToken);
  write_private_file(tokens(), kWrong);
  daemon.reload(" reloaded ");
  EXPECT_EQ(open(address, kWrong), "welcome");
  EXPECT_THAT(open(address, kToken), HasSubstr("SYNCD_E_AUTH"));
  before.call_for<wire::StatusReply>(wire::StatusRequest{});
  write_private_file(tokens(), kToken, 0644);
  daemon.reload("not_reloaded");
  EXPECT_EQ(open(address, kWrong), "welcome") << "those of before are in force";
  EXPECT_THAT(open(address, kToken), HasSubstr("SYNCD_E_AUTH"));
}

TEST_F(Auth, ACertificateForAnotherJobIsRefusedAndBothAreNamed) {
  Daemon daemon(directory_, options(tls("client_ca = \"" + files_.ca() + "\"\n") +
                                    "[auth]\nallow = [\"cert:*.team-a.example a-*\"]\n"));
  RawTlsClient client(daemon.tcp_address(),
                      {files_.ca(), files_.certificate("worker"), files_.key("worker")});
  client.hello();
  client.call_for<wire::Joined>(join_of("a-cnn", 0, 1, "asp"));
  for (const wire::Body& request : {wire::Body(join_of("b-cnn", 0, 1, "asp")),
                                    wire::Body(wire::HistoryRequest{"b-cnn", 0, 0, 0}),
                                    wire::Body(wire::WorkersRequest{"b-cnn", 0})}) {
    const wire::Error error = refusal(client, request);
    EXPECT_EQ(error.status, Status::kAuth);
    EXPECT_THAT(error.message, AllOf(HasSubstr("cert:w1.team-a.example"), HasSubstr("'b-cnn'")));
  }
  EXPECT_EQ(refusal(client, wire::StopJobRequest{"a-cnn", "because"}).status, Status::kAuth);
  EXPECT_EQ(
      refusal(client, wire::ManageWorkerRequest{"a-cnn", "0", wire::WorkerAction::kKick, "", 0})
          .status,
      Status::kAuth);
  EXPECT_THAT(daemon.log(), AllOf(HasSubstr("refused peer="), HasSubstr("job=a-cnn"),
                                  HasSubstr("result=SYNCD_E_AUTH")));
}

// It has no name that a rule could have, and yet its shares are its own.
TEST_F(Auth, ACertificateWithoutANameIsSomebodyToo) {
  files_.make("nameless", {.for_client = true});
  Daemon daemon(directory_, options(tls("client_ca = \"" + files_.ca() + "\"\n") +
                                    "[limits]\njobs_per_identity_max = 1\n"
                                    "connections_per_identity_max = 2\n"));
  const tls::ClientSettings nameless{files_.ca(), files_.certificate("nameless"),
                                     files_.key("nameless")};
  RawTlsClient client(daemon.tcp_address(), nameless);
  client.hello();
  client.call_for<wire::Joined>(join_of("a", 0, 2, "asp"));
  const wire::Error error = refusal(client, join_of("b", 0, 2, "asp"));
  EXPECT_EQ(error.status, Status::kLimit);
  EXPECT_THAT(error.message, HasSubstr("'cert-sha256:"));
  EXPECT_TRUE(daemon.logged("identity=cert-sha256:"));
  RawTlsClient second(daemon.tcp_address(), nameless);
  second.hello();
  EXPECT_THROW(RawTlsClient(daemon.tcp_address(), nameless).hello(), std::runtime_error);
  EXPECT_TRUE(daemon.logged("limits.connections_per_identity_max"));
  RawTlsClient other(daemon.tcp_address(),
                     {files_.ca(), files_.certificate("worker"), files_.key("worker")});
  other.hello();
}

// Whatever an authority has signed: what a zero cuts short, or a line break continues elsewhere, is
// nobody's name.
TEST_F(Auth, NamesOfOddBytesInACertificateAreNobody) {
  using namespace std::string_literals;
  write_odd_certificate(files_.certificate("odd"), files_.key("odd"),
                        {"w1.team-a.example\0.evil.example"s, "w2.team-a.example\n"s,
                         "x\naudit identity=forged"s, "w3 .team-a.example"s, "\xff.team-a.example"s,
                         std::string(300, 'w') + ".team-a.example", "", "known.example"});
  Daemon daemon(directory_, options(tls("client_ca = \"" + files_.certificate("odd") + "\"\n") +
                                    "[auth]\nallow = [\"cert:*team-a.example* *\"]\n"));
  RawTlsClient client(daemon.tcp_address(),
                      {files_.ca(), files_.certificate("odd"), files_.key("odd")});
  client.hello();
  EXPECT_THAT(refusal(client, join_of("a-cnn", 0, 1, "asp")).message,
              HasSubstr("'cert:known.example' may not use job 'a-cnn'"));
  EXPECT_TRUE(daemon.logged("identity=cert:known.example"));
  EXPECT_THAT(daemon.log(), AllOf(Not(HasSubstr("team-a.example")), Not(HasSubstr("forged"))));
}

TEST_F(Auth, WhoeverChangesAJobStandsInTheLog) {
  Daemon daemon(directory_, options(auth("admin = [\"token:ops\"]\n")));
  RawClient worker = greeted(daemon.tcp_address(), kToken);
  EXPECT_EQ(refusal(worker, wire::CreateJobRequest{"j", "asp", 1, 0}).status, Status::kAuth);
  RawClient operator_ = greeted(daemon.tcp_address(), kOther);
  operator_.call_for<wire::Ok>(wire::CreateJobRequest{"j", "asp", 1, 0});
  operator_.call_for<wire::Ok>(wire::SetPolicyRequest{"j", "bsp"});
  EXPECT_EQ(refusal(operator_,
                    wire::ManageWorkerRequest{"j", "0", static_cast<wire::WorkerAction>(9), "", 0})
                .status,
            Status::kUnknownWorker);
  wire::Join join = join_of("j", 0, 1, "");
  join.notices = wire::kNoticeCheckpoint;
  const wire::WorkerRef ref = worker.call_for<wire::Joined>(join).worker;
  worker.call_for<wire::Granted>(wire::Begin{ref, 0});
  operator_.call_for<wire::CheckpointAsked>(wire::OrderCheckpoint{"j", "the night"});
  operator_.call_for<wire::Ok>(wire::StopJobRequest{"j", "the end"});
  const auto expect_audit = [&](const std::string& action, const std::string& who,
                                const std::string& result) {
    for (const std::string& line : lines_of(daemon.log())) {
      if (line.find("audit action=" + action + " job=j ") == std::string::npos ||
          line.find("identity=" + who) == std::string::npos) {
        continue;
      }
      EXPECT_THAT(line, AllOf(HasSubstr("peer=127.0.0.1:"), HasSubstr("result=" + result)));
      return;
    }
    ADD_FAILURE() << "no audit of " << action << " by " << who;
  };
  expect_audit("create_job", "token:team-a", "SYNCD_E_AUTH");
  expect_audit("create_job", "token:ops", "done");
  expect_audit("set_policy", "token:ops", "done");
  expect_audit("unknown_worker_action_9", "token:ops", "SYNCD_E_UNKNOWN_WORKER");
  expect_audit("order_checkpoint", "token:ops", "done");
  expect_audit("stop_job", "token:ops", "done");
}

// A join that makes its job changes what there is for everybody, and a reload who may do so.
TEST_F(Auth, AJobThatAJoinMakesAndAReloadStandInTheLog) {
  Daemon daemon(directory_, options("[listen]\nauto_create = true\n" + auth()));
  const auto audits = [&] {
    std::vector<std::string> lines;
    for (const std::string& line : lines_of(daemon.log())) {
      if (line.find(" audit ") != std::string::npos) lines.push_back(line);
    }
    return lines;
  };
  RawClient client = greeted(daemon.tcp_address(), kToken);
  client.call_for<wire::Joined>(join_of("made", 0, 2, "asp"));
  client.call_for<wire::Joined>(join_of("made", 1, 2, "asp"));  // makes nothing
  EXPECT_EQ(refusal(client, join_of("bad", 0, 1, "no-such-policy")).status, Status::kInvalid);
  std::vector<std::string> lines = audits();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("audit action=create_job job=made policy=asp by=join "),
                              HasSubstr("identity=token:team-a"), HasSubstr("result=done")));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("job=bad"), HasSubstr("result=SYNCD_E_INVALID")));
  write_private_file(tokens(), kOther);
  daemon.reload(" reloaded ");
  write_private_file(tokens(), kOther, 0644);
  daemon.signal(SIGHUP);
  wait_until("the refusal", [&] { return audits().size() == 4; });
  lines = audits();
  EXPECT_THAT(lines[2], AllOf(HasSubstr("action=reload"), HasSubstr("changed=\"no setting\""),
                              HasSubstr("files=auth.token_file "), HasSubstr("result=done")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("action=reload"), HasSubstr("files=none "),
                              HasSubstr("result=refused")));
}

// The answer to another request with the same id, which comes first, is none to what is audited.
TEST_F(Auth, AnIdThatIsUsedTwiceGivesNoWrongResult) {
  Daemon daemon(directory_, options(""));
  RawClient client = greeted(daemon.address());
  wire::Encoder encoder;
  std::vector<std::uint8_t> both;
  encoder.append({7, wire::CheckpointRequest{directory_.path()}}, both);  // which is there already
  encoder.append({7, wire::JobsRequest{}}, both);
  client.send_bytes(both);
  RawClient::as<wire::JobsReply>(client.answer(7));
  EXPECT_EQ(RawClient::as<wire::Error>(client.answer(7)).status, Status::kStore);
  EXPECT_TRUE(daemon.logged("action=copy_store"));
  EXPECT_THAT(daemon.log(),
              AllOf(HasSubstr("result=SYNCD_E_STORE"), Not(HasSubstr("result=done"))));
}

// Nor with how often they ask.
TEST_F(Auth, RefusalsOfOneClientAreToldSoOftenAndThenCounted) {
  write_private_file(tokens(), std::string("[team-a] ") + kToken + "\n[ops] " + kOther);
  Daemon daemon(directory_, options(auth("admin = [\"token:ops\"]\n")));
  RawClient client = greeted(daemon.tcp_address(), kToken);
  constexpr int kRequests = 300;
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_EQ(refusal(client, wire::StopJobRequest{"none", "why not"}).status, Status::kAuth);
  }
  RawClient operator_client = greeted(daemon.tcp_address(), kOther);
  EXPECT_EQ(refusal(operator_client, wire::StopJobRequest{"none", "why not"}).status,
            Status::kUnknownJob);
  wait_until("the count", [&] { return daemon.logged("log_lines_left_out event=refused_audit"); });
  int audits = 0;
  int left_out = 0;
  for (const std::string& line : lines_of(daemon.log())) {
    if (line.find("identity=token:team-a") == std::string::npos) continue;
    audits += line.find("info audit action=stop_job") != std::string::npos ? 1 : 0;
    left_out += line.find("debug refused_audit action=stop_job") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(audits + left_out, kRequests);
  EXPECT_GE(audits, 20);
  EXPECT_GT(left_out, 0) << "300 requests within 15 s";
  EXPECT_THAT(daemon.log(), HasSubstr("event=refused_audit identity=token:team-a"));
  // Another's are no fewer for it.
  EXPECT_THAT(daemon.log(), ::testing::ContainsRegex("info audit action=stop_job .*token:ops"));
}

// Whoever may use one job alone must not fill the log's disk with what they make up.
TEST_F(Auth, WhatAClientMakesUpStandsInTheLogCutShort) {
  Daemon daemon(directory_,
                options(auth("allow = [\"token:team-a a-*\"]\nadmin = [\"token:ops\"]\n")));
  RawClient client = greeted(daemon.tcp_address(), kToken);
  const std::string large = "a-" + std::string(60'000, 'x');
  const std::vector<wire::Body> requests = {
      wire::StopJobRequest{large, ""},
      wire::StopJobRequest{"a-1", large},
      wire::SetPolicyRequest{"a-1", large},
      wire::CheckpointRequest{"/" + large},
      wire::CreateJobRequest{large, "asp", 1, 0},
      wire::ManageWorkerRequest{"a-1", large, wire::WorkerAction::kKick, "", 0},
      wire::ManageWorkerRequest{"a-1", "0", wire::WorkerAction::kKick, large, 0},
      wire::WorkersRequest{"b" + large, 0}};
  for (const wire::Body& request : requests) {
    EXPECT_EQ(refusal(client, request).status, Status::kAuth);
  }
  std::size_t lines = 0;
  for (const std::string& line : lines_of(daemon.log())) {
    EXPECT_LT(line.size(), 2'000U) << line.substr(0, 200);
    lines += line.find("xxx... (60") != std::string::npos ? 1 : 0;
  }
  // Of each an audit, but for the last, and a refusal where the job is named in it.
  EXPECT_GE(lines, requests.size());
}

// A worker's token is no operator's, also where nobody is named as one.
TEST_F(Auth, TheStoreIsCopiedForNamedAdministratorsAlone) {
  Daemon daemon(directory_, options(auth()));
  const std::string copy = directory_.file("copy");
  RawClient worker = greeted(daemon.tcp_address(), kToken);
  worker.call_for<wire::Ok>(wire::CreateJobRequest{"j", "asp", 1, 0});
  EXPECT_EQ(refusal(worker, wire::CheckpointRequest{copy}).status, Status::kAuth);
  EXPECT_FALSE(exists(copy));
  RawClient owner = greeted(daemon.address());
  owner.call_for<wire::Ok>(wire::CheckpointRequest{copy});
  EXPECT_TRUE(exists(copy + "/CURRENT"));
}

TEST_F(Auth, TheAuditIsWrittenWhateverTheLevelOfTheLog) {
  Daemon daemon(directory_, {.flags = {"--log-level", "error"}});
  RawClient client = greeted(daemon.address());
  client.call_for<wire::Ok>(wire::CreateJobRequest{"j", "asp", 1, 0});
  EXPECT_TRUE(daemon.logged(" info audit action=create_job job=j "));
  EXPECT_FALSE(daemon.logged(" info job_created "));
}

// New addresses and TLS wait for a restart: rules that count on them must wait, too.
TEST_F(Auth, RulesAreNotTakenOnWithoutTheTlsTheyGoWith) {
  Daemon daemon(directory_, options(auth()));
  write_file(directory_.file("syncd.toml"), tls("client_ca = \"" + files_.ca() + "\"\n"));
  daemon.reload("not_reloaded");
  EXPECT_THAT(daemon.log(), AllOf(HasSubstr("auth.token_file cannot be taken on without "
                                            "tls.certificate, tls.key, tls.client_ca"),
                                  HasSubstr("restart it")));
  const std::string address = "tcp:" + daemon.tcp_address();
  EXPECT_THAT(open(address, ""), HasSubstr("wants a token"));
  EXPECT_EQ(open(address, kToken), "welcome");
  // One by one they may change.
  write_file(directory_.file("syncd.toml"), tls("client_ca = \"" + files_.ca() + "\"\n") + auth());
  daemon.reload(" reloaded ");
  EXPECT_THAT(open(address, ""), HasSubstr("wants a token"));
}

TEST_F(Auth, NoSecretIsWrittenAnywhere) {
  DaemonOptions with_pages =
      options(auth("allow = [\"token:team-a a\"]\nadmin = [\"token:ops\"]\n"));
  with_pages.admin = "127.0.0.1:0";
  Daemon daemon(directory_, with_pages);
  const std::string address = "tcp:" + daemon.tcp_address();
  std::string said;
  const auto read_pages = [&] {
    for (const char* path : {"/metrics", "/status"}) {
      for (const char* token : {kToken, kOther, kWrong}) {
        const HttpReply reply = http_get(daemon.admin_address(), path,
                                         "Authorization: Bearer " + std::string(token) + "\r\n");
        EXPECT_EQ(reply.status, token == kOther ? 200 : token == kToken ? 403 : 401) << path;
        said += reply.head + reply.body;
      }
    }
  };
  for (const std::string& token : {std::string(kToken), std::string(kOther), std::string(kWrong)}) {
    said += open(address, token);
    write_private_file(directory_.file("mine"), token);
    for (const char* command : {"status", "jobs"}) {
      const RunResult result = run({program("syncctl"), "--addr", address, "--token-file",
                                    directory_.file("mine"), "--json", command},
                                   directory_.path());
      said += result.out + result.err;
    }
  }
  RawClient client = greeted(daemon.tcp_address(), kToken);
  said += refusal(client, join_of("b", 0, 1)).message;
  RawClient garbage(daemon.tcp_address());
  garbage.send_bytes(std::string(kToken) + kToken);
  for (const auto& message : garbage.drain_until_closed())
    said += RawClient::describe(message.body);
  // Nor do files that a policy names tell anything of what stands in them.
  const std::string policy = "hop:file:" + tokens();
  const wire::Error refused = refusal(client, join_of("a", 0, 1, policy));
  EXPECT_EQ(refused.status, Status::kAuth);
  EXPECT_THAT(refused.message, HasSubstr("auth.admin"));
  RawClient owner = greeted(daemon.address());
  const wire::Error unread = refusal(owner, wire::CreateJobRequest{"a", policy, 1, 0});
  EXPECT_EQ(unread.status, Status::kInvalid);
  EXPECT_THAT(unread.message, HasSubstr(tokens() + ":1: node number: allowed"));
  said += refused.message + unread.message;
  read_pages();
  // The tokens end in a mistake, which is told, while what stands there is not.
  write_private_file(tokens(), std::string(kToken) + "\n[x y] " + kOther + "\n");
  daemon.reload("not_reloaded");
  read_pages();
  const RunResult checked =
      run({program("syncd"), "--config", directory_.file("syncd.toml"), "--check-config"},
          directory_.path());
  said += checked.out + checked.err;
  EXPECT_EQ(checked.ending, exited(2));
  EXPECT_EQ(daemon.stop(), exited(0));
  said += daemon.log();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(daemon.store_path())) {
    said += read_file(entry.path());
  }
  ASSERT_THAT(said, AllOf(HasSubstr("identity=token:team-a"), HasSubstr("syncd_build_info"),
                          HasSubstr("\"ready\"")))
      << "it has been at work";
  for (const char* secret : {kToken, kOther, kWrong, "secret-0123"}) {
    EXPECT_EQ(said.find(secret), std::string::npos) << "at " << said.substr(said.find(secret), 60);
  }
}

// The path is opened with the daemon's rights: it is for those that may use them.
// A likely mistake, which must not put the token into the log.
TEST_F(Auth, ATokenInThePlaceOfItsFileIsNotRepeated) {
  write_file(directory_.file("c.toml"), std::string("[auth]\ntoken_file = \"") + kToken + "\"\n");
  const RunResult result = run({program("syncd"), "--config", directory_.file("c.toml"), "--store",
                                "memory", "--check-config"},
                               directory_.path());
  EXPECT_EQ(result.ending, exited(2));
  EXPECT_THAT(result.err, AllOf(HasSubstr("there is no such file"), Not(HasSubstr(kToken))));
}

TEST_F(Auth, AFileIsReadForAdministratorsAlone) {
  const std::string graph = directory_.file("graph");
  const std::string pipe = directory_.file("pipe");
  write_file(graph, "0 1\n1 2\n2 0\n");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Daemon daemon(directory_,
                options("[listen]\nauto_create = true\n" + auth("admin = [\"token:ops\"]\n") +
                        "[[job]]\nname = \"declared\"\nexpected_workers = 3\n"
                        "policy = \"hop:file:" +
                        graph + "\"\n"));
  RawClient worker(daemon.tcp_address());
  RawClient operator_(daemon.tcp_address());
  worker.hello(kToken);
  operator_.hello(kOther);
  const std::string policy = "hop:file:" + graph;
  EXPECT_EQ(refusal(worker, join_of("made", 0, 3, policy)).status, Status::kAuth);
  operator_.call_for<wire::Ok>(wire::CreateJobRequest{"made", policy, 3, 0});
  worker.call_for<wire::Joined>(join_of("made", 0, 3, policy));
  worker.call_for<wire::Joined>(join_of("declared", 0, 3, policy));
  // Not even those learn what there is and what not.
  std::string said;
  for (const std::string& path : {pipe, directory_.file("none"), directory_.path()}) {
    std::string text =
        refusal(operator_, wire::CreateJobRequest{"other", "hop:file:" + path, 3, 0}).message;
    const std::size_t at = text.find(path);
    ASSERT_NE(at, std::string::npos) << text;
    while (text.find(path) != std::string::npos) text.erase(text.find(path), path.size());
    if (said.empty()) said = text;
    EXPECT_EQ(text, said);
  }
}

TEST_F(Auth, WithoutRulesAFileIsReadForThisMachineAndNotShown) {
  Daemon daemon(directory_, options(""));
  const std::string secret = directory_.file("secret");
  write_private_file(secret, std::string(kToken) + "\n");
  RawClient client = greeted(daemon.tcp_address());
  const wire::Error error = refusal(client, join_of("job", 0, 1, "hop:file:" + secret));
  EXPECT_EQ(error.status, Status::kInvalid);
  EXPECT_THAT(error.message, AllOf(HasSubstr(secret + ":1: "), Not(HasSubstr("secret-0123"))));
}

// ---- Listening beyond this machine -------------------------------------------------------------

TEST_F(Auth, BeyondLocalhostTlsAndAuthenticationAreWantedUnlessItIsSaidToBeInsecure) {
  const auto start = [&](const std::string& config, const std::vector<std::string>& more = {}) {
    write_file(directory_.file("c.toml"), config);
    std::vector<std::string> argv = {program("syncd"),
                                     "--config",
                                     directory_.file("c.toml"),
                                     "--store",
                                     "memory",
                                     "--unix",
                                     "off",
                                     "--tcp",
                                     "0.0.0.0:0",
                                     "--check-config"};
    argv.insert(argv.end(), more.begin(), more.end());
    return run(argv, directory_.path());
  };
  const RunResult nothing = start("");
  EXPECT_EQ(nothing.ending, exited(2));
  EXPECT_THAT(nothing.err,
              AllOf(HasSubstr("neither TLS nor authentication"), HasSubstr("syncctl tls init")));
  EXPECT_THAT(start(auth()).err, HasSubstr("there is no TLS"));
  EXPECT_THAT(start(tls()).err, HasSubstr("there is no authentication"));
  EXPECT_EQ(start(tls() + auth()).ending, exited(0));
  EXPECT_EQ(start(tls("client_ca = \"" + files_.ca() + "\"\n")).ending, exited(0));
  const std::string optional =
      "client_ca = \"" + files_.ca() + "\"\nrequire_client_certificate = false\n";
  EXPECT_THAT(start(tls(optional)).err, HasSubstr("there is no authentication"));
  EXPECT_EQ(start("", {"--insecure"}).ending, exited(0));

  Daemon insecure(directory_, {.name = "insecure", .tcp = "0.0.0.0:0", .flags = {"--insecure"}});
  EXPECT_THAT(insecure.log(),
              AllOf(HasSubstr("warn open_to_anybody"), HasSubstr("listen.insecure")));
  Daemon secure(directory_, {.name = "secure", .tcp = "0.0.0.0:0", .config = tls() + auth()});
  EXPECT_FALSE(secure.logged("open_to_anybody"));
}

}  // namespace
}  // namespace syncd::test
