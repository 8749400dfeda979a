#include "daemon/tools/ctl/table.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace syncd::ctl {
namespace {

using ::testing::HasSubstr;

Record push() {
  Record r;
  r.kind = RecordKind::kPush;
  r.job = 7;
  r.sequence = 42;
  r.time_us = 1'700'000'000'123'456;
  r.epoch = 2;
  r.rank = 3;
  r.incarnation = 9;
  r.iteration = 0;
  r.clock = 1;
  r.span_us = 1'500'000;
  r.waited_us = 20'000;
  r.staleness = 4;
  r.loss = 0.1;
  r.samples = 64;
  r.bytes = 1024;
  return r;
}

// A record in which every field differs from its default.
Record everything(RecordKind kind) {
  Record r = push();
  r.kind = kind;
  r.base = 5;
  r.resumed = true;
  r.data = {0x0a, 0xff};
  r.late = true;
  r.name = "n";
  r.host = "h";
  r.policy = "ssp:3";
  r.expected_workers = 8;
  r.min_workers = 2;
  r.config = "a=1\nb=2\n";
  r.reason = "because";
  r.superstep = 6;
  r.predicted_us = 10;
  r.wait_us = 11;
  r.predicted_wait_us = 12;
  r.restarts = 1;
  r.wasted_us = 13;
  r.declined = true;
  r.returned = true;
  r.values = {1, -2, 3};
  r.checkpoint = 7;
  r.shard = 1;
  r.shards = 2;
  r.location = "/c/7/1";
  r.computed_us = 900'000;
  r.in_phase = true;
  r.factor = 2.5;
  r.members = {{3, 41, 3, "w", "h", {7}}};
  return r;
}

std::string cell(const Record& record, const std::string& column) {
  const auto names = record_column_names();
  const auto at = std::find(names.begin(), names.end(), column);
  EXPECT_NE(at, names.end()) << column;
  return record_cells(record).at(static_cast<std::size_t>(at - names.begin()));
}

TEST(Table, WideAndCombiningCharactersLineUp) {
  EXPECT_EQ(format_table({"NAME", "N"}, {{"日本", "1"}, {"e\u0301", "2"}, {"ab", "3"}}),
            "NAME  N\n日本  1\ne\u0301     2\nab    3\n");
}

TEST(Table, AlignsColumnsAndLeavesNoTrailingBlanks) {
  EXPECT_EQ(format_table({"NAME", "N", "NOTE"}, {{"a", "1", "x"}, {"longer", "100", ""}}),
            "NAME      N  NOTE\n"
            "a         1  x\n"
            "longer  100\n");
}

TEST(Table, CountsCharactersNotBytes) {
  EXPECT_EQ(format_table({"A", "B"}, {{"é", "x"}, {"ee", "y"}}),
            "A   B\n"
            "é   x\n"
            "ee  y\n");
}

// A worker chooses its name, and the operator's terminal is not the worker's to command.
TEST(Table, WhatATerminalWouldObeyIsEscaped) {
  EXPECT_EQ(format_table({"NAME", "N"}, {{"a\x1b[2J\nb", "1"}, {"c\xC2\x9B", "2"}}),
            "NAME         N\n"
            "a\\x1b[2J\\nb  1\n"
            "c\\u009b      2\n");
}

TEST(Table, WithoutRowsThereIsTheHeader) {
  EXPECT_EQ(format_table({"A", "B"}, {}), "A  B\n");
}

TEST(Table, TimesAndAges) {
  EXPECT_EQ(format_time(1'700'000'000'123'456), "2023-11-14T22:13:20.123456Z");
  EXPECT_EQ(format_time(0), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(format_time(-1), "-");
  EXPECT_EQ(format_age(10, -1), "-");
  EXPECT_THAT(format_age(12'300'000, 0), HasSubstr("12.3 s ago"));
  EXPECT_THAT(format_age(0, 5), HasSubstr("ago")) << "a clock that differs a little";
}

TEST(Csv, QuotesAsRfc4180Says) {
  EXPECT_EQ(csv_line({"a", "", "b c"}), "a,,b c\r\n");
  EXPECT_EQ(csv_line({"a,b", "say \"hi\"", "two\nlines", "cr\r"}),
            "\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",\"cr\r\"\r\n");
}

TEST(Export, APushInCsv) {
  EXPECT_EQ(cell(push(), "kind"), "push");
  EXPECT_EQ(cell(push(), "job"), "7");
  EXPECT_EQ(cell(push(), "sequence"), "42");
  EXPECT_EQ(cell(push(), "time_us"), "1700000000123456");
  EXPECT_EQ(cell(push(), "time"), "2023-11-14T22:13:20.123456Z");
  EXPECT_EQ(cell(push(), "rank"), "3");
  EXPECT_EQ(cell(push(), "iteration"), "0");
  EXPECT_EQ(cell(push(), "late"), "false");
  EXPECT_EQ(std::stod(cell(push(), "loss")), 0.1) << "no digit is lost";
  EXPECT_EQ(cell(push(), "reason"), "");
  EXPECT_EQ(cell(push(), "policy"), "");
}

TEST(Export, APushWithoutALossHasNone) {
  Record r = push();
  r.loss.reset();
  r.span_us = -1;
  EXPECT_EQ(cell(r, "loss"), "");
  EXPECT_EQ(cell(r, "span_us"), "");
  EXPECT_FALSE(record_json(r).contains("loss"));
}

TEST(Export, JsonHasTheTypesAndKeysOfTheColumns) {
  const auto json = record_json(push());
  EXPECT_EQ(json["loss"], 0.1);
  EXPECT_EQ(json["rank"], 3);
  EXPECT_EQ(json["late"], false);
  const auto names = record_column_names();
  for (const auto& [key, value] : json.items()) {
    EXPECT_NE(std::find(names.begin(), names.end(), key), names.end()) << key << " has no column";
  }
}

// A field that a kind of record sets must come out in its export. Between them, the kinds cover
// all.
TEST(Export, EveryFieldIsExportedBySomeKind) {
  std::set<std::string> seen;
  for (std::uint8_t k = 1; k <= kRecordKindMax; ++k) {
    const Record record = everything(static_cast<RecordKind>(k));
    const auto cells = record_cells(record);
    const auto names = record_column_names();
    ASSERT_EQ(cells.size(), names.size());
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (!cells[c].empty()) seen.insert(names[c]);
    }
  }
  for (const std::string& name : record_column_names()) {
    EXPECT_TRUE(seen.contains(name)) << name << " is never filled";
  }
  EXPECT_EQ(cell(everything(RecordKind::kPlan), "values"), "1 -2 3");
  EXPECT_EQ(cell(everything(RecordKind::kWorkerJoined), "resumed"), "true");
  EXPECT_EQ(cell(everything(RecordKind::kWorkerJoined), "data"), "0aff");
  EXPECT_EQ(cell(everything(RecordKind::kJobCreated), "config"), "a=1\nb=2\n");
  EXPECT_EQ(cell(everything(RecordKind::kView), "members"),
            R"({"data":"07","flags":3,"host":"h","incarnation":41,"name":"w","rank":3})");
}

TEST(Table, WhatHasNoRoomFollowsBelow) {
  const std::vector<std::string> header = {"POLICY", "ONE", "TWO", "THREE"};
  const std::vector<std::vector<std::string>> rows = {{"hop:ring,max_ig=4", "1", "2", "3"},
                                                      {"bsp", "10.5", "-", "x"}};
  const std::string whole =
      "POLICY              ONE  TWO  THREE\n"
      "hop:ring,max_ig=4     1    2  3\n"
      "bsp                10.5    -  x\n";
  EXPECT_EQ(format_table(header, rows), whole);
  EXPECT_EQ(format_table(header, rows, 35), whole);
  // The first column gives way first, no more than it must.
  EXPECT_EQ(format_table(header, rows, 34),
            "POLICY             ONE  TWO  THREE\n"
            "hop:ring,\n"
            "  max_ig=4           1    2  3\n"
            "bsp               10.5    -  x\n");
  EXPECT_EQ(format_table(header, rows, 22),
            "POLICY        ONE  TWO\n"
            "hop:ring,\n"
            "  max_ig=4      1    2\n"
            "bsp          10.5    -\n"
            "\n"
            "POLICY       THREE\n"
            "hop:ring,\n"
            "  max_ig=4   3\n"
            "bsp          x\n");
  // As far as it can be done.
  EXPECT_EQ(format_table({"A", "B"}, {{"long", "1"}, {"s", "2"}}, 1),
            "A     B\n"
            "long  1\n"
            "s     2\n");
}

TEST(Export, BytesThatAreNoUtf8DoNotBreakIt) {
  Record r = everything(RecordKind::kWorkerJoined);
  r.name = "a\xff";
  EXPECT_EQ(cell(r, "name"), "a\xff");
  EXPECT_NO_THROW(record_json(r).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

TEST(Export, JsonIsPlainText) {
  Record r = everything(RecordKind::kWorkerJoined);
  r.name = "a\x1b\xC2\x9B\xE2\x80\xAE\xff";
  const std::string text = json_text(record_json(r), -1);
  EXPECT_THAT(text, HasSubstr("\"a\\u001b\\u009b\\u202e\xEF\xBF\xBD\""));
  EXPECT_EQ(nlohmann::json::parse(text)["name"], "a\x1b\xC2\x9B\xE2\x80\xAE\xEF\xBF\xBD");
}

TEST(Export, KindsHaveNamesThatReadBack) {
  for (std::uint8_t k = 1; k <= kRecordKindMax; ++k) {
    const auto kind = static_cast<RecordKind>(k);
    EXPECT_EQ(record_kind(to_string(kind)), kind);
  }
  EXPECT_EQ(record_kind("nonsense"), RecordKind::kNone);
}

TEST(Details, SayWhatTheOtherColumnsDoNot) {
  EXPECT_THAT(record_details(push()), HasSubstr("staleness=4"));
  EXPECT_THAT(record_details(push()), HasSubstr("span=1.5"));
  EXPECT_THAT(record_details(push()), HasSubstr("loss=0.1"));
  EXPECT_THAT(record_details(everything(RecordKind::kWorkerLost)), HasSubstr("because"));
}

TEST(Table, DataIsShownAsTextOnlyWhereATerminalCanPrintIt) {
  const auto shown = [](const std::string& data) { return data_text({data.begin(), data.end()}); };
  EXPECT_EQ(shown("10.0.0.7:7000"), "10.0.0.7:7000");
  EXPECT_EQ(shown("nœud-1"), "nœud-1");
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("\x1b[2J"), "0x1b5b324a");
  EXPECT_EQ(shown("\xff\x01"), "0xff01");
  EXPECT_EQ(shown("a\nb"), "0x610a62");
}

}  // namespace
}  // namespace syncd::ctl
