// Status codes, explanations and defaults: what people and programs read of them.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "proto/base/defaults.h"
#include "proto/base/status.h"
#include "proto/wire/announce.h"
#include "proto/wire/explanation.h"

namespace syncd {
namespace {

TEST(Status, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code >= -30; --code) {
    const auto name = status_name(static_cast<Status>(code));
    EXPECT_NE(name, "SYNCD_E_?") << code;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(status_name(static_cast<Status>(-31)), "SYNCD_E_?");
  EXPECT_EQ(status_name(static_cast<Status>(1)), "SYNCD_E_?");
}

TEST(Status, NothingIsBothRetriableAndFatal) {
  for (int code = 0; code >= -30; --code) {
    const auto status = static_cast<Status>(code);
    EXPECT_FALSE(status_is_retriable(status) && status_is_fatal(status)) << status_name(status);
  }
  EXPECT_TRUE(status_is_retriable(Status::kTimeout));
  EXPECT_TRUE(status_is_fatal(Status::kFenced));
  EXPECT_FALSE(status_is_retriable(Status::kOk));
  EXPECT_FALSE(status_is_fatal(Status::kOk));
}

TEST(Explanation, RanksAreCompressedToRanges) {
  EXPECT_EQ(compress_ranks({}), "");
  EXPECT_EQ(compress_ranks({4}), "4");
  EXPECT_EQ(compress_ranks({4, 23, 40, 41, 42, 43, 44, 45, 46, 47}), "4, 23, 40-47");
  EXPECT_EQ(compress_ranks({0, 1, 3, 4, 5}), "0, 1, 3-5");
  EXPECT_EQ(compress_ranks({0, 2, 4, 6}, 2), "0, 2, and 2 more");
  EXPECT_EQ(compress_ranks({0, 2, 4, 6}, 4), "0, 2, 4, 6");
}

TEST(Explanation, DurationsReadWell) {
  EXPECT_EQ(format_duration(0), "0 us");
  EXPECT_EQ(format_duration(999), "999 us");
  EXPECT_EQ(format_duration(1500), "1.5 ms");
  EXPECT_EQ(format_duration(350'000), "350 ms");
  EXPECT_EQ(format_duration(41'200'000), "41.2 s");
  EXPECT_EQ(format_duration(150'000'000), "2 min 30 s");
  EXPECT_EQ(format_duration(7'500'000'000), "2 h 5 min");
  EXPECT_EQ(format_duration(-1500), "-1.5 ms");
  EXPECT_EQ(format_duration(INT64_MIN), format_duration(-INT64_MAX));
  EXPECT_EQ(format_duration(INT64_MAX), "2562047788 h 1 min");
}

TEST(Explanation, ADurationIsRoundedIntoTheNextUnit) {
  EXPECT_EQ(format_duration(9'949), "9.9 ms");
  EXPECT_EQ(format_duration(9'999), "10 ms");
  EXPECT_EQ(format_duration(999'499), "999 ms");
  EXPECT_EQ(format_duration(999'999), "1.0 s");
  EXPECT_EQ(format_duration(119'949'999), "119.9 s");
  EXPECT_EQ(format_duration(119'999'999), "2 min 0 s");
  EXPECT_EQ(format_duration(179'999'999), "3 min 0 s");
  EXPECT_EQ(format_duration(7'199'499'999), "119 min 59 s");
  EXPECT_EQ(format_duration(7'199'999'999), "2 h 0 min");
  EXPECT_EQ(format_duration(7'229'999'999), "2 h 0 min");
  EXPECT_EQ(format_duration(7'230'000'000), "2 h 1 min");
}

TEST(Explanation, OneWorkerIsNamedWithHostClockAndAge) {
  Explanation why;
  why.rule = "ssp:3";
  why.text = "relative clock 12 is 4 ahead of the slowest (8), allowed 3";
  why.waited_for_count = 1;
  why.ranks = "7";
  why.workers = {{7, "worker-7", "node-b", 8, 41'200'000, ""}};
  EXPECT_EQ(
      to_text(why),
      "ssp:3: relative clock 12 is 4 ahead of the slowest (8), allowed 3; waiting for worker 7 "
      "(node-b, clock 8, last push 41.2 s ago)");
}

TEST(Explanation, ManyWorkersAreCountedListedAndTheFirstDescribed) {
  Explanation why;
  why.rule = "start";
  why.text = "1 of 4 expected workers are ready";
  why.waited_for_count = 3;
  why.ranks = "1-3";
  why.workers = {{1, "", "", 0, -1, "not joined"}, {2, "w2", "node-a", 0, -1, "registered"}};
  EXPECT_EQ(to_text(why),
            "start: 1 of 4 expected workers are ready; waiting for 3 workers: 1-3; worker 1 (not "
            "joined), worker 2 (node-a, clock 0, no push yet, registered)");
}

TEST(Explanation, AWorkerIsDescribedByWhatIsKnownOfIt) {
  Explanation why;
  why.text = "held back";
  why.waited_for_count = 1;
  const auto text = [&](WaitedFor worker) {
    why.workers = {std::move(worker)};
    return to_text(why);
  };
  EXPECT_EQ(text({3, "", "", 0, -1, ""}), "held back; waiting for worker 3");
  EXPECT_EQ(text({3, "w3", "", 5, 2'000, "running"}),
            "held back; waiting for worker 3 (w3, clock 5, last push 2.0 ms ago, running)");
}

TEST(Explanation, NobodyWaitedForLeavesTheRuleAlone) {
  Explanation why;
  why.rule = "naive_wait:50+asp";
  why.text = "held back";
  EXPECT_EQ(to_text(why), "naive_wait:50+asp: held back");
}

TEST(Phase, ANameAndALeaseWithinTheirLimitsAreTaken) {
  EXPECT_EQ(check_phase("evaluation", 1), "");
  EXPECT_EQ(check_phase("a.B_9-", kPhaseLeaseUsMax), "");
  EXPECT_EQ(check_phase(std::string(64, 'x'), 60'000'000), "");
}

TEST(Phase, WhatIsWrongIsNamedWithWhatIsAllowed) {
  const std::string allowed = ": allowed are 1 to 64 of A-Z a-z 0-9 . _ -";
  EXPECT_EQ(check_phase("", 1), "phase name ''" + allowed);
  EXPECT_EQ(check_phase("a b", 1), "phase name 'a b'" + allowed);
  EXPECT_EQ(check_phase(std::string(65, 'x'), 1),
            "phase name '" + std::string(64, 'x') + "...' of 65 bytes" + allowed);
  const std::string span = "': allowed are more than 0 and at most 86400 s (24 h)";
  EXPECT_EQ(check_phase("save", 0), "a lease of 0.000 s for phase 'save" + span);
  EXPECT_EQ(check_phase("save", -1'000'000), "a lease of -1.000 s for phase 'save" + span);
  EXPECT_EQ(check_phase("save", kPhaseLeaseUsMax + 1000),
            "a lease of 86400.001 s for phase 'save" + span);
}

// Sets a variable for one test and puts the old value back.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) {
      had_ = true;
      old_ = old;
    }
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Environment() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  bool had_ = false;
  std::string old_;
};

TEST(Defaults, TheRuntimeDirectoryWinsForTheSocket) {
  const Environment runtime("XDG_RUNTIME_DIR", "/run/user/1000");
  // Not for root: its shells have one and its services have none, and both must find the daemon.
  const bool root = geteuid() == 0;
  EXPECT_EQ(default_unix_socket_path(),
            root ? "/run/syncd/syncd.sock" : "/run/user/1000/syncd.sock");
}

TEST(Defaults, SystemdsStateDirectoryWinsForTheStore) {
  const Environment state("STATE_DIRECTORY", "/var/lib/syncd-a:/var/lib/syncd-b");
  EXPECT_EQ(default_store_path(), "/var/lib/syncd-a/store");
}

TEST(Defaults, AStateDirectoryThatIsAStoreStaysOne) {
  char directory[] = "/tmp/syncd-defaults-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const Environment state("STATE_DIRECTORY", directory);
  EXPECT_EQ(default_store_path(), std::string(directory) + "/store");
  std::ofstream(std::string(directory) + "/CURRENT") << "MANIFEST-000001\n";
  EXPECT_EQ(default_store_path(), directory);
  std::filesystem::remove_all(directory);
}

TEST(Defaults, ThereIsAlwaysAnAbsolutePath) {
  const Environment home("HOME", nullptr);
  const Environment runtime("XDG_RUNTIME_DIR", nullptr);
  const Environment state("STATE_DIRECTORY", nullptr);
  EXPECT_EQ(default_unix_socket_path().front(), '/');
  EXPECT_EQ(default_store_path().front(), '/');
}

}  // namespace
}  // namespace syncd
