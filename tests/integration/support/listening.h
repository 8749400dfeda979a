// Workers that show something to the others, listen to events and ask who is there, for tests that
// speak as a trainer does. As thread-safe as the C interface.
#pragma once

#include <gtest/gtest.h>
#include <syncd/client.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "support/deadline.h"

namespace syncd::test {

struct Member {
  std::int32_t rank;
  std::int32_t state;
  std::string name;
  std::string data;
  bool operator==(const Member&) const = default;
};

inline void PrintTo(const Member& member, std::ostream* out) {
  *out << member.rank << " " << member.state << " " << member.name << " '" << member.data << "'";
}

// Takes events over to the test's thread.
class Inbox {
 public:
  static void on_event(const syncd_event* event, void* inbox) {
    EXPECT_EQ(event->struct_size, sizeof(syncd_event));
    static_cast<Inbox*>(inbox)->put(*event);
  }
  syncd_event next() {
    std::unique_lock lock(mutex_);
    if (!there_.wait_for(lock, kPatience, [&] { return !events_.empty(); })) {
      ADD_FAILURE() << "no event came";
      return {};
    }
    const syncd_event event = events_.front();
    events_.pop_front();
    return event;
  }
  // Whether one is there, or comes in time.
  bool comes_within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return there_.wait_for(lock, time, [&] { return !events_.empty(); });
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

 private:
  void put(const syncd_event& event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    there_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable there_;
  std::deque<syncd_event> events_;
};

// A worker whose data and callback are the test's.
struct Joining {
  std::string job = "job";
  std::string policy = "asp";
  std::string name;
  std::int32_t rank = SYNCD_RANK_ANY;
  std::uint32_t world_size = 2;
  std::string data = {};
  syncd_event_callback on_event = nullptr;
  void* user_data = nullptr;
};

struct Freed {
  void operator()(syncd_worker* worker) const { syncd_worker_free(worker); }
};
using Worker = std::unique_ptr<syncd_worker, Freed>;

inline Worker join(syncd_client* client, const Joining& given) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.job = given.job.c_str();
  options.policy = given.policy.c_str();
  options.name = given.name.c_str();
  options.host = "node";
  options.rank = given.rank;
  // Who comes beyond the group that the job expects does not say that it is of that group.
  const bool is_visitor = given.rank >= static_cast<std::int32_t>(given.world_size);
  options.world_size = is_visitor ? 0 : given.world_size;
  options.data = given.data.empty() ? nullptr : given.data.data();
  options.data_size = given.data.size();
  options.on_event = given.on_event;
  options.user_data = given.user_data;
  syncd_worker* worker = nullptr;
  syncd_error* error = nullptr;
  EXPECT_EQ(syncd_join(client, &options, &worker, &error), SYNCD_OK) << syncd_error_message(error);
  syncd_error_free(error);
  return Worker(worker);
}

inline std::vector<Member> list(syncd_worker* worker, std::uint64_t* version = nullptr) {
  syncd_members* members = nullptr;
  syncd_error* error = nullptr;
  EXPECT_EQ(syncd_worker_members(worker, 30'000, &members, &error), SYNCD_OK)
      << syncd_error_message(error);
  const syncd_member* all = nullptr;
  const std::size_t count = syncd_members_list(members, &all);
  EXPECT_EQ(syncd_members_list(members, nullptr), count);
  if (version != nullptr) *version = syncd_members_version(members);
  std::vector<Member> out;
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_STRNE(all[i].host, "");
    EXPECT_EQ(all[i].data == nullptr, all[i].data_size == 0);
    out.push_back({all[i].rank, all[i].state, all[i].name,
                   std::string(static_cast<const char*>(all[i].data), all[i].data_size)});
  }
  syncd_members_free(members);
  return out;
}

}  // namespace syncd::test
