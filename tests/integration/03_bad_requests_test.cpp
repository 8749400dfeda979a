// Requests that are well-formed and wrong: the daemon refuses each with an error that names what
// was wrong and what is allowed, and changes nothing. tests/golden/engine has each kind of them.
#include <gmock/gmock.h>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BadRequests, APushForAWrongIterationIsRefusedAndBothAreNamed) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory"});
  Bystander bystander(daemon.address());
  RawClient client = greeted(daemon.address());
  RawWorker worker(client, join_of("job", 0, 1, "asp"));
  worker.begin(0);
  worker.push(0);
  worker.begin(1);
  const auto error = client.call_for<wire::Error>(worker.push_body(5));
  EXPECT_EQ(error.status, Status::kWrongIteration);
  EXPECT_THAT(error.message, AllOf(HasSubstr("push(5)"), HasSubstr("granted to it is 1")));
  EXPECT_EQ(worker.push(1).iteration, 1) << "the right one is still taken";
  bystander.expect_progress();
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
