// A history as a trace: valid JSON, slices in order and without overlap on each track, and nothing
// of the history left out.
#include "daemon/tools/ctl/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace syncd::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Record record(RecordKind kind, Sequence sequence, Micros time_us, std::int64_t rank = kNoRank) {
  Record r;
  r.kind = kind;
  r.job = 7;
  r.sequence = sequence;
  r.time_us = time_us;
  r.rank = rank;
  return r;
}

Record push(Sequence sequence, Micros time_us, std::int64_t rank, Micros span_us,
            Micros waited_us) {
  Record r = record(RecordKind::kPush, sequence, time_us, rank);
  r.iteration = static_cast<Iteration>(sequence);
  r.span_us = span_us;
  r.waited_us = waited_us;
  return r;
}

json trace_of(const std::vector<Record>& records) {
  std::ostringstream out;
  ChromeTrace trace(out);
  for (const Record& r : records) trace.add(r);
  trace.finish();
  return json::parse(out.str());
}

std::vector<json> of_phase(const json& trace, const char* phase) {
  std::vector<json> found;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST(ChromeTrace, AnEmptyHistoryIsAnEmptyTrace) {
  EXPECT_TRUE(trace_of({}).at("traceEvents").empty());
}

TEST(ChromeTrace, APushIsASliceFromItsGrantWithTheWaitBefore) {
  const json trace = trace_of({push(1, 1000, 3, 400, 250)});
  const auto slices = of_phase(trace, "X");
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].at("name"), "wait");
  EXPECT_EQ(slices[0].at("ts"), 350);
  EXPECT_EQ(slices[0].at("dur"), 250);
  EXPECT_EQ(slices[1].at("name"), "iteration 1");
  EXPECT_EQ(slices[1].at("ts"), 600);
  EXPECT_EQ(slices[1].at("dur"), 400);
  EXPECT_EQ(slices[1].at("tid"), 4);
  EXPECT_EQ(slices[1].at("pid"), 7);
}

TEST(ChromeTrace, AMarkPartsAnIterationIntoComputingAndExchange) {
  Record marked = push(1, 1000, 3, 400, 0);
  marked.computed_us = 150;
  const auto slices = of_phase(trace_of({marked}), "X");
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[0].at("args").at("exchange_us"), 250);
  EXPECT_EQ(slices[1].at("name"), "computing");
  EXPECT_EQ(slices[1].at("ts"), 600);
  EXPECT_EQ(slices[1].at("dur"), 150);
  EXPECT_EQ(slices[2].at("name"), "exchange");
  EXPECT_EQ(slices[2].at("ts"), 750);
  EXPECT_EQ(slices[2].at("dur"), 250);
}

// Under hop a push comes right after its grant, and computing after that.
TEST(ChromeTrace, InADecentralizedJobWhatFollowsAPushIsASlice) {
  Record created = record(RecordKind::kJobCreated, 1, 10);
  created.policy = "hop:ring,max_ig=2";
  const Record lost = record(RecordKind::kWorkerLost, 4, 2050, 3);
  const std::vector<Record> records = {created, push(2, 1000, 3, 1, 0), push(3, 2000, 3, 1, 300),
                                       lost, push(5, 3000, 3, 1, 0)};
  const auto slices = of_phase(trace_of(records), "X");
  ASSERT_EQ(slices.size(), 5u) << "none beyond the loss";
  EXPECT_EQ(slices[1].at("name"), "after push 2");
  EXPECT_EQ(slices[1].at("ts"), 1000);
  EXPECT_EQ(slices[1].at("dur"), 699);
  EXPECT_EQ(slices[2].at("name"), "wait");
  EXPECT_EQ(slices[2].at("ts"), 1699);
  EXPECT_EQ(of_phase(trace_of({records.begin() + 1, records.end()}), "X").size(), 4u);
}

TEST(ChromeTrace, EveryRecordIsThereAndTracksAreInOrder) {
  std::vector<Record> records;
  Record created = record(RecordKind::kJobCreated, 1, 10);
  created.name = "cifar";
  records.push_back(created);
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    Record joined = record(RecordKind::kWorkerJoined, 2 + static_cast<Sequence>(rank), 20, rank);
    joined.name = "w" + std::to_string(rank) + "\xff";  // no UTF-8
    records.push_back(joined);
  }
  Sequence sequence = 5;
  std::size_t pushes = 0;
  for (Micros round = 1; round <= 20; ++round) {
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      // Spans and waits that say more than there was room for, and none at all.
      const Micros span = rank == 0 ? -1 : 150 * rank;
      records.push_back(push(sequence++, round * 100 + rank, rank, span, 500));
      ++pushes;
    }
    records.push_back(record(RecordKind::kBarrier, sequence++, round * 100 + 50));
  }
  records.push_back(record(RecordKind::kWorkerLost, sequence++, 3000, 1));
  records.back().reason = "its \"connection\" was cut";
  Record again = push(sequence++, 3100, 2, 10, 0);
  again.restarts = 2;
  records.push_back(again);
  ++pushes;

  const json trace = trace_of(records);
  std::size_t iterations = 0;
  std::map<std::int64_t, std::int64_t> ends;
  for (const json& slice : of_phase(trace, "X")) {
    const std::int64_t ts = slice.at("ts");
    std::int64_t& end = ends[slice.at("tid")];
    EXPECT_GE(ts, end) << slice;
    EXPECT_GE(slice.at("dur"), 0) << slice;
    end = ts + slice.at("dur").get<std::int64_t>();
    if (slice.at("name") != "wait") ++iterations;
  }
  EXPECT_EQ(iterations, pushes);
  EXPECT_EQ(ends.size(), 3u);
  const auto instants = of_phase(trace, "i");
  EXPECT_EQ(instants.size(), records.size() - pushes + 1) << "and one for the re-syncs";
  for (std::size_t i = 1; i < instants.size(); ++i) {
    EXPECT_GE(instants[i].at("ts"), instants[i - 1].at("ts"));
  }
  std::size_t names = 0;
  for (const json& event : of_phase(trace, "M")) {
    if (event.at("name") == "thread_name") ++names;
    if (event.at("name") == "process_name") {
      EXPECT_EQ(event.at("args").at("name"), "job #7 cifar");
    }
  }
  EXPECT_EQ(names, 4u);
}

}  // namespace
}  // namespace syncd::ctl
