// A store that hands everything on to another one: for tests that change, or watch, a part of it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/edge/store/store.h"

namespace syncd::test {

class ForwardingStore : public store::Store {
 public:
  explicit ForwardingStore(std::unique_ptr<store::Store> inner) : inner_(std::move(inner)) {}

  bool load_each(const TakeJob& take, std::string& error) override {
    return inner_->load_each(take, error);
  }
  void start(store::CommitCallback callback) override { inner_->start(std::move(callback)); }
  bool submit(Ticket ticket, store::Batch&& batch) override {
    return inner_->submit(ticket, std::move(batch));
  }
  bool close(std::int64_t timeout_us, std::string& error) override {
    return inner_->close(timeout_us, error);
  }
  bool read(JobId job, Sequence from, std::size_t records_max, std::size_t bytes_max,
            store::ReadResult& result, std::string& error) override {
    return inner_->read(job, from, records_max, bytes_max, result, error);
  }
  bool jobs(std::vector<Record>& created, std::string& error) override {
    return inner_->jobs(created, error);
  }
  bool is_shared() const override { return inner_->is_shared(); }
  store::Mode mode() const override { return inner_->mode(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::unique_ptr<store::Store> inner_;
};

}  // namespace syncd::test
