// See history_reads.h.
#include "daemon/edge/server/history_reads.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "daemon/core/engine/limits.h"
#include "daemon/edge/server/history_reply.h"

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
