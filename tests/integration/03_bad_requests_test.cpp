// Requests that are well-formed and wrong: each is refused with an error that names what was wrong
// and what is allowed, and changes nothing for anybody, the same connection included.
#include <gmock/gmock.h>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BadRequests : public ::testing::Test {
 protected:
  BadRequests() { client_.hello(); }

  wire::Error refused(wire::Body body) { return client_.call_for<wire::Error>(std::move(body)); }

  void TearDown() override {
    client_.call_for<wire::JobsReply>(wire::JobsRequest{});
    bystander_.expect_progress();
  }

  TempDir directory_;
  Daemon daemon_{directory_, {.store = "memory"}};
  Bystander bystander_{daemon_.address()};
  RawClient client_{daemon_.address()};
};

TEST_F(BadRequests, AnUnknownPolicyIsRefusedAndTheKnownOnesAreNamed) {
  const wire::Error error = refused(join_of("job", 0, 2, "quantum:3"));
  EXPECT_EQ(error.status, Status::kInvalid);
  EXPECT_THAT(error.message, AllOf(HasSubstr("quantum:3"), HasSubstr("bsp"), HasSubstr("ssp:S")));
}

TEST_F(BadRequests, AMalformedPolicyIsRefused) {
  const wire::Error error = refused(join_of("job", 0, 2, "ssp:many"));
  EXPECT_EQ(error.status, Status::kInvalid);
  EXPECT_THAT(error.message, HasSubstr("many"));
}

TEST_F(BadRequests, AnotherPolicyThanTheJobsIsRefusedAndBothAreNamed) {
  RawWorker worker(client_, join_of("job", 0, 2, "ssp:3"));
  const wire::Error error = refused(join_of("job", 1, 2, "bsp"));
  EXPECT_EQ(error.status, Status::kPolicyMismatch);
  EXPECT_THAT(error.message, AllOf(HasSubstr("ssp:3"), HasSubstr("'bsp'")));
}

TEST_F(BadRequests, AJobNameOutsideTheRulesIsRefused) {
  for (const std::string& name : {std::string("no spaces"), std::string(65, 'x'), std::string()}) {
    const wire::Error error = refused(join_of(name, 0, 1));
    EXPECT_EQ(error.status, Status::kInvalid) << name;
    EXPECT_THAT(error.message, HasSubstr("64")) << name;
  }
}

TEST_F(BadRequests, AnImpossibleRankIsRefused) {
  const wire::Error error = refused(join_of("job", 2'000'000'000, 4));
  EXPECT_EQ(error.status, Status::kInvalid);
  EXPECT_THAT(error.message, AllOf(HasSubstr("2000000000"), HasSubstr("allowed are 0 to")));
}

TEST_F(BadRequests, ATakenRankIsRefusedAndItsHolderIsNamed) {
  RawWorker worker(client_, join_of("job", 0, 2));
  wire::Join second = join_of("job", 0, 2);
  second.name = "impostor";
  const wire::Error error = refused(second);
  EXPECT_EQ(error.status, Status::kRankTaken);
  EXPECT_THAT(error.message, AllOf(HasSubstr("rank 0"), HasSubstr("worker-0")));
}

TEST_F(BadRequests, APushForAWrongIterationIsRefusedAndBothAreNamed) {
  RawWorker worker(client_, join_of("job", 0, 1, "asp"));
  worker.begin(0);
  worker.push(0);
  worker.begin(1);
  const wire::Error error = refused(worker.push_body(5));
  EXPECT_EQ(error.status, Status::kWrongIteration);
  EXPECT_THAT(error.message, AllOf(HasSubstr("push(5)"), HasSubstr("granted to it is 1")));
  EXPECT_EQ(worker.push(1).iteration, 1) << "the right one is still taken";
}

TEST_F(BadRequests, APushBeforeAnyBeginIsRefused) {
  RawWorker worker(client_, join_of("job", 0, 1, "asp"));
  const wire::Error error = refused(worker.push_body(0));
  EXPECT_EQ(error.status, Status::kState);
  EXPECT_THAT(error.message, HasSubstr("no iteration was granted"));
}

TEST_F(BadRequests, ABeginForAWrongIterationIsRefused) {
  RawWorker worker(client_, join_of("job", 0, 1, "asp"));
  const wire::Error error = refused(wire::Begin{worker.ref(), 7});
  EXPECT_EQ(error.status, Status::kWrongIteration);
  EXPECT_THAT(error.message, AllOf(HasSubstr("begin(7)"), HasSubstr("due is 0")));
}

TEST_F(BadRequests, APushThatComesTwiceCountsOnce) {
  RawWorker worker(client_, join_of("job", 0, 1, "asp"));
  worker.begin(0);
  EXPECT_FALSE(worker.push(0).duplicate);
  EXPECT_TRUE(worker.push(0).duplicate);
  const auto jobs = client_.call_for<wire::JobsReply>(wire::JobsRequest{}).jobs;
  for (const auto& job : jobs) {
    if (job.name == "job") {
      EXPECT_EQ(job.pushes, 1U);
    }
  }
}

// A process that was replaced by a later one of the same name cannot have any effect.
TEST_F(BadRequests, AnOldIncarnationIsFenced) {
  const wire::Join join = join_of("job", 0, 1, "asp");
  wire::WorkerRef old;
  {
    RawClient first(daemon_.address());
    first.hello();
    RawWorker worker(first, join);
    worker.begin(0);
    old = worker.ref();
  }
  // The daemon may see the end of the first connection a moment after the second one's join.
  wire::Body joined;
  wait_until("the first connection's end to be seen", [&] {
    joined = client_.call(join);
    return std::holds_alternative<wire::Joined>(joined);
  });
  const auto& ref = std::get<wire::Joined>(joined).worker;
  EXPECT_GT(ref.incarnation, old.incarnation);
  wire::Push push;
  push.worker = old;
  push.worker.epoch = ref.epoch;
  push.iteration = 0;
  const wire::Error error = refused(push);
  EXPECT_EQ(error.status, Status::kFenced);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("incarnation " + std::to_string(old.incarnation)),
                    HasSubstr("replaced by incarnation " + std::to_string(ref.incarnation))));
}

TEST_F(BadRequests, AnOldEpochIsFenced) {
  RawWorker worker(client_, join_of("job", 0, 1, "asp"));
  worker.begin(0);
  wire::Push push = worker.push_body(0);
  push.worker.epoch += 1;
  const wire::Error error = refused(push);
  EXPECT_EQ(error.status, Status::kFenced);
  EXPECT_THAT(error.message, HasSubstr("epoch"));
  worker.push(0);
}

TEST_F(BadRequests, AWorkerOrJobThatIsNotThereIsNamed) {
  RawWorker worker(client_, join_of("job", 0, 1, "asp"));
  wire::Begin begin{worker.ref(), 0};
  begin.worker.rank = 12;
  wire::Error error = refused(begin);
  EXPECT_EQ(error.status, Status::kUnknownWorker);
  EXPECT_THAT(error.message, HasSubstr("12"));
  begin.worker.job = 99;
  error = refused(begin);
  EXPECT_EQ(error.status, Status::kUnknownJob);
  EXPECT_THAT(error.message, HasSubstr("99"));
}

TEST_F(BadRequests, AWrongArgumentOfTheCInterfaceIsNamed) {
  ApiClient api(daemon_.address());
  ApiWorker worker;
  const Answer answer = api.try_join({.job = "job", .policy = "nonesuch"}, worker);
  EXPECT_EQ(answer.status, SYNCD_E_INVALID);
  EXPECT_THAT(answer.message, AllOf(HasSubstr("nonesuch"), HasSubstr("allowed are")));
  EXPECT_FALSE(answer.retriable);
}

// A daemon that may not create jobs says so, and serves those that were declared.
TEST(UnknownJob, IsRefusedWhereJoinsMayNotCreateOne) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory", .config = R"(
[listen]
auto_create = false
[[job]]
name = "bystander"
policy = "asp"
expected_workers = 1
)"});
  Bystander bystander(daemon.address());
  ApiClient api(daemon.address());
  ApiWorker worker;
  const Answer answer = api.try_join({.job = "unheard-of"}, worker);
  EXPECT_EQ(answer.status, SYNCD_E_UNKNOWN_JOB);
  EXPECT_THAT(answer.message, HasSubstr("unheard-of"));
  bystander.expect_progress();
}

}  // namespace
}  // namespace syncd::test
