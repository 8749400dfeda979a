// What a new leader reads, and how its copy follows from it.
#include "daemon/core/cluster/take_over.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/unit/cluster/names.h"

namespace syncd::cluster {
namespace {

// Entries 4 to 6 of a log whose first three are gone; the second of them lies in two parts.
Answer sound() {
  const Nonce n3{1, 3}, n4{1, 4}, n5{2, 1}, n6{2, 2};
  return {Answer::Kind::kThen,
          90,
          {{kKeys.first(), encode(First{4}), 1},
           {kKeys.tail(), encode(Tail{6, n6}), 1},
           {kKeys.meta(), encode(Meta{9, 8}), 1},
           {kKeys.pointer(16), encode(Pointer{{1, 5}, 3, 1, 77}), 1},
           {kKeys.entry(4), encode(Entry{{1, 5}, n4, n3, 0, "four"}), 1},
           {kKeys.part(4, 0), encode(Part{{9, 9}, "left behind"}), 1},
           {kKeys.entry(5), encode(Entry{{1, 50}, n5, n4, 2, ""}), 1},
           {kKeys.part(5, 0), encode(Part{n5, "fi"}), 1},
           {kKeys.part(5, 1), encode(Part{n5, "ve"}), 1},
           {kKeys.part(5, 2), encode(Part{{9, 9}, "left behind"}), 1},
           {kKeys.entry(6), encode(Entry{{1, 50}, n6, n5, 0, "six"}), 1},
           {kKeys.part(7, 0), encode(Part{{9, 9}, "of a batch that was never put"}), 1}}};
}

TEST(ClusterTakeOver, ReadsTheLog) {
  TakeOver read;
  std::string error;
  ASSERT_TRUE(parse_take_over(kKeys, sound(), read, error)) << error;
  EXPECT_EQ(read.first.index, 4u);
  EXPECT_EQ(read.tail.index, 6u);
  EXPECT_EQ(read.meta, (Meta{9, 8}));
  ASSERT_EQ(read.pointers.size(), 1u);
  EXPECT_EQ(read.pointers[0].first, 16u);
  ASSERT_EQ(read.log.size(), 3u);
  EXPECT_EQ(read.log[0].records, "four");
  EXPECT_EQ(read.log[1].records, "five");
  EXPECT_EQ(read.log[2].records, "six");
}

TEST(ClusterTakeOver, RefusesALogThatIsNotWhole) {
  const auto refused = [](const std::function<void(Answer&)>& damage) {
    Answer answer = sound();
    damage(answer);
    TakeOver read;
    std::string error;
    return !parse_take_over(kKeys, answer, read, error) && !error.empty();
  };
  for (const std::size_t needed : {0, 1, 2, 4, 6, 7, 8, 10}) {
    const auto drop = [&](Answer& answer) {
      answer.got.erase(answer.got.begin() + static_cast<std::ptrdiff_t>(needed));
    };
    const auto damage = [&](Answer& answer) { answer.got[needed].value.back() ^= 1; };
    EXPECT_TRUE(refused(drop)) << needed;
    EXPECT_TRUE(refused(damage)) << needed;
  }
  for (const std::size_t other : {5, 9, 11}) {
    EXPECT_FALSE(refused([&](Answer& answer) { answer.got[other].value.clear(); })) << other;
  }
  const auto replace = [&](std::size_t item, const auto& value) {
    return refused([&](Answer& answer) { answer.got[item].value = encode(value); });
  };
  EXPECT_TRUE(replace(0, First{0}));
  EXPECT_TRUE(replace(0, First{3}));
  EXPECT_TRUE(replace(1, Tail{6, {2, 9}})) << "another nonce";
  EXPECT_TRUE(replace(1, Tail{7, {2, 2}}));
  EXPECT_TRUE(replace(1, Tail{5, {2, 1}}));
  EXPECT_TRUE(replace(7, Part{{9, 9}, "fi"})) << "another batch's part";
  EXPECT_TRUE(replace(10, Entry{{1, 50}, {2, 2}, {2, 9}, 0, "six"})) << "of another chain";
  EXPECT_TRUE(replace(10, Entry{{1, 49}, {2, 2}, {2, 1}, 0, "six"})) << "of an older term";
}

// A long log is read in pieces.
TEST(ClusterTakeOver, APieceEndsWhereItsLastEntryIs) {
  const auto read_piece = [](Index from, Index count, const std::vector<std::size_t>& left_out) {
    Answer answer = sound();
    for (auto at = left_out.rbegin(); at != left_out.rend(); ++at) {
      answer.got.erase(answer.got.begin() + static_cast<std::ptrdiff_t>(*at));
    }
    TakeOver read;
    std::string error;
    const bool is_whole = parse_take_over(kKeys, answer, read, error, from, count);
    return std::pair(is_whole, read);
  };
  const auto [is_whole, piece] = read_piece(4, 2, {10, 11});
  ASSERT_TRUE(is_whole);
  EXPECT_EQ(piece.log.size(), 2u);
  EXPECT_EQ(piece.log[1].records, "five");
  EXPECT_EQ(piece.tail, (Tail{5, {2, 1}}));
  EXPECT_EQ(how_to_catch_up(piece, {3, {1, 3}}), CatchUp::kFollow);
  EXPECT_EQ(how_to_catch_up(piece, {2, {1, 2}}), CatchUp::kRebuild);
  EXPECT_EQ(read_piece(4, 3, {}).second.tail, (Tail{6, {2, 2}}));
  EXPECT_EQ(read_piece(4, 500, {}).second.log.size(), 3u);
  EXPECT_FALSE(read_piece(4, 2, {6, 7, 8, 9, 10, 11}).first) << "it lacks the second";
  EXPECT_FALSE(read_piece(4, 2, {8, 9, 10, 11}).first) << "and a part of it";
  EXPECT_FALSE(read_piece(4, 500, {10, 11}).first) << "it lacks the last";

  const Transaction some = take_over_read(kKeys, 4, 2);
  EXPECT_EQ(some.then.back().key, kKeys.entry(4));
  EXPECT_EQ(some.then.back().end, kKeys.entry(6));
  EXPECT_EQ(take_over_read(kKeys, 4).then.back().end, end_of(kKeys.log()));
}

TEST(ClusterTakeOver, FindsTheCopysPlace) {
  TakeOver read;
  std::string error;
  ASSERT_TRUE(parse_take_over(kKeys, sound(), read, error)) << error;
  EXPECT_EQ(how_to_catch_up(read, {}), CatchUp::kRebuild);
  EXPECT_EQ(how_to_catch_up(read, {2, {1, 2}}), CatchUp::kRebuild);
  EXPECT_EQ(how_to_catch_up(read, {3, {1, 3}}), CatchUp::kFollow);
  EXPECT_EQ(how_to_catch_up(read, {3, {1, 9}}), CatchUp::kSetBack);
  EXPECT_EQ(how_to_catch_up(read, {5, {2, 1}}), CatchUp::kFollow);
  EXPECT_EQ(how_to_catch_up(read, {5, {1, 5}}), CatchUp::kSetBack);
  EXPECT_EQ(how_to_catch_up(read, {6, {2, 2}}), CatchUp::kFollow);
  EXPECT_EQ(how_to_catch_up(read, {7, {2, 3}}), CatchUp::kSetBack) << "ahead of the log";
  // A log that is wholly removed.
  read.first.index = 7;
  read.log.clear();
  EXPECT_EQ(how_to_catch_up(read, {6, {2, 2}}), CatchUp::kFollow);
  EXPECT_EQ(how_to_catch_up(read, {6, {2, 9}}), CatchUp::kSetBack);
  EXPECT_EQ(how_to_catch_up(read, {5, {2, 1}}), CatchUp::kRebuild);
}

}  // namespace
}  // namespace syncd::cluster
