// What `syncctl explain` says of a worker, out of the list of all.
#include "daemon/tools/ctl/waits.h"

#include <gmock/gmock.h>

#include "daemon/tools/ctl/top_view.h"

namespace syncd::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<wire::WorkerStatus> three() {
  std::vector<wire::WorkerStatus> workers(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    workers[rank].rank = rank;
    workers[rank].name = "w" + std::to_string(rank);
    workers[rank].host = "node-" + std::to_string(rank);
    workers[rank].state = "waiting";
    workers[rank].waiting_us = 4'200'000;
    workers[rank].reason = "relative clock 5 is 4 ahead of the slowest (1), allowed 3";
    workers[rank].waiting_for = "2";
    workers[rank].last_push_us = 1'000'000;
  }
  workers[2].state = "in iteration 1 for 41.2 s";
  workers[2].reason = "in iteration 1 for 41.2 s, exchanging for 3.0 s";
  workers[2].waiting_us = -1;
  workers[2].waiting_for.clear();
  return workers;
}

TEST(NamesRank, ReadsWhatTheDaemonWrites) {
  EXPECT_TRUE(names_rank("4, 23, 40-47", 4));
  EXPECT_TRUE(names_rank("4, 23, 40-47", 23));
  EXPECT_TRUE(names_rank("4, 23, 40-47", 40));
  EXPECT_TRUE(names_rank("4, 23, 40-47", 47));
  EXPECT_FALSE(names_rank("4, 23, 40-47", 2));
  EXPECT_FALSE(names_rank("4, 23, 40-47", 48));
  EXPECT_FALSE(names_rank("4, and 12 more", 12));
  EXPECT_FALSE(names_rank("", 0));
}

TEST(FindWorker, ByRankAndByName) {
  const auto workers = three();
  EXPECT_EQ(find_worker(workers, "1"), &workers[1]);
  EXPECT_EQ(find_worker(workers, "w2"), &workers[2]);
  EXPECT_EQ(find_worker(workers, "w3"), nullptr);
}

TEST(ExplainText, OfOneThatWaits) {
  const auto workers = three();
  EXPECT_THAT(explain_text(workers, workers[0], "ssp:3", 3'000'000),
              AllOf(HasSubstr("worker 0 (w0 on node-0) has waited 4.2 s"), HasSubstr("ssp:3"),
                    HasSubstr("4 ahead of the slowest"), HasSubstr("node-2"),
                    HasSubstr("in iteration 1 for 41.2 s"), HasSubstr("2.0 s ago"),
                    Not(HasSubstr("node-1")), Not(HasSubstr("waited for by"))));
}

TEST(ExplainText, OfTheOneThatAllWaitFor) {
  const auto workers = three();
  EXPECT_THAT(explain_text(workers, workers[2], "", 3'000'000),
              AllOf(HasSubstr("is not waiting for a grant"),
                    HasSubstr("now    in iteration 1 for 41.2 s, exchanging"),
                    HasSubstr("waited for by 2 workers: 0, 1"), Not(HasSubstr("rule"))));
}

TEST(Noted, SaysFirstThatTheJobHangsAndBecauseOfWhom) {
  wire::JobStatus job;
  job.note = "checkpoint 3 is open";
  EXPECT_EQ(noted(job), "checkpoint 3 is open");
  job.hang = "hang of job 'llm': worker 1 ...";
  job.hang_ranks = "1";
  EXPECT_EQ(noted(job), "hangs because of rank 1; checkpoint 3 is open");
  job.note.clear();
  job.hang_ranks.clear();
  EXPECT_EQ(noted(job), "hangs");
}

TEST(ExplainText, ShowsNamesAndObeysNone) {
  auto workers = three();
  workers[0].name = "w\x1b]0;title\a";
  workers[0].host = "n\nworker 7 (x on y) is not waiting";
  workers[0].reason = "\xE2\x80\xAEright";
  workers[2].name = "\x1b[2J";
  const std::string text = explain_text(workers, workers[0], "ssp:3", 3'000'000);
  EXPECT_THAT(text, AllOf(HasSubstr("(w\\x1b]0;title\\x07 on n\\nworker 7"),
                          HasSubstr("why    \\u202eright"), HasSubstr("\\x1b[2J"),
                          Not(HasSubstr("\x1b")), Not(HasSubstr("\nworker 7"))));
}

TEST(SinceTime, IsADurationBack) {
  std::int64_t since = 0;
  EXPECT_TRUE(since_time("10s", 15'000'000, since));
  EXPECT_EQ(since, 5'000'000);
  EXPECT_FALSE(since_time("yesterday", 15'000'000, since));
}

}  // namespace
}  // namespace syncd::ctl
