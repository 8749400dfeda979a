// <syncd/server.h> as an embedding program sees it: through the exported symbols of libsyncd, with
// real sockets and real stores, and workers that use the client calls of the same library.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <syncd/server.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "embedded_server.h"
#include "support/c_api.h"
#include "support/files.h"

namespace syncd::test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Each worker on a thread of its own makes `count` iterations under bsp; all share one client. The
// first iteration must be `first`. They do not leave, so that the job stays.
void run_workers(const std::string& address, int workers, std::int64_t first, int count) {
  ApiClient client(address);
  std::vector<ApiWorker> joined;
  for (int rank = 0; rank < workers; ++rank) {
    joined.push_back(client.join({.job = "job",
                                  .policy = "bsp",
                                  .name = "worker-" + std::to_string(rank),
                                  .host = "here",
                                  .rank = rank,
                                  .world_size = static_cast<std::uint32_t>(workers)}));
  }
  std::vector<std::thread> threads;
  for (ApiWorker& worker : joined) {
    threads.emplace_back([&worker, first, count] {
      for (int i = 0; i < count; ++i) {
        syncd_step step = SYNCD_STEP_INIT;
        Answer answer = worker.begin(step);
        ASSERT_TRUE(answer.ok()) << answer.text();
        ASSERT_EQ(step.iteration, first + i);
        answer = worker.push(step.iteration);
        ASSERT_TRUE(answer.ok()) << answer.text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Keeps what the server logs.
struct Lines {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<std::int32_t, std::string>> all;
  std::set<std::thread::id> threads;
  std::atomic<syncd_server*> to_stop{nullptr};
  syncd_status stopped = SYNCD_OK;

  static void take(void* context, std::int32_t level, const char* line) {
    auto* self = static_cast<Lines*>(context);
    const std::scoped_lock lock(self->mutex);
    self->all.emplace_back(level, line);
    self->threads.insert(std::this_thread::get_id());
    self->changed.notify_all();
    if (syncd_server* server = self->to_stop) self->stopped = syncd_server_stop(server, 0, nullptr);
  }
  // False if no line with this text comes within half a minute.
  bool wait_for(const std::string& part) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(30), [&] {
      return std::any_of(all.begin(), all.end(), [&](const auto& line) {
        return line.second.find(part) != std::string::npos;
      });
    });
  }
  std::string text() {
    const std::scoped_lock lock(mutex);
    std::string whole;
    for (const auto& [level, line] : all) whole += std::to_string(level) + " " + line + "\n";
    return whole;
  }
};

// ---- running
// -----------------------------------------------------------------------------------

TEST(EmbeddedServerTest, WithoutOptionsItListensOnAFreePortOfThisMachine) {
  syncd_server* server = nullptr;
  ASSERT_EQ(syncd_server_start(nullptr, &server, nullptr), SYNCD_OK);
  const std::string address = syncd_server_address(server, 0);
  EXPECT_THAT(address, StartsWith("tcp:127.0.0.1:"));
  EXPECT_THAT(address, Not(EndsWith(":0")));
  EXPECT_EQ(syncd_server_address(server, 1), nullptr);
  EXPECT_EQ(syncd_server_address(nullptr, 0), nullptr);
  run_workers(address, 2, 0, 3);
  EXPECT_EQ(syncd_server_stop(server, SYNCD_TIMEOUT_DEFAULT, nullptr), SYNCD_OK);
  EXPECT_EQ(syncd_server_stop(nullptr, SYNCD_TIMEOUT_DEFAULT, nullptr), SYNCD_OK);
}

TEST(EmbeddedServerTest, EveryAddressIsTold) {
  const TempDir dir;
  const EmbeddedServer server({.tcp = "127.0.0.1:0, 127.0.0.1:0", .unix_path = dir.file("socket")});
  EXPECT_EQ(server.address(0), "unix:" + dir.file("socket"));
  EXPECT_THAT(server.address(1), StartsWith("tcp:127.0.0.1:"));
  EXPECT_THAT(server.address(2), StartsWith("tcp:127.0.0.1:"));
  EXPECT_NE(server.address(1), server.address(2));
  EXPECT_EQ(server.address(3), "");
  for (std::size_t i = 0; i < 3; ++i) ApiClient client(server.address(i));
}

TEST(EmbeddedServerTest, TwoInOneProcessKnowNothingOfEachOther) {
  const TempDir dir;
  EmbeddedServer in_memory({.store = "memory"});
  EmbeddedServer on_disk({.tcp = "off", .unix_path = dir.file("s"), .store = dir.file("store")});
  // The same job's name in both, at the same time.
  std::thread other([&] { run_workers(in_memory.address(), 3, 0, 20); });
  run_workers(on_disk.address(), 3, 0, 20);
  other.join();
  in_memory.stop();
  // Every process of the group is new, and none is left: it begins anew.
  run_workers(on_disk.address(), 3, 0, 5);
  on_disk.stop();
  EXPECT_FALSE(exists(dir.file("s"))) << "the socket's file stays behind";
}

TEST(EmbeddedServerTest, ARestartOnTheSameStoreGoesOnWhereItWas) {
  const TempDir dir;
  for (int run = 0; run < 3; ++run) {
    EmbeddedServer server({.store = dir.file("store")});
    run_workers(server.address(), 3, run * 10, 10);
  }
}

TEST(EmbeddedServerTest, TheConfigurationsTextIsHonouredAndTheOptionsWin) {
  const TempDir dir;
  EmbeddedServer server({.config = "[listen]\n"
                                   "tcp = \"off\"\n"
                                   "unix = \"" +
                                   dir.file("text") +
                                   "\"\n"
                                   "auto_create = false\n"
                                   "[[job]]\n"
                                   "name = \"declared\"\n"
                                   "policy = \"ssp:3\"\n"
                                   "expected_workers = 1\n",
                         .unix_path = dir.file("field")});
  EXPECT_EQ(server.address(0), "unix:" + dir.file("field"));
  EXPECT_EQ(server.address(1), "");
  ApiClient client(server.address());
  ApiWorker worker = client.join({.job = "declared"});
  EXPECT_STREQ(syncd_worker_policy(worker.get()), "ssp:3");
  ApiWorker unwanted;
  EXPECT_EQ(client.try_join({.job = "other"}, unwanted).status, SYNCD_E_UNKNOWN_JOB);
}

TEST(EmbeddedServerTest, TheEnvironmentOfTheDaemonIsNotRead) {
  setenv("SYNCD_LISTEN_TCP", "nonsense", 1);
  setenv("SYNCD_STORE_PATH", "/no/such/place", 1);
  setenv("SYNCD_CONFIG", "/no/such/file", 1);
  const EmbeddedServer server({});
  EXPECT_THAT(server.address(), StartsWith("tcp:127.0.0.1:"));
  for (const char* name : {"SYNCD_LISTEN_TCP", "SYNCD_STORE_PATH", "SYNCD_CONFIG"}) unsetenv(name);
}

// ---- stopping
// ----------------------------------------------------------------------------------

// Joins rank 0 of two, so that its begin(1) blocks until rank 1 has pushed.
ApiWorker first_of_two(ApiClient& client) {
  ApiWorker worker =
      client.join({.policy = "bsp", .name = "a", .host = "h", .rank = 0, .world_size = 2});
  syncd_step step = SYNCD_STEP_INIT;
  const Answer answer = worker.begin(step, 0);
  // The request stands at the daemon from here on.
  EXPECT_EQ(answer.status, SYNCD_E_TIMEOUT) << answer.text();
  EXPECT_THAT(answer.message, HasSubstr("waiting for"));
  return worker;
}

TEST(EmbeddedServerTest, AStopEndsBlockedCallsWhenTheReconnectTimeoutIsOver) {
  EmbeddedServer server({});
  ApiClient client(server.address(), {.reconnect_ms = 100});
  ApiWorker worker = first_of_two(client);
  std::thread blocked([&] {
    syncd_step step = SYNCD_STEP_INIT;
    const Answer answer = worker.begin(step, SYNCD_WAIT_FOREVER);
    EXPECT_EQ(answer.status, SYNCD_E_UNREACHABLE) << answer.text();
    EXPECT_TRUE(answer.retriable);
  });
  server.stop();
  blocked.join();
}

TEST(EmbeddedServerTest, BlockedCallsGoOnWithTheNextServerAtTheSameAddress) {
  const TempDir dir;
  const Given given{.tcp = "off", .unix_path = dir.file("s"), .store = dir.file("store")};
  std::optional<EmbeddedServer> server(given);
  ApiClient client(server->address());
  ApiWorker worker = first_of_two(client);
  std::thread blocked([&] {
    const Answer answer = worker.iterate(2);
    EXPECT_TRUE(answer.ok()) << answer.text();
  });
  server->stop();
  server.emplace(given);
  ApiClient late(server->address());
  ApiWorker other = late.join({.policy = "bsp", .name = "b", .host = "h", .rank = 1});
  const Answer answer = other.iterate(2);
  EXPECT_TRUE(answer.ok()) << answer.text();
  blocked.join();
}

TEST(EmbeddedServerTest, AStopMayBeGivenNoTime) {
  const TempDir dir;
  EmbeddedServer server({.store = dir.file("store")});
  run_workers(server.address(), 1, 0, 3);
  server.stop(0);
  EmbeddedServer again({.store = dir.file("store")});
  run_workers(again.address(), 1, 3, 1);  // what was acknowledged is there
  again.stop(SYNCD_WAIT_FOREVER);
}

TEST(EmbeddedServerTest, AStopSaysWhatCouldNotBeWritten) {
  const TempDir dir;
  syncd_server* server = nullptr;
  Lines lines;
  const Given given{.store = dir.file("store"), .log = Lines::take, .log_context = &lines};
  const syncd_server_options options = given.options();
  ASSERT_TRUE(start(&options, &server).ok());
  {
    ApiClient client(syncd_server_address(server, 0));
    ApiWorker worker = client.join({});
    ASSERT_TRUE(worker.iterate(1).ok());
    syncd_step step = SYNCD_STEP_INIT;
    ASSERT_TRUE(worker.begin(step).ok());
    // No file may grow any more, as on a full disk. A thread that took SIGXFSZ would end us here.
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    const Answer pushed = worker.push(step.iteration, 0);
    EXPECT_TRUE(lines.wait_for("store_not_writable")) << lines.text();
    const Answer stopped = stop(server, 200);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_FALSE(pushed.ok());
    EXPECT_EQ(stopped.status, SYNCD_E_STORE);
    EXPECT_THAT(stopped.message, HasSubstr(dir.file("store")));
  }
  // What was acknowledged is there, and the store can be opened again.
  EmbeddedServer again(given);
}

TEST(EmbeddedServerTest, AWrongStopChangesNothing) {
  EmbeddedServer server({});
  const Answer answer = stop(server.get(), -3);
  EXPECT_EQ(answer.status, SYNCD_E_INVALID);
  EXPECT_THAT(answer.message, AllOf(HasSubstr("syncd_server_stop"), HasSubstr("-3")));
  run_workers(server.address(), 1, 0, 1);
}

TEST(EmbeddedServerTest, AChildOfForkHasNoServer) {
  EmbeddedServer server({});
  const pid_t child = fork();
  if (child == 0) _exit(syncd_server_stop(server.get(), 0, nullptr) == SYNCD_E_FORKED ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  run_workers(server.address(), 1, 0, 1);
}

// ---- what it does to the process
// ---------------------------------------------------------------

std::set<std::string> threads_of_this_process() {
  std::set<std::string> ids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    ids.insert(entry.path().filename());
  }
  return ids;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

std::uint64_t blocked_signals(const std::string& thread) {
  std::ifstream in("/proc/self/task/" + thread + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return 0;
}

TEST(EmbeddedServerTest, SignalsStayTheProgramsOwn) {
  const TempDir dir;
  const auto dispositions = [] {
    std::array<void (*)(int), 32> all{};
    for (int number = 1; number < 32; ++number) {
      struct sigaction action {};
      sigaction(number, nullptr, &action);
      all[static_cast<std::size_t>(number)] = action.sa_handler;
    }
    return all;
  };
  const auto before = dispositions();
  const std::set<std::string> threads_before = threads_of_this_process();
  sigset_t mask_before;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_before);

  EmbeddedServer server({.store = dir.file("store")});
  run_workers(server.address(), 2, 0, 2);

  EXPECT_EQ(dispositions(), before);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (int number = 1; number < 32; ++number) {
    EXPECT_EQ(sigismember(&mask, number), sigismember(&mask_before, number)) << number;
  }
  std::size_t started = 0;
  for (const std::string& thread : threads_of_this_process()) {
    if (threads_before.contains(thread)) continue;
    ++started;
    const std::uint64_t blocked = blocked_signals(thread);
    for (const int number : {SIGPIPE, SIGTERM, SIGINT, SIGCHLD, SIGXFSZ}) {
      EXPECT_TRUE((blocked >> (number - 1)) & 1U) << "thread " << thread << ", signal " << number;
    }
  }
  EXPECT_GE(started, 2U);  // the loop's and the store's
}

TEST(EmbeddedServerTest, NothingIsPrintedUnlessAskedFor) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  {
    EmbeddedServer quiet({});
    ApiClient client(quiet.address());
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  testing::internal::CaptureStderr();
  std::string address;
  {
    EmbeddedServer loud({.flags = SYNCD_SERVER_LOG_STDERR});
    address = loud.address();
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::ContainsRegex(
                        "20[0-9-]+T[0-9:.]+Z info listening endpoint=" + address + "\n"));
}

// ---- the log
// -----------------------------------------------------------------------------------

TEST(EmbeddedServerTest, TheLogComesLineByLineOnTheServersThread) {
  Lines lines;
  EmbeddedServer server({.log = Lines::take, .log_context = &lines, .log_level = SYNCD_LOG_DEBUG});
  EXPECT_THAT(lines.text(), AllOf(HasSubstr("2 recovered store=memory"),
                                  HasSubstr("2 listening endpoint=" + server.address() + "\n")));
  // From here on every line tries to stop the server, which nothing on its own thread can.
  lines.to_stop = server.get();
  { ApiClient client(server.address()); }
  run_workers(server.address(), 1, 0, 1);
  lines.to_stop = nullptr;
  server.stop();
  EXPECT_THAT(lines.text(), HasSubstr("1 session_opened"));
  EXPECT_EQ(lines.stopped, SYNCD_E_STATE);
  EXPECT_EQ(lines.threads.size(), 1U);
  EXPECT_FALSE(lines.threads.contains(std::this_thread::get_id()));
}

TEST(EmbeddedServerTest, TheLogHasALevel) {
  Lines few;
  {
    EmbeddedServer server({.log = Lines::take, .log_context = &few, .log_level = SYNCD_LOG_ERROR});
  }
  EXPECT_EQ(few.text(), "");
  {
    EmbeddedServer server(
        {.config = "log.level = \"error\"", .log = Lines::take, .log_context = &few});
  }
  EXPECT_EQ(few.text(), "");
}

// ---- starts that fail --------------------------------------------------------------------------

class FailedStart : public testing::Test {
 protected:
  // Starts twice, because the process keeps RocksDB's pool from the first time on.
  void expect(const Given& given, syncd_status status, const std::vector<std::string>& parts) {
    const syncd_server_options options = given.options();
    std::size_t descriptors = 0;
    std::size_t threads = 0;
    for (int time = 0; time < 2; ++time) {
      syncd_server* server = nullptr;
      const Answer answer = start(&options, &server);
      EXPECT_EQ(answer.status, status) << answer.text();
      EXPECT_EQ(server, nullptr);
      for (const std::string& part : parts) EXPECT_THAT(answer.message, HasSubstr(part));
      if (time > 0) {
        EXPECT_EQ(open_descriptors(), descriptors) << answer.text();
        EXPECT_EQ(threads_of_this_process().size(), threads) << answer.text();
      }
      descriptors = open_descriptors();
      threads = threads_of_this_process().size();
    }
  }
  void expect_invalid(const std::string& config, const std::vector<std::string>& parts) {
    expect({.config = config}, SYNCD_E_INVALID, parts);
  }

  TempDir dir_;
};

TEST_F(FailedStart, APortInUse) {
  EmbeddedServer first({});
  const std::string taken = first.address().substr(std::strlen("tcp:"));
  expect({.tcp = taken, .unix_path = dir_.file("s"), .store = dir_.file("store")}, SYNCD_E_LISTEN,
         {"tcp:" + taken, "ddress already in use", "listen.tcp: "});
  EXPECT_FALSE(exists(dir_.file("s"))) << "the socket's file stays behind";
  // The store was let go of.
  EmbeddedServer second({.store = dir_.file("store")});
  run_workers(second.address(), 1, 0, 1);
}

TEST_F(FailedStart, AnAddressOfAnotherMachine) {
  expect({.config = "listen.insecure = true", .tcp = "192.0.2.1:0"}, SYNCD_E_LISTEN, {"192.0.2.1"});
}

TEST_F(FailedStart, AStoreThatAnotherServerHas) {
  EmbeddedServer first({.store = dir_.file("store")});
  expect({.store = dir_.file("store")}, SYNCD_E_STORE, {dir_.file("store")});
  run_workers(first.address(), 1, 0, 1);
}

TEST_F(FailedStart, AStoreThatCannotBeWritten) {
  write_file(dir_.file("file"), "no directory");
  expect({.store = dir_.file("file")}, SYNCD_E_STORE, {dir_.file("file"), "is not a directory"});
  EXPECT_EQ(read_file(dir_.file("file")), "no directory") << "the file is not the store's";
  expect({.store = "/proc/store"}, SYNCD_E_STORE, {"/proc/store", "cannot be made"});
  expect({.store = dir_.file("no/store")}, SYNCD_E_STORE,
         {"syncd_server_options.store: store.path", dir_.file("no") + " does not exist",
          "; allowed: "});
}

TEST_F(FailedStart, AWrongConfigurationNamesLineKeyAndWhatIsAllowed) {
  expect_invalid("[store]\nmode = \"dureable\"\n",
                 {"syncd_server_options.config:2: store.mode = \"dureable\"",
                  "; allowed: \"durable\" or \"fast\""});
  expect_invalid("[listen\n", {"syncd_server_options.config:1: not valid TOML: "});
  expect_invalid("\n[listen]\ntpc = \"off\"\n",
                 {"syncd_server_options.config:3: unknown key listen.tpc", "listen.tcp?"});
  expect_invalid("[log]\nfile = \"/tmp/l\"\n",
                 {"syncd_server_options.config:2: log.file: an embedded daemon writes no log file",
                  "; allowed: "});
  expect_invalid("[[job]]\nname = \"j\"\npolicy = \"sssp\"\nexpected_workers = 1\n",
                 {"syncd_server_options.config:1: [[job]] \"j\": ", "sssp"});
  expect_invalid("listen.tcp = \"off\"\n", {"nobody could connect; allowed: "});
  // Every mistake on a line of its own.
  expect_invalid("[store]\nmode = 1\n[log]\nlevel = 2\n",
                 {"config:2: store.mode = 1", "\nsyncd_server_options.config:4: log.level = 2"});
}

TEST_F(FailedStart, AWrongFieldIsNamed) {
  expect({.tcp = "somewhere"}, SYNCD_E_INVALID,
         {"syncd_server_options.tcp: listen.tcp = \"somewhere\"", "; allowed: HOST:PORT"});
  expect({.unix_path = std::string(200, 'x')}, SYNCD_E_INVALID,
         {"syncd_server_options.unix_path: listen.unix", "at most 107 bytes"});
  expect({.tcp = "0.0.0.0:0"}, SYNCD_E_INVALID,
         {"syncd_server_options.tcp: listen.tcp = \"0.0.0.0:0\" can be reached from other"});
  expect({.log_level = 5}, SYNCD_E_INVALID, {"log_level is 5; allowed: 0 or SYNCD_LOG_DEBUG (1)"});
  expect({.log_level = -1}, SYNCD_E_INVALID, {"log_level is -1"});
  expect({.flags = 2}, SYNCD_E_INVALID, {"flags is 2; allowed: 0 or SYNCD_SERVER_LOG_STDERR"});
}

TEST_F(FailedStart, AStructOfAnotherSize) {
  for (const std::size_t size : {std::size_t{0}, sizeof(std::size_t), std::size_t{1} << 40}) {
    syncd_server_options options = SYNCD_SERVER_OPTIONS_INIT;
    options.struct_size = size;
    syncd_server* server = nullptr;
    const Answer answer = start(&options, &server);
    EXPECT_EQ(answer.status, SYNCD_E_INVALID);
    EXPECT_THAT(answer.message,
                HasSubstr("syncd_server_options.struct_size is " + std::to_string(size)));
    EXPECT_EQ(server, nullptr);
  }
  // One of a later release: what we do not know must be unset.
  struct Later {
    syncd_server_options known = SYNCD_SERVER_OPTIONS_INIT;
    std::uint64_t unknown = 1;
  } later;
  later.known.struct_size = sizeof later;
  syncd_server* server = nullptr;
  EXPECT_EQ(start(&later.known, &server).status, SYNCD_E_INVALID);
  later.unknown = 0;
  EXPECT_EQ(start(&later.known, &server).status, SYNCD_OK);
  EXPECT_TRUE(stop(server).ok());
  EXPECT_EQ(syncd_server_start(nullptr, nullptr, nullptr), SYNCD_E_INVALID);
}

// ---- beside the client library -----------------------------------------------------------------

TEST(BothLibraries, EachServesItsOwnUsers) {
  void* library = dlopen(SYNCD_TEST_SYNCCLIENT, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto open =
      reinterpret_cast<decltype(&syncd_client_open)>(dlsym(library, "syncd_client_open"));
  const auto close =
      reinterpret_cast<decltype(&syncd_client_close)>(dlsym(library, "syncd_client_close"));
  ASSERT_NE(open, nullptr);
  EXPECT_NE(open, &syncd_client_open);
  const EmbeddedServer server({});
  const std::string address = server.address();
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  options.addresses = address.c_str();
  syncd_client* client = nullptr;
  EXPECT_EQ(open(&options, &client, nullptr), SYNCD_OK);
  close(client);
  dlclose(library);
}

}  // namespace
}  // namespace syncd::test
