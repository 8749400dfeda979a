// Stored records and snapshots, with a checksum that is right, so that what is wrong behind it is
// reached: [kind, count of pieces, for each piece its length in two bytes, the pieces]. A record
// that decodes is the same after it was encoded and decoded again; and a history of such records is
// refused with a sentence, or makes a job whose snapshot restores it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/limits.h"
#include "daemon/edge/store/record_codec.h"
#include "proto/base/crc32c.h"
#include "tests/fuzz/check.h"

namespace {

using namespace syncd;
using Bytes = std::vector<std::uint8_t>;

void put(std::uint8_t* at, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

Bytes stored(std::span<const std::uint8_t> content) {
  Bytes frame(8 + content.size());
  if (!content.empty()) std::memcpy(frame.data() + 8, content.data(), content.size());
  put(frame.data() + 4, static_cast<std::uint32_t>(content.size()));
  put(frame.data(), mask_crc(crc32c(std::span(frame).subspan(4))));
  return frame;
}

// Compared as bytes, because a loss may be no number.
template <class T, class Decode>
bool read(std::span<const std::uint8_t> content, T& value, Decode decode) {
  std::string error;
  const Bytes frame = stored(content);
  if (!decode(frame, value, error)) {
    fuzz::require(!error.empty(), "an error without a text");
    return false;
  }
  store::RecordEncoder encoder;
  const auto first = encoder.encode(value);
  const Bytes once(first.begin(), first.end());
  T again;
  fuzz::require(decode(once, again, error), "what was encoded does not decode", error);
  const auto second = encoder.encode(again);
  fuzz::require(std::equal(once.begin(), once.end(), second.begin(), second.end()),
                "something changes when it is stored");
  // The same bytes with one of them wrong.
  Bytes damaged = frame;
  damaged[damaged.size() / 2] ^= 0x40;
  fuzz::require(!decode(damaged, again, error) && !error.empty(), "damage is not noticed");
  return true;
}

void restore(const JobSnapshot* snapshot, const std::vector<Record>& records) {
  // A rank indexes an array, up to limits::kWorkersPerJobMax: allowed, and slow.
  constexpr std::int64_t kRanks = 1000;
  const auto is_far = [](std::int64_t rank) { return rank >= kRanks; };
  for (const Record& record : records) {
    if (is_far(record.rank) && record.rank <= limits::kWorkersPerJobMax) return;
  }
  if (snapshot != nullptr) {
    for (const WorkerSnapshot& w : snapshot->workers) {
      if (is_far(w.rank) && w.rank <= limits::kWorkersPerJobMax) return;
    }
  }
  Engine engine({});
  std::string error;
  if (!engine.restore(snapshot, records, error)) {
    fuzz::require(!error.empty(), "a history is refused without a word");
    return;
  }
  const std::vector<JobId> ids = engine.job_ids();
  if (ids.empty()) return;
  JobSnapshot now;
  fuzz::require(engine.snapshot(ids.front(), now), "a restored job has no snapshot");
  Engine other({});
  if (other.restore(&now, {}, error)) {
    JobSnapshot again;
    fuzz::require(other.snapshot(ids.front(), again) && again == now, "a snapshot changes");
  } else {
    // Numbers in a record that no engine wrote may be too large for a snapshot.
    fuzz::require(!error.empty(), "a snapshot is refused without a word");
  }
  engine.finish_restore(engine.last_time());
  Effects effects;
  engine.tick(engine.last_time(), effects);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto decode_snapshot = [](auto bytes, JobSnapshot& value, std::string& error) {
    return store::decode_snapshot(bytes, value, error);
  };
  const auto decode_record = [](auto bytes, Record& value, std::string& error) {
    return store::decode_record(bytes, value, error);
  };
  const bool with_snapshot = (data[0] & 1) != 0;
  const std::size_t count = std::min<std::size_t>(data[1] % 16, (size - 2) / 2);
  std::span<const std::uint8_t> rest(data + 2 + 2 * count, size - 2 - 2 * count);
  JobSnapshot snapshot;
  bool has_snapshot = false;
  std::vector<Record> records;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t wanted = data[2 + 2 * i] | data[3 + 2 * i] << 8;
    const auto piece = rest.first(std::min(wanted, rest.size()));
    rest = rest.subspan(piece.size());
    if (i == 0 && with_snapshot) {
      has_snapshot = read(piece, snapshot, decode_snapshot);
      if (!has_snapshot) return 0;
      continue;
    }
    Record record;
    if (read(piece, record, decode_record)) records.push_back(std::move(record));
  }
  if (has_snapshot || !records.empty()) restore(has_snapshot ? &snapshot : nullptr, records);
  return 0;
}
