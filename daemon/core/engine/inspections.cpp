// See inspections.h.
#include "daemon/core/engine/inspections.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "daemon/core/engine/limits.h"
#include "proto/base/plain_text.h"

namespace syncd {
namespace {

// Line breaks and what is plain stay as they are, the rest is escaped.
std::string shown(const std::vector<std::uint8_t>& bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::string out;
  while (!text.empty() && out.size() < limits::kStacksBytesMax) {
    const TextCharacter character = first_text_character(text);
    if (character.code == '\n' || is_plain(character)) {
      out += text.substr(0, character.bytes);
    } else {
      append_escaped(character, out);
    }
    text.remove_prefix(character.bytes);
  }
  if (!text.empty()) out += "\n... cut";
  return out;
}

}  // namespace

bool Inspections::start(const Worker& worker, std::string& failure) {
  if (!is_member(worker.state)) {
    failure = std::string("it is ") + to_string(worker.state);
  } else if (worker.connection == 0) {
    failure = "it is not connected";
  } else if ((worker.notices & wire::kNoticeInspect) == 0) {
    failure =
        "its client answers no such question: it set no on_inspect, is older, or is connected in "
        "plain text from another machine";
  }
  if (!failure.empty()) return false;
  if (pending_.contains(worker.rank)) return true;
  Pending& pending = pending_[worker.rank];
  pending.number = ++last_number_;
  pending.until = engine_.now() + limits::kInspectTimeoutUs;
  answers_.notify(worker.connection, wire::InspectNotice{answers_.ref(worker), pending.number});
  set_timer();
  return true;
}

void Inspections::ask(const Caller& caller, const Worker& worker) {
  if (callers_ >= limits::kInspectionsPerJobMax) {
    return answers_.refuse(caller, Status::kLimit,
                           "{} inspections of job '{}' are not answered yet, the most allowed at "
                           "once: wait for the answers",
                           callers_, spec_.name);
  }
  wire::InspectReply reply = reply_about(worker);
  if (!start(worker, reply.failure)) return answers_.reply(caller, std::move(reply));
  pending_[worker.rank].callers.push_back(caller);
  ++callers_;
}

void Inspections::show_kept(const Caller& caller, const Worker& worker) {
  const auto found = kept_.find(worker.rank);
  if (found != kept_.end()) return answers_.reply(caller, found->second);
  wire::InspectReply reply = reply_about(worker);
  reply.failure = spec_.inspect_on_hang
                      ? "it was not at fault in the latest hang"
                      : "nothing is kept: inspect_on_hang is not set for job '" + spec_.name + "'";
  answers_.reply(caller, std::move(reply));
}

void Inspections::keep(const std::vector<Rank>& ranks) {
  kept_.clear();
  for (const Rank rank : ranks) {
    if (kept_.size() == limits::kHangNamedMax) return;
    const Worker* worker = roster_.find(rank);
    if (worker == nullptr) continue;
    wire::InspectReply& reply = kept_[rank] = reply_about(*worker);
    reply.at_us = engine_.now();
    if (start(*worker, reply.failure)) {
      pending_[rank].kept = true;
      reply.failure = "it has not answered yet";
    }
  }
}

void Inspections::answered(const Caller& caller, const Worker& worker,
                           const wire::Inspected& inspected) {
  const auto found = pending_.find(worker.rank);
  if (found == pending_.end() || found->second.number != inspected.number) {
    return answers_.refuse(caller, Status::kState,
                           "inspected({}) of {}: nobody asks for that answer now",
                           inspected.number, label(worker));
  }
  answers_.reply(caller, wire::Ok{});
  finish(worker, shown(inspected.text), {});
}

void Inspections::look() {
  std::vector<Rank> over;
  for (const auto& [rank, pending] : pending_) {
    if (pending.until <= engine_.now()) over.push_back(rank);
  }
  for (const Rank rank : over) {
    finish(roster_.at(rank), {},
           fmt::format("no answer in {}: its interpreter's lock (GIL) is held, or it is stopped",
                       format_duration(limits::kInspectTimeoutUs)));
  }
  set_timer();
}

void Inspections::finish(const Worker& worker, std::string stacks, std::string failure) {
  const auto found = pending_.find(worker.rank);
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  callers_ -= pending.callers.size();
  wire::InspectReply reply = reply_about(worker);
  reply.stacks = std::move(stacks);
  reply.failure = std::move(failure);
  reply.at_us = engine_.now();
  for (const Caller& caller : pending.callers) answers_.reply(caller, wire::InspectReply(reply));
  if (pending.kept) {
    answers_.log(LogLevel::kInfo, "worker_inspected", &worker,
                 {{"bytes", std::to_string(reply.stacks.size())}, {"failure", reply.failure}});
    kept_[worker.rank] = std::move(reply);
  }
}

wire::InspectReply Inspections::reply_about(const Worker& worker) const {
  wire::InspectReply reply;
  reply.rank = worker.rank;
  reply.name = worker.name;
  reply.host = worker.host;
  reply.state = liveness_.describe(worker, loop_.in_iteration(worker));
  return reply;
}

void Inspections::set_timer() {
  Micros first = kNever;
  for (const auto& [rank, pending] : pending_) first = std::min(first, pending.until);
  if (first != kNever) engine_.set_timer(kNoRank, kTimerInspect, first);
}

}  // namespace syncd
