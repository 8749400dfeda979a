// The C interface with owners and values, for tests that speak as a trainer does. As thread-safe as
// the interface itself.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "syncd/client.h"

namespace syncd::test {

// What a call answered; `message` is empty on success.
struct Answer {
  syncd_status status = SYNCD_OK;
  std::string message;
  bool retriable = false;
  bool fatal = false;

  bool ok() const { return status == SYNCD_OK; }
  // For assertions: "SYNCD_E_TIMEOUT: begin(2) of ...".
  std::string text() const;
};

// What a call that takes `&error` last answers; the error object must be of the same code.
template <typename Call>
Answer answered(Call&& call) {
  syncd_error* error = nullptr;
  Answer answer;
  answer.status = call(&error);
  answer.message = syncd_error_message(error);
  answer.retriable = syncd_error_is_retriable(error) != 0;
  answer.fatal = syncd_error_is_fatal(error) != 0;
  if (syncd_error_code(error) != answer.status ||
      std::strcmp(syncd_error_name(error), syncd_strerror(answer.status)) != 0) {
    answer.message += " (the error object says " + std::string(syncd_error_name(error)) + ")";
    answer.status = SYNCD_E_INTERNAL;
  }
  syncd_error_free(error);
  return answer;
}

class ApiWorker {
 public:
  ApiWorker() = default;
  ~ApiWorker() { syncd_worker_free(worker_); }
  ApiWorker(ApiWorker&& other) noexcept : worker_(std::exchange(other.worker_, nullptr)) {}
  ApiWorker& operator=(ApiWorker&& other) noexcept {
    std::swap(worker_, other.worker_);
    return *this;
  }
  ApiWorker(const ApiWorker&) = delete;
  ApiWorker& operator=(const ApiWorker&) = delete;

  Answer begin(syncd_step& step, std::int64_t timeout_ms = 30'000);
  Answer push(std::int64_t iteration, std::int64_t timeout_ms = 30'000,
              std::uint32_t* flags = nullptr);
  Answer targets(std::int64_t iteration, std::vector<std::int32_t>& ranks,
                 std::int64_t timeout_ms = 30'000);
  Answer collect(std::int64_t iteration, std::vector<syncd_update>& updates,
                 std::int64_t timeout_ms = 30'000);
  Answer consumed(std::int64_t iteration, std::int64_t timeout_ms = 30'000);
  Answer restarted(std::int64_t iteration, std::int64_t timeout_ms = 30'000);
  Answer leave(std::int64_t timeout_ms = 30'000);
  // Runs the next `count` iterations; stops at the first call that fails.
  Answer iterate(int count);
  std::int32_t rank() const { return syncd_worker_rank(worker_); }
  syncd_worker* get() const { return worker_; }

 private:
  friend class ApiClient;
  syncd_worker* worker_ = nullptr;
};

struct ApiJoin {
  std::string job = "job";
  std::string policy = {};
  std::string name = {};
  std::string host = {};
  std::int32_t rank = SYNCD_RANK_ANY;
  std::uint32_t world_size = 0;  // 0: what the job expects; of one that it makes, 1
  std::int64_t timeout_ms = 0;   // 0: the client's
};

struct ApiTimeouts {
  std::int64_t connect_ms = 30'000;
  std::int64_t reconnect_ms = 60'000;
};

class ApiClient {
 public:
  // Throws if no daemon answers.
  explicit ApiClient(const std::string& address, ApiTimeouts timeouts = {});
  ~ApiClient() { close(); }
  ApiClient(const ApiClient&) = delete;
  ApiClient& operator=(const ApiClient&) = delete;

  Answer try_join(const ApiJoin& join, ApiWorker& worker);
  ApiWorker join(const ApiJoin& join);  // throws if it is refused
  // Ends the calls that are under way. No call of this object may begin after it, but its workers'
  // may.
  void close() { syncd_client_close(std::exchange(client_, nullptr)); }
  syncd_client* get() const { return client_; }

 private:
  syncd_client* client_ = nullptr;
};

}  // namespace syncd::test
