// The daemon as an object, with the real engine and raw clients.
#include <algorithm>
#include <fstream>
#include <set>

#include "daemon/edge/store/record_codec.h"
#include "proto/base/check.h"
#include "tests/support/forwarding_store.h"
#include "tests/unit/server/server_fixture.h"

namespace syncd::server {
namespace {

// Each keeps what the log will say of it, for as long as the disk takes.
TEST_F(ServerTest, OnlySoManyChangesOfOneConnectionWaitForTheDisk) {
  FakeStore& store = start_on_fake();
  auto client = connect();
  constexpr std::uint64_t kMost = limits::kChangesPerConnectionMax;
  for (std::uint64_t id = 1; id <= kMost + 1; ++id) {
    client->send({id, wire::CreateJobRequest{"j" + std::to_string(id), "bsp", 1, 0}});
    // The socket's buffer holds fewer than all of them, and one turn may take fewer than 64.
    if (id % 64 == 0) {
      ASSERT_TRUE(run_until([&] { return store.records() >= id; }));
    }
  }
  ASSERT_TRUE(run_until([&] {
    client->receive();
    return !client->messages.empty();
  }));
  EXPECT_EQ(client->messages.back().id, kMost + 1);
  const auto* error = client->last<wire::Error>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->status, Status::kLimit);
  EXPECT_NE(error->message.find("1024 requests of this connection"), std::string::npos)
      << error->message;
  EXPECT_EQ(count("audit"), 1U) << "of the one that was refused";
  store.commit_all();
  ASSERT_TRUE(run_until([&] {
    client->receive();
    return client->messages.size() == kMost + 1;
  }));
  EXPECT_EQ(count("audit"), kMost + 1);
  client->send({999, wire::StopJobRequest{"j1", ""}});
  settle(*client);
  store.commit_all();
  ASSERT_TRUE(run_until([&] {
    client->receive();
    return find(*client, 999) != nullptr;
  }));
  EXPECT_TRUE(std::holds_alternative<wire::Ok>(find(*client, 999)->body));
}

TEST_F(ServerTest, AWorkerRunsItsLoop) {
  start();
  EXPECT_EQ(server_->endpoints(), (std::vector<std::string>{"unix:" + directory_ + "/s"}));
  auto client = connect();
  const wire::Joined joined = join(*client, "w");
  EXPECT_EQ(joined.policy, "bsp");
  for (std::int64_t k = 0; k < 3; ++k) {
    EXPECT_EQ(ask<wire::Granted>(*client, wire::Begin{joined.worker, k}).iteration, k);
    EXPECT_EQ(ask<wire::Pushed>(*client, wire::Push{joined.worker, k, 0.5, 1, 2}).iteration, k);
  }
  const auto status = ask<wire::StatusReply>(*client, wire::StatusRequest{});
  EXPECT_EQ(status.server_version, "9.9");
  EXPECT_EQ(status.store, "memory");
  EXPECT_EQ(status.mode, "fast");
  EXPECT_EQ(status.pushes, 3U);
  EXPECT_EQ(status.sessions, 1U);
  EXPECT_EQ(status.workers, 1U);
  EXPECT_EQ(status.pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_FALSE(status.read_only);
  EXPECT_GE(status.now_us, status.started_us);
  EXPECT_EQ(ask<wire::JobsReply>(*client, wire::JobsRequest{}).jobs.size(), 1U);
  ask<wire::Ok>(*client, wire::Leave{joined.worker});
}

TEST_F(ServerTest, HistoryIsReadInPieces) {
  start();
  auto client = connect();
  const wire::Joined joined = join(*client, "w", 1, "asp");
  constexpr int kPushes = 500;
  for (std::int64_t k = 0; k < kPushes; ++k) {
    ask<wire::Granted>(*client, wire::Begin{joined.worker, k});
    ask<wire::Pushed>(*client, wire::Push{joined.worker, k, {}, 0, 0});
    client->messages.clear();
  }
  std::uint64_t from = 0;
  std::uint64_t expected = 1;
  int pushes = 0;
  int replies = 0;
  do {
    const auto reply = ask<wire::HistoryReply>(*client, wire::HistoryRequest{"j", from, 0});
    ++replies;
    for (const wire::StoredRecord& stored : reply.records) {
      EXPECT_EQ(stored.sequence, expected++);
      Record record;
      std::string error;
      ASSERT_TRUE(store::decode_record(stored.bytes, record, error)) << error;
      pushes += record.kind == RecordKind::kPush;
    }
    from = reply.next_sequence;
  } while (from != 0);
  EXPECT_EQ(pushes, kPushes);
  EXPECT_GT(replies, 1);
  const auto two = ask<wire::HistoryReply>(*client, wire::HistoryRequest{"j", 2, 2});
  ASSERT_EQ(two.records.size(), 2U);
  EXPECT_EQ(two.records[0].sequence, 2U);
  EXPECT_EQ(two.next_sequence, 4U);
  const auto long_name =
      ask<wire::Error>(*client, wire::HistoryRequest{std::string(65, 'x'), 0, 0});
  EXPECT_EQ(long_name.status, Status::kInvalid);
  EXPECT_EQ(long_name.message, "the job's name is 65 bytes long: at most 64 are allowed");
  EXPECT_EQ(ask<wire::Error>(*client, wire::HistoryRequest{"nope", 0, 0}).status,
            Status::kUnknownJob);
}

TEST_F(ServerTest, WhoAsksForALotOfHistoryLeavesRoomForOthers) {
  auto store = std::make_unique<HeldReads>();
  HeldReads& reads = *store;
  ASSERT_EQ(start(options(), std::move(store)), StartError::kNone) << error_;
  auto greedy = connect();
  auto other = connect();
  join(*greedy, "w");
  greedy->messages.clear();
  // None is read before all have been asked for.
  constexpr std::uint64_t kAsked = HistoryReads::kPerClientMax + 4;
  for (std::uint64_t id = 1; id <= kAsked; ++id) {
    greedy->send({id, wire::HistoryRequest{"j", 1, 0}});
  }
  other->send({1, wire::HistoryRequest{"j", 1, 0}});
  ASSERT_TRUE(run_until([&] {
    greedy->receive();
    return greedy->messages.size() == kAsked - HistoryReads::kPerClientMax;
  }));
  reads.release();
  ASSERT_TRUE(run_until([&] {
    greedy->receive();
    other->receive();
    return greedy->messages.size() == kAsked && other->messages.size() == 1;
  }));
  std::size_t refused = 0;
  for (const wire::Message& message : greedy->messages) {
    const auto* error = std::get_if<wire::Error>(&message.body);
    if (error == nullptr) continue;
    ++refused;
    EXPECT_EQ(error->status, Status::kLimit) << error->message;
  }
  EXPECT_EQ(refused, kAsked - HistoryReads::kPerClientMax);
  EXPECT_TRUE(std::holds_alternative<wire::HistoryReply>(other->messages[0].body));
  EXPECT_FALSE(ask<wire::HistoryReply>(*greedy, wire::HistoryRequest{"j", 1, 0}).records.empty());
}

TEST_F(ServerTest, APushIsAnsweredOnlyAfterItsCommit) {
  FakeStore& store = start_on_fake();
  auto client = connect();
  client->send({1, [] {
                  wire::Join join;
                  join.job = "j";
                  join.name = "w";
                  return join;
                }()});
  ASSERT_TRUE(run_until([&] { return store.records() > 0; }));
  settle(*client);
  EXPECT_TRUE(client->messages.empty()) << "answered before the commit";
  store.commit_all();
  ASSERT_TRUE(run_until([&] {
    client->receive();
    return !client->messages.empty();
  }));
  const auto* joined = std::get_if<wire::Joined>(&client->messages[0].body);
  ASSERT_NE(joined, nullptr);
  EXPECT_TRUE(joined->durable);
  const wire::WorkerRef worker = joined->worker;

  // The job's start is a record, the grant needs none.
  EXPECT_EQ(ask<wire::Granted>(*client, wire::Begin{worker, 0}).iteration, 0);
  store.commit_all();
  const std::size_t before = store.records();
  client->messages.clear();
  client->send({2, wire::Push{worker, 0, {}, 0, 0}});
  client->send({3, wire::Begin{worker, 1}});
  ASSERT_TRUE(run_until([&] {
    client->receive();
    return find(*client, 3) != nullptr;
  }));
  settle(*client);
  EXPECT_EQ(find(*client, 2), nullptr) << "the push was acknowledged before its commit";
  EXPECT_GT(store.records(), before) << "the record goes out before the grant that follows from it";
  store.commit_all();
  ASSERT_TRUE(run_until([&] {
    client->receive();
    return find(*client, 2) != nullptr;
  }));
}

TEST_F(ServerTest, AStoreErrorRefusesWhatNeedsARecordAndIsLoggedOnce) {
  FakeStore& store = start_on_fake();
  auto client = connect();
  client->send({1, wire::CreateJobRequest{"a", "asp", 1, 0}});
  ASSERT_TRUE(run_until([&] { return store.records() > 0; }));
  store.commit_all();
  store.fail("no space left on device");
  store.fail("no space left on device");
  ASSERT_TRUE(run_until([&] { return count("store_not_writable") > 0; }));
  const auto error = ask<wire::Error>(*client, wire::CreateJobRequest{"b", "asp", 1, 0});
  EXPECT_EQ(error.status, Status::kStore);
  EXPECT_NE(error.message.find("no space left on device"), std::string::npos);
  EXPECT_TRUE(ask<wire::StatusReply>(*client, wire::StatusRequest{}).read_only);
  EXPECT_EQ(ask<wire::JobsReply>(*client, wire::JobsRequest{}).jobs.size(), 1U);

  store.commit_all();
  ASSERT_TRUE(run_until([&] { return count("store_writable") > 0; }));
  EXPECT_FALSE(ask<wire::StatusReply>(*client, wire::StatusRequest{}).read_only);
  EXPECT_EQ(count("store_not_writable"), 1U);
  EXPECT_EQ(count("store_writable"), 1U);
}

TEST_F(ServerTest, AHistoryThatCannotBeReadIsToldByTheLogToo) {
  FakeStore& store = start_on_fake();
  auto client = connect();
  client->send({1, [] {
                  wire::Join join;
                  join.job = "j";
                  join.name = "w";
                  return join;
                }()});
  ASSERT_TRUE(run_until([&] { return store.records() > 0; }));
  const auto refused = ask<wire::Error>(*client, wire::HistoryRequest{"j", 1, 0});
  EXPECT_EQ(refused.status, Status::kStore);
  EXPECT_EQ(count("history_unreadable"), 1U);
  EXPECT_EQ(lines_.back().fields.back().second, "this store cannot be read");
  store.commit_all();
}

// What a thread of the pool throws ends the loop, and not the process.
TEST_F(ServerTest, AFailedCheckOnAnotherThreadEndsTheLoop) {
  class Failing final : public test::ForwardingStore {
   public:
    Failing() : ForwardingStore(store::make_memory_store()) {}
    bool read(JobId, Sequence, std::size_t, std::size_t, store::ReadResult& result,
              std::string&) override {
      SYNCD_CHECK(!result.records.empty());
      return true;
    }
  };
  ASSERT_EQ(start(options(), std::make_unique<Failing>()), StartError::kNone) << error_;
  auto client = connect();
  join(*client, "w");
  client->send({2, wire::HistoryRequest{"j", 1, 0}});
  try {
    net::run_loop(&loop_);
    ADD_FAILURE() << "the loop has ended by itself";
  } catch (const InternalError& failure) {
    EXPECT_NE(std::string(failure.what())
                  .find("a check has failed: !result.records.empty() ("
                        "server_test.cpp:"),
              std::string::npos)
        << failure.what();
  }
  // As an embedded daemon does.
  net::close_all_handles(&loop_);
  server_->close_store_after_failure(1'000'000);
  client->receive();
  EXPECT_TRUE(client->ended) << "the client sees that the daemon has gone";
  lost_ = server_.release();  // it may be between two states, and is not freed
  net::loop_failure = nullptr;
}

// Every kind of message that there is, as a request about job "j" and its worker.
template <class T>
wire::Body request_about(const wire::WorkerRef& worker) {
  T request{};
  if constexpr (requires { request.worker = worker; }) request.worker = worker;
  if constexpr (requires { request.job = std::string(); }) request.job = "j";
  if constexpr (requires { request.policy = std::string(); }) request.policy = "asp";
  if constexpr (std::is_same_v<T, wire::Join>) {
    request.job = "another";
    request.name = "w";
    request.world_size = 1;
  }
  if constexpr (std::is_same_v<T, wire::CheckpointRequest>) request.path = "/tmp/never-made/copy";
  if constexpr (std::is_same_v<T, wire::CreateJobRequest>) request.name = "another";
  if constexpr (std::is_same_v<T, wire::ManageWorkerRequest>) request.worker = "0";
  return request;
}
std::vector<wire::Body> requests_about(const wire::WorkerRef& worker) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    // The first is Unknown, which is not sent.
    return std::vector<wire::Body>{
        request_about<std::variant_alternative_t<I + 1, wire::Body>>(worker)...};
  }
  (std::make_index_sequence<std::variant_size_v<wire::Body> - 1>());
}

class StorePaths : public ServerTest {
 protected:
  static constexpr const char* kSecret = "/secret/place";
  static constexpr const char* kWhy =
      "store /secret/place cannot be written: No space left: While appending to 000012.log";

  // Who comes over TCP is no administrator, and who comes over the Unix socket is.
  FakeStore& start_with_secret(ServerOptions o) {
    auto store = std::make_unique<FakeStore>();
    FakeStore& fake = *store;
    fake.path = kSecret;
    fake.read_error = std::string("store ") + kSecret + ": a block is damaged";
    EXPECT_EQ(start(std::move(o), std::move(store)), StartError::kNone) << error_;
    return fake;
  }
  ServerOptions with_an_administrator() const {
    ServerOptions o = options();
    o.tcp = {{"127.0.0.1", 0}};
    o.admission.admin = {"token:nobody"};
    return o;
  }
  std::unique_ptr<RawClient> greeted(std::unique_ptr<RawClient> client) {
    client->hello();
    EXPECT_TRUE(run_until([&] {
      client->receive();
      return client->last<wire::Welcome>() != nullptr;
    }));
    return client;
  }
  std::unique_ptr<RawClient> stranger() {
    const std::string endpoint = server_->endpoints().back();
    const auto port = std::stoul(endpoint.substr(endpoint.rfind(':') + 1));
    return greeted(std::make_unique<RawClient>(static_cast<std::uint16_t>(port)));
  }
  // Whether the path stands in anything that it got.
  static bool was_told(const RawClient& client) {
    return std::any_of(client.messages.begin(), client.messages.end(), [](const auto& message) {
      const std::vector<std::uint8_t> bytes = RawClient::frame(message);
      return std::string(bytes.begin(), bytes.end()).find(kSecret) != std::string::npos;
    });
  }
  // Worker 0 of job "j", with a push that waits for the disk.
  wire::WorkerRef push_as(RawClient& client, FakeStore& store) {
    wire::Join wants;
    wants.job = "j";
    wants.policy = "asp";
    wants.name = "w";
    wants.world_size = 1;
    client.send({2, wants});
    EXPECT_TRUE(run_until([&] {
      store.commit_all();
      client.receive();
      return find(client, 2) != nullptr;
    }));
    const auto joined = std::get<wire::Joined>(find(client, 2)->body);
    client.send({3, wire::Begin{joined.worker, 0}});
    EXPECT_TRUE(run_until([&] {
      client.receive();
      return find(client, 3) != nullptr;
    }));
    wire::Push push;
    push.worker = joined.worker;
    const std::size_t before = store.records();
    client.send({4, push});
    EXPECT_TRUE(run_until([&] { return store.records() > before; }));
    return joined.worker;
  }
};

TEST_F(StorePaths, NoAnswerTellsThemToAnybodyButAnAdministrator) {
  FakeStore& store = start_with_secret(with_an_administrator());
  auto worker = stranger();
  const wire::WorkerRef place = push_as(*worker, store);
  store.fail(kWhy);
  ASSERT_TRUE(run_until([&] {
    worker->receive();
    return find(*worker, 4) != nullptr;
  }));
  EXPECT_EQ(std::get<wire::Error>(find(*worker, 4)->body).status, Status::kStore);
  std::set<std::size_t> refused_for_the_store;
  for (const wire::Body& request : requests_about(place)) {
    SCOPED_TRACE(std::string(wire::body_name(request)));
    auto client = stranger();
    client->send({5, request});
    settle(*client);
    EXPECT_FALSE(was_told(*client));
    const wire::Message* answer = find(*client, 5);
    const auto* error = answer == nullptr ? nullptr : std::get_if<wire::Error>(&answer->body);
    if (error != nullptr && error->status == Status::kStore) {
      EXPECT_NE(error->message.find("its log says why"), std::string::npos) << error->message;
      refused_for_the_store.insert(request.index());
    }
    // On the connection that the worker is of, too.
    if (!worker->ended) worker->send({100 + request.index(), request});
    settle(*worker);
  }
  EXPECT_FALSE(was_told(*worker));
  EXPECT_TRUE(refused_for_the_store.contains(wire::Body(wire::Join{}).index()));
  EXPECT_TRUE(refused_for_the_store.contains(wire::Body(wire::HistoryRequest{}).index()));
  auto client = stranger();
  const auto status = ask<wire::StatusReply>(*client, wire::StatusRequest{});
  EXPECT_EQ(status.store, "a directory");
  EXPECT_TRUE(status.read_only);
  EXPECT_EQ(status.store_error, "its log says why");
  store.commit_all();
}

TEST_F(StorePaths, AnAdministratorIsToldThem) {
  FakeStore& store = start_with_secret(with_an_administrator());
  auto owner = connect();
  const wire::WorkerRef place = push_as(*owner, store);
  store.fail(kWhy);
  ASSERT_TRUE(run_until([&] {
    owner->receive();
    return find(*owner, 4) != nullptr;
  }));
  wire::Push again;
  again.worker = place;
  for (const auto& error :
       {std::get<wire::Error>(find(*owner, 4)->body), ask<wire::Error>(*owner, again),
        ask<wire::Error>(*owner, wire::CreateJobRequest{"b", "asp", 1, 0})}) {
    EXPECT_EQ(error.status, Status::kStore);
    EXPECT_NE(error.message.find(kWhy), std::string::npos) << error.message;
  }
  const auto unread = ask<wire::Error>(*owner, wire::HistoryRequest{"j", 1, 0});
  EXPECT_EQ(unread.message, store.read_error);
  const auto status = ask<wire::StatusReply>(*owner, wire::StatusRequest{});
  EXPECT_EQ(status.store, kSecret);
  EXPECT_EQ(status.store_error, kWhy);
  store.commit_all();
}

// Where there is a control socket, administrators come by it.
TEST_F(StorePaths, BesideAControlSocketNobodyIsTold) {
  ServerOptions o = options();
  o.control_unix_path = directory_ + "/control";
  start_with_secret(std::move(o));
  auto worker = connect();
  EXPECT_EQ(ask<wire::StatusReply>(*worker, wire::StatusRequest{}).store, "a directory");
  auto control = greeted(std::make_unique<RawClient>(directory_ + "/control"));
  EXPECT_EQ(ask<wire::StatusReply>(*control, wire::StatusRequest{}).store, kSecret);
}

TEST_F(ServerTest, AStoreInMemoryHasNoPathToHide) {
  ServerOptions o = options();
  o.control_unix_path = directory_ + "/control";
  ASSERT_EQ(start(std::move(o), store::make_memory_store()), StartError::kNone) << error_;
  auto worker = connect();
  EXPECT_EQ(ask<wire::StatusReply>(*worker, wire::StatusRequest{}).store, "memory");
}

TEST_F(ServerTest, AFullStoreQueueRefusesUntilThereIsRoom) {
  FakeStore& store = start_on_fake();
  auto client = connect();
  client->send({1, wire::CreateJobRequest{"a", "asp", 1, 0}});
  ASSERT_TRUE(run_until([&] { return store.submitted.size() == 1; }));
  store.full = true;
  client->send({2, wire::CreateJobRequest{"b", "asp", 1, 0}});
  ASSERT_TRUE(run_until([&] { return count("store_not_writable") == 1; }));
  EXPECT_EQ(ask<wire::Error>(*client, wire::CreateJobRequest{"c", "asp", 1, 0}).status,
            Status::kStore);
  store.full = false;
  store.commit_all();
  ASSERT_TRUE(run_until([&] { return store.submitted.size() == 2; }));
  store.commit_all();
  ASSERT_TRUE(run_until([&] {
    client->receive();
    return find(*client, 2) != nullptr;
  }));
  EXPECT_TRUE(std::holds_alternative<wire::Ok>(find(*client, 2)->body));
}

TEST_F(ServerTest, AJobOfTheConfigurationIsThereAtTheStart) {
  ServerOptions o = options();
  o.engine.auto_create = false;
  JobSpec spec;
  spec.name = "nightly";
  spec.policy = "ssp:3";
  spec.expected_workers = 4;
  o.jobs.push_back(spec);
  ASSERT_EQ(start(std::move(o), store::make_memory_store()), StartError::kNone) << error_;
  auto client = connect();
  const auto jobs = ask<wire::JobsReply>(*client, wire::JobsRequest{}).jobs;
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].name, "nightly");
  EXPECT_EQ(jobs[0].policy, "ssp:3");
  wire::Join stranger;
  stranger.job = "other";
  stranger.name = "w";
  EXPECT_EQ(ask<wire::Error>(*client, stranger).status, Status::kUnknownJob);
}

// The engine reads no file: the server does, for the request that makes the job.
TEST_F(ServerTest, AGraphFileIsReadForTheJobThatNeedsIt) {
  start();
  auto client = connect();
  const std::string path = directory_ + "/graph";
  wire::CreateJobRequest create;
  create.name = "made";
  create.policy = "hop:file:" + path;
  create.expected_workers = 3;
  EXPECT_NE(ask<wire::Error>(*client, create).message.find(path), std::string::npos);
  std::ofstream(path) << "0 1\n1 2\n2 0\n";
  ask<wire::Ok>(*client, create);
  EXPECT_EQ(join(*client, "w", 3, create.policy).policy, create.policy);
  // Who joins a job that is there needs no file.
  std::filesystem::remove(path);
  EXPECT_EQ(join(*client, "w2", 3, create.policy).policy, create.policy);
}

TEST_F(ServerTest, AWrongJobOfTheConfigurationIsNamed) {
  ServerOptions o = options();
  JobSpec spec;
  spec.name = "nightly";
  spec.policy = "sssp:3";
  o.jobs.push_back(spec);
  EXPECT_EQ(start(std::move(o), store::make_memory_store()), StartError::kJob);
  EXPECT_NE(error_.find("nightly"), std::string::npos) << error_;
  EXPECT_NE(error_.find("sssp"), std::string::npos) << error_;
  EXPECT_EQ(stop(), "");
}

TEST_F(ServerTest, AStoreThatCannotBeReadStopsTheStart) {
  auto store = std::make_unique<FakeStore>();
  store->load_error = "store fake is damaged";
  EXPECT_EQ(start(options(), std::move(store)), StartError::kStore);
  EXPECT_EQ(error_, "store fake is damaged");
  EXPECT_EQ(stop(), "");
}

TEST_F(ServerTest, AnAddressInUseStopsTheStart) {
  std::vector<net::ListenSocket> taken;
  ASSERT_TRUE(net::open_tcp_sockets({"127.0.0.1", 0}, taken, error_)) << error_;
  ServerOptions o = options();
  net::TcpAddress address;
  ASSERT_TRUE(net::parse_tcp_address(taken[0].endpoint.substr(4), address, error_));
  o.tcp.push_back(address);
  EXPECT_EQ(start(std::move(o), store::make_memory_store()), StartError::kListen);
  EXPECT_EQ(error_.rfind("listen.tcp: cannot listen on tcp:" + address.text(), 0), 0u) << error_;
  EXPECT_EQ(stop(), "");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/s"));
}

TEST_F(ServerTest, RecoversWhatTheStoreHas) {
  auto first = std::make_unique<FakeStore>();
  FakeStore& before = *first;
  ASSERT_EQ(start(options(), std::move(first)), StartError::kNone) << error_;
  auto client = connect();
  client->send({1, wire::CreateJobRequest{"kept", "ssp:2", 3, 0}});
  ASSERT_TRUE(run_until([&] { return before.records() > 0; }));
  before.commit_all();
  store::RecoveredJob job;
  for (const auto& [ticket, batch] : before.submitted) {
    job.records.insert(job.records.end(), batch.records.begin(), batch.records.end());
  }
  client.reset();
  EXPECT_EQ(stop(), "");

  auto second = std::make_unique<FakeStore>();
  // An hour ahead, as if the clock had been set back since.
  job.records.back().time_us += 3'600'000'000;
  const Micros latest = job.records.back().time_us;
  second->stored.push_back(job);
  ASSERT_EQ(start(options(), std::move(second)), StartError::kNone) << error_;
  EXPECT_EQ(count("clock_behind_history"), 1U);
  client = connect();
  const auto jobs = ask<wire::JobsReply>(*client, wire::JobsRequest{}).jobs;
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].name, "kept");
  EXPECT_EQ(jobs[0].expected_workers, 3U);
  EXPECT_GE(ask<wire::StatusReply>(*client, wire::StatusRequest{}).now_us, latest);
}

TEST_F(ServerTest, TimersOfTheEngineFire) {
  ServerOptions o = options();
  o.engine.defaults.worker_grace_us = 20'000;
  o.engine.defaults.warn_after_us = 0;
  ASSERT_EQ(start(std::move(o), store::make_memory_store()), StartError::kNone) << error_;
  auto client = connect();
  join(*client, "w", 2);
  client.reset();
  ASSERT_TRUE(run_until([&] { return count("worker_lost") == 1; }));
}

TEST_F(ServerTest, StoppingAnswersWhoWaitsAndLosesNothing) {
  FakeStore& store = start_on_fake();
  auto client = connect();
  client->send({1, [] {
                  wire::Join join;
                  join.job = "j";
                  join.name = "w";
                  join.world_size = 2;
                  return join;
                }()});
  ASSERT_TRUE(run_until([&] { return store.records() > 0; }));
  store.commit_all();
  ASSERT_TRUE(run_until([&] {
    client->receive();
    return find(*client, 1) != nullptr;
  }));
  const auto worker = std::get<wire::Joined>(find(*client, 1)->body).worker;
  client->send({2, wire::Begin{worker, 0}});  // waits for the second worker
  client->send({3, wire::CreateJobRequest{"b", "asp", 1, 0}});
  ASSERT_TRUE(run_until([&] { return store.submitted.back().second.records.at(0).name == "b"; }));

  bool stopped = false;
  server_->stop("test", [&](const std::string&) { stopped = true; });
  ASSERT_TRUE(run_until([&] {
    client->receive();
    return find(*client, 2) != nullptr;
  }));
  EXPECT_EQ(std::get<wire::Error>(find(*client, 2)->body).status, Status::kShutdown);
  EXPECT_EQ(find(*client, 3), nullptr);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/s"));
  store.commit_all();
  ASSERT_TRUE(run_until([&] {
    client->receive();
    return client->ended;
  }));
  ASSERT_NE(find(*client, 3), nullptr) << "committed, but not acknowledged";
  EXPECT_NE(client->last<wire::ShutdownNotice>(), nullptr);
  client.reset();
  ASSERT_TRUE(run_until([&] { return stopped; }));
  server_.reset();
}

TEST_F(ServerTest, AnIdleServerSaysSoOnceItsLastConnectionHasEnded) {
  ServerOptions o = options();
  int idle = 0;
  o.exit_when_idle_us = 50'000;
  o.on_idle = [&] { ++idle; };
  ASSERT_EQ(start(std::move(o), store::make_memory_store()), StartError::kNone) << error_;
  auto client = connect();
  const std::uint64_t begun_ns = uv_hrtime();
  while (uv_hrtime() - begun_ns < 150'000'000) settle(*client);
  EXPECT_EQ(idle, 0) << "somebody is connected";
  client.reset();
  EXPECT_TRUE(run_until([&] { return idle > 0; }));
}

TEST_F(ServerTest, AServerThatNobodyHasConnectedToIsIdleToo) {
  ServerOptions o = options();
  int idle = 0;
  o.exit_when_idle_us = 1'000;
  o.on_idle = [&] { ++idle; };
  ASSERT_EQ(start(std::move(o), store::make_memory_store()), StartError::kNone) << error_;
  EXPECT_TRUE(run_until([&] { return idle > 0; }));
}

TEST_F(ServerTest, StoppingDoesNotWaitForeverForADisk) {
  ServerOptions o = options();
  o.shutdown_timeout_us = 100'000;
  auto store = std::make_unique<FakeStore>();
  FakeStore& fake = *store;
  fake.close_error = "3 records could not be written";
  ASSERT_EQ(start(std::move(o), std::move(store)), StartError::kNone) << error_;
  auto client = connect();
  client->send({3, wire::CreateJobRequest{"b", "asp", 1, 0}});
  ASSERT_TRUE(run_until([&] { return fake.records() > 0; }));
  EXPECT_EQ(stop(), "3 records could not be written");
}

}  // namespace
}  // namespace syncd::server
