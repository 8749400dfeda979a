// The codec against the samples, against the golden files, and against bytes that nobody should
// send.
#include <flatbuffers/flatbuffers.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "proto/wire/wire.h"
#include "proto/wire/wire_generated.h"
#include "tests/unit/proto/samples.h"

namespace syncd::wire {
namespace {

std::filesystem::path golden_path(const std::string& name) {
  return std::filesystem::path(SYNCD_TEST_SOURCE_DIR) / "golden" / "wire" / (name + ".bin");
}

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Wire, SamplesCoverEveryMessageTypeOnce) {
  std::set<std::size_t> seen;
  for (const Message& message : sample_messages()) seen.insert(message.body.index());
  EXPECT_EQ(seen.size(), std::variant_size_v<Body> - 1);  // all but Unknown
  EXPECT_EQ(sample_messages().size(), seen.size());
}

void expect_comes_back(const Message& message) {
  Message decoded;
  std::string error;
  const Bytes frame = encode(message);
  ASSERT_TRUE(decode(payload_of(frame), decoded, error)) << body_name(message.body) << error;
  EXPECT_EQ(decoded, message) << body_name(message.body);
}

TEST(Wire, EverySampleComesBackAsItWas) {
  for (const Message& message : sample_messages()) expect_comes_back(message);
}

TEST(Wire, DefaultValuesComeBackToo) {
  for (Message message : sample_messages()) {
    std::visit([](auto& body) { body = {}; }, message.body);
    expect_comes_back(message);
  }
}

// An incompatible change of wire.fbs changes what a released peer's bytes mean: it fails here. With
// SYNCD_REWRITE_GOLDEN=1 the files are written anew, which is right only for a new message.
TEST(Wire, GoldenFilesStillMeanTheSame) {
  const bool rewrite = std::getenv("SYNCD_REWRITE_GOLDEN") != nullptr;
  auto all = grown_messages();
  for (Message& message : sample_messages()) {
    all.emplace_back(body_name(message.body), std::move(message));
  }
  for (const auto& [name, message] : all) {
    const Bytes frame = encode(message);
    const auto path = golden_path(name);
    if (rewrite) {
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(frame.data()),
                 static_cast<std::streamsize>(frame.size()));
    }
    const Bytes stored = read_file(path);
    ASSERT_GT(stored.size(), 4u) << path;
    EXPECT_EQ(stored, frame) << path;
    Message decoded;
    std::string error;
    ASSERT_TRUE(decode(payload_of(stored), decoded, error)) << path << ": " << error;
    EXPECT_EQ(decoded, message) << path;
  }
}

TEST(Wire, ARandomMessageOfEachHotTypeComesBack) {
  std::mt19937_64 random(20240501);
  const auto number = [&] { return static_cast<std::int64_t>(random()); };
  for (int i = 0; i < 2000; ++i) {
    const WorkerRef ref{static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random()),
                        random(), random()};
    Push push{ref, number(), std::nullopt, random(), random()};
    if (random() % 2 == 0) push.loss = static_cast<double>(number()) / 3.0;
    const Body bodies[] = {Begin{ref, number()}, push,
                           Granted{number(), static_cast<std::uint32_t>(random()), number()},
                           Pushed{number(), random() % 2 == 0, random() % 2 == 0}};
    for (const Body& body : bodies) {
      const Message message{random(), body};
      Message decoded;
      std::string error;
      const Bytes frame = encode(message);
      ASSERT_TRUE(decode(payload_of(frame), decoded, error)) << error;
      ASSERT_EQ(decoded, message);
    }
  }
}

TEST(Wire, OneEncoderAppendsManyFramesInOrder) {
  Encoder encoder;
  Bytes stream;
  for (const Message& message : sample_messages()) encoder.append(message, stream);
  FrameSplitter splitter;
  splitter.append(stream);
  std::string error;
  for (const Message& message : sample_messages()) {
    std::span<const std::uint8_t> payload;
    ASSERT_EQ(splitter.next(payload, error), FrameSplitter::Result::kFrame) << error;
    Message decoded;
    ASSERT_TRUE(decode(payload, decoded, error)) << error;
    EXPECT_EQ(decoded, message);
  }
  std::span<const std::uint8_t> payload;
  EXPECT_EQ(splitter.next(payload, error), FrameSplitter::Result::kNeedMore);
}

// A later version's message type must reach us as Unknown, and its later fields must be skipped.
TEST(Wire, ANewerPeersMessageTypeIsUnknownAndNotAnError) {
  flatbuffers::FlatBufferBuilder builder;
  const auto body = fb::CreateStopJobRequest(builder, builder.CreateString("x")).Union();
  const auto type = static_cast<fb::Body>(static_cast<int>(fb::Body::MAX) + 1);
  builder.FinishSizePrefixed(fb::CreateMessage(builder, 5, type, body), fb::MessageIdentifier());
  Message decoded;
  std::string error;
  ASSERT_TRUE(decode({builder.GetBufferPointer() + 4, builder.GetSize() - 4}, decoded, error))
      << error;
  EXPECT_EQ(decoded.id, 5u);
  ASSERT_TRUE(std::holds_alternative<Unknown>(decoded.body));
  EXPECT_EQ(std::get<Unknown>(decoded.body).type, static_cast<std::uint8_t>(type));
}

TEST(Wire, ANewerPeersExtraFieldIsSkipped) {
  flatbuffers::FlatBufferBuilder builder;
  const auto start = builder.StartTable();
  builder.AddElement<std::int64_t>(fb::Granted::VT_ITERATION, 9, 0);
  // The seventh field of a table that has six today.
  builder.AddElement<std::int64_t>(fb::Granted::VT_SHARDS + 2, 77, 0);
  const flatbuffers::Offset<void> body(builder.EndTable(start));
  builder.FinishSizePrefixed(fb::CreateMessage(builder, 6, fb::Body::Granted, body),
                             fb::MessageIdentifier());
  Message decoded;
  std::string error;
  ASSERT_TRUE(decode({builder.GetBufferPointer() + 4, builder.GetSize() - 4}, decoded, error))
      << error;
  EXPECT_EQ(decoded.body, Body(Granted{9, 0, 0}));
}

TEST(Wire, AMessageAboutAWorkerNeedsTheWorker) {
  flatbuffers::FlatBufferBuilder builder;
  const auto body = fb::CreateBegin(builder, nullptr, 4).Union();
  builder.FinishSizePrefixed(fb::CreateMessage(builder, 7, fb::Body::Begin, body),
                             fb::MessageIdentifier());
  Message decoded;
  std::string error;
  EXPECT_FALSE(decode({builder.GetBufferPointer() + 4, builder.GetSize() - 4}, decoded, error));
  EXPECT_NE(error.find("Begin"), std::string::npos) << error;
}

TEST(Wire, AMessageWithoutABodyIsRefused) {
  flatbuffers::FlatBufferBuilder builder;
  builder.FinishSizePrefixed(fb::CreateMessage(builder, 7), fb::MessageIdentifier());
  Message decoded;
  std::string error;
  EXPECT_FALSE(decode({builder.GetBufferPointer() + 4, builder.GetSize() - 4}, decoded, error));
  EXPECT_NE(error.find("body"), std::string::npos) << error;
}

TEST(Wire, AnotherFilesIdentifierIsRefused) {
  Bytes frame = encode({1, Heartbeat{}});
  const std::string identifier = "SYW1";
  const auto at = std::search(frame.begin(), frame.end(), identifier.begin(), identifier.end());
  ASSERT_NE(at, frame.end());
  *at = 'X';
  Message decoded;
  std::string error;
  EXPECT_FALSE(decode(payload_of(frame), decoded, error));
  EXPECT_FALSE(error.empty());
}

// Whatever the bytes, decode() answers and touches nothing outside them (the sanitizer builds see
// that); it never accepts a frame that is cut off.
// No message nests, so that breadth is all that a buffer can have too much of: tables that share
// their bytes would take the time of millions to look at.
TEST(Wire, MoreTablesThanAnyMessageHasAreRefused) {
  for (const auto& [tables, good] : {std::pair{4000, true}, {5000, false}}) {
    HistoryReply reply;
    for (int i = 0; i < tables; ++i) reply.records.push_back({static_cast<std::uint64_t>(i), {1}});
    Message decoded;
    std::string error;
    const Bytes frame = encode({1, reply});
    EXPECT_EQ(decode(payload_of(frame), decoded, error), good) << tables << ": " << error;
  }
}

TEST(Wire, EveryTruncationIsRefused) {
  for (const Message& message : sample_messages()) {
    const Bytes frame = encode(message);
    for (std::size_t length = 0; length + 4 < frame.size(); ++length) {
      const Bytes cut(frame.begin() + 4, frame.begin() + 4 + static_cast<std::ptrdiff_t>(length));
      Message decoded;
      std::string error;
      if (decode(cut, decoded, error)) {
        // FlatBuffers pads a buffer at its end: what is cut there carries no meaning.
        EXPECT_EQ(decoded, message) << body_name(message.body) << " cut to " << length;
      } else {
        EXPECT_FALSE(error.empty());
      }
    }
  }
}

TEST(Wire, EverySingleByteMutationIsAnsweredOneWayOrTheOther) {
  std::size_t refused = 0;
  std::size_t accepted = 0;
  for (const Message& message : sample_messages()) {
    const Bytes frame = encode(message);
    for (std::size_t i = 4; i < frame.size(); ++i) {
      for (const int flip : {0x01, 0x80, 0xFF}) {
        Bytes mutated(frame.begin() + 4, frame.end());
        mutated[i - 4] ^= static_cast<std::uint8_t>(flip);
        Message decoded;
        std::string error;
        decode(mutated, decoded, error) ? ++accepted : ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0u);
  EXPECT_GT(accepted, 0u);  // a number changed within its range is still a message
}

TEST(Wire, DecodingDoesNotDependOnWhereTheBytesLie) {
  const Message message = sample_messages()[4];
  const Bytes frame = encode(message);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    Bytes moved(shift, 0);
    moved.insert(moved.end(), frame.begin() + 4, frame.end());
    Message decoded;
    std::string error;
    ASSERT_TRUE(decode(std::span(moved).subspan(shift), decoded, error)) << error;
    EXPECT_EQ(decoded, message);
  }
}

// ---- frames
// ------------------------------------------------------------------------------------------

TEST(FrameSplitter, FindsTheSameFramesHoweverTheStreamIsCut) {
  Bytes stream;
  Encoder encoder;
  for (const Message& message : sample_messages()) encoder.append(message, stream);
  for (std::size_t piece = 1; piece <= 97; ++piece) {
    FrameSplitter splitter;
    std::size_t found = 0;
    const auto expected = sample_messages();
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      splitter.append(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
      std::span<const std::uint8_t> payload;
      std::string error;
      while (splitter.next(payload, error) == FrameSplitter::Result::kFrame) {
        Message decoded;
        ASSERT_TRUE(decode(payload, decoded, error)) << error;
        ASSERT_EQ(decoded, expected.at(found++));
      }
    }
    ASSERT_EQ(found, expected.size()) << "in pieces of " << piece;
    EXPECT_EQ(splitter.pending_bytes(), 0u);
  }
}

TEST(FrameSplitter, ALengthOverTheMaximumIsAnErrorThatNamesBoth) {
  FrameSplitter splitter(1000);
  const Bytes header = {0xE9, 0x03, 0, 0};  // 1001
  splitter.append(header);
  std::span<const std::uint8_t> payload;
  std::string error;
  EXPECT_EQ(splitter.next(payload, error), FrameSplitter::Result::kError);
  EXPECT_NE(error.find("1001"), std::string::npos) << error;
  EXPECT_NE(error.find("1000"), std::string::npos) << error;
}

TEST(FrameSplitter, ALengthOfExactlyTheMaximumIsAFrame) {
  FrameSplitter splitter(1000);
  Bytes bytes = {0xE8, 0x03, 0, 0};
  bytes.resize(1004, 7);
  splitter.append(bytes);
  std::span<const std::uint8_t> payload;
  std::string error;
  ASSERT_EQ(splitter.next(payload, error), FrameSplitter::Result::kFrame) << error;
  EXPECT_EQ(payload.size(), 1000u);
}

TEST(FrameSplitter, ALengthOfZeroIsAnError) {
  FrameSplitter splitter;
  splitter.append(Bytes{0, 0, 0, 0});
  std::span<const std::uint8_t> payload;
  std::string error;
  EXPECT_EQ(splitter.next(payload, error), FrameSplitter::Result::kError);
  EXPECT_NE(error.find(" 0 bytes"), std::string::npos) << error;
}

}  // namespace
}  // namespace syncd::wire
