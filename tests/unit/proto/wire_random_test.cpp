// The codec against random messages of every type, against every damage of one byte, and against
// frames that are made to be expensive.
#include <flatbuffers/flatbuffers.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "proto/wire/wire.h"
#include "proto/wire/wire_generated.h"
#include "tests/unit/proto/allocation_count.h"
#include "tests/unit/proto/random_message.h"
#include "tests/unit/proto/samples.h"

namespace syncd::wire {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 20261121;

static_assert(detail::field_count<Join>() == 24 && detail::field_count<Ok>() == 0);

TEST(WireRandom, EveryTypeComesBackWhateverItHolds) {
  std::mt19937_64 random(kSeed);
  Encoder encoder;
  Message decoded;  // reused, as the daemon does: nothing of the message before may stay
  for (int round = 0; round < 300; ++round) {
    for (std::size_t index = 1; index < std::variant_size_v<Body>; ++index) {
      const Message message = random_message(index, random);
      ASSERT_EQ(message.body.index(), index);
      Bytes frame;
      encoder.append(message, frame);
      std::string error;
      ASSERT_TRUE(decode(payload_of(frame), decoded, error))
          << body_name(message.body) << " in round " << round << ": " << error;
      ASSERT_EQ(decoded, message) << body_name(message.body) << " in round " << round;
    }
  }
}

// A message that came out of damaged bytes must be one that we could have sent: its own bytes lead
// to it again. Compared as bytes, because a damaged loss may be no number.
void expect_sound(const Message& message) {
  if (std::holds_alternative<Unknown>(message.body)) return;
  const Bytes frame = encode(message);
  Message again;
  std::string error;
  ASSERT_TRUE(decode(payload_of(frame), again, error)) << body_name(message.body) << ": " << error;
  ASSERT_EQ(encode(again), frame) << body_name(message.body);
}

TEST(WireRandom, EveryValueOfEveryByteIsRefusedWithATextOrIsASoundMessage) {
  for (const Message& message : sample_messages()) {
    const Bytes frame = encode(message);
    Bytes payload(frame.begin() + 4, frame.end());
    std::size_t refused = 0;
    for (std::size_t i = 0; i < payload.size(); ++i) {
      const std::uint8_t original = payload[i];
      for (int value = 0; value < 256; ++value) {
        payload[i] = static_cast<std::uint8_t>(value);
        Message decoded;
        std::string error;
        if (decode(payload, decoded, error)) {
          ASSERT_NO_FATAL_FAILURE(expect_sound(decoded));
        } else {
          ASSERT_FALSE(error.empty());
          ++refused;
        }
      }
      payload[i] = original;
    }
    EXPECT_GT(refused, 0u) << body_name(message.body);
  }
}

TEST(WireRandom, SplicedFramesAreRefusedOrSound) {
  std::mt19937_64 random(kSeed + 1);
  const std::vector<Message> samples = sample_messages();
  for (int round = 0; round < 20'000; ++round) {
    const Bytes first = encode(samples[random() % samples.size()]);
    const Bytes second = encode(samples[random() % samples.size()]);
    const auto cut = static_cast<std::ptrdiff_t>(4 + random() % (first.size() - 4));
    const auto from = static_cast<std::ptrdiff_t>(4 + random() % (second.size() - 4));
    Bytes payload(first.begin() + 4, first.begin() + cut);
    payload.insert(payload.end(), second.begin() + from, second.end());
    Message decoded;
    std::string error;
    if (decode(payload, decoded, error)) {
      ASSERT_NO_FATAL_FAILURE(expect_sound(decoded)) << "round " << round;
    } else {
      ASSERT_FALSE(error.empty());
    }
  }
}

// ---- frames that are made to be expensive
// ---------------------------------------------------------

bool decode_built(flatbuffers::FlatBufferBuilder& builder, fb::Body type,
                  flatbuffers::Offset<void> body, std::string& error) {
  builder.FinishSizePrefixed(fb::CreateMessage(builder, 1, type, body), fb::MessageIdentifier());
  Message decoded;
  return decode({builder.GetBufferPointer() + 4, builder.GetSize() - 4}, decoded, error);
}

TEST(WireHostile, OneTextReferredToManyTimesIsRefused) {
  flatbuffers::FlatBufferBuilder builder;
  const auto text = builder.CreateString(std::string(50'000, 'x'));
  const auto job = fb::CreateJobStatus(builder, 1, text, text, text);
  const auto jobs = builder.CreateVector(std::vector(3000, job));
  const auto body = fb::CreateJobsReply(builder, jobs).Union();
  std::string error;
  EXPECT_FALSE(decode_built(builder, fb::Body::JobsReply, body, error));
  EXPECT_THAT(error, HasSubstr("texts together"));
}

TEST(WireHostile, ATextOverTheLimitIsRefusedWithBothNumbers) {
  for (const std::size_t bytes : {std::size_t{64 * 1024}, std::size_t{64 * 1024 + 1}}) {
    flatbuffers::FlatBufferBuilder builder;
    const auto text = builder.CreateString(std::string(bytes, 'x'));
    const auto body = fb::CreateShutdownNotice(builder, text).Union();
    std::string error;
    const bool fits = bytes <= 64 * 1024;
    EXPECT_EQ(decode_built(builder, fb::Body::ShutdownNotice, body, error), fits) << error;
    if (fits) continue;
    EXPECT_THAT(error, HasSubstr("65537"));
    EXPECT_THAT(error, HasSubstr("65536"));
  }
}

TEST(WireHostile, MoreTablesThanAnyMessageNeedsAreRefused) {
  flatbuffers::FlatBufferBuilder builder;
  const auto job = fb::CreateJobStatus(builder, 1);
  const auto jobs = builder.CreateVector(std::vector(5000, job));
  const auto body = fb::CreateJobsReply(builder, jobs).Union();
  std::string error;
  EXPECT_FALSE(decode_built(builder, fb::Body::JobsReply, body, error));
  EXPECT_FALSE(error.empty());
}

TEST(WireHostile, AnUnknownTypeWithoutAValueIsRefused) {
  flatbuffers::FlatBufferBuilder builder;
  std::string error;
  EXPECT_FALSE(decode_built(builder, static_cast<fb::Body>(200), 0, error));
  EXPECT_THAT(error, HasSubstr("no body"));
}

// ---- the hot path
// ---------------------------------------------------------------------------------

TEST(WireHotPath, NeitherEncodingNorDecodingAsksForMemory) {
  const WorkerRef ref{1, 17, 1, 18};
  const std::vector<Message> messages = {{1, Begin{ref, 5}},
                                         {2, Push{ref, 5, 0.25, 128, 0}},
                                         {3, Granted{5, kStepPull, 2}},
                                         {4, Pushed{5, false, true}},
                                         {5, Ok{}}};
  Encoder encoder;
  Bytes frame;
  Message decoded;
  std::string error;
  for (const Message& message : messages) {
    frame.clear();
    encoder.append(message, frame);  // the first one makes room
    const std::size_t before = allocation_count();
    frame.clear();
    encoder.append(message, frame);
    const bool ok = decode(payload_of(frame), decoded, error);
    const std::size_t after = allocation_count();
    ASSERT_TRUE(ok) << error;
    EXPECT_EQ(after - before, 0u) << body_name(message.body);
    EXPECT_EQ(decoded, message);
  }
  const std::size_t before = allocation_count();
  const auto canary = std::make_unique<int>(1);
  EXPECT_EQ(allocation_count() - before, 1u);  // the counter itself works
}

}  // namespace
}  // namespace syncd::wire
