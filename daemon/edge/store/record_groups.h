// How records lie in column family `records`.
//
// A value holds records of one job whose sequences follow each other, one after the other, each as
// record_codec.h encodes it. One commit makes it, of at most kGroupRecordsMax records or
// kGroupBytesMax bytes; a larger record has a value of its own. The key is the job and the sequence
// of the value's last record. So the first key from (job, s) on has the value that holds record s,
// and removing the keys before (job, s) removes nothing from s on. What such a cut leaves of the
// value that holds s, from before s, is hidden by the job's first sequence (retention.h).
//
// Format 1 had one record in each value: that is a group of one, and both lie side by side in a
// store that format 1 began. A value whose lengths do not add up counts as one record, its last,
// which is damaged.
#pragma once

#include <rocksdb/write_batch.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "daemon/edge/store/rocks_database.h"

namespace syncd::store {

inline constexpr std::size_t kGroupRecordsMax = 256;
inline constexpr std::size_t kGroupBytesMax = std::size_t{64} * 1024;

// Puts records into a batch. Those of one job come in sequence.
class GroupWriter {
 public:
  GroupWriter(const Database& database, rocksdb::WriteBatch& batch)
      : family_(database.families[kRecords]), batch_(batch) {}

  void add(JobId job, Sequence sequence, std::span<const std::uint8_t> record);
  // Puts what is left. Call last.
  void finish();

 private:
  struct Group {
    std::string bytes;
    std::size_t records = 0;
    Sequence last = 0;
  };
  void put(JobId job, Group& group);

  rocksdb::ColumnFamilyHandle* const family_;
  rocksdb::WriteBatch& batch_;
  std::map<JobId, Group> groups_;
  Group* latest_ = nullptr;  // most records are of the same job as the one before
  JobId latest_job_ = 0;
};

// The first record of a value, as far as that can be read; else its last one, which its key tells.
// The value need not be all there.
Sequence first_in(const rocksdb::Slice& key, const rocksdb::Slice& value);

// An iterator that is of use again where damage has stopped it: RocksDB's own may fail then where
// it has been before, because it does not read that block again.
class Searching {
 public:
  using Make = std::function<std::unique_ptr<rocksdb::Iterator>()>;
  explicit Searching(Make make) : make_(std::move(make)), it_(make_()) {}

  // False: what lies there cannot be read. True and not Valid(): nothing lies there.
  bool seek(const rocksdb::Slice& key) {
    if (!it_->status().ok()) it_ = make_();
    it_->Seek(key);
    return it_->Valid() || it_->status().ok();
  }
  rocksdb::Iterator* operator->() { return it_.get(); }

 private:
  Make make_;
  std::unique_ptr<rocksdb::Iterator> it_;
};

// Walks records in order, of one job or of all.
class RecordIterator {
 public:
  explicit RecordIterator(const Database& database, std::optional<JobId> job = {});
  RecordIterator(const RecordIterator&) = delete;
  RecordIterator& operator=(const RecordIterator&) = delete;

  // To the first record from this one on. False: what lies there cannot be read.
  bool seek(JobId job, Sequence from) { return seek(job, from, from); }
  // The same, where values whose key is below `key_from` are left out unread.
  bool seek(JobId job, Sequence key_from, Sequence from);
  bool valid() const { return valid_; }
  void next();
  rocksdb::Status status() { return it_->status(); }

  JobId job() const { return job_; }
  Sequence sequence() const { return sequence_; }
  std::span<const std::uint8_t> bytes() const { return rest_.first(size_); }
  // The last record of the value that holds this one.
  Sequence group_last() const { return last_; }

 private:
  void enter();
  void step();

  const std::string end_;
  const rocksdb::Slice upper_{end_};
  Searching it_;
  bool valid_ = false;
  JobId job_ = 0;
  Sequence sequence_ = 0;
  Sequence last_ = 0;
  std::span<const std::uint8_t> rest_;  // of the value, from this record on
  std::size_t size_ = 0;                // of this record
};

}  // namespace syncd::store
