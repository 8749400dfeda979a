// See history.h.
#include "daemon/tools/ctl/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "daemon/core/engine/limits.h"
#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/store.h"
#include "proto/base/number.h"

namespace syncd::ctl {
namespace {

bool decode_into(HistoryPage& page, Sequence sequence, std::span<const std::uint8_t> bytes,
                 std::string& error) {
  if (store::decode_record(bytes, page.records.emplace_back(), error)) return true;
  error = fmt::format("record {}: {}", sequence, error);
  return false;
}

// Reads the last `left` bytes of a record that did not fit one answer.
bool read_rest(DaemonLink& link, const std::string& job, wire::StoredRecord& record,
               std::uint64_t left, Sequence& next, std::string& error) {
  while (left > 0) {
    wire::HistoryReply more;
    if (!link.read(wire::HistoryRequest{job, record.sequence, 1, record.bytes.size()}, more)) {
      error = link.error();
      return false;
    }
    if (more.records.size() != 1 || more.records[0].sequence != record.sequence ||
        more.records[0].bytes.empty() || more.records[0].bytes.size() > left) {
      error = fmt::format("the daemon did not send the rest of record {}, from byte {}",
                          record.sequence, record.bytes.size());
      return false;
    }
    const std::vector<std::uint8_t>& bytes = more.records[0].bytes;
    record.bytes.insert(record.bytes.end(), bytes.begin(), bytes.end());
    left = more.bytes_left;
    next = more.next_sequence;
  }
  return true;
}

}  // namespace

ReadHistory history_of(DaemonLink& link, const std::string& job) {
  return [&link, job](Sequence from, std::uint32_t records_max, HistoryPage& page,
                      std::string& error) {
    wire::HistoryReply reply;
    // The request says where it is, so that a broken connection loses nothing.
    if (!link.read(wire::HistoryRequest{job, from, records_max, 0}, reply)) {
      error = link.error();
      return false;
    }
    page = {{}, reply.next_sequence, reply.first_sequence};
    for (wire::StoredRecord& stored : reply.records) {
      if (&stored == &reply.records.back() &&
          !read_rest(link, job, stored, reply.bytes_left, page.next, error)) {
        return false;
      }
      if (!decode_into(page, stored.sequence, stored.bytes, error)) return false;
    }
    return true;
  };
}

ReadHistory history_in(const std::string& store_path, const std::string& job, JobId& job_id,
                       std::string& error) {
  store::Options options;
  options.path = store_path;
  options.read_only = true;
  std::shared_ptr<store::Store> opened = store::open_rocks_store(options, error);
  std::vector<Record> created;
  if (!opened || !opened->jobs(created, error)) return nullptr;
  // The latest job of a name, or the one of an id, as the daemon would find it.
  JobId wanted = 0;
  const bool known = !job.starts_with('#') || parse_number(job.substr(1), wanted);
  job_id = 0;
  for (const Record& record : created) {
    if (known && (record.name == job || record.job == wanted)) job_id = record.job;
  }
  return [opened, id = job_id](Sequence from, std::uint32_t records_max, HistoryPage& page,
                               std::string& why) {
    store::ReadResult result;
    if (!opened->read(id, from, records_max, limits::kHistoryReplyBytesMax, result, why)) {
      return false;
    }
    page = {{}, result.next_sequence, result.first_sequence};
    return std::ranges::all_of(result.records, [&](const store::RawRecord& raw) {
      return decode_into(page, raw.sequence, raw.bytes, why);
    });
  };
}

}  // namespace syncd::ctl
