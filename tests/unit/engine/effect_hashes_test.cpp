// The engine does what it did: 2,150 lists of events, each with a hash of the events and one of
// their effects, in tests/golden/effects/hashes.txt. effects_form.h says what counts in a hash, and
// event_list.h where the events come from. A golden script shows what an answer should be; the
// hashes cover what no script has, and say no more than that something is different.
//
// When a list differs, its text is written to effects_<list>.txt in the test's working directory:
// every event with its effects and the hash so far. Write it with the earlier engine too
// (SYNCD_EFFECTS_OF), and compare the two: the first event whose hash differs is the one.
//
//   SYNCD_EFFECTS_OF=<list>          runs that list only, and writes its text
//   SYNCD_REWRITE_EFFECT_HASHES=1    stores the hashes of this engine, for a change that is meant
//   SYNCD_EFFECT_COUNTS=1            prints how often each request, answer and record occurred
//
// One thread.
#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "event_list.h"

namespace syncd::test {
namespace {

constexpr std::uint64_t kLists = 2'150;

const std::filesystem::path kStored =
    std::filesystem::path(SYNCD_TEST_SOURCE_DIR) / "golden" / "effects" / "hashes.txt";

constexpr const char* kHead =
    "# list, seed, number of events, hash of the events, hash of the effects, policies\n";

std::string hex(std::uint64_t value) {
  std::ostringstream out;
  out.width(16);
  out.fill('0');
  out << std::hex << value;
  return out.str();
}

std::string line_of(std::uint64_t list, const ListHashes& hashes) {
  return std::to_string(list) + " " + std::to_string(hashes.seed) + " " +
         std::to_string(hashes.count) + " " + hex(hashes.events) + " " + hex(hashes.effects) + " " +
         hashes.policies;
}

std::vector<std::string> stored_lines() {
  std::vector<std::string> lines;
  std::ifstream in(kStored, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("#")) lines.push_back(line);
  }
  return lines;
}

std::filesystem::path write_text(std::uint64_t list) {
  Counts counts;
  std::string text;
  try {
    EventList(list, counts, &text).run();
  } catch (const std::exception& error) {
    text += error.what();
  }
  const std::filesystem::path path =
      std::filesystem::current_path() / ("effects_" + std::to_string(list) + ".txt");
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

// "bsp" of "bsp:2,backup=1 ssp:1".
std::string first_policy(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  for (int i = 0; i < 6; ++i) words >> word;
  return word.substr(0, word.find_first_of(":+,"));
}

void print(const Counts& counts) {
  for (const auto& [what, count] : counts) {
    std::cout << what.first << " " << what.second << ": " << count << "\n";
  }
}

// A generator that dries up guards nothing any more.
void expect_coverage(const Counts& counts) {
  const std::map<std::string_view, std::vector<std::string_view>> wanted = {
      {"policy",
       {"asp", "bsp", "ssp", "dssp", "elastic_bsp", "naive_wait", "specsync", "hop", "notify_ack",
        "barrier", "async"}},
      {"event",
       {"request", "disconnected", "plan", "store", "shutdown", "tick", "declare", "stood",
        "restart", "restart with lost records", "restart from a snapshot"}},
      {"request",
       {"Join", "Leave", "Begin", "CancelBegin", "Push", "Restarted", "Phase", "Targets", "Collect",
        "Consumed", "Explain", "MembersRequest", "JobsRequest", "WorkersRequest",
        "CreateJobRequest", "StopJobRequest", "SetPolicyRequest", "ManageWorkerRequest",
        "HeartbeatAck"}},
      {"reply",
       {"Error", "Ok", "Joined", "Granted", "Pushed", "Explanation", "TargetsReply", "CollectReply",
        "MembersReply", "JobsReply", "WorkersReply"}},
      {"notification",
       {"FencedNotice", "StopNotice", "ResyncNotice", "MembersNotice", "PlanNotice"}},
      {"record", {"late push", "resumed", "push after a restart"}},
      {"flag", {"pull", "barrier", "skip", "stop", "late", "duplicate", "resumed"}},
      {"effect", {"snapshot", "plan", "warning"}},
  };
  // Of few workers, whose iterations last as they like; stragglers_test makes many more of them.
  const std::map<std::string_view, std::uint64_t> seldom = {{"straggler_detected", 20},
                                                            {"straggler_recovered", 3}};
  const auto expect = [&](std::string_view kind, std::string_view name) {
    const auto at = counts.find({kind, name});
    const std::uint64_t count = at == counts.end() ? 0 : at->second;
    const auto fewer = seldom.find(name);
    EXPECT_GE(count, fewer == seldom.end() ? 50U : fewer->second)
        << "too seldom in the lists: " << kind << " " << name;
  };
  for (const auto& [kind, names] : wanted) {
    for (const std::string_view name : names) expect(kind, name);
  }
  for (std::uint8_t kind = 1; kind <= kRecordKindMax; ++kind) {
    // No job of the lists is under observation, and none asks for checkpoints: watch_test and
    // checkpoints_test have such. Nor do any form rounds: gather_test has such.
    const std::string_view name = to_string(static_cast<RecordKind>(kind));
    if (name != "hang" && name != "view" && !name.starts_with("checkpoint_")) {
      expect("record", name);
    }
  }
  for (const Status status :
       {Status::kInvalid, Status::kUnknownJob, Status::kPolicyMismatch, Status::kWrongIteration,
        Status::kFenced, Status::kRankTaken, Status::kLimit, Status::kStore, Status::kCancelled,
        Status::kUnsupported, Status::kStopped, Status::kState, Status::kShutdown,
        Status::kUnknownWorker, Status::kJobExists}) {
    expect("status", status_name(status));
  }
}

TEST(EffectHashes, AreThoseThatAreStored) {
  const bool rewrite = std::getenv("SYNCD_REWRITE_EFFECT_HASHES") != nullptr;
  std::uint64_t first = 0, end = kLists;
  if (const char* only = std::getenv("SYNCD_EFFECTS_OF")) {
    first = std::strtoull(only, nullptr, 10);
    ASSERT_LT(first, kLists);
    end = first + 1;
    std::cout << "written: " << write_text(first).string() << "\n";
  }
  Counts counts;
  std::vector<std::string> lines;
  for (std::uint64_t list = first; list < end; ++list) {
    try {
      lines.push_back(line_of(list, EventList(list, counts).run()));
    } catch (const std::exception& error) {
      // Such as a history that the engine does not take back.
      lines.push_back(std::to_string(list) + " " + error.what());
      EXPECT_FALSE(rewrite) << lines.back();
    }
  }
  if (std::getenv("SYNCD_EFFECT_COUNTS") != nullptr) print(counts);
  const bool all = lines.size() == kLists;
  if (all) expect_coverage(counts);
  if (rewrite) {
    ASSERT_TRUE(all) << "SYNCD_EFFECTS_OF is set: not all lists were run";
    std::filesystem::create_directories(kStored.parent_path());
    std::ofstream out(kStored, std::ios::binary);
    out << kHead;
    for (const std::string& line : lines) out << line << "\n";
    return;
  }

  const std::vector<std::string> stored = stored_lines();
  ASSERT_EQ(stored.size(), kLists) << kStored;
  std::optional<std::uint64_t> different;
  std::map<std::string, int> by_policy;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& wanted = stored[first + i];
    if (wanted == lines[i]) continue;
    if (!different) different = i;
    ++by_policy[first_policy(wanted)];
  }
  if (!different) return;
  std::string all_policies;
  for (const auto& [policy, count] : by_policy) {
    all_policies += " " + policy + " " + std::to_string(count);
  }
  const std::uint64_t list = first + *different;
  ADD_FAILURE() << "the engine does something else; lists that differ, by policy:" << all_policies
                << "\nthe first is list " << list << " (list, seed, events, hashes, policies)"
                << "\n  stored: " << stored[list] << "\n  now:    " << lines[*different]
                << "\nits events and effects: " << write_text(list)
                << "\nwrite the same with the earlier engine, and compare: SYNCD_EFFECTS_OF="
                << list;
}

// ---- the form itself

Effects example() {
  Effects effects;
  Record push;
  push.kind = RecordKind::kPush;
  push.job = push.sequence = 1;
  push.rank = 0;
  push.iteration = 3;
  effects.records = {push};
  effects.replies = {{{1, 7}, true, wire::Pushed{3, false, false}},
                     {{1, 8}, false, wire::Error{Status::kStore, "the disk is full"}}};
  effects.notifications = {{2, wire::StopNotice{{1, 0, 1, 1}, "enough"}, true}};
  effects.log.resize(1);
  return effects;
}

std::uint64_t hash_of(Effects effects, Micros deadline = kNever) {
  EffectsForm form;
  blank(effects);
  form.add_effects(effects, {}, deadline);
  return form.effects();
}

TEST(EffectsForm, SeesWhatIsNoSentence) {
  const std::uint64_t hash = hash_of(example());
  const auto differs = [&](auto change) {
    Effects changed = example();
    change(changed);
    return hash_of(changed) != hash;
  };
  EXPECT_TRUE(differs([](Effects& e) { e.records[0].iteration = 4; }));
  EXPECT_TRUE(differs([](Effects& e) { e.records[0].waited_us = 1; }));
  EXPECT_TRUE(differs([](Effects& e) { e.records.clear(); }));
  EXPECT_TRUE(differs([](Effects& e) { std::swap(e.replies[0], e.replies[1]); }));
  EXPECT_TRUE(differs([](Effects& e) { e.replies[0].after_records = false; }));
  EXPECT_TRUE(differs([](Effects& e) { e.replies[0].to.request = 9; }));
  EXPECT_TRUE(differs([](Effects& e) { e.replies[0].body = wire::Pushed{3, true, false}; }));
  EXPECT_TRUE(differs(
      [](Effects& e) { std::get<wire::Error>(e.replies[1].body).status = Status::kLimit; }));
  EXPECT_TRUE(
      differs([](Effects& e) { std::get<wire::Error>(e.replies[1].body).message.clear(); }));
  EXPECT_TRUE(differs([](Effects& e) { e.notifications[0].connection = 3; }));
  EXPECT_TRUE(differs([](Effects& e) { e.notifications[0].after_records = false; }));
  EXPECT_TRUE(differs([](Effects& e) { e.log.clear(); }));
  EXPECT_NE(hash_of(example(), 5), hash);
}

TEST(EffectsForm, TakesNoNoticeOfSentences) {
  Effects other = example();
  std::get<wire::Error>(other.replies[1].body).message = "no space is left";
  std::get<wire::StopNotice>(other.notifications[0].body).message = "that will do";
  other.log[0] = LogLine{LogLevel::kWarn, "store_stalled", {}};
  EXPECT_EQ(hash_of(other), hash_of(example()));

  Record lost, note;
  lost.kind = RecordKind::kWorkerLost;
  lost.reason = "it is late";
  blank(lost);
  EXPECT_EQ(lost.reason, "~");
  note.kind = RecordKind::kPolicyNote;
  note.reason = "specsync tuned";  // a key of recovery
  blank(note);
  EXPECT_EQ(note.reason, "specsync tuned");
}

}  // namespace
}  // namespace syncd::test
