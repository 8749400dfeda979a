// The short cuts against the generic codec: the same bytes out of every message, the same message
// out of every frame, and out of every damage of one.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "proto/wire/hot.h"
#include "tests/unit/proto/random_message.h"
#include "tests/unit/proto/samples.h"

namespace syncd::wire {
namespace {

constexpr unsigned kListMax = 8;  // longer lists have no short cut

// All sets of fields, with the smallest and the largest values.
std::vector<Message> hot_messages() {
  std::vector<Message> all;
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  for (const bool large : {false, true}) {
    const std::uint64_t u64 = large ? kMost : 1;
    const std::int64_t i64 = large ? std::numeric_limits<std::int64_t>::min() : 1;
    const std::uint32_t u32 = large ? std::numeric_limits<std::uint32_t>::max() : 1;
    for (unsigned set = 0; set < 32; ++set) {
      const auto is = [set](unsigned bit) { return (set >> bit & 1) != 0; };
      const std::int64_t iteration = is(0) ? i64 : 0;
      WorkerRef worker;
      if (is(4)) worker = {u32, u32, u64, u64};
      Push push{worker, iteration, {}, is(2) ? u64 : 0, is(3) ? u64 : 0};
      if (is(1)) push.loss = large ? -0.0 : 0.0;
      all.push_back({u64, push});
      all.push_back({u64, Begin{worker, iteration}});
      all.push_back({u64, Targets{worker, iteration}});
      all.push_back({u64, Collect{worker, iteration}});
      all.push_back({u64, Consumed{worker, iteration}});
      all.push_back({u64, Ok{}});
      all.push_back({u64, Granted{iteration, is(1) ? u32 : 0, 0, is(2) ? u64 : 0, is(3) ? u32 : 0,
                                  is(4) ? u32 : 0}});
      if (set > kListMax) continue;
      TargetsReply targets{i64, {}};
      CollectReply collected{large ? 0 : i64, {}};
      for (unsigned item = 0; item < set; ++item) {
        targets.ranks.push_back(u32 - item);
        collected.updates.push_back({u32 - item, i64 + item, 0.5 * item});
      }
      all.push_back({u64, targets});
      all.push_back({u64, collected});
      all.push_back({u64, Pushed{iteration, is(1), is(2)}});
      all.push_back({u64, Granted{iteration, is(1) ? u32 : 0, is(2) ? i64 : 0}});
    }
  }
  return all;
}

bool append_hot(std::uint64_t id, const Body& body, Bytes& out) {
  OutBuffer frame;
  if (!append_hot(id, body, frame)) return false;
  out.insert(out.end(), frame.bytes().begin(), frame.bytes().end());
  return true;
}

template <class... Types>
bool is_one_of(const Body& body) {
  return (std::holds_alternative<Types>(body) || ...);
}
bool is_call(const Body& body) {
  return is_one_of<Push, Begin, Targets, Collect, Consumed>(body);
}
bool is_hot(const Body& body) {
  return is_call(body) || is_one_of<Pushed, Granted, Ok, TargetsReply, CollectReply>(body);
}

void expect_same(std::span<const std::uint8_t> payload) {
  Message generic, message;
  std::string why;
  const bool valid = decode_generic(payload, generic, why);
  if (!decode_hot(payload, message)) return;
  ASSERT_TRUE(valid) << "only the short cut takes it: " << why;
  // As bytes, because a loss may be no number.
  Bytes one, other;
  Encoder().append_generic(message.id, message.body, one);
  Encoder().append_generic(generic.id, generic.body, other);
  ASSERT_EQ(one, other);
  HotCall hot;
  read_hot(payload, hot);
  ASSERT_EQ(hot.kind != Hot::kNone, is_call(message.body));
  if (hot.kind == Hot::kNone) return;
  ASSERT_EQ(hot.id, message.id);
  Message read{hot.id, {}};
  visit_hot(hot, [&](const auto& call) { read.body = call; });
  Bytes third;
  Encoder().append_generic(read.id, read.body, third);
  ASSERT_EQ(third, one);
}

TEST(Hot, WritesTheGenericBytes) {
  for (const Message& message : hot_messages()) {
    Bytes generic, hot{7};
    Encoder().append_generic(message.id, message.body, generic);
    ASSERT_TRUE(append_hot(message.id, message.body, hot)) << body_name(message.body);
    ASSERT_EQ(Bytes(hot.begin() + 1, hot.end()), generic) << body_name(message.body);
    OutBuffer buffer;
    Encoder().append(message.id, message.body, buffer);
    EXPECT_EQ(Bytes(buffer.bytes().begin(), buffer.bytes().end()), generic);
    Message read;
    ASSERT_TRUE(decode_hot(payload_of(generic), read)) << body_name(message.body);
    expect_same(payload_of(generic));
  }
}

TEST(Hot, LeavesAllOthersToTheGenericWay) {
  std::mt19937_64 random(1);
  Bytes out;
  std::vector<Message> others = {{1, TargetsReply{1, std::vector<std::uint32_t>(kListMax + 1)}},
                                 {1, CollectReply{1, std::vector<PeerUpdate>(kListMax + 1)}}};
  for (std::size_t index = 1; index < std::variant_size_v<Body>; ++index) {
    others.push_back(random_message(index, random));
    if (is_hot(others.back().body)) others.back().id = 0;
  }
  for (const Message& message : others) {
    EXPECT_FALSE(append_hot(message.id, message.body, out)) << body_name(message.body);
    Bytes frame;
    Encoder().append_generic(message.id, message.body, frame);
    Message read;
    EXPECT_FALSE(decode_hot(payload_of(frame), read)) << body_name(message.body);
  }
  EXPECT_TRUE(out.empty());
}

TEST(Hot, ReadsWhatTheGenericWayReadsOfEveryDamage) {
  std::mt19937_64 random(2);
  std::size_t taken = 0;
  for (const Message& message : hot_messages()) {
    const Bytes frame = encode(message);
    Bytes payload(frame.begin() + 4, frame.end());
    for (std::size_t i = 0; i < payload.size(); ++i) {
      const std::uint8_t original = payload[i];
      for (const int value : {0, 1, 4, 255, original ^ 1, original + 1, original - 1,
                              static_cast<int>(random() % 256)}) {
        payload[i] = static_cast<std::uint8_t>(value);
        ASSERT_NO_FATAL_FAILURE(expect_same(payload)) << body_name(message.body) << " at " << i;
        Message read;
        taken += decode_hot(payload, read) ? 1 : 0;
      }
      payload[i] = original;
    }
    for (std::size_t size = 0; size < payload.size(); ++size) {
      ASSERT_NO_FATAL_FAILURE(expect_same(std::span(payload).first(size)));
    }
    payload.push_back(0);
    ASSERT_NO_FATAL_FAILURE(expect_same(payload));
  }
  EXPECT_GT(taken, 10'000U) << "a damaged value is another value";
}

}  // namespace
}  // namespace syncd::wire
