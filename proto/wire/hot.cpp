// Layouts, and the values in them. See hot.h.
#include "proto/wire/hot.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>

#include "proto/base/check.h"
#include "proto/base/table_codec.h"
#include "proto/wire/fields.h"

namespace syncd::wire {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kItemsMax = 8;  // longer lists take the generic way

// The values of a message are its id and its fields. So the calls of a worker have the same numbers
// for the same values, and all are read as a Push.
constexpr std::size_t kId = 0;
constexpr std::size_t kIteration = 2;  // of a worker's calls
constexpr std::size_t kValuesMax = 7;
constexpr unsigned kAlways = UINT32_MAX;

// Calls visit(field, value, its number, bit), where the bit says in a set that the field is not
// left out. Of a list, the bits from there on are its length.
template <class M, class Visit>
SYNCD_INLINE inline void for_each_value(M& message, const Visit& visit) {
  std::size_t number = kId;
  unsigned bit = 0;
  for_each_field(message, [&](auto field, auto& value) SYNCD_INLINE {
    constexpr bool is_worker = std::is_same_v<std::decay_t<decltype(value)>, WorkerRef>;
    visit(field, value, ++number, is_worker ? kAlways : bit++);
  });
}
// It lies in a frame as in memory, and is never left out.
static_assert(sizeof(table::Packed<WorkerRef>) == sizeof(WorkerRef) &&
              std::is_trivially_copyable_v<WorkerRef>);
// What a field is that is left out.
template <class F>
SYNCD_INLINE inline typename F::Type absent() {
  if constexpr (std::is_arithmetic_v<typename F::Type>) {
    constexpr typename F::Type value = typename F::Owner{}.*F::member;
    return value;
  } else {
    return {};
  }
}

// Two words that are looked at as one, where the processor can.
typedef std::uint64_t Chunk __attribute__((vector_size(16)));

template <class T>
T load(const std::uint8_t* bytes) {
  T number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

class Layout {
 public:
  static constexpr std::size_t kBytesMax = 288;  // of a payload, in whole chunks

  // `encode(x)` gives the frame of the message in which every value that is set consists of bytes
  // that x makes: x XOR the value's number. Flags, and a list's length, are part of the layout.
  template <class Encode>
  explicit Layout(Encode encode) {
    constexpr std::uint8_t kOne = 0x50, kOther = 0xa0;
    const std::vector<std::uint8_t> one = encode(kOne);
    const std::vector<std::uint8_t> other = encode(kOther);
    SYNCD_CHECK(one.size() == other.size() && one.size() >= sizeof size_ + sizeof(Chunk));
    size_ = static_cast<std::uint32_t>(one.size() - sizeof size_);
    SYNCD_CHECK(size_ <= kBytesMax);
    std::array<std::uint8_t, kBytesMax> frame{}, same{};
    for (std::size_t i = 0; i < size_; ++i) {
      const std::uint8_t byte = one[i + sizeof size_];
      if (byte == other[i + sizeof size_]) {
        same[i] = 0xff;
        frame[i] = byte;
        continue;
      }
      const std::size_t value = byte ^ kOne;
      SYNCD_CHECK(value < kValuesMax);
      if (at_[value] == 0) at_[value] = static_cast<std::uint16_t>(i);
    }
    std::memcpy(frame_.data(), frame.data(), size_);
    std::memcpy(same_.data(), same.data(), size_);
    last_frame_ = load<Chunk>(&frame[last()]);
    last_same_ = load<Chunk>(&same[last()]);
  }

  std::uint32_t payload_size() const { return size_; }
  // The byte at this place, or -1 if it is not the same in all frames.
  int byte_at(std::size_t place) const {
    const auto byte = [place](const auto& chunks) {
      return reinterpret_cast<const std::uint8_t*>(chunks.data())[place];
    };
    return byte(same_) == 0 ? -1 : byte(frame_);
  }

  // Whether the payload, which has the right size, has this layout.
  bool matches(const std::uint8_t* payload) const {
    Chunk differs = (load<Chunk>(payload + last()) & last_same_) ^ last_frame_;
    for (std::size_t i = 0; i * sizeof(Chunk) < last(); ++i) {
      differs |= (load<Chunk>(payload + i * sizeof(Chunk)) & same_[i]) ^ frame_[i];
    }
    return (differs[0] | differs[1]) == 0;
  }

  // Where a value is in the payload; 0: it is left out.
  std::size_t place(std::size_t value) const { return at_[value]; }
  template <class T>
  void get(std::size_t value, const std::uint8_t* payload, T& number, T absent = {}) const {
    if (place(value) != 0) {
      std::memcpy(&number, payload + place(value), sizeof number);
    } else {
      number = absent;
    }
  }
  template <class T>
  void set(std::size_t value, T number, std::uint8_t* payload) const {
    if (place(value) != 0) std::memcpy(payload + place(value), &number, sizeof number);
  }

  std::size_t frame_size() const { return sizeof size_ + size_; }
  // Writes the frame with 0 where values are; returns its payload.
  std::uint8_t* write(std::uint8_t* to) const {
    std::memcpy(to, &size_, sizeof size_);
    to += sizeof size_;
    const std::size_t last = this->last();  // which writing does not change
    for (std::size_t i = 0; i * sizeof(Chunk) < last; ++i) {
      std::memcpy(to + i * sizeof(Chunk), &frame_[i], sizeof(Chunk));
    }
    std::memcpy(to + last, &last_frame_, sizeof(Chunk));
    return to;
  }

 private:
  // Where the last chunk begins, which has some bytes of the one before.
  std::size_t last() const { return size_ - sizeof(Chunk); }

  std::uint32_t size_ = 0;
  std::array<std::uint16_t, kValuesMax> at_{};
  Chunk last_frame_{}, last_same_{};
  std::array<Chunk, kBytesMax / sizeof(Chunk)> frame_{};  // with 0 where values are
  std::array<Chunk, kBytesMax / sizeof(Chunk)> same_{};   // 0xff where all frames are the same
};

// A value of which every byte is this one.
template <class T>
T filled(std::uint8_t byte) {
  T value{};
  if constexpr (HasFields<T>) {
    for_each_field(
        value, [byte](auto, auto& field) { field = filled<std::decay_t<decltype(field)>>(byte); });
  } else if constexpr (kIsOptional<T>) {
    value = filled<typename ItemOf<T>::type>(byte);
  } else {
    std::memset(&value, byte, sizeof value);
  }
  return value;
}

template <class M>
Body sample(unsigned set, std::uint8_t x) {
  M message;
  for_each_value(message, [&](auto, auto& field, std::size_t value, unsigned bit) {
    using T = std::decay_t<decltype(field)>;
    const auto byte = static_cast<std::uint8_t>(x ^ value);
    if constexpr (kIsVector<T>) {
      field.assign(set >> bit, filled<typename T::value_type>(byte));
    } else if (bit == kAlways || (set >> bit & 1) != 0) {
      if constexpr (std::is_same_v<T, bool>) {
        field = true;
      } else {
        field = filled<T>(byte);
      }
    }
  });
  return message;
}

// Which fields are not left out; kAlways: it has too long a list.
template <class M>
SYNCD_INLINE inline unsigned set_of(const M& message) {
  unsigned set = 0;
  for_each_value(message, [&](auto of, const auto& field, std::size_t, unsigned bit) SYNCD_INLINE {
    using T = std::decay_t<decltype(field)>;
    if constexpr (kIsVector<T>) {
      const auto items = static_cast<unsigned>(field.size());
      set = field.size() > kItemsMax ? kAlways : set | items << bit;
    } else {
      if (bit != kAlways) set |= static_cast<unsigned>(field != absent<decltype(of)>()) << bit;
    }
  });
  return set;
}

template <class M>
unsigned count_sets() {
  unsigned sets = 1;
  const M message{};
  for_each_value(message, [&](auto, const auto& field, std::size_t, unsigned bit) {
    if (bit != kAlways) sets *= kIsVector<std::decay_t<decltype(field)>> ? kItemsMax + 1 : 2;
  });
  return sets;
}

// The first `values` of the message.
template <class M>
SYNCD_INLINE inline void read(const Layout& layout, unsigned set, const std::uint8_t* payload,
                              M& message, std::size_t values = kValuesMax) {
  for_each_value(message, [&](auto of, auto& field, std::size_t value,
                              [[maybe_unused]] unsigned bit) SYNCD_INLINE {
    if (value > values) return;
    using T = std::decay_t<decltype(field)>;
    if constexpr (kIsVector<T>) {
      field.resize(set >> bit);
      if (!field.empty()) {  // items lie there as in memory
        std::memcpy(field.data(), payload + layout.place(value),
                    field.size() * sizeof(typename T::value_type));
      }
    } else if constexpr (std::is_same_v<T, bool>) {
      field = (set >> bit & 1) != 0;
    } else if constexpr (kIsOptional<T>) {
      field.reset();
      if (layout.place(value) != 0) layout.get(value, payload, field.emplace());
    } else {
      layout.get(value, payload, field, absent<decltype(of)>());
    }
  });
}

template <class M>
SYNCD_INLINE inline void write(const Layout& layout, const M& message, std::uint8_t* payload) {
  for_each_value(message, [&](auto, const auto& field, std::size_t value, unsigned) SYNCD_INLINE {
    using T = std::decay_t<decltype(field)>;
    if constexpr (kIsVector<T>) {
      std::uint8_t* at = payload + layout.place(value);
      for (const auto& item : field) {
        if constexpr (HasFields<typename T::value_type>) {
          const auto packed = table::pack(item);
          std::memcpy(at, &packed, sizeof packed);
        } else {
          std::memcpy(at, &item, sizeof item);
        }
        at += sizeof item;
      }
    } else if constexpr (kIsOptional<T>) {
      if (field) layout.set(value, *field, payload);
    } else if constexpr (!std::is_same_v<T, bool>) {
      layout.set(value, field, payload);
    }
  });
}

// A layout, and whose it is.
struct Known {
  std::size_t type;
  unsigned set;  // of the fields that are not left out
  Layout layout;
};

// What is done with a message of one type.
struct Type {
  std::size_t index;  // of Body
  unsigned (*count_sets)();
  Body (*sample)(unsigned set, std::uint8_t x);
  bool (*append)(std::size_t type, std::uint64_t id, const Body& body, OutBuffer& out);
  void (*read)(const Known& known, const std::uint8_t* payload, Body& body);
};

template <class M>
bool append_as(std::size_t type, std::uint64_t id, const Body& body, OutBuffer& out);

template <class M>
void read_as(const Known& known, const std::uint8_t* payload, Body& body) {
  read(known.layout, known.set, payload, body.emplace<M>());
}

template <class M, std::size_t... I>
constexpr std::size_t index_of(std::index_sequence<I...>) {
  return ((std::is_same_v<M, std::variant_alternative_t<I, Body>> ? I : 0) + ...);
}
constexpr auto kBodies = std::make_index_sequence<std::variant_size_v<Body>>{};

template <class... M>
struct TypeList {
  static constexpr std::size_t count = sizeof...(M);
  static constexpr std::array<Type, count> types = {
      Type{index_of<M>(kBodies), count_sets<M>, sample<M>, append_as<M>, read_as<M>}...};
};
// First those of Hot.
using Hots = TypeList<Push, Begin, Targets, Collect, Consumed, Pushed, Granted, Ok, TargetsReply,
                      CollectReply>;

// By the number of Body; Hots::count: none of them.
constexpr auto kTypeOf = [] {
  std::array<std::size_t, std::variant_size_v<Body>> type_of{};
  type_of.fill(Hots::count);
  for (std::size_t type = 0; type < Hots::count; ++type) type_of[Hots::types[type].index] = type;
  return type_of;
}();

class Layouts {
 public:
  Layouts() {
    for (std::size_t type = 0; type < Hots::count; ++type) {
      for (unsigned set = 0; set < Hots::types[type].count_sets(); ++set) {
        const Layout layout([&](std::uint8_t x) {
          std::vector<std::uint8_t> frame;
          Encoder().append_generic(filled<std::uint64_t>(x), Hots::types[type].sample(set, x),
                                   frame);
          return frame;
        });
        all_.push_back({type, set, layout});
      }
    }
    while (!has_types_at(type_place_)) SYNCD_CHECK(++type_place_ < Layout::kBytesMax);
    for (const Known& known : all_) {
      if (known.set == 0) first_[known.type] = &known;
      Group& group = groups_[known.type][known.layout.payload_size() / kSizeStep];
      group.known.push_back(&known);
      group.latest = &known;
    }
  }
  Layouts(const Layouts&) = delete;

  const Known& of(std::size_t type, unsigned set) const { return first_[type][set]; }
  // Null: none has this.
  SYNCD_INLINE inline const Known* find(std::span<const std::uint8_t> payload) const {
    if (payload.size() <= type_place_ || payload.size() >= Layout::kBytesMax) return nullptr;
    const std::size_t number = payload[type_place_];
    if (number >= kTypeOf.size() || kTypeOf[number] == Hots::count) return nullptr;
    const Group& group = groups_[kTypeOf[number]][payload.size() / kSizeStep];
    const Known* latest = group.latest.load(std::memory_order_relaxed);
    if (latest == nullptr || latest->layout.payload_size() != payload.size()) return nullptr;
    return latest->layout.matches(payload.data()) ? latest : find_in(group, payload);
  }

 private:
  // Of one size.
  struct Group {
    std::vector<const Known*> known;
    mutable std::atomic<const Known*> latest{nullptr};  // most frames are like the one before
  };
  // FlatBuffers makes each frame's length a multiple of its largest number's.
  static constexpr std::size_t kSizeStep = 8;

  [[gnu::noinline]] static const Known* find_in(const Group& group,
                                                std::span<const std::uint8_t> payload) {
    for (const Known* known : group.known) {
      if (!known->layout.matches(payload.data())) continue;
      group.latest.store(known, std::memory_order_relaxed);
      return known;
    }
    return nullptr;
  }

  // Whether all layouts have the number of the message's type there.
  bool has_types_at(std::size_t place) const {
    return std::all_of(all_.begin(), all_.end(), [&](const Known& known) {
      return place < known.layout.payload_size() &&
             known.layout.byte_at(place) == static_cast<int>(Hots::types[known.type].index);
    });
  }

  std::vector<Known> all_;
  std::array<const Known*, Hots::count> first_{};  // of each type, in the order of sets
  std::size_t type_place_ = 0;                     // in a payload
  std::array<std::array<Group, Layout::kBytesMax / kSizeStep>, Hots::count> groups_;
};

[[gnu::cold, gnu::noinline]] const Layouts& make_layouts() {
  static const Layouts all;
  return all;
}

// The initializer of the static one takes its time to find out that it has run.
inline const Layouts& layouts() {
  static std::atomic<const Layouts*> made{nullptr};
  const Layouts* all = made.load(std::memory_order_acquire);
  if (all == nullptr) made.store(all = &make_layouts(), std::memory_order_release);
  return *all;
}

template <class M>
bool append_as(std::size_t type, std::uint64_t id, const Body& body, OutBuffer& out) {
  const M& message = *std::get_if<M>(&body);
  const unsigned set = set_of(message);
  if (set == kAlways) return false;
  const Layout& layout = layouts().of(type, set).layout;
  std::uint8_t* payload = layout.write(out.extend(layout.frame_size()));
  layout.set(kId, id, payload);
  write(layout, message, payload);
  return true;
}

}  // namespace

void read_hot(std::span<const std::uint8_t> payload, HotCall& call) {
  constexpr auto kCalls = static_cast<std::size_t>(Hot::kConsumed);
  const Known* known = layouts().find(payload);
  call.kind = Hot::kNone;
  if (known == nullptr || known->type >= kCalls) return;
  call.kind = static_cast<Hot>(known->type + 1);
  known->layout.get(kId, payload.data(), call.id);
  if (call.kind == Hot::kPush) {
    read(known->layout, known->set, payload.data(), call.push);
  } else {
    read(known->layout, known->set, payload.data(), call.push, kIteration);
  }
}

bool decode_hot(std::span<const std::uint8_t> payload, Message& message) {
  const Known* known = layouts().find(payload);
  if (known == nullptr) return false;
  known->layout.get(kId, payload.data(), message.id);
  Hots::types[known->type].read(*known, payload.data(), message.body);
  return true;
}

bool append_hot(std::uint64_t id, const Body& body, OutBuffer& out) {
  const std::size_t type = kTypeOf[body.index()];
  if (type == Hots::count || id == 0) return false;
  return Hots::types[type].append(type, id, body, out);
}

}  // namespace syncd::wire
