// See format.h.
#include "daemon/core/cluster/format.h"

#include <charconv>
#include <span>
#include <system_error>
#include <tuple>
#include <type_traits>

#include "proto/base/crc32c.h"

namespace syncd::cluster {
namespace {

// What a value is. Numbers are stored: none changes its meaning.
template <class T>
constexpr std::uint8_t kKind = 0;
template <>
constexpr std::uint8_t kKind<Config> = 1;
template <>
constexpr std::uint8_t kKind<Leader> = 2;
template <>
constexpr std::uint8_t kKind<Member> = 3;
template <>
constexpr std::uint8_t kKind<Tail> = 4;
template <>
constexpr std::uint8_t kKind<First> = 5;
template <>
constexpr std::uint8_t kKind<Meta> = 6;
template <>
constexpr std::uint8_t kKind<Entry> = 7;
template <>
constexpr std::uint8_t kKind<Part> = 8;
template <>
constexpr std::uint8_t kKind<Pointer> = 9;

// The fields of each, once for writing and reading.
void fields(auto& io, auto& v, const Nonce*) {
  io(v.process, v.count);
}
void fields(auto& io, auto& v, const Term*) {
  io(v.generation, v.revision);
}
void fields(auto& io, auto& v, const Config*) {
  io(v.cluster, v.generation, v.shards, v.format);
}
void fields(auto& io, auto& v, const Leader*) {
  io(v.process, v.member);
}
void fields(auto& io, auto& v, const Member*) {
  io(v.process, v.version, v.format, v.addresses, v.auth_hash, v.copies, v.unfit, v.draining);
}
void fields(auto& io, auto& v, const Tail*) {
  io(v.index, v.nonce);
}
void fields(auto& io, auto& v, const First*) {
  io(v.index);
}
void fields(auto& io, auto& v, const Meta*) {
  io(v.next_counter, v.removed_epoch);
}
void fields(auto& io, auto& v, const Entry*) {
  io(v.term, v.nonce, v.previous, v.parts, v.records);
}
void fields(auto& io, auto& v, const Part*) {
  io(v.nonce, v.bytes);
}
void fields(auto& io, auto& v, const Pointer*) {
  io(v.term, v.sequence, v.parts, v.crc);
}

struct Writer {
  std::string bytes;

  void operator()(const auto&... values) { (put(values), ...); }
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_integral_v<T>) {
      const auto number = static_cast<std::uint64_t>(value);
      for (std::size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(number >> (8 * i));
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      for (const auto& item : value) put(item);
    } else if constexpr (std::is_same_v<T, std::string>) {
      put(static_cast<std::uint32_t>(value.size()));
      bytes += value;
    } else if constexpr (requires { value.size(); }) {
      put(static_cast<std::uint32_t>(value.size()));
      for (const auto& item : value) put(item);
    } else {
      fields(*this, value, &value);
    }
  }
};

struct Reader {
  std::string_view bytes;
  bool sound = true;

  void operator()(auto&... values) { (take(values), ...); }
  template <class T>
  void take(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t number = 0;
      take(number);
      sound = sound && number <= 1;
      value = number == 1;
    } else if constexpr (std::is_integral_v<T>) {
      std::uint64_t number = 0;
      if (!need(sizeof(T))) return;
      for (std::size_t i = 0; i < sizeof(T); ++i) {
        number |= std::uint64_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
      }
      bytes.remove_prefix(sizeof(T));
      value = static_cast<T>(number);
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      for (auto& item : value) take(item);
    } else if constexpr (requires { value.push_back(value[0]); }) {
      std::uint32_t size = 0;
      take(size);
      if (!need(size)) return;  // an item takes a byte at least, so this bounds the memory
      if constexpr (std::is_same_v<T, std::string>) {
        value = bytes.substr(0, size);
        bytes.remove_prefix(size);
      } else {
        value.clear();
        for (std::uint32_t i = 0; i < size && sound; ++i) take(value.emplace_back());
      }
    } else {
      fields(*this, value, &value);
    }
  }

 private:
  bool need(std::size_t size) {
    sound = sound && size <= bytes.size();
    return sound;
  }
};

std::span<const std::uint8_t> raw(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

template <class T>
std::string encode_as(const T& value) {
  Writer rest;
  rest(kFormat, kKind<T>, value);
  return with_checksum(rest.bytes);
}

template <class T>
bool decode_as(std::string_view bytes, T& value) {
  Reader reader{bytes};
  std::uint32_t crc = 0;
  reader(crc);
  if (!reader.sound || crc != mask_crc(crc32c(raw(reader.bytes)))) return false;
  std::uint8_t format = 0;
  std::uint8_t kind = 0;
  reader(format, kind);
  if (format != kFormat || kind != kKind<T>) return false;
  value = T{};
  reader(value);
  return reader.sound && reader.bytes.empty();
}

std::string hex(std::uint64_t number, int digits) {
  std::string text(static_cast<std::size_t>(digits), '0');
  for (auto at = text.rbegin(); at != text.rend(); ++at, number >>= 4) {
    *at = "0123456789abcdef"[number & 15];
  }
  return text;
}

template <class T>
bool parse_hex(std::string_view text, std::size_t digits, T& number) {
  if (text.size() != digits) return false;
  const auto [end, code] = std::from_chars(text.data(), text.data() + digits, number, 16);
  return code == std::errc{} && end == text.data() + digits;
}

std::string root(std::string_view cluster) {
  return "/syncd/" + std::string(cluster) + "/v1/";
}

}  // namespace

std::string with_checksum(std::string_view bytes) {
  Writer checksum;
  checksum(mask_crc(crc32c(raw(bytes))));
  return checksum.bytes.append(bytes);
}

#define SYNCD_CLUSTER_VALUE(type)                    \
  std::string encode(const type& value) {            \
    return encode_as(value);                         \
  }                                                  \
  bool decode(std::string_view bytes, type& value) { \
    return decode_as(bytes, value);                  \
  }
SYNCD_CLUSTER_VALUE(Config)
SYNCD_CLUSTER_VALUE(Leader)
SYNCD_CLUSTER_VALUE(Member)
SYNCD_CLUSTER_VALUE(Tail)
SYNCD_CLUSTER_VALUE(First)
SYNCD_CLUSTER_VALUE(Meta)
SYNCD_CLUSTER_VALUE(Entry)
SYNCD_CLUSTER_VALUE(Part)
SYNCD_CLUSTER_VALUE(Pointer)
#undef SYNCD_CLUSTER_VALUE

std::string end_of(std::string prefix) {
  ++prefix.back();  // keys are ASCII
  return prefix;
}

ShardKeys::ShardKeys(std::string_view cluster, Shard shard)
    : prefix_(root(cluster) + "shards/" + std::to_string(shard) + "/") {}

std::string ShardKeys::entry(Index index) const {
  return log() + hex(index, 16);
}

std::string ShardKeys::part(Index index, std::uint32_t part) const {
  return entry(index) + "/" + hex(part, 8);
}

std::string ShardKeys::pointer(JobId job) const {
  return snapshots() + hex(job, 8);
}

std::string ShardKeys::snapshot_parts(JobId job) const {
  return prefix_ + "parts/" + hex(job, 8) + "/";
}

std::string ShardKeys::snapshot_parts(JobId job, const Term& term, Sequence sequence) const {
  return snapshot_parts(job) + hex(term.generation, 16) +
         hex(static_cast<std::uint64_t>(term.revision), 16) + "-" + hex(sequence, 16) + "/";
}

std::string ShardKeys::snapshot_part(JobId job, const Term& term, Sequence sequence,
                                     std::uint32_t part) const {
  return snapshot_parts(job, term, sequence) + hex(part, 8);
}

std::optional<ShardKeys::LogKey> ShardKeys::parse_log(std::string_view key) const {
  const std::string prefix = log();
  if (!key.starts_with(prefix)) return std::nullopt;
  key.remove_prefix(prefix.size());
  LogKey parsed;
  if (!parse_hex(key.substr(0, 16), 16, parsed.index)) return std::nullopt;
  if (key.size() == 16) return parsed;
  if (key[16] != '/' || !parse_hex(key.substr(17), 8, parsed.part.emplace())) return std::nullopt;
  return parsed;
}

std::optional<JobId> ShardKeys::parse_pointer(std::string_view key) const {
  const std::string prefix = snapshots();
  JobId job = 0;
  if (!key.starts_with(prefix) || !parse_hex(key.substr(prefix.size()), 8, job)) {
    return std::nullopt;
  }
  return job;
}

std::string config_key(std::string_view cluster) {
  return root(cluster) + "config";
}

std::string draining_keys(std::string_view cluster) {
  return root(cluster) + "draining/";
}

std::string draining_key(std::string_view cluster, std::string_view member) {
  return draining_keys(cluster) + std::string(member);
}

}  // namespace syncd::cluster
