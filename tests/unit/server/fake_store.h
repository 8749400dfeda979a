// A store whose commits, refusals and errors happen when the test says so.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/store/store.h"
#include "tests/support/forwarding_store.h"

namespace syncd::server {

class FakeStore final : public store::Store {
 public:
  bool full = false;
  bool shared = false;
  std::vector<store::RecoveredJob> stored;
  std::string load_error;
  std::string read_error = "this store cannot be read";
  std::string path = "fake";
  std::string close_error;
  std::vector<std::pair<Ticket, store::Batch>> submitted;
  store::CommitCallback callback;
  bool closed = false;

  // As the writer thread would.
  void commit_all() {
    if (!submitted.empty()) report({submitted.back().first, "", 1, 1, 0});
  }
  void fail(const std::string& error) { report({0, error, 0, 0, 0}); }
  void report(const store::CommitReport& report) {
    if (callback) callback(report);
  }
  std::size_t records() const {
    std::size_t count = 0;
    for (const auto& [ticket, batch] : submitted) count += batch.records.size();
    return count;
  }

  bool load_each(const TakeJob& take, std::string& error) override {
    for (store::RecoveredJob job : stored) {
      if (!take(std::move(job), error)) return false;
    }
    error = load_error;
    return load_error.empty();
  }
  bool is_shared() const override { return shared; }
  void start(store::CommitCallback cb) override { callback = std::move(cb); }
  bool submit(Ticket ticket, store::Batch&& batch) override {
    if (full) return false;
    submitted.emplace_back(ticket, std::move(batch));
    return true;
  }
  bool close(std::int64_t, std::string& error) override {
    closed = true;
    error = close_error;
    return close_error.empty();
  }
  bool read(JobId, Sequence, std::size_t, std::size_t, store::ReadResult&,
            std::string& error) override {
    error = read_error;
    return false;
  }
  bool jobs(std::vector<Record>&, std::string&) override { return true; }
  store::Mode mode() const override { return store::Mode::kDurable; }
  std::string describe() const override { return path; }
};

// A store in memory that nobody can read until the test says so.
class HeldReads final : public test::ForwardingStore {
 public:
  HeldReads() : ForwardingStore(store::make_memory_store()) {}

  void release() {
    {
      const std::lock_guard lock(mutex_);
      released_ = true;
    }
    released_now_.notify_all();
  }

  bool close(std::int64_t timeout_us, std::string& error) override {
    release();
    return ForwardingStore::close(timeout_us, error);
  }
  bool read(JobId job, Sequence from, std::size_t records_max, std::size_t bytes_max,
            store::ReadResult& result, std::string& error) override {
    {
      std::unique_lock lock(mutex_);
      released_now_.wait(lock, [this] { return released_; });
    }
    return ForwardingStore::read(job, from, records_max, bytes_max, result, error);
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_now_;
  bool released_ = false;
};

}  // namespace syncd::server
