// See history_reply.h.
#include "daemon/edge/server/history_reply.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/core/engine/limits.h"

namespace syncd::server {

wire::Body history_reply(store::ReadResult read, std::uint64_t from_byte) {
  wire::HistoryReply reply;
  reply.next_sequence = read.next_sequence;
  reply.first_sequence = read.first_sequence;
  for (store::RawRecord& record : read.records) {
    reply.records.push_back({record.sequence, std::move(record.bytes)});
  }
  if (reply.records.empty()) return reply;
  wire::StoredRecord& first = reply.records.front();
  const std::uint64_t size = first.bytes.size();
  if (from_byte > size) {
    return wire::Error{Status::kInvalid, "record " + std::to_string(first.sequence) + " has " +
                                             std::to_string(size) + " bytes, none from byte " +
                                             std::to_string(from_byte) + " on"};
  }
  if (from_byte == 0 && size <= limits::kHistoryReplyBytesMax) return reply;
  const std::uint64_t taken =
      std::min<std::uint64_t>(size - from_byte, limits::kHistoryReplyBytesMax);
  first.bytes.erase(first.bytes.begin(),
                    first.bytes.begin() + static_cast<std::ptrdiff_t>(from_byte));
  first.bytes.resize(taken);
  reply.bytes_left = size - from_byte - taken;
  if (reply.bytes_left > 0) {
    reply.next_sequence = first.sequence;
  } else if (reply.records.size() > 1) {
    reply.next_sequence = reply.records[1].sequence;
  }
  reply.records.resize(1);
  return reply;
}

}  // namespace syncd::server
