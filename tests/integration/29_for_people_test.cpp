// What people look at, from outside: syncctl stragglers, explain, members and top into a pipe.
#include <gmock/gmock.h>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/history.h"
#include "support/raw_client.h"
#include "support/syncctl_site.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using ForPeople = SyncctlSite;

TEST_F(ForPeople, SaysWhyAWorkerWaitsAndWhoMadeTheOthersWait) {
  OneWaits workers(daemon_);

  RunResult result = ctl({"explain", "job", "0"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rule   bsp"), HasSubstr("has waited"),
                                HasSubstr("node-b"), HasSubstr("superstep 1 opens when 2 of 2")));
  result = ctl({"explain", "job", "1"});
  EXPECT_THAT(result.out, HasSubstr("waited for by 1 worker: 0"));
  result = ctl({"explain", "job", "7"});
  EXPECT_TRUE(ended(result, 1, "no worker '7'"));

  // The slow one pushes at last: it has let the fast one wait, and is charged with it.
  ASSERT_TRUE(workers.slow.push(0).ok());
  ASSERT_TRUE(workers.fast.iterate(1).ok());
  result = ctl({"--json", "stragglers", "job", "--since", "1h"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_TRUE(is_json(result.out)) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("\"rank\": 1"), HasSubstr("\"waits\": 1\n"),
                                HasSubstr("node-b"), Not(HasSubstr("node-a"))));
  const std::string of_daemon = ctl({"stragglers", "job"}).out;
  EXPECT_EQ(ctl({"stragglers", "job", "--since", "soon"}).ending, exited(2));
  EXPECT_EQ(daemon_.stop(), exited(0));
  result = elsewhere({"stragglers", "job", "--store", daemon_.store_path()});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_EQ(result.out, of_daemon);
}

std::vector<std::uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

TEST_F(ForPeople, MembersAreListedWithWhatTheyShowAndHowTheyAre) {
  RawClient client = greeted(daemon_.address());
  const auto join = [](RawClient& from, std::uint32_t rank, const std::string& data) {
    wire::Join request = join_of("job", static_cast<std::int32_t>(rank), 3, "asp");
    request.name = "worker-" + std::to_string(rank);
    request.host = "node-" + std::to_string(rank);
    request.data = bytes_of(data);
    return RawWorker(from, request);
  };
  const RawWorker text = join(client, 0, "10.0.0.7:7000");
  RawWorker leaving = join(client, 1, std::string("\x0a\x00\x00\x07", 4));
  {
    RawClient cut = greeted(daemon_.address());
    join(cut, 2, "");
  }
  leaving.leave();
  wait_until("the loss of the connection", [&] { return daemon_.logged("worker_disconnected"); });

  RunResult result = ctl({"members", "job"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 4U) << result.out;
  EXPECT_THAT(lines[0], AllOf(HasSubstr("CONNECTED"), HasSubstr("HEARD"), HasSubstr("DATA")));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("worker-0"), HasSubstr("node-0"), HasSubstr(" yes "),
                              HasSubstr(" ago "), HasSubstr("10.0.0.7:7000")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("left"), HasSubstr(" no "), HasSubstr("0x0a000007")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("worker-2"), HasSubstr(" no "), HasSubstr(" ago ")));
  EXPECT_THAT(lines[3], ::testing::EndsWith(" -"));

  result = ctl({"--json", "members", "job"});
  EXPECT_TRUE(is_json(result.out)) << result.out;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("\"data_text\": \"10.0.0.7:7000\""),
                    HasSubstr("\"data\": \"0a000007\""), HasSubstr("\"data_text\": null"),
                    HasSubstr("\"heard_us\": 1"), HasSubstr("\"incarnation\": ")));
  result = ctl({"members", "nobody"});
  EXPECT_TRUE(ended(result, 1, "nobody"));
}

TEST_F(ForPeople, TopPrintsOneFrameIntoAPipe) {
  OneWaits workers(daemon_);

  RunResult result = ctl({"top", "job", "--once", "--interval", "100ms", "--sort", "waiting"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("workers 2/2  waiting 1  clocks 0..1"),
                                HasSubstr("node-b"), Not(HasSubstr("\x1b"))));
  EXPECT_LT(result.out.find("node-a"), result.out.find("node-b")) << "who waits comes first";
  result = ctl({"top", "--once", "--interval", "100ms"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("1 job\n"), HasSubstr("#1 job")));

  EXPECT_EQ(ctl({"top", "nobody", "--once"}).ending, exited(1));
  EXPECT_EQ(ctl({"top", "job", "--once", "--interval", "1"}).ending, exited(2));
  EXPECT_EQ(ctl({"top", "job", "--once", "--sort", "beauty"}).ending, exited(2));
  result = ctl({"top", "job"});
  EXPECT_EQ(result.ending, exited(2)) << "there is no terminal";
  EXPECT_THAT(result.err, HasSubstr("--once"));
}

}  // namespace
}  // namespace syncd::test
