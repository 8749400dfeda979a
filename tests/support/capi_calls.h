// Calls of the C interface in whatever order, with whatever arguments, against a server in the same
// process: what a test and a fuzzer have in common. One thread at a time.
#pragma once

#include <syncd/client.h>
#include <syncd/server.h>
#include <syncd/update_queue.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/choices.h"

namespace syncd::test {

class CapiCalls {
 public:
  // Is told in words of each answer that must not be.
  using Complain = std::function<void(const std::string&)>;

  // Starts a server at the Unix socket `socket`, with its history in memory. `choices` must outlive
  // this.
  CapiCalls(std::string socket, Choices& choices, Complain complain);
  // Frees and closes everything in any order.
  ~CapiCalls();
  CapiCalls(const CapiCalls&) = delete;
  CapiCalls& operator=(const CapiCalls&) = delete;

  // One call, of a function that the choices pick. It takes some 50 ms at most.
  void call();
  // From now on call() stops and starts the server, too, and starts others with wrong options.
  void with_servers() { servers_ = true; }

  std::uint64_t granted() const { return granted_; }
  std::uint64_t events() const { return events_; }
  std::uint64_t failed() const { return failed_; }

 private:
  template <typename Call>
  syncd_status check(const char* name, Call&& call);
  void expect(bool holds, const char* name, const std::string& what);

  void call_worker(syncd_client*& client, syncd_worker*& worker);
  void call_server();
  void call_queue();

  void open(syncd_client*& client);
  void close_and_free(syncd_client*& client);
  void join(syncd_client* client, syncd_worker*& worker);
  void begin(syncd_worker* worker);
  void push(syncd_worker* worker);
  void poll(syncd_worker* worker);
  void descriptor(syncd_worker* worker);
  void targets(syncd_worker* worker);
  void collect(syncd_worker* worker);
  void explain(syncd_worker* worker);
  void phase(syncd_worker* worker);
  void members(syncd_worker* worker);
  void views(syncd_worker* worker);
  void accessors(syncd_worker* worker);
  void leave(syncd_worker* worker);

  void start_server();
  void stop_server();
  void start_wrong_server();

  void create_queue(syncd_update_queue*& queue);
  void attach_queue(syncd_update_queue*& queue);
  void write_queue(syncd_update_queue* queue);
  void read_queue(syncd_update_queue* queue);
  std::uint32_t edge() { return static_cast<std::uint32_t>(choices_.below(4)); }

  // Mostly one that could be right.
  std::int64_t iteration();
  std::int64_t timeout();
  void took(syncd_status status, const syncd_step& step);

  std::string socket_;
  Choices& choices_;
  Complain complain_;
  bool servers_ = false;
  syncd_server* server_ = nullptr;
  std::string address_;
  std::vector<syncd_client*> clients_;
  std::vector<syncd_worker*> workers_;
  std::vector<syncd_update_queue*> queues_;
  // Memory of the caller's for queues.
  static constexpr std::size_t kMemoryBytes = 4096;
  alignas(SYNCD_UPDATE_QUEUE_ALIGNMENT) std::array<std::uint8_t, kMemoryBytes> memory_{};
  std::int64_t latest_ = 0;
  std::uint64_t granted_ = 0;
  std::uint64_t failed_ = 0;
  std::atomic<std::uint64_t> events_{0};  // counted on the clients' threads
};

}  // namespace syncd::test
