// Plain structs to frames, and back: the one place where bytes from outside are verified. See
// wire.h.
#include <flatbuffers/flatbuffers.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/table_codec.h"
#include "proto/wire/fields.h"
#include "proto/wire/hot.h"
#include "proto/wire/wire_generated.h"

namespace syncd::wire {
namespace {

// The union's number of a message is its place in Body.
static_assert(std::variant_size_v<Body> == static_cast<std::size_t>(fb::Body::MAX) + 1);

// Our deepest message is Message -> WorkersReply -> [WorkerStatus]; the largest has a few hundred
// tables. A buffer beyond these is made to waste our time.
constexpr flatbuffers::uoffset_t kDepthMax = 16;
constexpr flatbuffers::uoffset_t kTablesMax = 4096;

// A text of a message, and all of them together. Offsets may point to one text many times, so that
// a small frame could otherwise ask for a gigabyte.
constexpr std::size_t kTextBytesMax = 64 * 1024;
constexpr std::size_t kAllTextBytesMax = 1024 * 1024;

// Refuses what reading one message may not copy.
struct Reader : table::Reader {
  explicit Reader(std::size_t frame_bytes) : left(std::max(frame_bytes, kAllTextBytesMax)) {}

  template <class F>
  bool take(std::size_t bytes) {
    if (bytes > kTextBytesMax || bytes > left) {
      return too_long(std::is_same_v<typename F::Type, std::string>     ? "text"
                      : std::is_same_v<typename F::Owner, StoredRecord> ? "stored record"
                                                                        : "member's data",
                      bytes);
    }
    left -= bytes;
    return true;
  }
  [[gnu::cold]] bool too_long(const char* what, std::size_t bytes) {
    problem = bytes > kTextBytesMax
                  ? std::string("it has a ") + what + " of " + std::to_string(bytes) +
                        " bytes, allowed are " + std::to_string(kTextBytesMax)
                  : "its texts together are too long";
    return false;
  }

  std::size_t left;
};

using ReadBody = bool (*)(const flatbuffers::Table*, Body&, Reader&);
template <std::size_t I>
bool read_body(const flatbuffers::Table* t, Body& body, Reader& reader) {
  return table::read(t, body.emplace<I>(), reader);
}
// For each number of the union from 1.
template <std::size_t... I>
constexpr auto readers(std::index_sequence<I...>) {
  return std::array<ReadBody, sizeof...(I)>{read_body<I + 1>...};
}
constexpr auto kReaders = readers(std::make_index_sequence<std::variant_size_v<Body> - 1>{});

bool decode_aligned(const std::uint8_t* frame, std::size_t bytes, Message& message,
                    std::string& error) {
  flatbuffers::Verifier verifier(frame, bytes, kDepthMax, kTablesMax);
  if (!fb::VerifySizePrefixedMessageBuffer(verifier)) {
    error = "it is not a valid message of this protocol";
    return false;
  }
  const fb::Message* m = fb::GetSizePrefixedMessage(frame);
  if (m->body() == nullptr || m->body_type() == fb::Body::NONE) {
    error = "it has no body";
    return false;
  }
  message.id = m->id();
  const auto type = static_cast<std::uint8_t>(m->body_type());
  if (type > kReaders.size()) {
    message.body = Unknown{type};
    return true;
  }
  Reader reader(bytes);
  const auto* body = static_cast<const flatbuffers::Table*>(m->body());
  if (kReaders[type - 1u](body, message.body, reader)) return true;
  error = std::move(reader.problem);
  return false;
}

}  // namespace

struct Encoder::Impl {
  flatbuffers::FlatBufferBuilder builder{1024};
  OutBuffer frame;
};

Encoder::Encoder() : impl_(new Impl) {}
Encoder::~Encoder() {
  delete impl_;
}
Encoder::Encoder(Encoder&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
Encoder& Encoder::operator=(Encoder&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

void Encoder::append_generic(std::uint64_t id, const Body& message, OutBuffer& out) {
  const std::span<const std::uint8_t> frame = encode(id, message);
  std::memcpy(out.extend(frame.size()), frame.data(), frame.size());
}

void Encoder::append(std::uint64_t id, const Body& message, std::vector<std::uint8_t>& out) {
  OutBuffer& frame = impl_->frame;
  frame.shrink(0);
  if (!append_hot(id, message, frame)) return append_generic(id, message, out);
  out.insert(out.end(), frame.bytes().begin(), frame.bytes().end());
}

void Encoder::append_generic(std::uint64_t id, const Body& message,
                             std::vector<std::uint8_t>& out) {
  const std::span<const std::uint8_t> frame = encode(id, message);
  out.insert(out.end(), frame.begin(), frame.end());
}

std::span<const std::uint8_t> Encoder::encode(std::uint64_t id, const Body& message) {
  SYNCD_CHECK(!std::holds_alternative<Unknown>(message));
  flatbuffers::FlatBufferBuilder& b = impl_->builder;
  b.Clear();
  const flatbuffers::Offset<void> body = std::visit(
      [&](const auto& plain) -> flatbuffers::uoffset_t {
        if constexpr (std::is_same_v<std::decay_t<decltype(plain)>, Unknown>)
          return 0;
        else
          return table::write(b, plain);
      },
      message);
  const auto type = static_cast<fb::Body>(message.index());
  b.FinishSizePrefixed(fb::CreateMessage(b, id, type, body), fb::MessageIdentifier());
  return {b.GetBufferPointer(), b.GetSize()};
}

bool decode(std::span<const std::uint8_t> payload, Message& message, std::string& error) {
  return decode_hot(payload, message) || decode_generic(payload, message, error);
}

bool decode_generic(std::span<const std::uint8_t> payload, Message& message, std::string& error) {
  // A frame lies anywhere in a stream, but its numbers must be aligned to be read: it is copied to
  // an aligned place, with its prefix in front, as the sender had it.
  constexpr std::size_t kPrefix = sizeof(std::uint32_t);
  constexpr std::size_t kPayloadMin = 2 * sizeof(std::uint32_t);  // root offset and identifier
  constexpr std::size_t kPayloadMax = std::size_t{1} << 30;       // the verifier takes below 2 GiB
  if (payload.size() < kPayloadMin || payload.size() > kPayloadMax) {
    error = "it is " + std::to_string(payload.size()) + " bytes long, a message has " +
            std::to_string(kPayloadMin) + " to " + std::to_string(kPayloadMax);
    return false;
  }
  const auto place = [&](std::uint64_t* words) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(words);
    const auto length = static_cast<std::uint32_t>(payload.size());
    flatbuffers::WriteScalar(bytes, length);
    std::memcpy(bytes + kPrefix, payload.data(), payload.size());
    return decode_aligned(bytes, kPrefix + payload.size(), message, error);
  };
  std::array<std::uint64_t, 128> small;
  if (kPrefix + payload.size() <= sizeof small) return place(small.data());
  std::vector<std::uint64_t> large((kPrefix + payload.size() + 7) / 8);
  return place(large.data());
}

}  // namespace syncd::wire
