// Stored bytes: golden files, every kind, and damage, which a checksum must always find.
#include "daemon/edge/store/record_codec.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "daemon/edge/store/record_fields.h"
#include "proto/base/crc32c.h"
#include "tests/unit/store/samples.h"

namespace syncd::store {
namespace {

using Bytes = std::vector<std::uint8_t>;

template <class T>
Bytes encode(const T& value) {
  RecordEncoder encoder;
  const auto bytes = encoder.encode(value);
  return {bytes.begin(), bytes.end()};
}

Bytes ascii(const std::string& text) {
  return {text.begin(), text.end()};
}

TEST(Crc32c, KnownValues) {
  // RFC 3720, B.4, and the usual check value.
  EXPECT_EQ(crc32c(ascii("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(Bytes(32, 0)), 0x8A9136AAu);
  EXPECT_EQ(crc32c(Bytes(32, 0xFF)), 0x62A8AB43u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, TheInstructionAndTheTablesAgree) {
  Bytes bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37 + 11);
  for (std::size_t first = 0; first < 8; ++first) {
    for (std::size_t length = 0; first + length <= bytes.size(); ++length) {
      const auto part = std::span(bytes).subspan(first, length);
      ASSERT_EQ(crc32c(part), crc32c_by_tables(part)) << first << ", " << length;
    }
  }
}

TEST(RecordCodec, EveryKindComesBackWithEveryField) {
  for (std::uint8_t kind = 1; kind <= kRecordKindMax; ++kind) {
    const Record record = sample_record(static_cast<RecordKind>(kind), 7, 99);
    Record decoded;
    std::string error;
    ASSERT_TRUE(decode_record(encode(record), decoded, error)) << error;
    EXPECT_EQ(decoded, record) << to_string(record.kind);
  }
}

// Without texts and lists. The bits of `set` say which of its fields have another value than the
// default.
Record record_of_numbers(std::uint64_t set, std::uint64_t seed) {
  Record record;
  for_each_field(record, [&]<class F>(F, auto& value) {
    using T = std::decay_t<decltype(value)>;
    const std::uint64_t number = seed = seed * 6364136223846793005u + 1442695040888963407u;
    const bool is_set = (set & 1) != 0;
    set >>= 1;
    if (!is_set) return;
    if constexpr (std::is_same_v<T, bool>) value = true;
    if constexpr (std::is_enum_v<T>) value = static_cast<T>(1);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      value = static_cast<T>(F::name == "rank" ? number >> 32 : number);
    }
    if constexpr (kIsOptional<T>) value = static_cast<double>(number) * 0.5;
  });
  return record;
}

TEST(RecordCodec, TheShortCutMakesTheGenericEncodersBytes) {
  std::vector<std::uint64_t> sets = {0, ~std::uint64_t{0}};
  constexpr auto bit = [](std::size_t index) { return std::uint64_t{1} << index; };
  for (std::size_t one = 0; one < FieldsOf<Record>::count; ++one) {
    for (std::size_t other = 0; other <= one; ++other) sets.push_back(bit(one) | bit(other));
    sets.push_back(~bit(one));
  }
  for (const std::uint64_t set : sets) {
    RecordEncoder used;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Record record = record_of_numbers(set, seed);
      const auto bytes = used.encode(record);
      // A new encoder has no short cut yet.
      ASSERT_EQ(Bytes(bytes.begin(), bytes.end()), encode(record)) << set << ", " << seed;
    }
  }
  // What is stored of it is the default.
  RecordEncoder used;
  Record record = record_of_numbers(~std::uint64_t{0}, 0);
  used.encode(record);
  record.rank = UINT32_MAX;
  const auto bytes = used.encode(record);
  ASSERT_EQ(Bytes(bytes.begin(), bytes.end()), encode(record));
}

TEST(RecordCodec, AnEncoderThatHasSeenManyShapesStillEncodes) {
  RecordEncoder used;
  for (std::uint64_t set = 0; set < 1000; ++set) {
    const Record record = record_of_numbers(set, set);
    const auto bytes = used.encode(record);
    ASSERT_EQ(Bytes(bytes.begin(), bytes.end()), encode(record)) << set;
  }
}

TEST(RecordCodec, DefaultsComeBack) {
  Record record;
  record.kind = RecordKind::kPush;
  Record decoded = sample_record(RecordKind::kPush, 7, 99);  // nothing of it may stay
  std::string error;
  ASSERT_TRUE(decode_record(encode(record), decoded, error)) << error;
  EXPECT_EQ(decoded, record);
}

TEST(RecordCodec, ASnapshotComesBack) {
  const JobSnapshot snapshot = sample_snapshot(7, 1000);
  JobSnapshot decoded;
  std::string error;
  ASSERT_TRUE(decode_snapshot(encode(snapshot), decoded, error)) << error;
  EXPECT_EQ(decoded, snapshot);
}

TEST(RecordCodec, AKindOfANewerVersionIsRefused) {
  Record record = sample_record(RecordKind::kPush, 7, 99);
  record.kind = static_cast<RecordKind>(kRecordKindMax + 1);
  Record decoded;
  std::string error;
  EXPECT_FALSE(decode_record(encode(record), decoded, error));
  EXPECT_NE(error.find("kind " + std::to_string(kRecordKindMax + 1)), std::string::npos) << error;
}

TEST(RecordCodec, EverySingleBitFlipIsFound) {
  const Bytes stored = encode(sample_record(RecordKind::kPush, 7, 99));
  for (std::size_t bit = 0; bit < stored.size() * 8; ++bit) {
    Bytes damaged = stored;
    damaged[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
    Record decoded;
    std::string error;
    EXPECT_FALSE(decode_record(damaged, decoded, error)) << "bit " << bit;
    EXPECT_FALSE(error.empty());
  }
}

TEST(RecordCodec, EveryTruncationIsFound) {
  const Bytes stored = encode(sample_snapshot(7, 1000));
  for (std::size_t length = 0; length < stored.size(); ++length) {
    JobSnapshot decoded;
    std::string error;
    EXPECT_FALSE(decode_snapshot(std::span(stored).first(length), decoded, error)) << length;
  }
}

TEST(RecordCodec, ARecordIsNotASnapshot) {
  Record record;
  record.kind = RecordKind::kPush;
  JobSnapshot decoded;
  std::string error;
  EXPECT_FALSE(decode_snapshot(encode(record), decoded, error));
}

template <class T>
void check_golden(const char* file, const T& value) {
  const auto path = std::filesystem::path(SYNCD_TEST_SOURCE_DIR) / "golden" / "record" / file;
  const Bytes bytes = encode(value);
  if (std::getenv("SYNCD_REWRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  std::ifstream stream(path, std::ios::binary);
  const Bytes stored{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  EXPECT_EQ(stored, bytes) << path
                           << ": a store written by an earlier version means something else";
}

// The samples with what was added to their tables since their files were stored.
Record grown_record() {
  Record record = sample_record(RecordKind::kWorkerJoined, 7, 99);
  record.data = {10, 0, 0, 7, 255};
  return record;
}
JobSnapshot grown_snapshot() {
  JobSnapshot snapshot = sample_snapshot(7, 1000);
  snapshot.workers[1].data = {0, 255};
  return snapshot;
}

// A worker that an operator has sent away, and one of which he says that it is in a long phase.
JobSnapshot managed_snapshot() {
  JobSnapshot snapshot = grown_snapshot();
  snapshot.workers[0].leased_phase = "evaluation";
  snapshot.workers[0].phase_us = 1'700'000'000'000'500;
  snapshot.workers[0].phase_lease_us = 60'000'000;
  snapshot.workers[1].dismissal = "kicked by an operator: hangs";
  return snapshot;
}

// One of a job without a parameter server that was taken in anew.
JobSnapshot entered_snapshot() {
  JobSnapshot snapshot = managed_snapshot();
  snapshot.workers[1].entered = 41;
  return snapshot;
}

// Of a job that reassembles: a worker has come back, and brought a launch.
Record returned_record() {
  Record record = grown_record();
  record.config = "launch=llm\nlaunch_number=3\n";
  record.expected_workers = 4;
  record.returned = true;
  return record;
}
JobSnapshot reassembling_snapshot() {
  JobSnapshot snapshot = entered_snapshot();
  snapshot.workers[1].returned = true;
  snapshot.expected_workers = 4;
  snapshot.reassembling = true;
  snapshot.left = 1;
  snapshot.group_epoch = 2;
  snapshot.launch = "llm";
  snapshot.launch_number = 3;
  return snapshot;
}

// Of a job whose last member has failed.
JobSnapshot failed_snapshot() {
  JobSnapshot snapshot = reassembling_snapshot();
  snapshot.workers[1].dismissal = "failed: ValueError: loss is not finite";
  snapshot.failure = "worker 1 (node-b, b) failed: ValueError: loss is not finite";
  return snapshot;
}

// Of a job with checkpoints: the latest complete one, an open one and a queued one.
Record saved_record() {
  Record record = returned_record();
  record.kind = RecordKind::kCheckpointSaved;
  record.checkpoint = 7;
  record.shard = 3;
  record.shards = 16;
  record.location = "/scratch/llm/7/3";
  return record;
}
JobSnapshot checkpoints_snapshot() {
  JobSnapshot snapshot = reassembling_snapshot();
  snapshot.checkpoints.resize(3);
  CheckpointSnapshot& complete = snapshot.checkpoints[0];
  complete.number = 6;
  complete.state = CheckpointState::kComplete;
  complete.epoch = 2;
  complete.since_us = 1'700'000'000'000'600;
  complete.reason = "every 100 iterations";
  complete.fixed = true;
  complete.shards = 2;
  complete.saved = {{0, 1, 300, "/a"}, {1, 0, 301, "/b"}};
  CheckpointSnapshot& open = snapshot.checkpoints[1];
  open.number = 7;
  open.state = CheckpointState::kOpen;
  open.epoch = 3;
  open.since_us = 1'700'000'000'000'700;
  open.members = {0, 400, -1, -1, 1, 400, 400, 0};
  snapshot.checkpoints[2].number = 8;
  snapshot.checkpoints[2].reason = "SIGTERM";
  snapshot.checkpoints_asked = 8;
  snapshot.checkpoint_clock = 400;
  snapshot.checkpoint_closed = 5;
  snapshot.checkpoint_closed_reason = "worker 3 went before it had saved";
  return snapshot;
}

// Of a job whose workers form rounds.
Record view_record() {
  Record record = sample_record(RecordKind::kView, 7, 99);
  record.members = {{3, 41, 3, "worker-3", "node-a", {10, 0, 0, 7, 255}},
                    {0, 12, 19, "worker-4", "node-b", {}}};
  return record;
}
JobSnapshot view_snapshot() {
  JobSnapshot snapshot = checkpoints_snapshot();
  snapshot.views = {{5, "the first round", {{0, 1, 3, "w0", "a", {7}}}},
                    {6, "'w1' joined", {{0, 1, 3, "w0", "a", {7}}, {1, 2, 3, "w1", "b", {}}}}};
  snapshot.policy_text = "excluded node-c\n";
  return snapshot;
}

// Of a worker that marks when it has computed, and has become slow.
Record marked_record() {
  Record record = returned_record();
  record.computed_us = 1000;
  record.in_phase = true;
  record.factor = 2.125;
  return record;
}
JobSnapshot marked_snapshot() {
  JobSnapshot snapshot = view_snapshot();
  snapshot.workers[0].exchange_us = 234;
  snapshot.workers[0].slow_since_us = 1'700'000'000'000'000;
  snapshot.workers[0].slow_factor = 2.125;
  snapshot.workers[0].usual = -0.125;
  snapshot.noise = 1.5;
  return snapshot;
}
JobSnapshot switched_snapshot() {
  JobSnapshot snapshot = marked_snapshot();
  snapshot.policy_set = true;
  return snapshot;
}

TEST(RecordCodec, WhatWasAddedLaterComesBackToo) {
  Record record;
  JobSnapshot snapshot;
  std::string error;
  ASSERT_TRUE(decode_record(encode(grown_record()), record, error)) << error;
  EXPECT_EQ(record, grown_record());
  ASSERT_TRUE(decode_snapshot(encode(grown_snapshot()), snapshot, error)) << error;
  EXPECT_EQ(snapshot, grown_snapshot());
  ASSERT_TRUE(decode_snapshot(encode(managed_snapshot()), snapshot, error)) << error;
  EXPECT_EQ(snapshot, managed_snapshot());
  ASSERT_TRUE(decode_snapshot(encode(entered_snapshot()), snapshot, error)) << error;
  EXPECT_EQ(snapshot, entered_snapshot());
  ASSERT_TRUE(decode_record(encode(returned_record()), record, error)) << error;
  EXPECT_EQ(record, returned_record());
  ASSERT_TRUE(decode_snapshot(encode(reassembling_snapshot()), snapshot, error)) << error;
  EXPECT_EQ(snapshot, reassembling_snapshot());
  ASSERT_TRUE(decode_snapshot(encode(failed_snapshot()), snapshot, error)) << error;
  EXPECT_EQ(snapshot, failed_snapshot());
  ASSERT_TRUE(decode_record(encode(saved_record()), record, error)) << error;
  EXPECT_EQ(record, saved_record());
  ASSERT_TRUE(decode_snapshot(encode(checkpoints_snapshot()), snapshot, error)) << error;
  EXPECT_EQ(snapshot, checkpoints_snapshot());
  ASSERT_TRUE(decode_record(encode(view_record()), record, error)) << error;
  EXPECT_EQ(record, view_record());
  ASSERT_TRUE(decode_snapshot(encode(view_snapshot()), snapshot, error)) << error;
  EXPECT_EQ(snapshot, view_snapshot());
  ASSERT_TRUE(decode_record(encode(marked_record()), record, error)) << error;
  EXPECT_EQ(record, marked_record());
  ASSERT_TRUE(decode_snapshot(encode(marked_snapshot()), snapshot, error)) << error;
  EXPECT_EQ(snapshot, marked_snapshot());
  ASSERT_TRUE(decode_snapshot(encode(switched_snapshot()), snapshot, error)) << error;
  EXPECT_EQ(snapshot, switched_snapshot());
}

TEST(RecordCodec, GoldenFilesStillMeanTheSame) {
  check_golden("record.bin", sample_record(RecordKind::kPush, 7, 99));
  check_golden("snapshot.bin", sample_snapshot(7, 1000));
  check_golden("record.2.bin", grown_record());
  check_golden("snapshot.2.bin", grown_snapshot());
  check_golden("snapshot.3.bin", managed_snapshot());
  check_golden("snapshot.4.bin", entered_snapshot());
  check_golden("record.3.bin", returned_record());
  check_golden("snapshot.5.bin", reassembling_snapshot());
  check_golden("snapshot.6.bin", failed_snapshot());
  check_golden("record.4.bin", saved_record());
  check_golden("snapshot.7.bin", checkpoints_snapshot());
  check_golden("record.5.bin", view_record());
  check_golden("snapshot.8.bin", view_snapshot());
  check_golden("record.6.bin", marked_record());
  check_golden("snapshot.9.bin", marked_snapshot());
  check_golden("snapshot.10.bin", switched_snapshot());
}

// The engine counts on it.
TEST(SnapshotCodec, WorkersThatNoEngineHasLikeThatAreRefused) {
  const auto refusal = [](const JobSnapshot& snapshot) {
    RecordEncoder encoder;
    JobSnapshot read;
    std::string error;
    EXPECT_FALSE(decode_snapshot(encoder.encode(snapshot), read, error)) << "it was taken";
    return error;
  };
  JobSnapshot twice = sample_snapshot(1, 5);
  twice.workers[1].rank = 0;
  EXPECT_EQ(refusal(twice), "worker 0 comes after worker 0: each has its place by its rank");
  JobSnapshot turned = sample_snapshot(1, 5);
  std::swap(turned.workers[0], turned.workers[1]);
  EXPECT_EQ(refusal(turned), "worker 0 comes after worker 1: each has its place by its rank");
  JobSnapshot early = sample_snapshot(1, 5);
  early.state = JobState::kWaiting;
  EXPECT_EQ(refusal(early),
            "worker 0 is running in it, which no snapshot of a job that is waiting has");
  JobSnapshot ready = sample_snapshot(1, 5);
  ready.workers[0].state = WorkerState::kReady;
  JobSnapshot odd = checkpoints_snapshot();
  odd.checkpoints[1].members.pop_back();
  EXPECT_EQ(refusal(odd), "its checkpoint 7 is malformed");
  EXPECT_EQ(refusal(ready),
            "worker 0 is ready in it, which no snapshot of a job that is running has");
}

}  // namespace
}  // namespace syncd::store
