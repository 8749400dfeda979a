// See effects_form.h.
#include "effects_form.h"

#include <type_traits>
#include <variant>

namespace syncd::test {
namespace {

void blank_text(std::string& text) {
  if (!text.empty()) text = "~";
}

}  // namespace

void blank(wire::Body& body) {
  std::visit(
      [](auto& b) {
        using T = std::decay_t<decltype(b)>;
        if constexpr (std::is_same_v<T, wire::Error> || std::is_same_v<T, wire::StopNotice> ||
                      std::is_same_v<T, wire::FencedNotice> ||
                      std::is_same_v<T, wire::ShutdownNotice>) {
          blank_text(b.message);
        } else if constexpr (std::is_same_v<T, Explanation>) {
          blank_text(b.text);
          for (WaitedFor& worker : b.workers) blank_text(worker.state);
        } else if constexpr (std::is_same_v<T, wire::JobsReply>) {
          for (wire::JobStatus& job : b.jobs) blank_text(job.note);
        } else if constexpr (std::is_same_v<T, wire::WorkersReply>) {
          for (wire::WorkerStatus& worker : b.workers) {
            blank_text(worker.reason);
            blank_text(worker.late_rule);
          }
        }
      },
      body);
}

void blank(Record& record) {
  switch (record.kind) {
    case RecordKind::kPlan:
    case RecordKind::kBarrier:
      return;
    case RecordKind::kPolicyNote:
      if (record.reason.starts_with("graph: ")) blank_text(record.reason);
      return;
    default:
      blank_text(record.reason);
  }
}

void blank(JobSnapshot& snapshot) {
  blank_text(snapshot.stop_reason);
  blank_text(snapshot.failure);
  for (WorkerSnapshot& worker : snapshot.workers) blank_text(worker.dismissal);
}

void blank(Effects& effects) {
  for (Record& record : effects.records) blank(record);
  for (JobSnapshot& snapshot : effects.snapshots) blank(snapshot);
  for (Reply& reply : effects.replies) blank(reply.body);
  for (Notification& notice : effects.notifications) blank(notice.body);
  for (LogLine& line : effects.log) line = LogLine{LogLevel::kInfo, "line", {}};
}

void EffectsForm::add(Fnv& hash, std::uint64_t id, const wire::Body& body) {
  frame_.clear();
  wire_.append({id, body}, frame_);
  hash.bytes(frame_);
}

void EffectsForm::add_event(const Event& event, Micros now) {
  events_.number(event.index());
  events_.number(static_cast<std::uint64_t>(now));
  std::visit(
      [&](const auto& e) {
        using T = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<T, Request>) {
          events_.number(e.caller.connection);
          events_.number(e.graph_file != nullptr ? 1 : 0);
          add(events_, e.caller.request, e.body);
        } else if constexpr (std::is_same_v<T, Disconnected>) {
          events_.number(e.connection);
        } else if constexpr (std::is_same_v<T, PlanReady>) {
          events_.number(e.job);
          events_.number(e.plan);
          for (const std::int64_t value : e.result) {
            events_.number(static_cast<std::uint64_t>(value));
          }
        } else if constexpr (std::is_same_v<T, StoreState>) {
          events_.number(e.writable ? 1 : 0);
        }
      },
      event);
}

void EffectsForm::add_event(std::string_view what, std::span<const std::int64_t> numbers,
                            Micros now) {
  events_.text(what);
  events_.number(static_cast<std::uint64_t>(now));
  for (const std::int64_t number : numbers) events_.number(static_cast<std::uint64_t>(number));
}

void EffectsForm::add_effects(const Effects& effects, const std::vector<PlanReady>& results,
                              Micros deadline) {
  effects_.number(effects.records.size());
  for (const Record& record : effects.records) effects_.bytes(stored_.encode(record));
  effects_.number(effects.snapshots.size());
  for (const JobSnapshot& snapshot : effects.snapshots) add_snapshot(snapshot);
  effects_.number(effects.replies.size());
  for (const Reply& reply : effects.replies) {
    effects_.number(reply.to.connection);
    effects_.number(reply.after_records ? 1 : 0);
    add(effects_, reply.to.request, reply.body);
  }
  effects_.number(effects.notifications.size());
  for (const Notification& notice : effects.notifications) {
    effects_.number(notice.connection);
    effects_.number(notice.after_records ? 1 : 0);
    add(effects_, 0, notice.body);
  }
  effects_.number(results.size());
  for (const PlanReady& plan : results) {
    effects_.number(plan.job);
    effects_.number(plan.plan);
    effects_.number(plan.result.size());
    for (const std::int64_t value : plan.result) add_number(value);
  }
  effects_.number(effects.log.size());
  add_number(deadline);
}

void EffectsForm::add_snapshot(const JobSnapshot& snapshot) {
  effects_.bytes(stored_.encode(snapshot));
}

}  // namespace syncd::test
