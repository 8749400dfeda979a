// See record_groups.h.
#include "daemon/edge/store/record_groups.h"

#include <algorithm>

#include "daemon/edge/store/record_codec.h"

namespace syncd::store {

void GroupWriter::add(JobId job, Sequence sequence, std::span<const std::uint8_t> record) {
  if (latest_ == nullptr || latest_job_ != job) latest_ = &groups_[latest_job_ = job];
  Group& group = *latest_;
  const bool follows = sequence == group.last + 1;
  const bool fits =
      group.records < kGroupRecordsMax && group.bytes.size() + record.size() <= kGroupBytesMax;
  if (!follows || !fits) put(job, group);
  group.bytes.append(reinterpret_cast<const char*>(record.data()), record.size());
  group.last = sequence;
  ++group.records;
}

void GroupWriter::finish() {
  for (auto& [job, group] : groups_) put(job, group);
}

void GroupWriter::put(JobId job, Group& group) {
  if (group.records == 0) return;
  batch_.Put(family_, record_key(job, group.last), group.bytes);
  group.records = 0;
  group.bytes.clear();
}

Sequence first_in(const rocksdb::Slice& key, const rocksdb::Slice& value) {
  const auto bytes = bytes_of(value);
  Record record;
  std::string ignored;
  const bool known = decode_record(bytes.first(record_bytes(bytes)), record, ignored);
  return known ? std::min(record.sequence, sequence_of(key)) : sequence_of(key);
}

RecordIterator::RecordIterator(const Database& database, std::optional<JobId> job)
    : end_(job ? records_end(*job) : std::string()), it_([this, &database, job] {
        rocksdb::ReadOptions options;
        if (job) options.iterate_upper_bound = &upper_;
        return std::unique_ptr<rocksdb::Iterator>(
            database.db->NewIterator(options, database.families[kRecords]));
      }) {}

bool RecordIterator::seek(JobId job, Sequence key_from, Sequence from) {
  const bool readable = it_.seek(record_key(job, key_from));
  enter();
  while (valid_ && job_ == job && sequence_ < from) step();
  return readable;
}

void RecordIterator::next() {
  // Values collected of single files (salvage_files.h) may hold the same records.
  const JobId job = job_;
  const Sequence passed = sequence_;
  do {
    step();
  } while (valid_ && job_ == job && sequence_ <= passed);
}

void RecordIterator::step() {
  if (sequence_ == last_) {
    it_->Next();
    return enter();
  }
  ++sequence_;
  rest_ = rest_.subspan(size_);
  size_ = record_bytes(rest_);
}

void RecordIterator::enter() {
  valid_ = it_->Valid();
  if (!valid_) return;
  job_ = job_of(it_->key());
  last_ = sequence_ = sequence_of(it_->key());
  rest_ = bytes_of(it_->value());
  size_ = rest_.size();
  Sequence records = 0;
  for (auto rest = rest_; !rest.empty(); ++records) {
    const std::size_t bytes = record_bytes(rest);
    if (bytes == 0 || records == last_) return;
    rest = rest.subspan(bytes);
  }
  if (records <= 1) return;
  sequence_ = last_ - records + 1;
  size_ = record_bytes(rest_);
}

}  // namespace syncd::store
