// Layouts, and the values in them. See hot.h.
#include "proto/wire/hot.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "proto/base/check.h"

namespace syncd::wire {
namespace {

constexpr std::size_t kPrefix = sizeof(std::uint32_t);

// The values of a hot message, each with a place in the frame or, if it has its default, none.
enum Value : std::size_t {
  kId,
  kJob,
  kRank,
  kEpoch,
  kIncarnation,
  kIteration,
  kLoss,
  kSamples,
  kBytes,
  kFlags,
  kStaleness,
  kItems,  // where a list of ranks or updates begins: with a rank
  kValues
};
constexpr std::array<std::size_t, kValues> kSizeOf = {8, 4, 4, 8, 8, 8, 8, 8, 8, 4, 8, 4};

// Two words that are looked at as one, where the processor can.
typedef std::uint64_t Chunk __attribute__((vector_size(16)));

class Layout {
 public:
  static constexpr std::size_t kBytesMax = 288;  // with the prefix, in whole words

  // `encode(x)` gives the frame of the message in which every value that is set consists of bytes
  // that x makes: x XOR the value's number. Other fields, such as flags, are part of the layout,
  // and so is a list's length.
  template <class Encode>
  explicit Layout(Encode encode) {
    const std::vector<std::uint8_t> one = encode(0x50);
    const std::vector<std::uint8_t> other = encode(0xa0);
    SYNCD_CHECK(one.size() == other.size() && one.size() <= kBytesMax);
    SYNCD_CHECK(one.size() >= kPrefix + sizeof(Chunk));
    size_ = one.size();
    for (std::size_t i = 0; i < size_; ++i) {
      if (one[i] != other[i]) continue;
      same_[i] = 0xff;
      frame_[i] = one[i];
    }
    for (std::size_t value = 0; value < kValues; ++value) {
      const std::vector<std::uint8_t> bytes(kSizeOf[value],
                                            static_cast<std::uint8_t>(0x50 ^ value));
      const auto found = std::search(one.begin(), one.end(), bytes.begin(), bytes.end());
      if (found == one.end()) continue;
      SYNCD_CHECK(found - one.begin() <= UINT8_MAX);
      at_[value] = static_cast<std::uint8_t>(found - one.begin());
    }
  }

  std::size_t size() const { return size_; }
  const std::uint8_t* frame() const { return frame_.data(); }
  bool is_same(std::size_t place) const { return same_[place] != 0; }
  std::size_t payload_size() const { return size_ - kPrefix; }

  // Whether the payload has this layout.
  bool matches(const std::uint8_t* payload) const {
    Chunk differs{};
    const auto look = [&](std::size_t at) {
      differs |= (load<Chunk>(payload + at - kPrefix) ^ load<Chunk>(&frame_[at])) &
                 load<Chunk>(&same_[at]);
    };
    const std::size_t last = size_ - sizeof(Chunk);
    for (std::size_t at = kPrefix; at < last; at += sizeof(Chunk)) look(at);
    look(last);  // with some that were looked at already
    return (differs[0] | differs[1]) == 0;
  }

  bool has(Value value) const { return at_[value] != 0; }
  template <class T>
  T get(Value value, const std::uint8_t* payload) const {
    return has(value) ? load<T>(payload + at_[value] - kPrefix) : T{};
  }

  std::size_t place(Value value) const { return at_[value]; }
  std::uint8_t* append_to(std::vector<std::uint8_t>& out) const {
    const std::size_t before = out.size();
    out.insert(out.end(), frame_.begin(), frame_.begin() + static_cast<std::ptrdiff_t>(size_));
    return out.data() + before;
  }
  template <class T>
  void set(Value value, T number, std::uint8_t* frame) const {
    if (has(value)) std::memcpy(frame + at_[value], &number, sizeof number);
  }

 private:
  template <class T>
  static T load(const std::uint8_t* bytes) {
    T number;
    std::memcpy(&number, bytes, sizeof number);
    return number;
  }

  std::array<std::uint8_t, kBytesMax> frame_{};  // with 0 where values are
  std::array<std::uint8_t, kBytesMax> same_{};   // 0xff where all frames of it are the same
  std::array<std::uint8_t, kValues> at_{};       // 0: it is left out
  std::size_t size_ = 0;
};
static_assert(std::endian::native == std::endian::little);

// A value of which every byte is `pattern`, or 0, which leaves it out.
template <class T>
T filled(bool is_set, std::uint8_t pattern) {
  T value{};
  if (is_set) std::memset(&value, pattern, sizeof value);
  return value;
}

// First those of Hot; see message_of() for what the bits of a set mean.
enum class Type : std::uint8_t {
  kPush,
  kBegin,
  kTargets,
  kCollect,
  kConsumed,
  kPushed,
  kGranted,
  kOk,
  kTargetsReply,
  kCollectReply
};
constexpr std::size_t kTypes = 10;
constexpr std::size_t kItemsMax = 8;  // longer lists take the generic way

Hot hot_of(Type type) {
  return type > Type::kConsumed ? Hot::kNone : static_cast<Hot>(static_cast<unsigned>(type) + 1);
}

Message message_of(Type type, unsigned set, std::uint8_t x) {
  const auto number = [x]<class T>(T, Value value, bool is_set = true) {
    return filled<T>(is_set, static_cast<std::uint8_t>(x ^ value));
  };
  const auto is_set = [set](unsigned bit) { return (set >> bit & 1) != 0; };
  constexpr std::uint64_t u64 = 0;
  constexpr std::int64_t i64 = 0;
  constexpr std::uint32_t u32 = 0;
  const WorkerRef worker{number(u32, kJob), number(u32, kRank), number(u64, kEpoch),
                         number(u64, kIncarnation)};
  const std::uint64_t id = number(u64, kId);
  const std::int64_t iteration = number(i64, kIteration, is_set(0));
  switch (type) {
    case Type::kPush: {
      Push push{
          worker, iteration, {}, number(u64, kSamples, is_set(2)), number(u64, kBytes, is_set(3))};
      if (is_set(1)) push.loss = number(double{}, kLoss);
      return {id, push};
    }
    case Type::kBegin:
      return {id, Begin{worker, iteration}};
    case Type::kTargets:
      return {id, Targets{worker, iteration}};
    case Type::kCollect:
      return {id, Collect{worker, iteration}};
    case Type::kConsumed:
      return {id, Consumed{worker, iteration}};
    case Type::kOk:
      return {id, Ok{}};
    case Type::kTargetsReply:
      return {id, TargetsReply{iteration, std::vector(set >> 1, number(u32, kItems))}};
    case Type::kCollectReply: {
      const PeerUpdate update{number(u32, kItems), number(i64, kItems), number(double{}, kItems)};
      return {id, CollectReply{iteration, std::vector(set >> 1, update)}};
    }
    case Type::kPushed:
      return {id, Pushed{iteration, is_set(1), is_set(2)}};
    case Type::kGranted:
      return {id, Granted{iteration, number(u32, kFlags, is_set(1)),
                          number(i64, kStaleness, is_set(2))}};
  }
  return {};
}

class Layouts {
 public:
  struct Known {
    Type type;
    unsigned set;
    Layout layout;
  };

  Layouts() {
    add(Type::kPush, 16);
    for (const Type call : {Type::kBegin, Type::kTargets, Type::kCollect, Type::kConsumed}) {
      add(call, 2);
    }
    add(Type::kPushed, 8);
    add(Type::kGranted, 8);
    add(Type::kOk, 1);
    add(Type::kTargetsReply, 2 * (kItemsMax + 1));
    add(Type::kCollectReply, 2 * (kItemsMax + 1));
    find_type_place();
    type_of_.fill(kTypes);
    for (const Known& known : all_) {
      const auto type = static_cast<std::uint8_t>(known.type);
      type_of_[known.layout.frame()[kPrefix + type_place_]] = type;
      groups_[type][known.layout.payload_size() / kSizeStep].known.push_back(&known);
    }
  }
  Layouts(const Layouts&) = delete;

  const Layout& of(Type type, unsigned set) const {
    return all_[first_[static_cast<std::size_t>(type)] + set].layout;
  }
  // Null: none has this.
  const Known* find(std::span<const std::uint8_t> payload) const {
    if (payload.size() <= type_place_ || payload.size() >= Layout::kBytesMax) return nullptr;
    const std::size_t type = type_of_[payload[type_place_]];
    if (type == kTypes) return nullptr;
    const Group& group = groups_[type][payload.size() / kSizeStep];
    if (group.known.empty() || group.known[0]->layout.payload_size() != payload.size()) {
      return nullptr;
    }
    const std::size_t hint = group.latest.load(std::memory_order_relaxed);
    if (group.known[hint]->layout.matches(payload.data())) return group.known[hint];
    for (std::size_t i = 0; i < group.known.size(); ++i) {
      if (!group.known[i]->layout.matches(payload.data())) continue;
      group.latest.store(i, std::memory_order_relaxed);
      return group.known[i];
    }
    return nullptr;
  }

 private:
  void add(Type type, unsigned sets) {
    first_[static_cast<std::size_t>(type)] = all_.size();
    for (unsigned set = 0; set < sets; ++set) {
      all_.push_back({type, set, Layout([&](std::uint8_t x) {
                        std::vector<std::uint8_t> frame;
                        const Message message = message_of(type, set, x);
                        Encoder().append_generic(message.id, message.body, frame);
                        return frame;
                      })});
    }
  }

  std::vector<Known> all_;
  std::array<std::size_t, kTypes> first_{};
  struct Group {
    std::vector<const Known*> known;
    mutable std::atomic<std::size_t> latest{0};  // most frames are like the one before
  };
  // FlatBuffers makes each frame's length a multiple of its largest number's.
  static constexpr std::size_t kSizeStep = 8;

  // Where all layouts have the number of the message's type.
  void find_type_place() {
    const auto is_it = [this](std::size_t place) {
      return std::all_of(all_.begin(), all_.end(), [&](const Known& known) {
        const std::size_t number = message_of(known.type, 0, 0).body.index();
        return place < known.layout.payload_size() && known.layout.is_same(place + kPrefix) &&
               known.layout.frame()[place + kPrefix] == number;
      });
    };
    while (!is_it(type_place_)) SYNCD_CHECK(++type_place_ < Layout::kBytesMax);
  }

  std::size_t type_place_ = 0;               // in a payload
  std::array<std::uint8_t, 256> type_of_{};  // by the number there; kTypes: none of them
  std::array<std::array<Group, Layout::kBytesMax / kSizeStep>, kTypes> groups_;
};

const Layouts& make_layouts() {
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

WorkerRef worker_of(const Layout& layout, const std::uint8_t* payload) {
  return {layout.get<std::uint32_t>(kJob, payload), layout.get<std::uint32_t>(kRank, payload),
          layout.get<std::uint64_t>(kEpoch, payload),
          layout.get<std::uint64_t>(kIncarnation, payload)};
}

void read_push(const Layout& layout, const std::uint8_t* payload, Push& push) {
  push.worker = worker_of(layout, payload);
  push.iteration = layout.get<std::int64_t>(kIteration, payload);
  push.loss.reset();
  if (layout.has(kLoss)) push.loss = layout.get<double>(kLoss, payload);
  push.samples = layout.get<std::uint64_t>(kSamples, payload);
  push.bytes = layout.get<std::uint64_t>(kBytes, payload);
}

void set_worker(const Layout& layout, const WorkerRef& worker, std::uint8_t* frame) {
  layout.set(kJob, worker.job, frame);
  layout.set(kRank, worker.rank, frame);
  layout.set(kEpoch, worker.epoch, frame);
  layout.set(kIncarnation, worker.incarnation, frame);
}

// What nearly all have.
std::uint8_t* append_common(const Layout& layout, std::uint64_t id, std::int64_t iteration,
                            std::vector<std::uint8_t>& out) {
  std::uint8_t* frame = layout.append_to(out);
  layout.set(kId, id, frame);
  layout.set(kIteration, iteration, frame);
  return frame;
}

// An item of a list as FlatBuffers stores it: as it lies in memory, but for padding.
void put(std::uint32_t rank, std::uint8_t* at) {
  std::memcpy(at, &rank, sizeof rank);
}
void put(const PeerUpdate& update, std::uint8_t* at) {
  put(update.rank, at + offsetof(PeerUpdate, rank));
  std::memcpy(at + offsetof(PeerUpdate, iteration), &update.iteration, sizeof update.iteration);
  std::memcpy(at + offsetof(PeerUpdate, weight), &update.weight, sizeof update.weight);
}

template <class Item>
std::vector<Item> read_list(const Layout& layout, std::size_t count, const std::uint8_t* payload) {
  std::vector<Item> items(count);
  if (count > 0) {
    std::memcpy(items.data(), payload + layout.place(kItems) - kPrefix, count * sizeof(Item));
  }
  return items;
}

unsigned bit(bool is_set, unsigned place) {
  return static_cast<unsigned>(is_set) << place;
}

}  // namespace

Hot read_hot(std::span<const std::uint8_t> payload, std::uint64_t& id, Push& push) {
  const Layouts::Known* known = layouts().find(payload);
  if (known == nullptr || known->type > Type::kConsumed) return Hot::kNone;
  id = known->layout.get<std::uint64_t>(kId, payload.data());
  read_push(known->layout, payload.data(), push);
  return hot_of(known->type);
}

bool decode_hot(std::span<const std::uint8_t> payload, Message& message) {
  const Layouts::Known* known = layouts().find(payload);
  if (known == nullptr) return false;
  const Layout& layout = known->layout;
  const std::uint8_t* bytes = payload.data();
  message.id = layout.get<std::uint64_t>(kId, bytes);
  const auto iteration = layout.get<std::int64_t>(kIteration, bytes);
  switch (known->type) {
    case Type::kPush:
      read_push(layout, bytes, message.body.emplace<Push>());
      break;
    case Type::kBegin:
    case Type::kTargets:
    case Type::kCollect:
    case Type::kConsumed:
      visit_hot(hot_of(known->type), {worker_of(layout, bytes), iteration, {}},
                [&](const auto& call) { message.body = call; });
      break;
    case Type::kOk:
      message.body = Ok{};
      break;
    case Type::kTargetsReply:
      message.body =
          TargetsReply{iteration, read_list<std::uint32_t>(layout, known->set >> 1, bytes)};
      break;
    case Type::kCollectReply:
      message.body = CollectReply{iteration, read_list<PeerUpdate>(layout, known->set >> 1, bytes)};
      break;
    case Type::kPushed:
      message.body = Pushed{iteration, (known->set & 2) != 0, (known->set & 4) != 0};
      break;
    case Type::kGranted:
      message.body = Granted{iteration, layout.get<std::uint32_t>(kFlags, bytes),
                             layout.get<std::int64_t>(kStaleness, bytes)};
      break;
  }
  return true;
}

bool append_hot(std::uint64_t id, const Body& body, std::vector<std::uint8_t>& out) {
  if (id == 0) return false;
  const Layouts& all = layouts();
  if (const auto* granted = std::get_if<Granted>(&body)) {
    const Layout& layout =
        all.of(Type::kGranted, bit(granted->iteration != 0, 0) | bit(granted->flags != 0, 1) |
                                   bit(granted->staleness != 0, 2));
    std::uint8_t* frame = append_common(layout, id, granted->iteration, out);
    layout.set(kFlags, granted->flags, frame);
    layout.set(kStaleness, granted->staleness, frame);
    return true;
  }
  if (const auto* pushed = std::get_if<Pushed>(&body)) {
    append_common(all.of(Type::kPushed, bit(pushed->iteration != 0, 0) | bit(pushed->late, 1) |
                                            bit(pushed->duplicate, 2)),
                  id, pushed->iteration, out);
    return true;
  }
  if (const auto* push = std::get_if<Push>(&body)) {
    const Layout& layout =
        all.of(Type::kPush, bit(push->iteration != 0, 0) | bit(push->loss.has_value(), 1) |
                                bit(push->samples != 0, 2) | bit(push->bytes != 0, 3));
    std::uint8_t* frame = append_common(layout, id, push->iteration, out);
    set_worker(layout, push->worker, frame);
    if (push->loss) layout.set(kLoss, *push->loss, frame);
    layout.set(kSamples, push->samples, frame);
    layout.set(kBytes, push->bytes, frame);
    return true;
  }
  if (std::holds_alternative<Ok>(body)) {
    all.of(Type::kOk, 0).set(kId, id, all.of(Type::kOk, 0).append_to(out));
    return true;
  }
  const auto append_list = [&](Type type, std::int64_t iteration, const auto& items) {
    if (items.size() > kItemsMax) return false;
    const Layout& layout =
        all.of(type, bit(iteration != 0, 0) | static_cast<unsigned>(items.size() << 1));
    std::uint8_t* at = append_common(layout, id, iteration, out) + layout.place(kItems);
    for (const auto& item : items) {
      put(item, at);
      at += sizeof item;
    }
    return true;
  };
  if (const auto* targets = std::get_if<TargetsReply>(&body)) {
    return append_list(Type::kTargetsReply, targets->iteration, targets->ranks);
  }
  if (const auto* collected = std::get_if<CollectReply>(&body)) {
    return append_list(Type::kCollectReply, collected->iteration, collected->updates);
  }
  const auto appended = [&]<class Call>(Type type, const Call* call) {
    if (call == nullptr) return false;
    const Layout& layout = all.of(type, bit(call->iteration != 0, 0));
    set_worker(layout, call->worker, append_common(layout, id, call->iteration, out));
    return true;
  };
  return appended(Type::kBegin, std::get_if<Begin>(&body)) ||
         appended(Type::kTargets, std::get_if<Targets>(&body)) ||
         appended(Type::kCollect, std::get_if<Collect>(&body)) ||
         appended(Type::kConsumed, std::get_if<Consumed>(&body));
}

}  // namespace syncd::wire
