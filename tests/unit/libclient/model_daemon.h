// A small daemon for tests of the session: one job under ssp:s, pushes counted exactly, connections
// that may be cut at any byte. Checks that the client keeps the rules of the wire. No I/O, no
// clock.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "proto/wire/wire.h"

namespace syncd::client {

class ModelDaemon {
 public:
  struct Member {
    std::uint32_t rank = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t before = 0;  // the incarnation that came back as this one, until it is used
    bool member = false;
    int evictions = 0;
    bool connected = false;
    std::int64_t clock = 0;
    std::int64_t granted = -1;
    std::vector<std::int64_t> applied;  // pushes that counted, in order
    std::uint64_t waiting_request = 0;
    std::int64_t waiting_iteration = -1;
  };

  explicit ModelDaemon(std::int64_t staleness) : staleness_(staleness) {}

  // ---- The connection; there is one at a time.

  void connected() {
    splitter_ = wire::FrameSplitter();
    output.clear();
    welcomed_ = false;
    seen_.clear();
  }
  void disconnected() {
    output.clear();
    for (auto& [name, member] : members_) {
      member.connected = false;
      member.waiting_request = 0;  // standing requests are withdrawn
    }
  }
  void feed(std::span<const std::uint8_t> bytes) {
    splitter_.append(bytes);
    std::span<const std::uint8_t> payload;
    std::string error;
    while (splitter_.next(payload, error) == wire::FrameSplitter::Result::kFrame) {
      wire::Message message;
      ASSERT_TRUE(wire::decode(payload, message, error)) << error;
      std::visit([&](const auto& body) { on(message.id, body); }, message.body);
    }
  }

  // ---- What may befall a worker.

  // As after evict_after: not a member any more, told so, and not waited for.
  void evict(const std::string& name) {
    const auto found = members_.find(name);
    if (found == members_.end() || !found->second.member) return;
    Member& member = found->second;
    member.member = false;
    ++member.evictions;
    if (member.waiting_request != 0) {
      refuse(std::exchange(member.waiting_request, 0), Status::kFenced);
    }
    if (member.connected) send(0, wire::FencedNotice{ref(member), "declared lost"});
    release();
  }
  // Grants are not persisted; everything else comes back from the store.
  void restart() {
    disconnected();
    for (auto& [name, member] : members_) member.granted = -1;
  }

  std::vector<std::uint8_t> output;
  bool shutting_down = false;
  const std::map<std::string, Member>& members() const { return members_; }

 private:
  template <typename Body>
  void on(std::uint64_t, const Body&) {
    ADD_FAILURE() << "the client sent " << wire::body_name(Body{});
  }
  void on(std::uint64_t id, const wire::Hello&) {
    EXPECT_FALSE(welcomed_);
    welcomed_ = true;
    wire::Welcome welcome;
    welcome.protocol = kProtocolMax;
    welcome.heartbeat_interval_ms = 1000;
    welcome.heartbeat_timeout_ms = 5000;
    send(id, welcome);
  }
  void on(std::uint64_t id, const wire::Heartbeat&) { send(id, wire::HeartbeatAck{}); }
  void on(std::uint64_t, const wire::HeartbeatAck&) {}

  void on(std::uint64_t id, const wire::Join& join) {
    if (shutting_down) return refuse(id, Status::kShutdown);
    const bool known = members_.count(join.name) != 0;
    Member& member = members_[join.name];
    if (!known) member.rank = static_cast<std::uint32_t>(members_.size() - 1);
    if (join.incarnation == 0) {
      if (member.member && member.connected) return refuse(id, Status::kRankTaken);
      EXPECT_EQ(join.granted, -1);
    } else {
      const bool ours = join.incarnation == member.incarnation || join.incarnation == member.before;
      if (!ours) return send(id, wire::Error{Status::kFenced, "replaced"});
      const std::int64_t last = member.applied.empty() ? -1 : member.applied.back();
      EXPECT_LE(join.pushed, last) << "it believes in a push that was never counted";
      member.granted = std::max(member.granted, join.granted);
    }
    const bool resumed = join.incarnation == member.incarnation && member.member;
    if (!resumed) {
      member.before = join.incarnation;
      member.incarnation = next_incarnation_++;
      std::int64_t slowest = member.clock;
      bool any = false;
      for (const auto& [name, other] : members_) {
        if (!other.member) continue;
        slowest = any ? std::min(slowest, other.clock) : other.clock;
        any = true;
      }
      member.clock = std::max(member.clock, slowest);
      member.member = true;
    }
    member.connected = true;
    member.waiting_request = 0;
    wire::Joined joined;
    joined.worker = ref(member);
    joined.iteration = member.granted >= member.clock ? member.granted : member.clock;
    joined.policy = "ssp";
    joined.world_size = 1;
    joined.resumed = resumed;
    send(id, joined);
  }

  void on(std::uint64_t id, const wire::Begin& begin) {
    Member* member = check(id, begin.worker);
    if (member == nullptr) return;
    once("Begin", *member, begin.iteration);
    if (member->granted >= member->clock && begin.iteration == member->granted) {
      return send(id, wire::Granted{begin.iteration, 0, 0});  // repeated: the same answer
    }
    EXPECT_GT(begin.iteration, member->granted) << "asked for what was granted and pushed";
    EXPECT_LE(begin.iteration, member->clock) << "asked for what is not due yet";
    EXPECT_EQ(member->waiting_request, 0U) << "two begins of one worker stand at once";
    member->waiting_request = id;
    member->waiting_iteration = begin.iteration;
    release();
  }

  void on(std::uint64_t id, const wire::Push& push) {
    Member* member = check(id, push.worker);
    if (member == nullptr) return;
    once("Push", *member, push.iteration);
    const bool duplicate =
        std::count(member->applied.begin(), member->applied.end(), push.iteration) != 0;
    if (duplicate) return send(id, wire::Pushed{push.iteration, false, true});
    EXPECT_EQ(push.iteration, member->granted) << "pushed what was not granted";
    const bool late = push.iteration < member->clock;
    member->applied.push_back(push.iteration);
    member->clock = std::max(member->clock, push.iteration + 1);
    send(id, wire::Pushed{push.iteration, late, false});
    release();
  }

  void on(std::uint64_t id, const wire::Leave& leave) {
    Member* member = check(id, leave.worker);
    if (member == nullptr) return;
    member->member = false;
    member->waiting_request = 0;
    send(id, wire::Ok{});
    release();
  }

  void on(std::uint64_t id, const wire::Explain& explain) {
    if (check(id, explain.worker) == nullptr) return;
    Explanation explanation;
    explanation.rule = "ssp";
    explanation.text = "wait";
    explanation.iteration = 1;
    send(id, explanation);
  }

  // A request is sent once per connection and incarnation, however often its caller asks.
  void once(const char* kind, const Member& member, std::int64_t iteration) {
    const bool fresh =
        seen_.insert(std::make_tuple(std::string(kind), member.incarnation, iteration)).second;
    EXPECT_TRUE(fresh) << kind << "(" << iteration << ") came twice on one connection";
  }

  Member* check(std::uint64_t id, const wire::WorkerRef& given) {
    if (shutting_down) {
      refuse(id, Status::kShutdown);
      return nullptr;
    }
    for (auto& [name, member] : members_) {
      if (member.rank != given.rank) continue;
      if (member.incarnation != given.incarnation || !member.member) break;
      member.before = 0;
      return &member;
    }
    return nullptr;
  }

  void release() {
    if (shutting_down) return;
    for (auto& [name, member] : members_) {
      if (member.waiting_request == 0 || !allowed(member)) continue;
      const bool jumps = member.clock != member.waiting_iteration;
      member.granted = member.clock;
      send(std::exchange(member.waiting_request, 0),
           wire::Granted{member.clock, jumps ? wire::kStepSkip : 0, 0});
    }
  }
  bool allowed(const Member& asking) const {
    return std::all_of(members_.begin(), members_.end(), [&](const auto& entry) {
      return !entry.second.member || asking.clock - entry.second.clock <= staleness_;
    });
  }

  static wire::WorkerRef ref(const Member& member) {
    return {1, member.rank, 1, member.incarnation};
  }
  void refuse(std::uint64_t id, Status status) { send(id, wire::Error{status, "refused"}); }
  void send(std::uint64_t id, wire::Body body) { encoder_.append({id, std::move(body)}, output); }

  const std::int64_t staleness_;
  std::map<std::string, Member> members_;
  std::uint64_t next_incarnation_ = 1;
  bool welcomed_ = false;
  std::set<std::tuple<std::string, std::uint64_t, std::int64_t>> seen_;
  wire::FrameSplitter splitter_;
  wire::Encoder encoder_;
};

}  // namespace syncd::client
