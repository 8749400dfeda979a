// What top shows, line by line.
#include "daemon/tools/ctl/top_view.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "daemon/tools/ctl/table.h"

namespace syncd::ctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// `count` workers; the clock of rank r is 100 + r, later by r/10 for each second after the first.
TopSample sample(std::size_t count, std::int64_t second) {
  TopSample s;
  s.now_us = second * 1'000'000;
  s.one_job = true;
  s.jobs.resize(1);
  s.jobs[0].id = 7;
  s.jobs[0].name = "train";
  s.jobs[0].policy = "ssp:3";
  s.jobs[0].state = "running";
  s.jobs[0].expected_workers = static_cast<std::uint32_t>(count);
  s.jobs[0].active_workers = static_cast<std::uint32_t>(count);
  s.jobs[0].pushes = static_cast<std::uint64_t>(1000 + 250 * second);
  s.jobs[0].waiting = 1;
  for (std::size_t r = 0; r < count; ++r) {
    wire::WorkerStatus w;
    w.rank = static_cast<std::uint32_t>(r);
    w.name = "worker-" + std::to_string(r);
    w.host = "node-" + std::to_string(r % 5);
    w.state = "running";
    w.connected = true;
    w.clock = static_cast<std::int64_t>(100 + r) + second * static_cast<std::int64_t>(r);
    w.waiting_us = r == 3 ? 2'340'000 : -1;
    if (r == 3) w.waiting_for = "0-2";
    s.workers.push_back(std::move(w));
  }
  return s;
}

TopView view_of(const TopSample& before, const TopSample& now, std::size_t width,
                std::size_t height) {
  TopView view;
  view.before = &before;
  view.now = &now;
  view.width = width;
  view.height = height;
  return view;
}

void expect_fits(const std::vector<std::string>& lines, const TopView& view) {
  EXPECT_LE(lines.size(), view.height);
  for (const std::string& line : lines) EXPECT_LE(columns_of(line), view.width) << line;
}

TEST(TopView, At80By24) {
  const TopSample before = sample(20, 0);
  const TopSample now = sample(20, 1);
  const TopView view = view_of(before, now, 80, 24);
  const auto lines = render_top(view);
  expect_fits(lines, view);
  ASSERT_EQ(lines.size(), 24U);
  EXPECT_EQ(lines[0], "00:00:01 UTC  train (#7)  ssp:3  running");
  EXPECT_EQ(lines[1], "workers 20/20  waiting 1  clocks 0..0  250.0 it/s  pushes 1250");
  EXPECT_EQ(lines[3],
            "RANK NAME      HOST   STATE     CLOCK   IT/S AHEAD WAITED FOR                   ");
  EXPECT_EQ(lines[4], "   0 worker-0  node-0 running     100   0.00     0      -");
  EXPECT_EQ(lines[7], "   3 worker-3  node-3 waiting     106   3.00     6  2.3 s 0-2");
  EXPECT_EQ(lines[23], "q quit  j/k scroll  s sort: rank  rows 1-19 of 20");
}

TEST(TopView, At200By50) {
  TopSample now = sample(20, 1);
  now.workers[2].name = std::string(60, 'n');
  const TopSample before = sample(20, 0);
  const TopView view = view_of(before, now, 200, 50);
  const auto lines = render_top(view);
  expect_fits(lines, view);
  ASSERT_EQ(lines.size(), 50U);
  EXPECT_THAT(lines[6], HasSubstr(std::string(27, 'n') + "… "));
  EXPECT_THAT(lines[23], HasSubstr("worker-19"));
  EXPECT_EQ(lines[24], "");
  EXPECT_THAT(lines[49], HasSubstr("rows 1-20 of 20"));
}

TEST(TopView, LongAndForeignNamesAreCutAndNeverReachTheTerminalAsCommands) {
  TopSample now = sample(4, 1);
  now.workers[0].name = "\x1b[2Jevil\x07";
  now.workers[1].name = "Übermäßig-langer-Name-eines-Arbeiters";
  now.workers[2].name = "計算機計算機計算機計算機計算機";
  now.workers[3].host = "\xff\xfe";
  now.jobs[0].name = "job\r\n\x1b]0;title\x07";
  const TopView view = view_of(now, now, 80, 24);
  const auto lines = render_top(view);
  expect_fits(lines, view);
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count_if(line.begin(), line.end(), [](char c) { return c >= 0 && c < ' '; }), 0);
  }
  EXPECT_THAT(lines[4], HasSubstr("?[2Jevil?"));
  EXPECT_THAT(lines[5], HasSubstr("Übermäßig"));
  for (std::size_t i = 4; i < 8; ++i) {
    const std::size_t state = lines[i].find(i == 7 ? "waiting" : "running");
    EXPECT_EQ(columns_of(lines[i].substr(0, state)), 38U) << lines[i];
  }
}

TEST(TopView, OfTenThousandWorkersOnlyThoseThatAreSeen) {
  const TopSample before = sample(10'000, 0);
  const TopSample now = sample(10'000, 1);
  TopView view = view_of(before, now, 80, 24);
  view.scroll = 9'000;
  auto lines = render_top(view);
  expect_fits(lines, view);
  EXPECT_THAT(lines[4], StartsWith("9000 worker-9000"));
  EXPECT_THAT(lines[22], StartsWith("9018 "));
  EXPECT_THAT(lines[23], HasSubstr("rows 9001-9019 of 10000"));
  view.scroll = 1'000'000;
  EXPECT_THAT(render_top(view)[22], StartsWith("9999 "));
  EXPECT_EQ(top_scroll_max(view), 9'981U);
}

TEST(TopView, NarrowAndLowTerminalsShowWhatMattersMost) {
  const TopSample before = sample(20, 0);
  const TopSample now = sample(20, 1);
  for (std::size_t width = 1; width < 120; ++width) {
    for (const std::size_t height : {0U, 1U, 3U, 5U, 6U, 24U}) {
      const TopView view = view_of(before, now, width, height);
      expect_fits(render_top(view), view);
    }
  }
  const auto lines = render_top(view_of(before, now, 30, 10));
  EXPECT_EQ(lines[3], "RANK   CLOCK   IT/S WAITED    ");
}

std::vector<std::string> ranks(const std::vector<std::string>& lines, std::size_t count) {
  std::vector<std::string> found;
  for (std::size_t i = 4; i < 4 + count; ++i) {
    const std::size_t at = lines[i].find_first_not_of(' ');
    found.push_back(lines[i].substr(at, lines[i].find(' ', at) - at));
  }
  return found;
}

TEST(TopView, SortsByWhatIsAskedFor) {
  TopSample now = sample(5, 1);
  const TopSample before = sample(5, 0);
  now.workers[0].clock = 500;
  now.workers[4].clock = before.workers[4].clock + 1;
  now.workers[4].waiting_us = 1;
  now.workers[1].state = "lost";
  TopView view = view_of(before, now, 80, 24);
  view.sort = TopSort::kClock;
  EXPECT_THAT(ranks(render_top(view), 5), ElementsAre("2", "4", "3", "0", "1"));
  view.sort = TopSort::kWaiting;
  EXPECT_THAT(ranks(render_top(view), 5), ElementsAre("3", "4", "0", "2", "1"));
  view.sort = TopSort::kRate;
  EXPECT_THAT(ranks(render_top(view), 5), ElementsAre("4", "2", "3", "0", "1"));
  view.sort = TopSort::kHost;
  EXPECT_THAT(ranks(render_top(view), 5), ElementsAre("0", "2", "3", "4", "1"));
  TopSort sort = TopSort::kRank;
  for (int i = 0; i < kTopSorts; ++i) sort = next_sort(sort);
  EXPECT_EQ(sort, TopSort::kRank);
  EXPECT_TRUE(parse_sort("rate", sort));
  EXPECT_EQ(sort, TopSort::kRate);
  EXPECT_FALSE(parse_sort("speed", sort));
}

TEST(TopView, RatesNeedTwoSamplesAndTheSameWorker) {
  const TopSample now = sample(3, 1);
  TopView view = view_of(now, now, 80, 24);
  view.before = nullptr;
  EXPECT_THAT(render_top(view)[1], HasSubstr("  - it/s"));
  TopSample before = sample(3, 0);
  before.workers.erase(before.workers.begin() + 1);
  view.before = &before;
  const auto lines = render_top(view);
  EXPECT_THAT(lines[5], HasSubstr(" 102      - "));
  EXPECT_THAT(lines[6], HasSubstr(" 104   2.00 "));
}

TEST(TopView, SaysWhatIsWrong) {
  TopView view;
  view.notice = "no daemon answers";
  EXPECT_THAT(render_top(view), ::testing::Contains("no daemon answers"));
  const TopSample now = sample(3, 1);
  view.now = &now;
  EXPECT_THAT(render_top(view), AllOf(::testing::Contains("no daemon answers"),
                                      ::testing::Contains(HasSubstr("worker-2"))));
}

TEST(TopView, ColoursOnlyIfAskedFor) {
  const TopSample now = sample(5, 1);
  TopView view = view_of(now, now, 80, 24);
  for (const std::string& line : render_top(view)) EXPECT_THAT(line, Not(HasSubstr("\x1b")));
  view.colours = true;
  const auto lines = render_top(view);
  EXPECT_THAT(lines[7], AllOf(StartsWith("\x1b[33m   3 "), ::testing::EndsWith("\x1b[0m")));
  EXPECT_THAT(lines[4], Not(HasSubstr("\x1b")));
}

TEST(TopView, AllJobs) {
  TopSample before = sample(0, 0);
  TopSample now = sample(0, 2);
  before.one_job = now.one_job = false;
  const TopView view = view_of(before, now, 80, 24);
  const auto lines = render_top(view);
  expect_fits(lines, view);
  EXPECT_THAT(lines[4], AllOf(HasSubstr("#7 train"), HasSubstr(" 250.0 ")));
}

TEST(Fit, CutsBetweenCharacters) {
  EXPECT_EQ(fit("abc", 3), "abc");
  EXPECT_EQ(fit("abcd", 3), "ab…");
  EXPECT_EQ(fit("abcd", 1), "…");
  EXPECT_EQ(fit("abcd", 0), "");
  EXPECT_EQ(fit("äöü", 3), "äöü");
  EXPECT_EQ(fit("äöüß", 3), "äö…");
  EXPECT_EQ(fit("計算機", 6), "計算機");
  EXPECT_EQ(fit("計算機", 5), "計算…");
  EXPECT_EQ(fit("計算機", 4), "計…");
  EXPECT_EQ(columns_of("e\u0301"), 1U);
  EXPECT_EQ(fit("a\u202Eb\u009Bc", 9), "a?b?c");
  EXPECT_EQ(fit("\xC3", 9), "?");
  EXPECT_EQ(fit("\xED\xA0\x80", 9), "???");
}

TEST(ParseKeys, KnowsArrowsLettersAndSkipsTheRest) {
  EXPECT_THAT(parse_keys("jk\x1b[A\x1b[Bs"),
              ElementsAre(TopKey::kDown, TopKey::kUp, TopKey::kUp, TopKey::kDown, TopKey::kSort));
  EXPECT_THAT(parse_keys("\x1b[1;5q\x1b[200~x\x1b"), ElementsAre());
  EXPECT_THAT(parse_keys("\x1b[6~q"), ElementsAre(TopKey::kPageDown, TopKey::kQuit));
}

}  // namespace
}  // namespace syncd::ctl
