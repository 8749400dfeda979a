// RocksDB alone, written as syncd's store writes it, and what its log tells about a store. The
// heavy headers stay in the .cpp. One thread calls; the threaded floor makes its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace syncd::bench {

struct WriteRate {
  double records_per_s = 0;
  double cpu_us_per_record = 0;  // of this whole process
  std::vector<double> took_us;   // each batch; empty where threads wrote
};

class RocksFloor {
 public:
  // Makes a database at `path` with the buffer sizes of syncd's store.
  explicit RocksFloor(const std::string& path);
  ~RocksFloor();
  RocksFloor(const RocksFloor&) = delete;
  RocksFloor& operator=(const RocksFloor&) = delete;

  // One thread writes synced batches of records of `record_bytes` for `seconds`. Their sizes are
  // the two whole numbers around `batch`, mixed so that the mean comes out.
  WriteRate batches(double seconds, double batch, std::size_t record_bytes);

  // `threads` threads put one synced record after another: RocksDB's own group commit.
  WriteRate threads(double seconds, std::size_t threads, std::size_t record_bytes);
  // How long each of one thread's synced writes of a single record took.
  std::vector<double> single_us(double seconds, std::size_t record_bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Commits in the write-ahead log of a store that a daemon may have open.
struct LogTotals {
  std::uint64_t commits = 0;
  std::uint64_t records = 0;  // put by these commits
  std::uint64_t bytes = 0;    // of their values and keys
  std::uint64_t next = 0;     // where to read on
};
// Counts the commits from log position `from` on (1: the beginning), or from the oldest one that
// the log still has: RocksDB drops what its tables hold already.
LogTotals read_log(const std::string& path, std::uint64_t from);

}  // namespace syncd::bench
