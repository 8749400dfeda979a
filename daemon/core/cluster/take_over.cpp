// See take_over.h.
#include "daemon/core/cluster/take_over.h"

#include <algorithm>
#include <optional>

namespace syncd::cluster {
namespace {

template <class T>
bool read_value(const Answer& answer, const std::string& key, T& value, std::string& error) {
  const KeyValue* item = answer.find(key);
  if (item == nullptr) {
    error = key + " is missing";
  } else if (!decode(item->value, value)) {
    error = key + " is damaged, or of a newer version";
  } else {
    return true;
  }
  return false;
}

// The first entry that is not read.
Index end_of_read(Index from, Index count) {
  return count < UINT64_MAX - from ? from + count : UINT64_MAX;
}

// Whether `entry` may follow the one before it in the log.
bool follows(const TakeOver& read, const Entry& entry) {
  return read.log.empty() ||
         (entry.previous == read.log.back().nonce && entry.term >= read.log.back().term);
}

}  // namespace

Transaction take_over_read(const ShardKeys& keys, Index from, Index count, bool pointers) {
  const std::string log_end =
      count == kAllEntries ? end_of(keys.log()) : keys.entry(end_of_read(from, count));
  Transaction read;
  read.then = {
      {Op::Kind::kGet, keys.first()}, {Op::Kind::kGet, keys.tail()}, {Op::Kind::kGet, keys.meta()}};
  if (pointers) {
    read.then.push_back({Op::Kind::kGet, keys.snapshots(), "", end_of(keys.snapshots())});
  }
  read.then.push_back({Op::Kind::kGet, from > 1 ? keys.entry(from) : keys.log(), "", log_end});
  return read;
}

std::vector<Op> seed(const ShardKeys& keys) {
  return {{Op::Kind::kPut, keys.first(), encode(First{})},
          {Op::Kind::kPut, keys.tail(), encode(Tail{})},
          {Op::Kind::kPut, keys.meta(), encode(Meta{})}};
}

bool parse_take_over(const ShardKeys& keys, const Answer& answer, TakeOver& read,
                     std::string& error, Index from, Index count) {
  read = {};
  if (!read_value(answer, keys.first(), read.first, error) ||
      !read_value(answer, keys.tail(), read.tail, error) ||
      !read_value(answer, keys.meta(), read.meta, error)) {
    return false;
  }
  const auto broken = [&](Index index) {
    error = keys.entry(index) + " is missing, damaged, or does not follow the one before it";
    return false;
  };
  if (read.first.index == 0) return broken(0);
  read.last = read.tail.index;
  read.there = read.first;
  Index next = read.first.index = std::max(read.first.index, from);
  if (next > read.tail.index + 1) return true;  // the copy is ahead of the log: how_to_catch_up()
  std::uint32_t parts_left = 0;
  for (const KeyValue& item : answer.got) {
    if (const std::optional<JobId> job = keys.parse_pointer(item.key)) {
      if (!read_value(answer, item.key, read.pointers.emplace_back(*job, Pointer{}).second,
                      error)) {
        return false;
      }
    }
    const std::optional<ShardKeys::LogKey> key = keys.parse_log(item.key);
    // Parts that a leader put for an entry which another one then wrote belong to nothing.
    if (!key || (key->part && (key->index + 1 != next || parts_left == 0))) continue;
    if (key->part) {
      Part part;
      Entry& entry = read.log.back();
      if (*key->part != entry.parts - parts_left || !decode(item.value, part) ||
          part.nonce != entry.nonce) {
        return broken(key->index);
      }
      entry.records += part.bytes;
      --parts_left;
      continue;
    }
    Entry entry;
    if (key->index != next || parts_left > 0 || !decode(item.value, entry) ||
        !follows(read, entry)) {
      return broken(next);
    }
    parts_left = entry.parts;
    read.log.push_back(std::move(entry));
    ++next;
  }
  const Index end = std::min(read.tail.index + 1, end_of_read(from, count));
  if (parts_left > 0 || next != end) return broken(next);
  if (read.log.empty()) return true;
  if (end == read.tail.index + 1 && read.log.back().nonce != read.tail.nonce) return broken(next);
  read.tail = {end - 1, read.log.back().nonce};
  return true;
}

CatchUp how_to_catch_up(const TakeOver& read, const Tail& stamp) {
  const Index before_first = read.first.index - 1;
  if (stamp.index > read.last) return CatchUp::kSetBack;
  if (stamp.index > read.tail.index) return CatchUp::kFollow;  // it has the whole piece
  if (stamp.index < before_first) return CatchUp::kRebuild;
  // The nonce that the chain has at the stamp.
  Nonce nonce = read.tail.nonce;
  if (stamp.index >= read.first.index) {
    nonce = read.log[stamp.index - read.first.index].nonce;
  } else if (!read.log.empty()) {
    nonce = read.log.front().previous;
  }
  return nonce == stamp.nonce ? CatchUp::kFollow : CatchUp::kSetBack;
}

}  // namespace syncd::cluster
