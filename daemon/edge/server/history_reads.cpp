// See history_reads.h.
#include "daemon/edge/server/history_reads.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "daemon/core/engine/limits.h"

namespace syncd::server {
namespace {

// A reply must fit a frame with what surrounds each record in it.
constexpr std::size_t kRecordsMax = 384;

struct Reading {
  store::ReadResult result;
  std::string error;
  bool ok = false;
};

wire::Body answer_to(Reading&& reading, std::uint64_t from_byte) {
  if (!reading.ok) return wire::Error{Status::kStore, std::move(reading.error)};
  if (reading.result.first_sequence == 0) {
    return wire::Error{Status::kUnknownJob,
                       "the history of this job was removed (store.retention)"};
  }
  return history_reply(std::move(reading.result), from_byte);
}

wire::Error too_many(const std::string& who, std::size_t most) {
  return {Status::kLimit, "this daemon reads " + std::to_string(most) + " histories " + who +
                              " already, the most at once: try again"};
}

}  // namespace

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

void HistoryReads::read(const std::string& client, JobId job, const wire::HistoryRequest& request,
                        Answer answer) {
  if (standing_in_all_ >= kMax) return answer(too_many("for its clients", kMax));
  std::size_t& standing = standing_[client];
  if (standing >= kPerClientMax) return answer(too_many("for this client", kPerClientMax));
  ++standing;
  ++standing_in_all_;
  auto reading = std::make_shared<Reading>();
  const std::size_t records_max = request.records_max == 0
                                      ? kRecordsMax
                                      : std::min<std::size_t>(request.records_max, kRecordsMax);
  background_.run(
      [reading, job, records_max, from = request.from_sequence, &store = store_] {
        reading->ok = store.read(job, from, records_max, limits::kHistoryReplyBytesMax,
                                 reading->result, reading->error);
      },
      [this, reading, client, from_byte = request.from_byte, answer = std::move(answer)] {
        finish(client);
        answer(answer_to(std::move(*reading), from_byte));
      });
}

void HistoryReads::finish(const std::string& client) {
  --standing_in_all_;
  const auto standing = standing_.find(client);
  if (--standing->second == 0) standing_.erase(standing);
}

}  // namespace syncd::server
