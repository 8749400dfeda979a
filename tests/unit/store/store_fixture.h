// What the tests of stores share: a directory, a collector of commit reports, and a way to change a
// database underneath its store.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/store.h"

namespace syncd::store {

// A directory of its own for one test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "syncd-store-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }
  std::string store() const { return path_ + "/store"; }

 private:
  std::string path_;
};

// Collects commit reports and lets a test wait for a ticket.
class Reports {
 public:
  CommitCallback callback() {
    return [this](const CommitReport& report) {
      const std::lock_guard lock(mutex_);
      all_.push_back(report);
      changed_.notify_all();
    };
  }
  // True once `ticket` is committed; false after 30 s, which no working disk needs.
  bool wait_for(Ticket ticket) {
    return wait_until([&](const CommitReport& last) { return last.committed >= ticket; });
  }
  // True once the last report satisfies `condition`; false after 30 s.
  template <class Condition>
  bool wait_until(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return !all_.empty() && condition(all_.back()); });
  }
  std::vector<CommitReport> all() {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CommitReport> all_;
};

// Sorted.
inline std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

inline Batch batch_of(std::vector<Record> records) {
  return {std::move(records), {}};
}

inline std::unique_ptr<Store> open(const std::string& path, Mode mode = Mode::kDurable) {
  Options options;
  options.path = path;
  options.mode = mode;
  std::string error;
  auto store = open_rocks_store(options, error);
  EXPECT_NE(store, nullptr) << error;
  return store;
}

inline std::vector<Sequence> sequences(Store& store, JobId job) {
  std::vector<Sequence> found;
  Sequence next = 1;
  while (next != 0) {
    ReadResult page;
    std::string error;
    EXPECT_TRUE(store.read(job, next, 7, 1 << 20, page, error)) << error;
    for (const RawRecord& raw : page.records) {
      Record record;
      EXPECT_TRUE(decode_record(raw.bytes, record, error)) << error;
      EXPECT_EQ(record.sequence, raw.sequence);
      found.push_back(raw.sequence);
    }
    next = page.next_sequence;
  }
  return found;
}

// Puts a value, or with null deletes it, in the database underneath, as only an error or another
// program would. In store_fixture.cpp, because it needs RocksDB.
void tamper(const std::string& path, const char* family, const std::string& key,
            const std::string* value);
// Adds a column family, as a newer version might.
void add_family(const std::string& path, const char* family);

inline std::string key_of(JobId job, Sequence sequence) {
  std::string key;
  for (int shift = 24; shift >= 0; shift -= 8) key.push_back(static_cast<char>(job >> shift));
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(sequence >> shift));
  return key;
}

}  // namespace syncd::store
