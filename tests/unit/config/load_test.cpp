// Files, environment and flags to one configuration, and every kind of mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "daemon/core/topology/graph_spec.h"
#include "daemon/edge/config/config.h"
#include "daemon/edge/config/settings.h"
#include "support/files.h"

namespace syncd::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LoadTest : public ::testing::Test {
 protected:
  void file(const std::string& text) {
    flags_.config_file = directory_ + "/syncd.toml";
    std::ofstream(flags_.config_file) << text;
  }
  bool load() { return config::load(flags_, environment_, loaded_, errors_); }
  const Config& good() {
    EXPECT_TRUE(load()) << (errors_.empty() ? "" : errors_[0]);
    return loaded_.config;
  }
  // Exactly one mistake, whose text holds every one of these.
  void expect_mistake(const std::vector<std::string>& parts) {
    ASSERT_FALSE(load());
    ASSERT_EQ(errors_.size(), 1U) << errors_[0] << "\n" << errors_[1];
    for (const std::string& part : parts) {
      EXPECT_NE(errors_[0].find(part), std::string::npos) << errors_[0] << "\nlacks " << part;
    }
  }

  void expect_missing(const std::string& part) {
    good();
    ASSERT_EQ(loaded_.missing.size(), 1U);
    EXPECT_NE(loaded_.missing[0].find(part), std::string::npos) << loaded_.missing[0];
  }

  const test::TempDir place_;
  const std::string directory_ = place_.path();
  Flags flags_;
  Environment environment_;
  Loaded loaded_;
  std::vector<std::string> errors_;
};

TEST_F(LoadTest, NothingSetServesThisMachine) {
  const Config& config = good();
  EXPECT_EQ(config.tcp, (std::vector<net::TcpAddress>{{"127.0.0.1", 7117}}));
  EXPECT_EQ(config.unix_path, default_unix_socket_path());
  EXPECT_EQ(config.store_path, default_store_path());
  EXPECT_TRUE(config.store_path_is_default);
  EXPECT_TRUE(config.durable);
  EXPECT_TRUE(config.engine.auto_create);
  EXPECT_FALSE(config.insecure);
  EXPECT_EQ(config.log_level, LogLevel::kInfo);
}

TEST_F(LoadTest, AFileMaySetEverything) {
  file(R"([listen]
tcp = ["127.0.0.1:7200", "[::1]:0"]
unix = "/tmp/x.sock"
unix_mode = "0660"
auto_create = false
[store]
path = "memory"
mode = "fast"
[limits]
connections_max = 100
[timeouts]
heartbeat_timeout = "1500ms"
shutdown_timeout = "3s"
start_timeout = "4s"
worker_grace = "5s"
exit_grace = "2s"
warn_after = "6s"
evict_after = "7s"
[log]
level = "debug"
file = "/tmp/x.log"
[[job]]
name = "a"
policy = "ssp:3"
expected_workers = 8
min_workers = 2
evict_after = "1h"
exit_grace = "0s"
on_failure = "stop"
[[job]]
name = "b"
expected_workers = 1
)");
  const Config& config = good();
  EXPECT_EQ(config.tcp, (std::vector<net::TcpAddress>{{"127.0.0.1", 7200}, {"::1", 0}}));
  EXPECT_EQ(config.unix_path, "/tmp/x.sock");
  EXPECT_EQ(config.unix_mode, 0660U);
  EXPECT_FALSE(config.engine.auto_create);
  EXPECT_TRUE(config.store_in_memory());
  EXPECT_FALSE(config.durable);
  EXPECT_EQ(config.network.connections_max, 100U);
  EXPECT_EQ(config.connection.idle_timeout_ms, 1500U);
  EXPECT_EQ(config.shutdown_timeout_us, 3'000'000);
  EXPECT_EQ(config.log_level, LogLevel::kDebug);
  EXPECT_EQ(config.log_file, "/tmp/x.log");
  ASSERT_EQ(config.jobs.size(), 2U);
  JobSpec a{"a", "ssp:3", 8, 2, 4'000'000, 5'000'000, 6'000'000, 3'600'000'000};
  a.exit_grace_us = 0;
  a.stops_on_failure = true;
  EXPECT_EQ(config.jobs[0], a);
  JobSpec b{"b", "bsp", 1, 0, 4'000'000, 5'000'000, 6'000'000, 7'000'000};
  b.exit_grace_us = 2'000'000;
  EXPECT_EQ(config.jobs[1], b);
}

TEST_F(LoadTest, FlagsWinOverTheEnvironmentAndThatOverTheFile) {
  file("[store]\nmode = \"durable\"\n[log]\nlevel = \"warn\"\n[listen]\ntcp = \"127.0.0.1:1\"\n");
  environment_ = {{"SYNCD_LOG_LEVEL", "error"}, {"SYNCD_LISTEN_TCP", "127.0.0.1:2, [::1]:2"}};
  flags_.settings = {{"listen.tcp", "127.0.0.1:3"}};
  const Config& config = good();
  EXPECT_TRUE(config.durable);
  EXPECT_EQ(config.log_level, LogLevel::kError);
  EXPECT_EQ(config.tcp, (std::vector<net::TcpAddress>{{"127.0.0.1", 3}}));
  EXPECT_NE(loaded_.effective.find("mode = \"durable\"  # " + flags_.config_file + ":2"),
            std::string::npos)
      << loaded_.effective;
  EXPECT_NE(loaded_.effective.find("# environment variable SYNCD_LOG_LEVEL"), std::string::npos);
  EXPECT_NE(loaded_.effective.find("# flag --tcp"), std::string::npos);
  EXPECT_NE(loaded_.effective.find("# default"), std::string::npos);
}

TEST_F(LoadTest, AServicesSocketIsInItsRuntimeDirectoryUnlessItIsSaidWhere) {
  environment_ = {{"RUNTIME_DIRECTORY", "/run/some:/run/other"}};
  EXPECT_EQ(good().unix_path, "/run/some/syncd.sock");
  file("[listen]\nunix = \"/tmp/x.sock\"\n");
  EXPECT_EQ(good().unix_path, "/tmp/x.sock");
}

TEST_F(LoadTest, InheritedSocketsWinOverEverythingAndAreChecked) {
  file("[listen]\ntcp = \"127.0.0.1:1\"\nunix = \"/tmp/x.sock\"\n");
  flags_.settings = {{"listen.tcp", "127.0.0.1:3"}};
  flags_.inherited.workers = Addresses{{{"127.0.0.1", 4}}, ""};
  flags_.inherited.control = Addresses{{}, "/tmp/control.sock"};
  EXPECT_EQ(good().tcp, (std::vector<net::TcpAddress>{{"127.0.0.1", 4}}));
  EXPECT_EQ(good().unix_path, "");
  EXPECT_EQ(good().control.unix_path, "/tmp/control.sock");
  EXPECT_FALSE(good().engine.auto_create) << "where there is a socket for control, that makes jobs";
  EXPECT_NE(loaded_.effective.find("\"127.0.0.1:4\"  # sockets that syncd was started with"),
            std::string::npos)
      << loaded_.effective;
  flags_.inherited.workers->tcp = {{"10.0.0.1", 4}};
  expect_mistake({"sockets that syncd was started with", "listen.tcp", "10.0.0.1:4"});
}

TEST_F(LoadTest, WhatIsPrintedIsAConfigurationOfTheSameMeaning) {
  file(
      "[timeouts]\nheartbeat_timeout = \"1.25s\"\n[listen]\nunix = \"/tmp/a\\\"b\"\n"
      "[[job]]\nname = \"a\"\nexpected_workers = 3\n");
  good();
  const std::string first = loaded_.effective;
  file(first);
  const Config& config = good();
  EXPECT_EQ(config.connection.idle_timeout_ms, 1250U);
  EXPECT_EQ(config.unix_path, "/tmp/a\"b");
  EXPECT_EQ(config.jobs.size(), 1U);
  const auto without_comments = [](const std::string& text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      out += line.substr(0, line.find("  #")) + "\n";
      at = end + 1;
    }
    return out;
  };
  EXPECT_EQ(without_comments(loaded_.effective), without_comments(first));
}

TEST_F(LoadTest, TheEnvironmentNamesTheFile) {
  file("[log]\nlevel = \"warn\"\n");
  environment_ = {{"SYNCD_CONFIG", flags_.config_file}};
  flags_.config_file.clear();
  EXPECT_EQ(good().log_level, LogLevel::kWarn);
}

TEST_F(LoadTest, OtherProgramsVariablesAreLeftAlone) {
  environment_ = {
      {"SYNCD_ADDR", "x"}, {"SYNCD_JOB", "x"}, {"SYNCD_BEGIN_TIMEOUT_SEC", "x"}, {"PATH", "x"}};
  good();
}

TEST_F(LoadTest, AMisspeltVariableIsNamed) {
  environment_ = {{"SYNCD_STORE_MOD", "fast"}};
  expect_mistake({"SYNCD_STORE_MOD", "did you mean SYNCD_STORE_MODE?"});
}

// One wrong value for every setting, each with its place, key, value and what is allowed.
TEST_F(LoadTest, EveryWrongValueIsNamedWithItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"listen.tcp", "\"127.0.0.1\""},
      {"listen.tcp", "7117"},
      {"listen.tcp", "[7117]"},
      {"listen.tcp", "\"a:1,b:2\""},
      {"listen.unix", "3"},
      {"listen.unix_mode", "\"0777\""},
      {"listen.unix_mode", "384"},
      {"listen.insecure", "\"yes\""},
      {"listen.auto_create", "1"},
      {"store.path", "\"\""},
      {"store.mode", "\"fats\""},
      {"limits.connections_max", "0"},
      {"limits.connections_max", "16385"},
      {"timeouts.heartbeat_timeout", "\"5\""},
      {"timeouts.shutdown_timeout", "\"1d\""},
      {"timeouts.exit_when_idle", "60"},
      {"timeouts.start_timeout", "\"-1s\""},
      {"timeouts.worker_grace", "\"soon\""},
      {"timeouts.exit_grace", "\"31d\""},
      {"timeouts.warn_after", "true"},
      {"timeouts.evict_after", "\"31d\""},
      {"log.level", "\"verbose\""},
      {"log.file", "\"\""},
      {"auth.token_file", "7"},
      {"auth.unix_users", "[\"no-such-user-here\"]"},
      {"auth.unix_groups", "\"no-such-group-here\""},
      {"auth.allow", "[\"cert:a\"]"},
      {"auth.admin", "[\"somebody\"]"},
      {"limits.connections_per_machine_max", "0"},
      {"limits.handshakes_per_machine_per_s", "-1"},
      {"store.retention", "7"},
      {"store.retention_bytes", "-1"},
      {"auth.metrics", "[\"somebody\"]"},
      {"listen.control", "\"control.sock\""},
      {"listen.admin", "7118"},
      {"limits.workers_per_job_max", "\"many\""},
      {"limits.graph_edges_max", "16777217"},
      {"limits.jobs_per_identity_max", "0"},
      {"limits.connections_per_identity_max", "0"},
      {"tls.certificate", "7"},
      {"tls.key", "true"},
      {"tls.client_ca", "[]"},
      {"tls.require_client_certificate", "\"yes\""},
      {"cluster.name", "\"a/b\""},
      {"cluster.member", "\"a b\""},
      {"cluster.etcd", "\"etcd-1:2379\""},
      {"cluster.etcd", "[\"http://etcd-1\"]"},
      {"cluster.ca", "7"},
      {"cluster.certificate", "[]"},
      {"cluster.key", "true"},
      {"cluster.user", "7"},
      {"cluster.password_file", "7"},
      {"cluster.lease", "\"1ms\""},
      {"cluster.etcd_old", "\"yes\""},
      {"cluster.etcd_quota_bytes", "1000"},
      {"cluster.shard", "64"},
      {"cluster.advertise", "\"node-a\""},
  };
  std::set<std::string> covered;
  for (const auto& [key, value] : cases) {
    const std::string name = key;
    const std::size_t dot = name.find('.');
    covered.insert(name);
    file("[" + name.substr(0, dot) + "]\n# a comment\n" + name.substr(dot + 1) + " = " + value +
         "\n");
    expect_mistake({flags_.config_file + ":3: " + name + " = ", "; allowed: "});
  }
  for (const Setting& setting : settings()) {
    EXPECT_TRUE(covered.contains(setting.key)) << setting.key << " has no wrong value above";
  }
}

TEST_F(LoadTest, ARetiredSettingIsAcceptedWithAWarningAndDoesNothing) {
  const Config defaults;
  for (const Setting& limit : test_limits()) {
    const std::string key = limit.key;
    const std::size_t dot = key.find('.');
    file("[" + key.substr(0, dot) + "]\n" + key.substr(dot + 1) + " = 2000000\n");
    environment_ = {{environment_name(limit.key), "nonsense"}};
    EXPECT_EQ(limit.show(good()), limit.show(defaults));
    ASSERT_EQ(loaded_.warnings.size(), 2U) << key;
    EXPECT_THAT(loaded_.warnings[0],
                AllOf(HasSubstr(flags_.config_file + ":2: " + key), HasSubstr("no longer")));
    EXPECT_THAT(loaded_.warnings[1], HasSubstr(environment_name(limit.key) + ": " + key));
    EXPECT_THAT(loaded_.effective, Not(HasSubstr(key.substr(dot + 1) + " =")));
  }
  EXPECT_EQ(test_limits().size(), 7U);
}

TEST_F(LoadTest, ATestsLimitIsSetByItsFlag) {
  flags_.test_limits = {"limits.snapshot_every_records=100", "timeouts.write_timeout=500ms"};
  EXPECT_EQ(good().engine.snapshot_every_records, 100U);
  EXPECT_EQ(good().connection.write_timeout_ms, 500U);
  EXPECT_TRUE(loaded_.warnings.empty());
  flags_.test_limits = {"limits.snapshot_every_records=99"};
  expect_mistake({"flag --test-limit: limits.snapshot_every_records = \"99\"", "100 to 10000000"});
  flags_.test_limits = {"limits.unintroduced_max"};
  expect_mistake({"flag --test-limit: limits.unintroduced_max = \"\""});
  flags_.test_limits = {"limits.connections_max=5"};
  expect_mistake({"flag --test-limit", "there is no limit limits.connections_max"});
}

TEST_F(LoadTest, AReloadTakesExactlyWhatReloads) {
  const std::set<std::string> fixed = {"listen.tcp",
                                       "listen.unix",
                                       "listen.unix_mode",
                                       "listen.admin",
                                       "listen.control",
                                       "listen.insecure",
                                       "store.path",
                                       "store.mode",
                                       "store.retention",
                                       "store.retention_bytes",
                                       "timeouts.heartbeat_timeout",
                                       "timeouts.exit_when_idle",
                                       "log.file"};
  for (const Setting& setting : settings()) {
    const bool is_fixed = fixed.contains(setting.key) || setting.section() == "cluster";
    EXPECT_EQ(setting.reloadable, !is_fixed) << setting.key;
  }
}

TEST_F(LoadTest, ARowCopiesItsMemberAndNoOther) {
  file(
      "[listen]\nauto_create = false\n[limits]\nconnections_max = 7\ngraph_edges_max = 8\n"
      "[timeouts]\nwarn_after = \"3s\"\nevict_after = \"4s\"\n[auth]\nadmin = \"uid:7\"\n");
  const Config wanted = good();
  const Config before;
  int differing = 0;
  for (const Setting& setting : settings()) {
    Config after;
    setting.copy(wanted, after);
    if (setting.show(wanted) != setting.show(before)) ++differing;
    for (const Setting& other : settings()) {
      const Config& expected = &other == &setting ? wanted : before;
      EXPECT_EQ(other.show(after), other.show(expected)) << setting.key << " to " << other.key;
    }
  }
  EXPECT_EQ(differing, 6);
}

TEST_F(LoadTest, AMemberOfAClusterNeedsEtcdAndADurableStore) {
  const std::string etcd = "etcd = \"http://a:2379\"\n";
  const std::string store = "[store]\npath = \"" + directory_ + "/store\"\n";
  file(store + "[cluster]\nname = \"lab\"\nmember = \"a\"\n" + etcd);
  EXPECT_TRUE(good().is_member());
  file(store + "[cluster]\n" + etcd);
  expect_mistake({"cluster.etcd is set, but cluster.name is not"});
  file(store + "[cluster]\nname = \"lab\"\n");
  expect_mistake({"cluster.name is set, but cluster.etcd is not"});
  file(store + "[cluster]\nname = \"lab\"\nuser = \"u\"\n" + etcd);
  expect_mistake({"cluster.user is set, but cluster.password_file is not"});
  const std::string user = store + "[cluster]\nname = \"lab\"\nuser = \"u\"\npassword_file = \"" +
                           directory_ + "/password\"\n" + etcd;
  file(user);
  expect_missing("cluster.password_file: " + directory_ + "/password: No such file");
  std::ofstream(directory_ + "/password") << '\n';
  std::filesystem::permissions(directory_ + "/password", std::filesystem::perms(0644));
  expect_missing("cluster.password_file: " + directory_ + "/password: every user");
  std::filesystem::permissions(directory_ + "/password", std::filesystem::perms(0600));
  expect_missing("cluster.password_file: " + directory_ + "/password: it is empty");
  file(store + "[cluster]\nname = \"lab\"\nca = \"" + directory_ + "/password\"\n" + etcd);
  expect_missing("cluster.ca: " + directory_ + "/password: it holds no PEM text");
  file("[listen]\ntcp = \"off\"\n" + store + "[cluster]\nname = \"lab\"\n" + etcd);
  expect_mistake({"a member of a cluster is reached over TCP"});
  file("[store]\npath = \"memory\"\n[cluster]\nname = \"lab\"\n" + etcd);
  expect_mistake({"a member of a cluster keeps a copy"});
  file(store + "mode = \"fast\"\n[cluster]\nname = \"lab\"\n" + etcd);
  expect_mistake({"a member of a cluster keeps a copy"});
}

TEST_F(LoadTest, ProcessesOfSeveralShardsShareNoPortAndNoPath) {
  const std::string text =
      "[listen]\ntcp = [\"127.0.0.1:7000\", \"127.0.0.1:0\"]\nunix = \"/run/s\"\nadmin = "
      "\"127.0.0.1:8000\"\ncontrol = [\"/run/c\", \"127.0.0.1:9000\"]\n[store]\npath = \"" +
      directory_ + "/store\"\n[log]\nfile = \"" + directory_ +
      "/log\"\n[cluster]\nname = \"lab\"\nmember = \"a\"\netcd = \"http://a:2379\"\n";
  file(text + "shard = 3\nadvertise = \"node-a:7000\"\n");
  const Config config = good();
  EXPECT_EQ(config.tcp.at(0).port, 7003);
  EXPECT_EQ(config.tcp.at(1).port, 0);
  EXPECT_EQ(config.admin->port, 8003);
  EXPECT_EQ(config.control.tcp.at(0).port, 9003);
  EXPECT_EQ(config.unix_path, "/run/s.3");
  EXPECT_EQ(config.control.unix_path, "/run/c.3");
  EXPECT_EQ(config.store_path, directory_ + "/store.3");
  EXPECT_EQ(config.log_file, directory_ + "/log-shard3");
  EXPECT_EQ(config.cluster.advertised.at(0).text(), "node-a:7003");
  file(text);
  EXPECT_EQ(good().tcp.at(0).port, 7000);
  EXPECT_EQ(good().store_path, directory_ + "/store");
  for (const char* unreachable : {"node-a:0", "0.0.0.0:7000", "[::]:7000"}) {
    file(text + "advertise = \"" + unreachable + "\"\n");
    expect_mistake({"cluster.advertise = \"" + std::string(unreachable), "as clients name it"});
  }
  file(text + "shard = 3\nadvertise = \"node-a:65533\"\n");
  expect_mistake({"cluster.advertise = \"node-a:65533\"", "cluster.shard = 3"});
}

TEST_F(LoadTest, WrongValuesFromElsewhereNameTheirSource) {
  environment_ = {{"SYNCD_LIMITS_CONNECTIONS_MAX", "12x"}};
  expect_mistake({"environment variable SYNCD_LIMITS_CONNECTIONS_MAX",
                  "limits.connections_max = \"12x\"", "1 to 16384"});
  environment_ = {{"SYNCD_LISTEN_INSECURE", "1"}};
  expect_mistake({"SYNCD_LISTEN_INSECURE", "true or false"});
  environment_.clear();
  flags_.settings = {{"store.mode", "quick"}};
  expect_mistake({"flag --mode", "store.mode = \"quick\"", "\"durable\" or \"fast\""});
}

TEST_F(LoadTest, UnknownKeysAreMistakesWithASuggestion) {
  file("[listen]\ntpc = \"127.0.0.1:1\"\n");
  expect_mistake({":2: unknown key listen.tpc", "did you mean listen.tcp?"});
  file("[listen]\nmode = \"fast\"\n");
  expect_mistake({"unknown key listen.mode", "did you mean store.mode (in section [store])?"});
  file("tcp = \"127.0.0.1:1\"\n");
  expect_mistake({":1: unknown key tcp", "listen.tcp (in section [listen])?"});
  file("[store]\nqwertyuiop = 1\n");
  expect_mistake({"unknown key store.qwertyuiop", "[store] has path, mode"});
  file("[storage]\npath = \"memory\"\n");
  expect_mistake({":1: unknown section [storage]"});
  file("[timeout]\nwarn_after = \"1s\"\n");
  expect_mistake({"unknown section [timeout]", "did you mean [timeouts]?"});
  file("[jobs]\nname = \"a\"\n");
  expect_mistake({"unknown section [jobs]", "[[job]]"});
}

TEST_F(LoadTest, TheAdminPagesAndTheControlSocketHaveAddresses) {
  file(
      "[listen]\nadmin = \"127.0.0.1:9000\"\ncontrol = [\"/run/syncd/control\", \"[::1]:9001\"]\n");
  const Config& config = good();
  EXPECT_EQ(config.admin->text(), "127.0.0.1:9000");
  EXPECT_FALSE(config.admin_is_default);
  EXPECT_EQ(config.control.unix_path, "/run/syncd/control");
  ASSERT_EQ(config.control.tcp.size(), 1U);
  EXPECT_EQ(config.control.tcp[0].text(), "[::1]:9001");
  EXPECT_FALSE(config.control.empty());
  file("[listen]\nadmin = \"off\"\n");
  EXPECT_FALSE(good().admin.has_value());
  EXPECT_TRUE(good().control.empty());
  file("");
  EXPECT_TRUE(good().admin_is_default);
  file("[listen]\nadmin = \"7118\"\n");
  expect_mistake({"listen.admin", "allowed: HOST:PORT"});
  file("[listen]\ncontrol = [\"/a\", \"/b\"]\n");
  expect_mistake({"listen.control", "one Unix socket is enough"});
  file("[listen]\nunix = \"/run/a\"\ncontrol = \"/run/a\"\n");
  expect_mistake({"listen.control", "is listen.unix, too"});
}

TEST_F(LoadTest, BeyondThisMachineTheAdminPagesNeedTlsAndAuthentication) {
  file("[listen]\nadmin = \"0.0.0.0:7118\"\n");
  expect_mistake({"listen.admin", "neither TLS nor authentication", "127.0.0.1:7118"});
  file("[listen]\nadmin = \"0.0.0.0:7118\"\ninsecure = true\n");
  EXPECT_EQ(good().admin->host, "0.0.0.0");
  file("[listen]\ncontrol = \"0.0.0.0:7119\"\n");
  expect_mistake({"listen.control", "can be reached from other machines"});
}

TEST_F(LoadTest, MalformedFilesNameTheLine) {
  file("[listen]\ntcp = [1,\n");
  expect_mistake({flags_.config_file + ":", "not valid TOML"});
  file("[listen]\n\ntcp 7117\n");
  expect_mistake({flags_.config_file + ":3: not valid TOML"});
  file("[log]\nlevel = \"info\"\nlevel = \"warn\"\n");
  expect_mistake({flags_.config_file + ":3: not valid TOML"});
  flags_.config_file = directory_ + "/missing.toml";
  expect_mistake({"cannot read the configuration file " + flags_.config_file, "No such file"});
  flags_.config_file = directory_;
  expect_mistake({"cannot read the configuration file", "Is a directory"});
}

TEST_F(LoadTest, AnEmptyFileIsFine) {
  file("");
  good();
}

TEST_F(LoadTest, EveryMistakeIsReportedAtOnceInOrder) {
  file("[store]\nmode = \"fats\"\n[listen]\ntpc = 1\n[log]\nlevel = 7\n");
  ASSERT_FALSE(load());
  ASSERT_EQ(errors_.size(), 3U);
  EXPECT_NE(errors_[0].find(":2: store.mode"), std::string::npos);
  EXPECT_NE(errors_[1].find(":4: unknown key listen.tpc"), std::string::npos);
  EXPECT_NE(errors_[2].find(":6: log.level = 7"), std::string::npos);
}

TEST_F(LoadTest, ListeningBeyondLocalhostNeedsConsent) {
  for (const char* address : {"0.0.0.0:7117", "[::]:7117", "10.1.2.3:7117", "node-a:7117"}) {
    flags_.settings = {{"listen.tcp", address}};
    expect_mistake({"flag --tcp", address, "TLS", "insecure = true"});
  }
  flags_.settings = {{"listen.tcp", "0.0.0.0:7117"}, {"listen.insecure", "true"}};
  EXPECT_FALSE(good().engine.auto_create) << "strangers should not create jobs unless told so";
  environment_ = {{"SYNCD_LISTEN_AUTO_CREATE", "true"}};
  EXPECT_TRUE(good().engine.auto_create);
}

TEST_F(LoadTest, AJoinMakesNoJobBesideAControlSocketUnlessItIsSaid) {
  file("[listen]\ncontrol = \"/tmp/control.sock\"\n");
  EXPECT_FALSE(good().engine.auto_create);
  file("[listen]\ncontrol = \"/tmp/control.sock\"\nauto_create = true\n");
  EXPECT_TRUE(good().engine.auto_create);
}

TEST_F(LoadTest, SomebodyMustBeAbleToConnect) {
  flags_.settings = {{"listen.tcp", "off"}, {"listen.unix", "off"}};
  expect_mistake({"flag --tcp", "both \"off\""});
  flags_.settings = {{"listen.tcp", "off"}};
  EXPECT_TRUE(good().tcp.empty());
}

TEST_F(LoadTest, AStoreDirectoryNeedsAParent) {
  flags_.settings = {{"store.path", directory_ + "/missing/store"}};
  expect_missing("flag --store");
  expect_missing(directory_ + "/missing/store");
  expect_missing(directory_ + "/missing does not exist");
  std::ofstream(directory_ + "/file") << "x";
  flags_.settings = {{"store.path", directory_ + "/file/store"}};
  expect_missing(directory_ + "/file is not a directory");
  flags_.settings = {{"store.path", directory_ + "/store/"}};
  good();
  EXPECT_TRUE(loaded_.missing.empty());
  flags_.settings = {{"store.path", "relative"}};
  EXPECT_FALSE(good().store_path_is_default);
}

TEST_F(LoadTest, PathsAreMadeAbsolute) {
  const std::string here = std::filesystem::current_path().string();
  flags_.settings = {{"store.path", "a/../b"}, {"listen.unix", "./s"}};
  EXPECT_EQ(good().store_path, here + "/b");
  EXPECT_EQ(good().unix_path, here + "/s");
}

// What a salvage makes beside the store would lie within it.
TEST_F(LoadTest, TheStoresPathHasNoSlashAtItsEnd) {
  for (const char* text : {"/tmp/store/", "/tmp/store///", "/tmp/store/.", "/tmp/store"}) {
    flags_.settings = {{"store.path", text}};
    EXPECT_EQ(good().store_path, "/tmp/store") << text;
  }
  flags_.settings = {{"store.path", "/"}};
  EXPECT_EQ(good().store_path, "/");
}

TEST_F(LoadTest, JobsAreChecked) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"[[job]]\nexpected_workers = 1\n", {":1: [[job]] without name"}},
      {"[[job]]\nname = \"a\"\n", {":1: [[job]] without expected_workers"}},
      {"[[job]]\nname = \"a b\"\nexpected_workers = 1\n", {":1:", "a b", "A-Z"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 0\n", {":3: job.expected_workers = 0", "1 to"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 2\nmin_workers = 3\n", {"min_workers 3"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 2\ncheckpoint_every = -1\n",
       {":4: job.checkpoint_every = -1", "0 (never)"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 2\ncheckpoint_timeout = 5\n",
       {":4: job.checkpoint_timeout = 5", "needs a unit"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 2\npolicy = \"sssp:3\"\n", {":1:", "sssp"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 4\npolicy = \"hop:ring,backup.2=2\"\n",
       {":1:", "backup is 2 for worker 2", "0 to 1"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 4\npolicy = \"hop:file:/no/such/graph\"\n",
       {":1:", "/no/such/graph"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 2\npolcy = \"asp\"\n",
       {":4: unknown key job.polcy", "did you mean job.policy?"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 2\nevict_after = 5\n",
       {":4: job.evict_after = 5", "needs a unit"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 2\nhang_after = 30\n",
       {":4: job.hang_after = 30", "needs a unit"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 2\ninspect_on_hang = 1\n",
       {":4: job.inspect_on_hang = 1", "true or false"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 2\ninspect_on_hang = true\n",
       {"inspect_on_hang", "hang_after is off"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 2\nwarn_after = \"2m\"\nevict_after = \"1m\"\n",
       {"warn_after", "evict_after"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 1\n[[job]]\nname = \"a\"\nexpected_workers = 1\n",
       {":4: job.name = \"a\"", ":1 already"}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 1\non_failure = \"restart\"\n",
       {":4: job.on_failure = \"restart\"", "\"continue\" or \"stop\""}},
      {"[[job]]\nname = \"a\"\nexpected_workers = 1\nexit_grace = \"never\"\n",
       {":4: job.exit_grace = \"never\"", "\"auto\""}},
      {"[job]\nname = \"a\"\n", {":1: job is a list of tables", "[[job]]"}},
  };
  for (const auto& [text, parts] : cases) {
    file(text);
    expect_mistake(parts);
  }
}

TEST_F(LoadTest, AJobsGraphFileIsRead) {
  const std::string path = directory_ + "/graph";
  std::ofstream(path) << "0 1\n1 2\n2 0\n";
  file("[[job]]\nname = \"a\"\nexpected_workers = 3\npolicy = \"hop:file:" + path + "\"\n");
  const Config config = good();
  ASSERT_EQ(config.jobs.size(), 1U);
  ASSERT_NE(config.jobs[0].graph_file, nullptr);
  EXPECT_EQ(config.jobs[0].graph_file->graph->edges(), 3U);
}

TEST_F(LoadTest, ThresholdsAreCheckedAgainstEachOther) {
  file("[timeouts]\nwarn_after = \"20m\"\nevict_after = \"10m\"\n");
  expect_mistake({":2:", "warn_after", "evict_after"});
}

TEST_F(LoadTest, LatenessMayBeLeftToTheDaemon) {
  file(
      "[timeouts]\nwarn_after = \"20m\"\n[[job]]\nname = \"a\"\nexpected_workers = 2\n"
      "warn_after = \"auto\"\nevict_after = \"5m\"\n");
  const Config config = good();
  EXPECT_EQ(config.engine.defaults.warn_after_us, 1'200'000'000);
  EXPECT_EQ(config.engine.defaults.evict_after_us, kAutoSpan);
  EXPECT_EQ(config.jobs[0].warn_after_us, kAutoSpan);
  EXPECT_EQ(config.jobs[0].evict_after_us, 300'000'000);
  file("[timeouts]\nworker_grace = \"auto\"\n");
  expect_mistake({":2:", "worker_grace", "auto"});
}

}  // namespace
}  // namespace syncd::config
