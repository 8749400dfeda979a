// Records and snapshots to and from their stored bytes:
//   u32 masked CRC-32C of the rest | u32 length | that many bytes of record.fbs, little-endian.
// Thread-safe; a RecordEncoder is used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/core/engine/kept_index.h"
#include "daemon/core/engine/record.h"

namespace syncd::store {

class RecordEncoder {
 public:
  RecordEncoder();
  ~RecordEncoder();
  // The stored form, valid until the next call.
  std::span<const std::uint8_t> encode(const Record& record);
  std::span<const std::uint8_t> encode(const JobSnapshot& snapshot);
  // As a snapshot that has nothing else.
  std::span<const std::uint8_t> encode(const KeptCheckpoint& kept);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// How many bytes the first of these records takes; 0: there is none that is whole.
std::size_t record_bytes(std::span<const std::uint8_t> records);

// False, with what is wrong in `error`, for bytes that are damaged, cut off, or of a newer format.
bool decode_record(std::span<const std::uint8_t> bytes, Record& record, std::string& error);
bool decode_snapshot(std::span<const std::uint8_t> bytes, JobSnapshot& snapshot,
                     std::string& error);

bool decode_kept(std::span<const std::uint8_t> bytes, KeptCheckpoint& kept, std::string& error);

// The same for what must be of this job: `error` also says that it is of another one.
bool decode_creation(std::span<const std::uint8_t> bytes, JobId job, Record& record,
                     std::string& error);
bool decode_record(std::span<const std::uint8_t> bytes, JobId job, Sequence sequence,
                   Record& record, std::string& error);
bool decode_snapshot(std::span<const std::uint8_t> bytes, JobId job, JobSnapshot& snapshot,
                     std::string& error);

}  // namespace syncd::store
