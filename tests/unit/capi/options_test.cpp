// What a caller passed and what the environment says: sizes of structs, times, names, ranks.
#include "options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "../libclient/print_status.h"

namespace syncd::capi {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// Every variable that the library reads is unset for the test, and afterwards.
class Options : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name :
         {"SYNCD_ADDR", "SYNCD_JOB", "SYNCD_TOKEN_FILE", "SYNCD_CA_FILE", "SYNCD_CERTIFICATE_FILE",
          "SYNCD_KEY_FILE", "SYNCD_SERVER_NAME", "SYNCD_CONNECT_TIMEOUT_SEC",
          "SYNCD_RECONNECT_TIMEOUT_SEC", "SYNCD_BEGIN_TIMEOUT_SEC", "SYNCD_REQUEST_TIMEOUT_SEC",
          "RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK",
          "OMPI_COMM_WORLD_SIZE", "SYNCD_LAUNCH", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID",
          "SLURM_RESTART_COUNT", "SLURM_STEP_ID", "SYNCD_JOIN_TIMEOUT_SEC"}) {
      unsetenv(name);
    }
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }

  // What is wrong with a call's arguments; "": nothing.
  template <typename Call>
  static std::string error_of(const Call& call) {
    try {
      call();
    } catch (const Outcome& outcome) {
      EXPECT_EQ(outcome.status, Status::kInvalid);
      return outcome.message;
    }
    return {};
  }
  static ClientSettings client(const syncd_client_options* options = nullptr) {
    ClientSettings settings;
    EXPECT_EQ(error_of([&] { settings = make_client_settings(options); }), "");
    return settings;
  }
  static std::string client_error(const syncd_client_options* options = nullptr) {
    return error_of([&] { make_client_settings(options); });
  }
  static JoinSettings join(const syncd_join_options* options = nullptr) {
    JoinSettings settings;
    EXPECT_EQ(error_of([&] { settings = make_join_settings(options); }), "");
    return settings;
  }
  static std::string join_error(const syncd_join_options* options = nullptr) {
    return error_of([&] { make_join_settings(options); });
  }
};

// ---- Structs that may grow ----------------------------------------------------------------------

struct Grown {  // as a later release may know it
  std::size_t struct_size;
  std::int64_t first;
  std::int64_t second;  // added later
};
constexpr std::size_t kGrownFirstSize = SYNCD_SIZE_UP_TO(Grown, first);

TEST_F(Options, AStructOfAnOlderHeaderIsCompletedByDefaults) {
  const Grown given{kGrownFirstSize, 5, 999};
  Grown known{sizeof(Grown), 1, 2};
  read_struct(&given, kGrownFirstSize, "grown", known);
  EXPECT_EQ(known.first, 5);
  EXPECT_EQ(known.second, 2) << "the caller has no such field: what lies there is not read";
}

struct Older {  // as an earlier release knows it
  std::size_t struct_size;
  std::int64_t first;
};

TEST_F(Options, AStructOfANewerHeaderIsTakenIfItsNewFieldsAreUnset) {
  Grown given{sizeof(Grown), 5, 0};
  Older known{};
  const auto read = [&] {
    read_struct(reinterpret_cast<const Older*>(&given), sizeof(Older), "older", known);
  };
  read();
  EXPECT_EQ(known.first, 5);
  given.second = 1;
  const std::string error = error_of(read);
  EXPECT_THAT(error, HasSubstr("older.struct_size is 24"));
  EXPECT_THAT(error, HasSubstr("knows the first 16 bytes"));
}

TEST_F(Options, ASizeThatNoHeaderHasIsNamed) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{63}}) {
    syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
    options.struct_size = size;
    const std::string error = client_error(&options);
    EXPECT_THAT(error, HasSubstr("syncd_client_options.struct_size is " + std::to_string(size)));
    EXPECT_THAT(error, HasSubstr("knows sizes from 64 to 96"));
    EXPECT_THAT(error, HasSubstr("_INIT macro"));
  }
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.struct_size = std::numeric_limits<std::size_t>::max();
  EXPECT_THAT(join_error(&options), HasSubstr("takes at most 4096"));
}

// ---- The client ---------------------------------------------------------------------------------

TEST_F(Options, DefaultsAreThoseOfTheHeader) {
  const ClientSettings settings = client();
  EXPECT_EQ(settings.client.endpoints, client::default_endpoints());
  EXPECT_EQ(settings.client.session.link.client_name, "capi_options_test");
  EXPECT_EQ(settings.client.session.link.client_version, syncd_version());
  EXPECT_EQ(settings.client.session.link.token, "");
  EXPECT_EQ(settings.client.connect_timeout_us, 10'000'000);
  EXPECT_EQ(settings.client.session.reconnect_timeout_us, 60'000'000);
  EXPECT_EQ(settings.begin_timeout_us, client::kNever);
  EXPECT_EQ(settings.request_timeout_us, 60'000'000);
}

TEST_F(Options, WhatTheCodeSaysIsTaken) {
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  options.addresses = "head:1,unix:/s";
  options.client_name = "me";
  options.connect_timeout_ms = 1;
  options.reconnect_timeout_ms = SYNCD_WAIT_FOREVER;
  options.begin_timeout_ms = 2500;
  options.request_timeout_ms = SYNCD_TIMEOUT_DEFAULT;
  const ClientSettings settings = client(&options);
  ASSERT_EQ(settings.client.endpoints.size(), 2U);
  EXPECT_EQ(settings.client.endpoints[0].text(), "tcp:head:1");
  EXPECT_EQ(settings.client.session.link.client_name, "me");
  EXPECT_EQ(settings.client.connect_timeout_us, 1000);
  EXPECT_EQ(settings.client.session.reconnect_timeout_us, client::kNever);
  EXPECT_EQ(settings.begin_timeout_us, 2'500'000);
  EXPECT_EQ(settings.request_timeout_us, 60'000'000);
}

TEST_F(Options, TheEnvironmentWins) {
  set("SYNCD_ADDR", "unix:/from/environment");
  set("SYNCD_CONNECT_TIMEOUT_SEC", "2.5");
  set("SYNCD_RECONNECT_TIMEOUT_SEC", "1e3");
  set("SYNCD_BEGIN_TIMEOUT_SEC", "0");
  set("SYNCD_REQUEST_TIMEOUT_SEC", "0.0000001");
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  options.addresses = "not an address, and not looked at";
  options.connect_timeout_ms = options.reconnect_timeout_ms = 7;
  options.begin_timeout_ms = options.request_timeout_ms = 7;
  const ClientSettings settings = client(&options);
  EXPECT_EQ(settings.client.endpoints[0].text(), "unix:/from/environment");
  EXPECT_EQ(settings.client.connect_timeout_us, 2'500'000);
  EXPECT_EQ(settings.client.session.reconnect_timeout_us, 1'000'000'000);
  EXPECT_EQ(settings.begin_timeout_us, client::kNever) << "0 is the built-in default";
  EXPECT_EQ(settings.request_timeout_us, 1) << "never rounded to nothing";
}

TEST_F(Options, AVariableThatIsEmptyIsNotSet) {
  set("SYNCD_ADDR", "");
  set("SYNCD_CONNECT_TIMEOUT_SEC", "");
  set("SYNCD_JOB", "");
  set("RANK", "");
  EXPECT_EQ(client().client.endpoints, client::default_endpoints());
  EXPECT_EQ(join().request.job, "default");
  EXPECT_EQ(join().request.rank, -1);
}

TEST_F(Options, ABadVariableIsNamedWithItsValueAndWhatIsAllowed) {
  for (const char* value : {"abc", "-1", "nan", "inf", "1e10", "5s", " 5"}) {
    set("SYNCD_BEGIN_TIMEOUT_SEC", value);
    const std::string error = client_error();
    EXPECT_THAT(error, HasSubstr("SYNCD_BEGIN_TIMEOUT_SEC='" + std::string(value) + "'"));
    EXPECT_THAT(error, HasSubstr("allowed: a number of seconds from 0"));
  }
  clear();
  set("SYNCD_ADDR", "head:port");
  EXPECT_THAT(client_error(), HasSubstr("SYNCD_ADDR='head:port': address 'head:port': the port"));
}

TEST_F(Options, ABadOptionIsNamed) {
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  options.connect_timeout_ms = -3;
  EXPECT_THAT(client_error(&options),
              HasSubstr("connect_timeout_ms: a timeout of -3 ms; allowed:"));
  options.connect_timeout_ms = 0;
  options.addresses = "";
  EXPECT_THAT(client_error(&options),
              HasSubstr("syncd_client_options.addresses: address 1 is empty"));
  options.addresses = nullptr;
  const std::string name(129, 'x');
  options.client_name = name.c_str();
  EXPECT_THAT(client_error(&options), HasSubstr("client_name has 129 bytes; allowed: at most 128"));
}

class TokenFile : public Options {
 protected:
  void SetUp() override {
    Options::SetUp();
    char path[] = "/tmp/syncd-token-XXXXXX";
    const int fd = mkstemp(path);
    ASSERT_GE(fd, 0);
    close(fd);
    path_ = path;
  }
  void TearDown() override {
    unlink(path_.c_str());
    Options::TearDown();
  }
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string path_;
};

TEST_F(TokenFile, IsReadWithoutItsLastNewline) {
  write("secret with blanks\n");
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  options.token_file = path_.c_str();
  EXPECT_EQ(client(&options).client.session.link.token, "secret with blanks");
  options.token_file = "/not/looked/at";
  set("SYNCD_TOKEN_FILE", path_.c_str());
  EXPECT_EQ(client(&options).client.session.link.token, "secret with blanks");
}

TEST_F(TokenFile, ThatIsOfNoUseIsNamed) {
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  options.token_file = path_.c_str();
  EXPECT_THAT(client_error(&options), HasSubstr(path_ + ": it is empty"));
  for (const std::string odd : {"secret \n", " secret\n", "secret\t"}) {
    write(odd);
    EXPECT_THAT(client_error(&options), HasSubstr(path_ + ": a blank stands before or after"));
  }
  write(std::string(5000, 'x'));
  EXPECT_THAT(client_error(&options), HasSubstr("more than 4096 bytes"));
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  EXPECT_THAT(client_error(&options), HasSubstr("every user of this machine has a right to it"));
  options.token_file = "/no/such/file";
  EXPECT_THAT(client_error(&options), HasSubstr("/no/such/file: No such file"));
  options.token_file = "/";
  EXPECT_THAT(client_error(&options), HasSubstr("/: it is not a regular file"));
}

// ---- Joining ------------------------------------------------------------------------------------

TEST_F(Options, JoinDefaultsAreThoseOfTheHeader) {
  const JoinSettings settings = join();
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  EXPECT_EQ(settings.request.job, "default");
  EXPECT_EQ(settings.request.policy, "");
  EXPECT_EQ(settings.request.host, host);
  EXPECT_EQ(settings.request.rank, -1);
  EXPECT_EQ(settings.request.world_size, 0U);
  EXPECT_EQ(settings.timeout_ms, SYNCD_TIMEOUT_DEFAULT);
  EXPECT_THAT(settings.request.name, MatchesRegex(std::string(host) + "-[0-9]+-[0-9]+"));
  EXPECT_NE(join().request.name, settings.request.name) << "every worker has a name of its own";
}

TEST_F(Options, AWorkerWithARankIsNamedAfterIt) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.rank = 12;
  EXPECT_EQ(join(&options).request.name, "worker-12");
  options.name = "mine";
  EXPECT_EQ(join(&options).request.name, "mine");
}

TEST_F(Options, TheJobOfTheEnvironmentWins) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.job = "code";
  EXPECT_EQ(join(&options).request.job, "code");
  set("SYNCD_JOB", "environment");
  EXPECT_EQ(join(&options).request.job, "environment");
  set("SYNCD_JOB", "a b");
  EXPECT_THAT(join_error(&options), HasSubstr("SYNCD_JOB='a b'; allowed: 1 to 64 of"));
}

TEST_F(Options, NamesThatAreTooLongOrOddAreRefused) {
  const std::string long_text(600, 'x');
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.job = long_text.c_str();
  EXPECT_THAT(join_error(&options), HasSubstr("syncd_join_options.job is 'xxx"));
  options.job = "";
  EXPECT_THAT(join_error(&options), HasSubstr("syncd_join_options.job is ''"));
  options.job = nullptr;
  options.name = long_text.c_str();
  EXPECT_THAT(join_error(&options), HasSubstr("name has 600 bytes; allowed: at most 128"));
  options.name = "";
  EXPECT_THAT(join_error(&options), HasSubstr("syncd_join_options.name is empty"));
  options.name = nullptr;
  options.host = long_text.c_str();
  EXPECT_THAT(join_error(&options), HasSubstr("host has 600 bytes; allowed: at most 255"));
  options.host = "node\n1";
  EXPECT_THAT(join_error(&options), HasSubstr("syncd_join_options.host 'node\\n1' has a character "
                                              "that cannot be shown (\\n): allowed is UTF-8"));
  options.host = nullptr;
  options.name = "a\x1b[2J";
  EXPECT_THAT(join_error(&options), HasSubstr("syncd_join_options.name 'a\\x1b[2J' has a"));
  options.name = nullptr;
  options.policy = long_text.c_str();
  EXPECT_THAT(join_error(&options), HasSubstr("policy has 600 bytes; allowed: at most 512"));
  options.policy = nullptr;
  options.rank = -2;
  EXPECT_THAT(join_error(&options), HasSubstr("rank is -2; allowed: a rank from 0"));
}

TEST_F(Options, RankAndSizeComeFromTheStarterInOrder) {
  set("OMPI_COMM_WORLD_RANK", "3");
  set("OMPI_COMM_WORLD_SIZE", "30");
  EXPECT_EQ(join().request.rank, 3);
  EXPECT_EQ(join().request.world_size, 30U);
  set("SLURM_PROCID", "2");
  set("SLURM_NTASKS", "20");
  EXPECT_EQ(join().request.rank, 2);
  EXPECT_EQ(join().request.world_size, 20U);
  set("RANK", "1");
  set("WORLD_SIZE", "10");
  EXPECT_EQ(join().request.rank, 1);
  EXPECT_EQ(join().request.world_size, 10U);
  EXPECT_EQ(join().request.name, "worker-1");
}

TEST_F(Options, WhatTheCodeSaysOfRankAndSizeStays) {
  set("RANK", "1");
  set("WORLD_SIZE", "10");
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.rank = 5;
  EXPECT_EQ(join(&options).request.rank, 5);
  EXPECT_EQ(join(&options).request.world_size, 10U);
  options.world_size = 6;
  EXPECT_EQ(join(&options).request.world_size, 6U);
}

TEST_F(Options, RankAndSizeAreNotTakenFromTwoStarters) {
  set("RANK", "1");
  set("SLURM_NTASKS", "20");
  EXPECT_EQ(join().request.rank, 1);
  EXPECT_EQ(join().request.world_size, 0U);
}

TEST_F(Options, ARankOfTheStarterIsBelowItsSize) {
  set("SLURM_PROCID", "4");
  set("SLURM_NTASKS", "4");
  EXPECT_THAT(join_error(), HasSubstr("SLURM_PROCID=4 is not below SLURM_NTASKS=4"));
  set("SLURM_PROCID", "3");
  EXPECT_EQ(join().request.rank, 3);
  // A worker that joins a job beyond those that it was started with.
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.rank = 9;
  EXPECT_EQ(join(&options).request.rank, 9);
  EXPECT_EQ(join(&options).request.world_size, 4U);
}

TEST_F(Options, ABadRankOrSizeIsNamed) {
  for (const char* value : {"x", "-1", "2147483648", "1.5", "3 "}) {
    set("RANK", value);
    EXPECT_THAT(join_error(), HasSubstr("RANK='" + std::string(value) +
                                        "'; allowed: a whole number from 0 to 2147483647"));
  }
  set("RANK", "0");
  set("WORLD_SIZE", "0");
  EXPECT_THAT(join_error(), HasSubstr("WORLD_SIZE='0'; allowed: a whole number from 1"));
}

// ---- Timeouts -----------------------------------------------------------------------------------

TEST_F(Options, TimeoutsAreMillisecondsOrOneOfTwoWords) {
  const auto timeout = [](std::int64_t ms) { return make_timeout("call", ms, 123); };
  EXPECT_EQ(timeout(0), 0);
  EXPECT_EQ(timeout(5), 5000);
  EXPECT_EQ(timeout(SYNCD_WAIT_FOREVER), client::kNever);
  EXPECT_EQ(timeout(SYNCD_TIMEOUT_DEFAULT), 123);
  EXPECT_EQ(timeout(std::numeric_limits<std::int64_t>::max()), client::kNever);
  EXPECT_EQ(error_of([&] { timeout(-3); }),
            "call: a timeout of -3 ms; allowed: 0 or more, SYNCD_WAIT_FOREVER (-1) or "
            "SYNCD_TIMEOUT_DEFAULT (-2)");
}

// ---- Launches -----------------------------------------------------------------------------------

TEST_F(Options, TheLaunchComesFromWhoeverStartedTheProcess) {
  const auto expect = [](const std::string& name, std::uint64_t number) {
    const JoinSettings settings = join();
    EXPECT_EQ(settings.request.launch, name);
    EXPECT_EQ(settings.request.launch_number, number);
  };
  expect("", 0);
  set("SLURM_JOB_ID", "4711");
  expect("4711", 0);
  // Two steps of one job are two launches, and so is the job when it is requeued.
  set("SLURM_STEP_ID", "1");
  expect("4711", 1);
  set("SLURM_RESTART_COUNT", "2");
  expect("4711", (std::uint64_t{2} << 32) + 1);
  set("TORCHELASTIC_RUN_ID", "none");  // torchrun without --rdzv-id
  expect("4711", (std::uint64_t{2} << 32) + 1);
  set("TORCHELASTIC_RUN_ID", "llm");
  expect("llm", 0);
  set("TORCHELASTIC_RUN_ID", std::string(100, 'x').c_str());
  expect(std::string(64, 'x'), 0);
  set("SYNCD_LAUNCH", "team/llm/7");
  expect("team/llm", 7);
  set("SYNCD_LAUNCH", "plain");
  expect("plain", 0);
  // What the program says itself wins.
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.launch = "mine";
  options.launch_number = 9;
  EXPECT_EQ(join(&options).request.launch, "mine");
  EXPECT_EQ(join(&options).request.launch_number, 9U);
  options.launch = "";
  options.launch_number = 0;
  EXPECT_EQ(join(&options).request.launch, "");
}

TEST_F(Options, AWrongLaunchIsNamed) {
  for (const char* wrong : {"a/b", "/3", "a/-1", "a/"}) {
    set("SYNCD_LAUNCH", wrong);
    EXPECT_THAT(join_error(), HasSubstr("NAME/NUMBER")) << wrong;
  }
  set("SYNCD_LAUNCH", std::string(65, 'x').c_str());
  EXPECT_THAT(join_error(), HasSubstr("SYNCD_LAUNCH has 65 bytes; allowed: at most 64"));
  set("SYNCD_LAUNCH", "a\x1b/3");
  EXPECT_THAT(join_error(), HasSubstr("control and invisible"));
  unsetenv("SYNCD_LAUNCH");
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.launch_number = 3;
  EXPECT_THAT(join_error(&options), HasSubstr("launch is NULL"));
  options.launch = "";
  EXPECT_THAT(join_error(&options), HasSubstr("has no name"));
}

TEST_F(Options, WhereAGroupBegins) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  EXPECT_EQ(join(&options).request.resume, wire::Resume::kAuto);
  EXPECT_EQ(join(&options).request.resume_at, -1);
  options.resume = SYNCD_RESUME_CONTINUE;
  options.resume_at = 300;
  EXPECT_EQ(join(&options).request.resume, wire::Resume::kContinue);
  EXPECT_EQ(join(&options).request.resume_at, 300);
  options.resume_at = -1;
  EXPECT_THAT(join_error(&options), HasSubstr("resume_at is -1; allowed: an iteration from 0"));
  options.resume = SYNCD_RESUME_NEW;
  options.resume_at = 5;
  EXPECT_THAT(join_error(&options), HasSubstr("unless resume is SYNCD_RESUME_CONTINUE"));
  options.resume = 3;
  EXPECT_THAT(join_error(&options), HasSubstr("resume is 3"));
}

TEST_F(Options, HowLongAConnectionMayBeSilent) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  EXPECT_EQ(join(&options).request.heartbeat_timeout_ms, 0U);
  for (const std::uint32_t ms : {100U, 1'000U, 3'600'000U}) {
    options.heartbeat_timeout_ms = ms;
    EXPECT_EQ(join(&options).request.heartbeat_timeout_ms, ms);
  }
  for (const std::uint32_t ms : {1U, 99U, 3'600'001U}) {
    options.heartbeat_timeout_ms = ms;
    EXPECT_THAT(join_error(&options),
                HasSubstr("heartbeat_timeout_ms is " + std::to_string(ms) + "; allowed: 100 to 3"));
  }
}

TEST_F(Options, HowLongAPlaceIsKeptAndAStartIsWaitedFor) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  EXPECT_EQ(join(&options).request.exit_grace_us, -1);
  EXPECT_EQ(join(&options).request.join_timeout_us, 600'000'000);
  options.exit_grace_ms = SYNCD_EXIT_GRACE_NONE;
  options.join_timeout_ms = 1500;
  EXPECT_EQ(join(&options).request.exit_grace_us, 0);
  EXPECT_EQ(join(&options).request.join_timeout_us, 1'500'000);
  options.exit_grace_ms = 250;
  options.join_timeout_ms = SYNCD_WAIT_FOREVER;
  EXPECT_EQ(join(&options).request.exit_grace_us, 250'000);
  EXPECT_EQ(join(&options).request.join_timeout_us, client::kNever);
  set("SYNCD_JOIN_TIMEOUT_SEC", "20");
  EXPECT_EQ(join(&options).request.join_timeout_us, 20'000'000);
  options.exit_grace_ms = -2;
  EXPECT_THAT(join_error(&options), HasSubstr("exit_grace_ms is -2; allowed: 1 to 86400000"));
  options.exit_grace_ms = 86'400'001;
  EXPECT_THAT(join_error(&options), HasSubstr("exit_grace_ms is 86400001"));
}

TEST_F(Options, AReasonIsMadeToBeShown) {
  EXPECT_EQ(shown_reason("  ValueError: a\nb\x80  "), "ValueError: a\\nb\\x80");
  EXPECT_EQ(shown_reason(std::string(2000, 'x')), std::string(1024, 'x'));
  // Never half a character.
  EXPECT_EQ(shown_reason(std::string(1023, 'x') + "\xc3\xa4"), std::string(1023, 'x'));
  EXPECT_EQ(shown_reason("   "), "");
}

}  // namespace
}  // namespace syncd::capi
