// See history.h.
#include "daemon/tools/ctl/history.h"

#include <fmt/format.h>

#include "daemon/core/engine/limits.h"
#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/store.h"
#include "proto/base/number.h"

namespace syncd::ctl {
namespace {

bool decode_into(std::span<const std::uint8_t> bytes, Sequence sequence,
                 std::vector<Record>& records, std::string& error) {
  if (store::decode_record(bytes, records.emplace_back(), error)) return true;
  error = fmt::format("record {}: {}", sequence, error);
  return false;
}

class DaemonHistory final : public HistorySource {
 public:
  explicit DaemonHistory(DaemonLink& link) : link_(link) {}

  bool may_have(const std::string&) const override { return true; }

  bool read(const std::string& job, Sequence from, std::uint32_t records_max,
            std::vector<Record>& records, Sequence& next, std::string& error) override {
    wire::HistoryReply reply;
    if (!ask({job, from, records_max, 0}, reply, error)) return false;
    records.clear();
    next = reply.next_sequence;
    for (wire::StoredRecord& stored : reply.records) {
      if (&stored == &reply.records.back() &&
          !read_rest(job, stored, reply.bytes_left, next, error)) {
        return false;
      }
      if (!decode_into(stored.bytes, stored.sequence, records, error)) return false;
    }
    return true;
  }

 private:
  bool ask(const wire::HistoryRequest& request, wire::HistoryReply& reply, std::string& error) {
    // The request says where it is, so that a broken connection loses nothing.
    if (link_.read(request, reply)) return true;
    error = link_.error();
    return false;
  }

  // Completes a record of which `left` bytes did not fit the answer.
  bool read_rest(const std::string& job, wire::StoredRecord& record, std::uint64_t left,
                 Sequence& next, std::string& error) {
    while (left > 0) {
      wire::HistoryReply more;
      if (!ask({job, record.sequence, 1, record.bytes.size()}, more, error)) return false;
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

  DaemonLink& link_;
};

class StoreHistory final : public HistorySource {
 public:
  StoreHistory(std::unique_ptr<store::Store> opened, std::vector<Record> created)
      : store_(std::move(opened)), created_(std::move(created)) {}

  bool may_have(const std::string& job) const override { return find(job) != 0; }

  bool read(const std::string& job, Sequence from, std::uint32_t records_max,
            std::vector<Record>& records, Sequence& next, std::string& error) override {
    const JobId id = find(job);
    store::ReadResult result;
    if (!store_->read(id, from, records_max, limits::kHistoryReplyBytesMax, result, error)) {
      return false;
    }
    records.clear();
    next = result.next_sequence;
    for (const store::RawRecord& raw : result.records) {
      if (!decode_into(raw.bytes, raw.sequence, records, error)) return false;
    }
    return true;
  }

 private:
  // The latest job of a name, or the one of an id, as the daemon would find it.
  JobId find(const std::string& job) const {
    JobId wanted = 0;
    if (job.starts_with('#') && !parse_number(job.substr(1), wanted)) return 0;
    JobId found = 0;
    for (const Record& created : created_) {
      if (created.name == job || created.job == wanted) found = created.job;
    }
    return found;
  }

  std::unique_ptr<store::Store> store_;
  std::vector<Record> created_;
};

}  // namespace

std::unique_ptr<HistorySource> history_of(DaemonLink& link) {
  return std::make_unique<DaemonHistory>(link);
}

std::unique_ptr<HistorySource> history_in(const std::string& store_path, std::string& error) {
  store::Options options;
  options.path = store_path;
  options.read_only = true;
  auto opened = store::open_rocks_store(options, error);
  if (!opened) return nullptr;
  std::vector<Record> created;
  if (!opened->jobs(created, error)) return nullptr;
  return std::make_unique<StoreHistory>(std::move(opened), std::move(created));
}

}  // namespace syncd::ctl
