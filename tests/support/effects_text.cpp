// See effects_text.h.
#include "tests/support/effects_text.h"

#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>
#include <variant>

#include "daemon/core/engine/job_spec.h"

namespace syncd::test {
namespace {

// Collects " key=value" parts, leaving out values that say nothing.
class Line {
 public:
  explicit Line(std::string start) : text_(std::move(start)) {}

  Line& word(const std::string& value) {
    if (!value.empty()) text_ += " " + value;
    return *this;
  }
  Line& flag(const char* name, bool set) { return set ? word(name) : *this; }
  template <class T>
  Line& number(const char* key, T value, std::type_identity_t<T> silent) {
    if (value != silent) text_ += std::string(" ") + key + "=" + std::to_string(value);
    return *this;
  }
  template <class T>
  Line& number(const char* key, T value) {
    text_ += std::string(" ") + key + "=" + std::to_string(value);
    return *this;
  }
  Line& time(const char* key, Micros value, Micros silent) {
    if (value != silent) text_ += std::string(" ") + key + "=" + seconds_text(value);
    return *this;
  }
  Line& quoted(const char* key, const std::string& value) {
    if (!value.empty()) text_ += std::string(" ") + key + "=\"" + escaped(value) + "\"";
    return *this;
  }
  Line& plain(const char* key, const std::string& value) {
    if (!value.empty()) text_ += std::string(" ") + key + "=" + value;
    return *this;
  }
  std::string take() { return std::move(text_); }

  static std::string escaped(const std::string& value) {
    std::string out;
    for (const char c : value) {
      if (c == '\n') {
        out += "\\n";
      } else {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
      }
    }
    return out;
  }

 private:
  std::string text_;
};

std::string worker_text(JobId job, std::int64_t rank, Epoch epoch, Incarnation incarnation) {
  std::string text = "#" + std::to_string(job);
  if (rank != kNoRank) text += "/" + std::to_string(rank);
  text += " e" + std::to_string(epoch);
  if (incarnation != 0) text += " i" + std::to_string(incarnation);
  return text;
}

std::string text_of(const wire::WorkerRef& ref) {
  return worker_text(ref.job, ref.rank, ref.epoch, ref.incarnation);
}

std::string values_text(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

std::string bytes_text(const std::vector<std::uint8_t>& bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    char shown[8];
    std::snprintf(shown, sizeof shown, byte >= ' ' && byte < 127 ? "%c" : "\\x%02x", byte);
    text += shown;
  }
  return text;
}

std::string ratio_text(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", ratio);
  return text;
}

std::string loss_text(const std::optional<double>& loss) {
  if (!loss) return {};
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", *loss);
  return text;
}

// ---- one message each

std::string text_of(const wire::Join& join) {
  return Line("join")
      .word(join.job)
      .plain("policy", join.policy)
      .plain("name", join.name)
      .plain("host", join.host)
      .number("rank", join.rank, -1)
      .number("world", join.world_size, 0)
      .number("i", join.incarnation, 0)
      .number("granted", join.granted, kNoIteration)
      .number("pushed", join.pushed, kNoIteration)
      .plain("phase", join.phase)
      .time("left", join.phase_left_us, 0)
      .quoted("data", bytes_text(join.data))
      .number("notices", join.notices, 0)
      .number("epoch", join.epoch, 0)
      .plain("launch", join.launch)
      .number("launch_number", join.launch_number, 0)
      .plain("resume", join.resume == wire::Resume::kAuto  ? ""
                       : join.resume == wire::Resume::kNew ? "new"
                                                           : "continue")
      .number("at", join.resume_at, kNoIteration)
      .time("exit_grace", join.exit_grace_us, -1)
      .flag("views", join.views)
      .time("hang_after", join.hang_after_us, 0)
      .number("heartbeat_timeout_ms", join.heartbeat_timeout_ms, 0)
      .take();
}
std::string text_of(const wire::Begin& begin) {
  return "begin " + std::to_string(begin.iteration) + " " + text_of(begin.worker);
}
std::string text_of(const wire::Push& push) {
  return "push " + std::to_string(push.iteration) + " " + text_of(push.worker);
}
std::string text_of(const wire::CancelBegin& cancel) {
  return "cancel_begin " + std::to_string(cancel.iteration) + " " + text_of(cancel.worker);
}
std::string text_of(const wire::Leave& leave) {
  constexpr const char* kKinds[] = {"", "finished", "failed", "preempted"};
  return Line("leave " + text_of(leave.worker))
      .plain("kind", kKinds[static_cast<std::size_t>(leave.kind) % 4])
      .quoted("reason", leave.reason)
      .take();
}
std::string text_of(const wire::Explain& explain) {
  return "explain " + text_of(explain.worker);
}

std::string text_of(const wire::Phase& phase) {
  return Line("phase " + text_of(phase.worker))
      .plain("name", phase.name)
      .time("lease", phase.lease_us, 0)
      .take();
}

std::string text_of(const wire::Error& error) {
  std::string status(status_name(error.status));
  return Line("error").word(status).take() + " \"" + Line::escaped(error.message) + "\"";
}
std::string text_of(const wire::Ok&) {
  return "ok";
}
std::string text_of(const wire::Joined& joined) {
  return Line("joined")
      .word(text_of(joined.worker))
      .number("next", joined.iteration)
      .plain("policy", joined.policy)
      .number("world", joined.world_size)
      .flag("durable", joined.durable)
      .flag("resumed", joined.resumed)
      .number("members_version", joined.members_version, 0)
      .time("grace", joined.worker_grace_us, JobSpec{}.worker_grace_us)
      .time("exit_grace", joined.exit_grace_us, -1)
      .flag("views", joined.views)
      .number("round", static_cast<std::int64_t>(joined.round), 0)
      .number("gone", joined.round_gone, 0)
      .number("room", joined.round_room, 0)
      .number("heartbeat_timeout_ms", joined.heartbeat_timeout_ms, 0)
      .time("hang_after", joined.hang_after_us, 0)
      .take();
}
// "0/3"; empty: it says none.
template <class Granted>
std::string shard_text(const Granted& granted) {
  if (granted.shards == 0) return {};
  return std::to_string(granted.shard) + "/" + std::to_string(granted.shards);
}
std::string text_of(const wire::Granted& granted) {
  return Line("granted " + std::to_string(granted.iteration))
      .word(flags_text(granted.flags))
      .number("staleness", granted.staleness, 0)
      .number("checkpoint", granted.checkpoint, 0)
      .plain("shard", shard_text(granted))
      .take();
}
std::string text_of(const wire::CheckpointAsked& asked) {
  return "checkpoint " + std::to_string(asked.number);
}
std::string text_of(const wire::LatestCheckpointReply& reply) {
  std::string text = Line("latest checkpoint " + std::to_string(reply.number))
                         .number("epoch", reply.epoch, 0)
                         .number("k", reply.iteration, 0)
                         .time("at", reply.completed_us, 0)
                         .number("shards", reply.shards, 0)
                         .take();
  for (const wire::CheckpointShard& shard : reply.saved) {
    text += Line(" [" + std::to_string(shard.shard))
                .number("rank", shard.rank)
                .number("k", shard.iteration)
                .quoted("location", shard.location)
                .take() +
            "]";
  }
  return Line(text)
      .number("next_shard", reply.next_shard, -1)
      .number("open", reply.open, 0)
      .quoted("text", reply.open_text)
      .number("closed", reply.closed, 0)
      .quoted("reason", reply.closed_reason)
      .take();
}
std::string text_of(const wire::Pushed& pushed) {
  return Line("pushed " + std::to_string(pushed.iteration))
      .flag("LATE", pushed.late)
      .flag("duplicate", pushed.duplicate)
      .take();
}
std::string text_of(const Explanation& why) {
  std::string text = "\"" + Line::escaped(syncd::to_text(why)) + "\"";
  return Line("explanation")
      .number("k", why.iteration, kNoIteration)
      .time("waiting", why.waiting_us, 0)
      .word(text)
      .take();
}
std::string text_of(const wire::TargetsReply& reply) {
  std::string text = "targets " + std::to_string(reply.iteration) + ":";
  for (const std::uint32_t rank : reply.ranks) text += " " + std::to_string(rank);
  return text;
}
// "3@12*0.5": iteration 12 of rank 3, with weight 0.5.
std::string text_of(const wire::CollectReply& reply) {
  std::string text = "collect " + std::to_string(reply.iteration) + ":";
  for (const wire::PeerUpdate& update : reply.updates) {
    char weight[32];
    std::snprintf(weight, sizeof weight, "%.4g", update.weight);
    text +=
        " " + std::to_string(update.rank) + "@" + std::to_string(update.iteration) + "*" + weight;
  }
  return text;
}
std::string text_of(const wire::StopNotice& notice) {
  return Line("stop_notice " + text_of(notice.worker)).quoted("message", notice.message).take();
}
std::string text_of(const wire::FencedNotice& notice) {
  return Line("fenced_notice " + text_of(notice.worker)).quoted("message", notice.message).take();
}
std::string text_of(const wire::ResyncNotice& notice) {
  return Line("resync_notice " + text_of(notice.worker)).number("k", notice.iteration).take();
}
std::string text_of(const wire::MembersNotice& notice) {
  return Line("members_notice " + text_of(notice.worker)).number("version", notice.version).take();
}
std::string text_of(const wire::StragglerNotice& notice) {
  return Line("straggler_notice " + text_of(notice.worker))
      .number("rank", notice.rank)
      .plain("name", notice.name)
      .plain("host", notice.host)
      .flag("recovered", notice.recovered)
      .plain("factor", ratio_text(notice.factor))
      .time("since", notice.since_us, -1)
      .quoted("host_note", notice.host_note)
      .take();
}
std::string text_of(const wire::PlanNotice& notice) {
  return Line("plan_notice " + text_of(notice.worker))
      .number("k", notice.iteration)
      .time("wait", notice.wait_us, -1)
      .take();
}
std::string text_of(const wire::Arrive& arrive) {
  return Line("arrive " + std::to_string(arrive.iteration) + " " + text_of(arrive.worker))
      .quoted("data", bytes_text(arrive.data))
      .take();
}
std::string text_of(const wire::ViewGranted& granted) {
  return Line("view_granted " + std::to_string(granted.iteration))
      .word(flags_text(granted.flags))
      .number("staleness", granted.staleness, 0)
      .number("view", static_cast<std::int64_t>(granted.view))
      .number("rank", granted.rank)
      .number("size", granted.size)
      .quoted("data", bytes_text(granted.data))
      .quoted("reason", granted.reason)
      .number("checkpoint", granted.checkpoint, 0)
      .plain("shard", shard_text(granted))
      .take();
}
std::string text_of(const wire::ViewRequest& request) {
  return Line("view_request " + text_of(request.worker))
      .number("view", static_cast<std::int64_t>(request.view))
      .number("first", request.first_rank, 0)
      .take();
}
std::string text_of(const wire::ViewReply& reply) {
  std::string text = "view " + std::to_string(reply.view);
  for (const wire::ViewMember& member : reply.members) {
    text += Line(" [" + std::to_string(member.rank))
                .word(member.name)
                .word(member.host)
                .quoted("data", bytes_text(member.data))
                .take() +
            "]";
  }
  return Line(text)
      .number("size", reply.size)
      .quoted("reason", reply.reason)
      .number("next_rank", reply.next_rank, -1)
      .take();
}
std::string text_of(const wire::RoundNotice& notice) {
  return Line("round_notice " + text_of(notice.worker))
      .number("round", static_cast<std::int64_t>(notice.round))
      .number("gone", notice.gone)
      .number("room", notice.room)
      .take();
}
std::string text_of(const wire::HangNotice& notice) {
  return Line("hang_notice " + text_of(notice.worker))
      .number("rank", notice.rank, -1)
      .number("k", notice.iteration, kNoIteration)
      .time("waiting", notice.waiting_us, 0)
      .quoted("text", notice.text)
      .take();
}
std::string text_of(const wire::InspectNotice& notice) {
  return Line("inspect_notice " + text_of(notice.worker)).number("number", notice.number).take();
}
std::string text_of(const wire::InspectReply& reply) {
  return Line("inspect [" + std::to_string(reply.rank))
             .word(reply.name)
             .word(reply.host)
             .quoted("state", reply.state)
             .quoted("stacks", reply.stacks)
             .quoted("failure", reply.failure)
             .time("at", reply.at_us, -1)
             .take() +
         "]";
}
std::string text_of(const wire::MembersRequest& request) {
  return Line("members_request " + text_of(request.worker))
      .number("first", request.first_rank, 0)
      .take();
}
std::string text_of(const wire::MembersReply& reply) {
  constexpr const char* kStates[] = {"active", "disconnected", "left", "lost"};
  std::string text = "members";
  for (const wire::MemberStatus& member : reply.members) {
    text += Line(" [" + std::to_string(member.rank))
                .word(kStates[static_cast<std::size_t>(member.state)])
                .word(member.name)
                .word(member.host)
                .number("clock", member.clock)
                .quoted("data", bytes_text(member.data))
                .take() +
            "]";
  }
  return Line(text)
      .number("next_rank", reply.next_rank, -1)
      .number("version", reply.version)
      .take();
}
std::string text_of(const wire::JobsReply& reply) {
  std::string text = "jobs";
  for (const wire::JobStatus& job : reply.jobs) {
    text += Line(" [#" + std::to_string(job.id))
                .word(job.name)
                .word(job.policy)
                .word(job.state)
                .number("epoch", job.epoch)
                .number("expected", job.expected_workers)
                .number("active", job.active_workers)
                .number("clock_min", job.clock_min)
                .number("clock_max", job.clock_max)
                .number("pushes", job.pushes)
                .number("waiting", job.waiting, 0)
                .quoted("note", job.note)
                .number("stragglers", job.stragglers, 0)
                .time("created", job.created_us, -1)
                .quoted("hang", job.hang)
                .plain("hang_ranks", job.hang_ranks)
                .take() +
            "]";
  }
  return text;
}
std::string text_of(const wire::WorkersReply& reply) {
  std::string text = "workers";
  for (const wire::WorkerStatus& worker : reply.workers) {
    text += Line(" [" + std::to_string(worker.rank))
                .word(worker.name)
                .word(worker.host)
                .word(worker.state)
                .number("incarnation", worker.incarnation)
                .number("clock", worker.clock)
                .number("granted", worker.granted)
                .time("last_push", worker.last_push_us, -1)
                .flag("connected", worker.connected)
                .time("waiting", worker.waiting_us, -1)
                .quoted("waiting_for", worker.waiting_for)
                .quoted("reason", worker.reason)
                .time("warn_after", worker.warn_after_us, -1)
                .time("evict_after", worker.evict_after_us, -1)
                .quoted("late_rule", worker.late_rule)
                .time("computed", worker.computed_us, -1)
                .time("exchange", worker.exchange_us, -1)
                .time("straggler_since", worker.straggler_since_us, -1)
                .plain("straggler_factor",
                       worker.straggler_factor != 0 ? ratio_text(worker.straggler_factor) : "")
                .take() +
            "]";
  }
  return Line(text).number("next_rank", reply.next_rank, -1).time("now", reply.now_us, -1).take();
}
template <class Other>
std::string text_of(const Other&) {
  return {};  // the caller falls back on the message's name
}

// "3/i41/pull,barrier/worker-3@node-a=DATA,...": rank, incarnation, flags, name, host and data.
std::string members_text(const std::vector<ViewMember>& members) {
  std::string text;
  for (const ViewMember& member : members) {
    text += (text.empty() ? "" : ",") + std::to_string(member.rank) + "/i" +
            std::to_string(member.incarnation) + "/" + flags_text(member.flags) + "/" +
            member.name + "@" + member.host;
    if (!member.data.empty()) text += "=" + bytes_text(member.data);
  }
  return text;
}

std::string worker_line(const WorkerSnapshot& worker) {
  return Line("  " + std::to_string(worker.rank))
      .word(worker.name)
      .word(worker.host)
      .word(to_string(worker.state))
      .number("i", worker.incarnation)
      .number("clock", worker.clock)
      .number("base", worker.base, 0)
      .number("granted", worker.granted, kNoIteration)
      .number("pushed", worker.pushed, kNoIteration)
      .number("late", worker.late, kNoIteration)
      .number("own_pushes", worker.own_pushes, 0)
      .time("last_push", worker.last_push_us, -1)
      .time("previous_push", worker.previous_push_us, -1)
      .quoted("data", bytes_text(worker.data))
      .quoted("dismissal", worker.dismissal)
      .quoted("leased_phase", worker.leased_phase)
      .time("phase_at", worker.phase_us, 0)
      .time("phase_lease", worker.phase_lease_us, 0)
      .number("entered", worker.entered, kNoIteration)
      .flag("returned", worker.returned)
      .time("exchange", worker.exchange_us, -1)
      .time("slow_since", worker.slow_since_us, -1)
      .plain("slow_factor", worker.slow_factor != 0 ? ratio_text(worker.slow_factor) : "")
      .plain("usual", worker.usual ? ratio_text(*worker.usual) : "")
      .take();
}

std::string checkpoint_line(const CheckpointSnapshot& checkpoint) {
  constexpr const char* kStates[] = {"queued", "open", "complete"};
  std::string text = Line("  checkpoint " + std::to_string(checkpoint.number))
                         .word(kStates[static_cast<std::size_t>(checkpoint.state)])
                         .number("epoch", checkpoint.epoch)
                         .time("since", checkpoint.since_us, -1)
                         .quoted("reason", checkpoint.reason)
                         .flag("fixed", checkpoint.fixed)
                         .plain("members", values_text(checkpoint.members))
                         .number("shards", checkpoint.shards, 0)
                         .take();
  for (const SavedShard& shard : checkpoint.saved) {
    text += Line(" [" + std::to_string(shard.shard))
                .number("rank", shard.rank)
                .number("k", shard.iteration)
                .quoted("location", shard.location)
                .take() +
            "]";
  }
  return text;
}

}  // namespace

std::string seconds_text(Micros us) {
  const std::uint64_t size =
      us < 0 ? 0 - static_cast<std::uint64_t>(us) : static_cast<std::uint64_t>(us);
  std::string text = (us < 0 ? "-" : "") + std::to_string(size / 1'000'000);
  if (const std::uint64_t rest = size % 1'000'000; rest != 0) {
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06u", static_cast<unsigned>(rest));
    text += "." + std::string(digits);
    while (text.back() == '0') text.pop_back();
  }
  return text + "s";
}

std::string flags_text(std::uint32_t flags) {
  constexpr std::pair<std::uint32_t, const char*> kNames[] = {
      {wire::kStepPull, "PULL"},       {wire::kStepBarrier, "BARRIER"},
      {wire::kStepSkip, "SKIP"},       {wire::kStepStop, "STOP"},
      {wire::kStepResumed, "RESUMED"}, {wire::kStepCheckpoint, "CHECKPOINT"}};
  std::string text;
  for (const auto& [bit, name] : kNames) {
    if ((flags & bit) == 0) continue;
    text += (text.empty() ? "" : " ") + std::string(name);
    flags &= ~bit;
  }
  if (flags != 0) text += " flags+" + std::to_string(flags);
  return text;
}

std::string to_text(const wire::Body& body) {
  std::string text = std::visit([](const auto& message) { return text_of(message); }, body);
  return text.empty() ? std::string(wire::body_name(body)) : text;
}

std::string to_text(const Record& r, Micros now) {
  const Record silent;
  return Line(to_string(r.kind))
      .word(worker_text(r.job, r.rank, r.epoch, r.incarnation))
      .number("seq", r.sequence)
      .time("t", r.time_us, now)
      .plain("name", r.name)
      .plain("host", r.host)
      .quoted("data", bytes_text(r.data))
      .number("k", r.iteration, silent.iteration)
      .number("clock", r.clock, silent.clock)
      .number("base", r.base, silent.base)
      .flag("resumed", r.resumed)
      .flag("LATE", r.late)
      .time("span", r.span_us, silent.span_us)
      .time("computed", r.computed_us, silent.computed_us)
      .time("waited", r.waited_us, silent.waited_us)
      .number("staleness", r.staleness, silent.staleness)
      .plain("loss", loss_text(r.loss))
      .number("samples", r.samples, silent.samples)
      .number("bytes", r.bytes, silent.bytes)
      .plain("policy", r.policy)
      .number("expected", r.expected_workers, silent.expected_workers)
      .number("min", r.min_workers, silent.min_workers)
      .quoted("config", r.config)
      .quoted("reason", r.reason)
      .number("superstep", r.superstep, silent.superstep)
      .time("predicted", r.predicted_us, silent.predicted_us)
      .time("predicted_wait", r.predicted_wait_us, silent.predicted_wait_us)
      .time("wait", r.wait_us, silent.wait_us)
      .number("restarts", r.restarts, silent.restarts)
      .time("wasted", r.wasted_us, silent.wasted_us)
      .flag("DECLINED", r.declined)
      .plain("values", values_text(r.values))
      .flag("returned", r.returned)
      .number("checkpoint", r.checkpoint, silent.checkpoint)
      .number("shard", r.shard, silent.shard)
      .number("shards", r.shards, silent.shards)
      .quoted("location", r.location)
      .plain("members", members_text(r.members))
      .flag("in_phase", r.in_phase)
      .plain("factor", r.factor != 0 ? ratio_text(r.factor) : "")
      .take();
}

std::string to_text(const JobSnapshot& snapshot, Micros now) {
  std::string text = Line("#" + std::to_string(snapshot.created.job))
                         .word(snapshot.created.name)
                         .number("seq", snapshot.sequence)
                         .time("t", snapshot.time_us, now)
                         .word(to_string(snapshot.state))
                         .number("epoch", snapshot.epoch)
                         .number("next_incarnation", snapshot.next_incarnation)
                         .number("pushes", snapshot.pushes)
                         .number("highest_clock", snapshot.highest_clock)
                         .plain("policy", snapshot.policy)
                         .plain("policy_state", values_text(snapshot.policy_state))
                         .quoted("stop_reason", snapshot.stop_reason)
                         .number("expected", snapshot.expected_workers, 0)
                         .number("left", snapshot.left, 0)
                         .flag("reassembling", snapshot.reassembling)
                         .number("group_epoch", snapshot.group_epoch, 0)
                         .plain("launch", snapshot.launch)
                         .number("launch_number", snapshot.launch_number, 0)
                         .quoted("failure", snapshot.failure)
                         .number("checkpoints_asked", snapshot.checkpoints_asked, 0)
                         .number("checkpoint_clock", snapshot.checkpoint_clock, 0)
                         .number("closed", snapshot.checkpoint_closed, 0)
                         .quoted("closed_reason", snapshot.checkpoint_closed_reason)
                         .quoted("policy_text", snapshot.policy_text)
                         .take();
  for (const CheckpointSnapshot& checkpoint : snapshot.checkpoints) {
    text += "\n" + checkpoint_line(checkpoint);
  }
  for (const WorkerSnapshot& worker : snapshot.workers) text += "\n" + worker_line(worker);
  for (const View& view : snapshot.views) {
    text += Line("\n  view " + std::to_string(view.number))
                .quoted("reason", view.reason)
                .plain("members", members_text(view.members))
                .take();
  }
  return text;
}

std::string to_text(const LogLine& line) {
  Line out(std::string("log ") + to_string(line.level) + " " + line.event);
  for (const auto& [key, value] : line.fields) {
    if (value.find(' ') == std::string::npos && !value.empty()) {
      out.plain(key.c_str(), value);
    } else {
      out.word(key + "=\"" + Line::escaped(value) + "\"");
    }
  }
  return out.take();
}

std::string to_text(const Effects& effects, Micros now, const std::string& indent,
                    const CallerName& name) {
  std::string out;
  const auto line = [&](const std::string& text) { out += indent + text + "\n"; };
  for (const Record& record : effects.records) line("rec " + to_text(record, now));
  for (const JobSnapshot& snapshot : effects.snapshots) {
    std::string text = "snapshot " + to_text(snapshot, now);
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; ++at) {
      text.insert(at + 1, indent);
    }
    line(text);
  }
  for (const Reply& reply : effects.replies) {
    line((reply.after_records ? "=> " : "-> ") + name(reply.to) + ": " + to_text(reply.body));
  }
  for (const Notification& notice : effects.notifications) {
    line((notice.after_records ? "== " : "-- ") + name({notice.connection, 0}) + ": " +
         to_text(notice.body));
  }
  for (const Plan& plan : effects.plans) {
    line("plan #" + std::to_string(plan.job) + " " + std::to_string(plan.id));
  }
  for (const LogLine& log : effects.log) line(to_text(log));
  return out;
}

std::string to_text(const Effects& effects, Micros now) {
  return to_text(effects, now, "", [](const Caller& caller) {
    return "c" + std::to_string(caller.connection) + "r" + std::to_string(caller.request);
  });
}

}  // namespace syncd::test
