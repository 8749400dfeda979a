// Every SYNCD_E_... code of <syncd/client.h>, produced through the C interface by what it stands
// for, with a message that names the cause. A code that is new in the header belongs into one of
// the two lists below. Most come from a real daemon, embedded in this process; a fake one answers
// what a real one of this build cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <syncd/client.h>
#include <syncd/server.h>
#include <syncd/update_queue.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <new>
#include <ostream>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../libclient/fake_server.h"
#include "embedded_server.h"
#include "scarce_memory.h"
#include "support/c_api.h"
#include "support/deadline.h"
#include "support/files.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using client::FakeServer;
using ::testing::HasSubstr;

Answer open_at(const std::string& address, std::int64_t connect_ms = 30'000) {
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  options.addresses = address.c_str();
  options.connect_timeout_ms = connect_ms;
  syncd_client* client = nullptr;
  const Answer answer =
      answered([&](auto** error) { return syncd_client_open(&options, &client, error); });
  syncd_client_close(client);
  return answer;
}

// A daemon of its own with one worker, rank 0 of two in the job "mf".
struct Site {
  explicit Site(const std::string& policy = "ssp:3", const std::string& config = {})
      : server({.config = config, .store = "memory"}),
        client(server.address()),
        worker(client.join({.job = "mf",
                            .policy = policy,
                            .name = "first",
                            .host = "node-a",
                            .rank = 0,
                            .world_size = 2})) {}
  // The worker without which the job does not start.
  ApiWorker second() {
    return client.join({.job = "mf", .name = "second", .host = "node-b", .rank = 1});
  }
  void begin_both(ApiWorker& other) {
    std::thread beside([&] {
      syncd_step step = SYNCD_STEP_INIT;
      EXPECT_TRUE(other.begin(step).ok());
    });
    syncd_step step = SYNCD_STEP_INIT;
    EXPECT_TRUE(worker.begin(step).ok());
    beside.join();
  }
  std::string raw_address() const { return server.address().substr(std::strlen("tcp:")); }

  EmbeddedServer server;
  ApiClient client;
  ApiWorker worker;
};

Answer refused_join(const ApiJoin& join) {
  Site site;
  ApiWorker worker;
  return site.client.try_join(join, worker);
}

Answer fake_refusal_of_join(Status status) {
  FakeServer server;
  server.behave([&](auto& behaviour) { behaviour.refuse["Join"] = status; });
  ApiClient client(server.address());
  ApiWorker worker;
  return client.try_join({.job = "mf", .name = "w"}, worker);
}

Answer invalid() {
  return refused_join({.job = "no spaces"});
}

Answer out_of_memory() {
  Site site;
  return answered([&](auto** error) {
    syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
    syncd_worker* worker = nullptr;
    allocations_left = 0;
    const syncd_status status = syncd_join(site.client.get(), &options, &worker, error);
    allocations_left = -1;
    return status;
  });
}

Answer timeout() {
  Site site("bsp");
  ApiWorker other = site.second();
  site.begin_both(other);
  EXPECT_TRUE(site.worker.push(0).ok());
  syncd_step step = SYNCD_STEP_INIT;
  return site.worker.begin(step, 0);
}

Answer unreachable() {
  return open_at("unix:/no/such/place", 10);
}

Answer protocol() {
  FakeServer server;
  server.behave([](auto& behaviour) { behaviour.protocol = 7; });
  return open_at(server.address());
}

Answer credentials() {
  FakeServer server;
  server.behave([](auto& behaviour) { behaviour.refuse_hello = Status::kAuth; });
  return open_at(server.address());
}

Answer unknown_job() {
  const EmbeddedServer server({.config = "[listen]\nauto_create = false\n"});
  ApiClient client(server.address());
  ApiWorker worker;
  return client.try_join({.job = "mf"}, worker);
}

Answer policy_mismatch() {
  return refused_join({.job = "mf", .policy = "asp", .name = "second", .rank = 1});
}

Answer wrong_iteration() {
  Site site;
  ApiWorker other = site.second();
  site.begin_both(other);
  return site.worker.push(5);
}

// Another process goes on under the worker's name, leaves, and joins anew: the first one's life is
// over.
Answer fenced() {
  Site site;
  ApiWorker other = site.second();
  site.begin_both(other);
  RawClient raw(site.raw_address());
  raw.hello();
  wire::Join join = join_of("mf", 0, 2);
  join.name = "first";
  join.host = "node-a";
  join.incarnation =
      raw.call_for<wire::WorkersReply>(wire::WorkersRequest{"mf", 0}).workers.at(0).incarnation;
  RawWorker(raw, join).leave();
  join.incarnation = 0;
  const RawWorker anew(raw, join);
  return site.worker.push(0);
}

Answer rank_taken() {
  return refused_join({.job = "mf", .name = "other", .host = "node-z", .rank = 0});
}

Answer limit() {
  const EmbeddedServer server({.config = "[limits]\nconnections_max = 1\n"});
  const ApiClient first(server.address());
  // It tries again until its time is over: somebody might make room.
  return open_at(server.address(), 100);
}

// No file may grow any more, as on a full disk. The push that meets that first is told so, as is
// what comes after it.
Answer store() {
  const TempDir dir;
  EmbeddedServer server({.store = dir.file("store")});
  ApiClient client(server.address());
  ApiWorker worker = client.join({.job = "mf", .name = "w"});
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_TRUE(worker.begin(step).ok());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  EXPECT_EQ(worker.push(0).status, SYNCD_E_STORE);
  ApiWorker late;
  const Answer answer = client.try_join({.job = "mf", .name = "late"}, late);
  setrlimit(RLIMIT_FSIZE, &before);
  // It is refused until the daemon has tried again.
  wait_until("the push to be taken again", [&] { return worker.push(0).ok(); });
  return answer;
}

Answer cancelled() {
  Site site;
  Answer answer;
  std::thread blocked([&] {
    syncd_step step = SYNCD_STEP_INIT;
    answer = site.worker.begin(step, SYNCD_WAIT_FOREVER);
  });
  // It stands at the daemon when that says for whom it waits.
  RawClient raw(site.raw_address());
  raw.hello();
  wait_until("the begin to stand", [&] {
    const auto reply = raw.call_for<wire::WorkersReply>(wire::WorkersRequest{"mf", 0});
    return reply.workers.at(0).waiting_us >= 0;
  });
  site.client.close();
  blocked.join();
  return answer;
}

Answer closed() {
  Site site;
  EXPECT_TRUE(site.worker.leave().ok());
  return site.worker.push(0);
}

// The child writes what it was answered into memory that both have.
Answer forked() {
  Site site;
  struct Said {
    syncd_status status;
    char message[200];
  };
  void* memory =
      mmap(nullptr, sizeof(Said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* said = new (memory) Said{};
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const Answer answer = site.worker.push(0);
    said->status = answer.status;
    std::strncpy(said->message, answer.message.c_str(), sizeof said->message - 1);
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Answer answer;
  answer.status = said->status;
  answer.message = said->message;
  munmap(memory, sizeof(Said));
  return answer;
}

Answer unsupported() {
  Site site;
  ApiWorker other = site.second();
  site.begin_both(other);
  std::vector<std::int32_t> ranks;
  return site.worker.targets(0, ranks);
}

Answer stopped() {
  Site site;
  ApiWorker other = site.second();
  site.begin_both(other);
  RawClient raw(site.raw_address());
  raw.hello();
  raw.call_for<wire::Ok>(wire::StopJobRequest{"mf", "the budget is spent"});
  return site.worker.push(0);
}

Answer out_of_order() {
  Site site;
  return site.worker.push(0);
}

Answer defect() {
  return fake_refusal_of_join(Status::kInternal);
}

Answer unknown_worker() {
  return fake_refusal_of_join(Status::kUnknownWorker);
}

Answer job_exists() {
  return fake_refusal_of_join(Status::kJobExists);
}

// A worker of a job under asp that has begun iteration 0 and takes part in checkpoints.
struct Saving {
  Saving() {
    syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
    join.job = "saving";
    join.policy = "asp";
    join.rank = 0;
    join.world_size = 1;
    join.checkpoints = 1;
    EXPECT_TRUE(answered([&](auto** error) {
                  return syncd_join(client.get(), &join, &worker, error);
                }).ok());
    syncd_step step = SYNCD_STEP_INIT;
    EXPECT_TRUE(answered([&](auto** error) {
                  return syncd_begin(worker, SYNCD_WAIT_FOREVER, &step, error);
                }).ok());
  }
  ~Saving() { syncd_worker_free(worker); }
  Answer request(std::uint32_t flags) {
    return answered([&](auto** error) {
      return syncd_worker_request_checkpoint(worker, "a test", flags, SYNCD_WAIT_FOREVER, nullptr,
                                             error);
    });
  }

  EmbeddedServer server{{.store = "memory"}};
  ApiClient client{server.address()};
  syncd_worker* worker = nullptr;
};

Answer broken() {
  Saving saving;
  ApiWorker other = saving.client.join({.job = "saving", .name = "other", .rank = 1});
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_TRUE(other.begin(step).ok());
  RawClient raw(saving.server.address().substr(std::strlen("tcp:")));
  raw.hello();
  raw.call_for<wire::Ok>(
      wire::ManageWorkerRequest{"saving", "1", wire::WorkerAction::kKick, "a test", 0});
  return saving.request(SYNCD_CHECKPOINT_LEAVING);
}

Answer must_save() {
  Saving saving;
  EXPECT_TRUE(saving.request(0).ok());
  return answered([&](auto** error) {
    return syncd_leave(saving.worker, SYNCD_WAIT_FOREVER, error);
  });
}

Answer buffer() {
  Site site("hop:ring");
  ApiWorker other = site.second();
  site.begin_both(other);
  std::size_t count = 0;
  return answered([&](auto** error) {
    return syncd_worker_targets(site.worker.get(), 0, 30'000, nullptr, 0, &count, error);
  });
}

Answer cannot_listen() {
  const EmbeddedServer first({});
  const std::string taken = first.address().substr(std::strlen("tcp:"));
  const Given given{.tcp = taken};
  const syncd_server_options options = given.options();
  syncd_server* server = nullptr;
  return answered([&](auto** error) { return syncd_server_start(&options, &server, error); });
}

// ---- update queues

constexpr std::size_t kPayload = 64;
using Payload = std::array<unsigned char, kPayload>;

class Queue {
 public:
  Queue() {
    syncd_update_queue_options options = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;
    options.edges = 1;
    options.slots = 1;
    options.payload_bytes = kPayload;
    options.memory = memory_.data();
    options.memory_bytes = memory_.size();
    EXPECT_EQ(syncd_update_queue_create(&options, &queue_, nullptr), SYNCD_OK);
  }
  ~Queue() { syncd_update_queue_free(queue_); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  static Payload payload_of(std::int64_t iteration) {
    Payload payload;
    payload.fill(static_cast<unsigned char>(100 + iteration));
    return payload;
  }
  void write(std::int64_t iteration) {
    const Payload payload = payload_of(iteration);
    EXPECT_EQ(syncd_update_queue_write(queue_, 0, iteration, payload.data(), kPayload, nullptr),
              SYNCD_OK);
  }
  Answer read(std::int64_t iteration) {
    Payload payload;
    return answered([&](auto** error) {
      return syncd_update_queue_read(queue_, 0, iteration, payload.data(), kPayload, error);
    });
  }
  // As if its writer had died in the middle of it.
  void tear(std::int64_t iteration) {
    const Payload payload = payload_of(iteration);
    const auto at = std::search(memory_.begin(), memory_.end(), payload.begin(), payload.end());
    ASSERT_NE(at, memory_.end());
    *at ^= 1U;
  }

 private:
  alignas(SYNCD_UPDATE_QUEUE_ALIGNMENT) std::array<unsigned char, 4096> memory_{};
  syncd_update_queue* queue_ = nullptr;
};

Answer no_update() {
  Queue queue;
  return queue.read(3);
}

Answer overwritten() {
  Queue queue;
  queue.write(3);
  queue.write(4);
  return queue.read(3);
}

Answer torn() {
  Queue queue;
  queue.write(3);
  queue.tear(3);
  return queue.read(3);
}

// ---- the list -----------------------------------------------------------------------------------

struct Case {
  syncd_status code;
  Answer (*produce)();
  std::vector<std::string> parts;  // of the message
  bool retriable = false;
  bool fatal = false;
};
void PrintTo(const Case& one, std::ostream* out) {
  *out << syncd_strerror(one.code);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {SYNCD_E_INVALID, invalid, {"syncd_join_options.job is 'no spaces'", "allowed"}},
      {SYNCD_E_NOMEM, out_of_memory, {"out of memory"}, true},
      {SYNCD_E_TIMEOUT,
       timeout,
       {"begin(1) of worker 0 not granted after 0 us", "bsp", "waiting for worker 1 (node-b"},
       true},
      {SYNCD_E_UNREACHABLE, unreachable, {"unix:/no/such/place: no such file or directory"}, true},
      {SYNCD_E_PROTOCOL,
       protocol,
       {"speaks protocol version 7, this library speaks versions 1 to 1"},
       false,
       true},
      {SYNCD_E_AUTH, credentials, {"the daemon refused the connection: not you"}, false, true},
      {SYNCD_E_UNKNOWN_JOB, unknown_job, {"there is no job 'mf'", "create it first"}},
      {SYNCD_E_POLICY_MISMATCH,
       policy_mismatch,
       {"job 'mf' runs policy 'ssp:3', not 'asp' as worker 'second' asks"}},
      {SYNCD_E_WRONG_ITERATION,
       wrong_iteration,
       {"push(5) of worker 0", "iteration 0 is the one that is due"}},
      {SYNCD_E_FENCED,
       fenced,
       {"worker 0 of job 'mf'", "was replaced by incarnation"},
       false,
       true},
      {SYNCD_E_RANK_TAKEN, rank_taken, {"'other'", "worker 0 ('first')", "rank"}},
      {SYNCD_E_LIMIT, limit, {"1 connections already", "limits.connections_max"}, true},
      {SYNCD_E_STORE, store, {"cannot write its history", "File too large"}, true},
      {SYNCD_E_CANCELLED, cancelled, {"begin(0) of worker 0: the client was closed"}},
      {SYNCD_E_CLOSED, closed, {"the worker has left its job"}, false, true},
      {SYNCD_E_FORKED, forked, {"opened before fork()", "open a new one in the child"}},
      {SYNCD_E_UNSUPPORTED,
       unsupported,
       {"targets(0) of worker 0", "policy 'ssp:3' has a parameter server and no such call"}},
      {SYNCD_E_STOPPED,
       stopped,
       {"push(0) of worker 0: job 'mf' has ended", "the budget is spent"},
       false,
       true},
      {SYNCD_E_STATE, out_of_order, {"push(0) of worker 0", "no iteration was granted yet"}},
      {SYNCD_E_INTERNAL, defect, {"join of worker 'w' to job 'mf': Join is refused"}},
      {SYNCD_E_UNKNOWN_WORKER, unknown_worker, {"join of worker 'w' to job 'mf'"}},
      {SYNCD_E_JOB_EXISTS, job_exists, {"join of worker 'w' to job 'mf'"}},
      {SYNCD_E_BUFFER,
       buffer,
       {"syncd_worker_targets: the answer has", "call again with room for"}},
      {SYNCD_E_LISTEN, cannot_listen, {"127.0.0.1:", "Address already in use"}},
      {SYNCD_E_NO_UPDATE, no_update, {"iteration 3 on edge 0", "newest is -1"}, true},
      {SYNCD_E_OVERWRITTEN, overwritten, {"iteration 3 on edge 0", "newest is 4"}},
      {SYNCD_E_TORN, torn, {"iteration 3 on edge 0", "half-written"}, true},
      {SYNCD_E_BROKEN, broken, {"request_checkpoint of worker 0", "has lost worker 1"}},
      {SYNCD_E_CHECKPOINT, must_save, {"leave of worker 0", "checkpoint 1 is wanted"}, true},
  };
  return all;
}

// Codes that no call of the C interface answers, with the tests that see the daemon answer them.
const std::map<std::string, std::string> kOnTheWireAlone = {
    // The library keeps it from its callers: it waits for the next daemon, up to reconnect_timeout.
    {"SYNCD_E_SHUTDOWN",
     "tests/integration/01_start_stop_test.cpp, tests/golden/engine/shutdown.txt"},
};

class ErrorCode : public ::testing::TestWithParam<Case> {};

TEST_P(ErrorCode, IsProducedAndItsMessageNamesTheCause) {
  const Answer answer = GetParam().produce();
  EXPECT_EQ(answer.status, GetParam().code) << answer.text();
  EXPECT_EQ(answer.retriable, GetParam().retriable);
  EXPECT_EQ(answer.fatal, GetParam().fatal);
  for (const std::string& part : GetParam().parts) EXPECT_THAT(answer.message, HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(All, ErrorCode, ::testing::ValuesIn(cases()), [](const auto& made) {
  return std::string(syncd_strerror(made.param.code));
});

TEST(ErrorCodes, EachOneOfTheHeaderHasItsTest) {
  const std::string header =
      read_file(std::string(SYNCD_TEST_SOURCE_DIR) + "/../capi/include/syncd/client.h");
  const std::regex line("(SYNCD_E_[A-Z_]+) = (-[0-9]+)");
  std::map<std::string, syncd_status> documented;
  for (std::sregex_iterator at(header.begin(), header.end(), line), end; at != end; ++at) {
    documented[(*at)[1]] = std::stoi((*at)[2]);
  }
  ASSERT_GE(documented.size(), 28U) << "the header is not read";
  std::set<syncd_status> produced;
  for (const Case& one : cases()) {
    EXPECT_TRUE(produced.insert(one.code).second) << syncd_strerror(one.code) << " is there twice";
  }
  for (const auto& [name, code] : documented) {
    EXPECT_EQ(syncd_strerror(code), name);
    EXPECT_NE(produced.contains(code), kOnTheWireAlone.contains(name))
        << name << " belongs into exactly one list of " << __FILE__;
  }
  EXPECT_EQ(documented.size(), produced.size() + kOnTheWireAlone.size());
}

// ---- memory -------------------------------------------------------------------------------------

// Whichever allocation of a call is the first that fails, the call says so and leaves everything as
// it was: made again, it succeeds.
Answer join_with_memory_for(long allocations, syncd_client* client, syncd_worker** worker) {
  return answered([&](auto** error) {
    syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
    options.job = "another";
    options.name = "a name that is too long to be kept without an allocation";
    allocations_left = allocations;
    const syncd_status status = syncd_join(client, &options, worker, error);
    allocations_left = -1;
    return status;
  });
}

// Until its request is on its way, a call that gets no memory fails alone. From then on the same
// thread reads answers, which may be others' too: the client ends if that fails.
TEST(MemoryThatRunsOut, BeforeACallIsSentFailsThatCallAlone) {
  Site site;
  long alone = 0;
  bool ends = false;
  for (long good = 0;; ++good) {
    ASSERT_LT(good, 1000);
    ApiClient client(site.server.address());
    syncd_worker* worker = nullptr;
    const Answer answer = join_with_memory_for(good, client.get(), &worker);
    if (answer.ok()) {
      syncd_worker_free(worker);
      break;
    }
    EXPECT_EQ(answer.status, SYNCD_E_NOMEM);
    EXPECT_EQ(answer.message, "out of memory");
    EXPECT_EQ(worker, nullptr);
    const Answer again = join_with_memory_for(-1, client.get(), &worker);
    if (again.ok()) {
      EXPECT_FALSE(ends) << good;
      ++alone;
      syncd_leave(worker, SYNCD_TIMEOUT_DEFAULT, nullptr);
    } else {
      EXPECT_EQ(again.status, SYNCD_E_NOMEM) << again.text();
      ends = true;
    }
    syncd_worker_free(worker);
  }
  EXPECT_GT(alone, 5);  // the strings of the request, its worker, its frame
}

// Calls that do not wait fail alone wherever it happens, and can be made again.
TEST(MemoryThatRunsOut, InACallThatDoesNotWaitFailsThatCallAlone) {
  Site site;
  long failed = 0;
  const auto run = [&](auto&& call) {
    for (long good = 0;; ++good) {
      ASSERT_LT(good, 1000);
      const Answer answer = answered([&](auto** error) {
        allocations_left = good;
        const syncd_status status = call(error);
        allocations_left = -1;
        return status;
      });
      if (answer.ok()) return;
      EXPECT_EQ(answer.status, SYNCD_E_NOMEM);
      EXPECT_EQ(answer.message, "out of memory");
      ++failed;
    }
  };
  ApiWorker worker = site.client.join({.job = "calls", .policy = "asp"});
  for (int iteration = 0; iteration < 3; ++iteration) {
    run([&](auto** error) {
      return syncd_worker_phase(worker.get(), "a-name-that-is-too-long-to-be-kept-in-place", 1000,
                                0, error);
    });
    run([&](auto** error) { return syncd_worker_arrive(worker.get(), error); });
    syncd_step step = SYNCD_STEP_INIT;
    // What failed once it was asked for is the answer.
    syncd_status begun = syncd_begin(worker.get(), 30'000, &step, nullptr);
    if (begun == SYNCD_E_NOMEM) begun = syncd_begin(worker.get(), 30'000, &step, nullptr);
    ASSERT_EQ(begun, SYNCD_OK);
    EXPECT_EQ(step.iteration, iteration);
    run([&](auto** error) { return syncd_worker_restarted(worker.get(), iteration, 0, error); });
    ASSERT_EQ(syncd_push(worker.get(), iteration, nullptr, 30'000, nullptr, nullptr), SYNCD_OK);
  }
  EXPECT_GE(failed, 3);  // a phase's name each time; the other two calls take no memory of their own
}

// Of what the client does under its lock, and what the library makes of the answer: whichever
// allocation fails, the call says so and leaves its out-parameters alone, and closing works.
TEST(MemoryThatRunsOut, InAnyCallAboutMembersIsSaid) {
  Site site;
  const std::string data(1000, 'x');
  int jobs = 0;  // one for each, since an earlier call's worker keeps its place for a while
  const auto run = [&](auto&& call) {
    for (long good = 0;; ++good) {
      ASSERT_LT(good, 1000);
      ApiClient client(site.server.address());
      ApiWorker worker = client.join({.job = "other-" + std::to_string(jobs++), .world_size = 2});
      const Answer answer = answered([&](auto** error) {
        allocations_left = good;
        const syncd_status status = call(client.get(), worker.get(), error);
        allocations_left = -1;
        return status;
      });
      if (answer.ok()) return;
      EXPECT_EQ(answer.status, SYNCD_E_NOMEM) << answer.text();
      EXPECT_EQ(answer.message, "out of memory");
    }
  };
  run([](auto*, auto* worker, auto** error) {
    syncd_members* members = nullptr;
    const syncd_status status = syncd_worker_members(worker, 30'000, &members, error);
    EXPECT_EQ(status == SYNCD_OK, members != nullptr);
    syncd_members_free(members);
    return status;
  });
  run([](auto*, auto* worker, auto** error) {
    return syncd_worker_phase(worker, "a-name-that-is-too-long-to-be-kept-in-place", 1000, 30'000,
                              error);
  });
  run([&](auto* client, auto*, auto** error) {
    syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
    options.data = data.data();
    options.data_size = data.size();
    options.on_event = [](const syncd_event*, void*) {};
    syncd_worker* worker = nullptr;
    const syncd_status status = syncd_join(client, &options, &worker, error);
    EXPECT_EQ(status == SYNCD_OK, worker != nullptr);
    if (worker != nullptr) syncd_leave(worker, 30'000, nullptr);
    syncd_worker_free(worker);
    return status;
  });
}

// In the client's own thread it ends the client: every call says so, and closing still works.
TEST(MemoryThatRunsOut, InTheClientsThreadEndsEveryCallOfIt) {
  Site site;
  bool done = false;
  for (long good = 0; !done; ++good) {
    ASSERT_LT(good, 1000);
    ApiClient client(site.server.address());
    ApiWorker worker;
    allocations_left_in_clients = good;
    const Answer answer = client.try_join({.job = "job-" + std::to_string(good)}, worker);
    allocations_left_in_clients = -1;
    if (answer.ok()) {
      done = true;
      continue;
    }
    EXPECT_EQ(answer.status, SYNCD_E_NOMEM) << answer.text();
    EXPECT_EQ(answer.message, "out of memory");
    const Answer again = client.try_join({.job = "job"}, worker);
    EXPECT_EQ(again.status, SYNCD_E_NOMEM) << answer.text();
    EXPECT_EQ(again.message, "out of memory");
  }
}

}  // namespace
}  // namespace syncd::test
