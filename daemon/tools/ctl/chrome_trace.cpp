// See chrome_trace.h.
#include "daemon/tools/ctl/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/core/policies/registry.h"
#include "daemon/tools/ctl/table.h"
#include "proto/base/plain_text.h"

namespace syncd::ctl {
namespace {

constexpr std::int64_t kJobTrack = 0;

std::int64_t track_of(std::int64_t rank) {
  return rank + 1;
}

nlohmann::json named(const char* what, const Record& record, std::int64_t track,
                     const nlohmann::json& args) {
  return {{"ph", "M"}, {"name", what}, {"pid", record.job}, {"tid", track}, {"args", args}};
}

nlohmann::json slice(const Record& record, const std::string& name, const char* category,
                     Micros begin, Micros end) {
  return {{"ph", "X"},
          {"name", name},
          {"cat", category},
          {"pid", record.job},
          {"tid", track_of(record.rank)},
          {"ts", begin},
          {"dur", end - begin}};
}

}  // namespace

ChromeTrace::ChromeTrace(std::ostream& out) : out_(out) {
  out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
}

// Names come from clients, and need not be UTF-8.
void ChromeTrace::event(const nlohmann::json& json) {
  out_ << (first_ ? "\n" : ",\n")
       << plain_json(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  first_ = false;
}

void ChromeTrace::finish() {
  out_ << "\n]}\n";
}

void ChromeTrace::add(const Record& record) {
  if (!process_named_) name_process(record);
  if (record.kind == RecordKind::kJobCreated) {
    decentralized_ = traits_or_none(record.policy).family == Family::kDecentralized;
  }
  if (record.rank >= 0) track(record);
  if (record.kind == RecordKind::kPush) {
    add_push(record);
    return;
  }
  if (record.kind == RecordKind::kWorkerJoined || record.kind == RecordKind::kWorkerLeft ||
      record.kind == RecordKind::kWorkerLost) {
    track(record).pushed = kNoIteration;  // another life, or none
  }
  std::string name = to_string(record.kind);
  if (record.rank >= 0) name += fmt::format(" {}", record.rank);
  add_instant(record, name);
}

void ChromeTrace::name_process(const Record& record) {
  process_named_ = true;
  std::string name = fmt::format("job #{}", record.job);
  if (record.kind == RecordKind::kJobCreated) name += " " + record.name;
  event(named("process_name", record, kJobTrack, {{"name", name}}));
  event(named("thread_name", record, kJobTrack, {{"name", "job"}}));
}

ChromeTrace::Track& ChromeTrace::track(const Record& record) {
  const auto [at, fresh] = tracks_.try_emplace(record.rank);
  if (fresh) {
    std::string name = fmt::format("worker {}", record.rank);
    if (!record.name.empty()) name += " " + record.name;
    if (!record.host.empty()) name += " on " + record.host;
    const std::int64_t id = track_of(record.rank);
    event(named("thread_name", record, id, {{"name", name}}));
    event(named("thread_sort_index", record, id, {{"sort_index", id}}));
  }
  return at->second;
}

void ChromeTrace::add_push(const Record& record) {
  Track& its = track(record);
  const Micros end = std::max(record.time_us, its.end_us);
  const Micros granted = std::max(end - std::max<Micros>(0, record.span_us), its.end_us);
  const Micros begun = std::max(granted - std::max<Micros>(0, record.waited_us), its.end_us);
  if (decentralized_ && its.pushed != kNoIteration && its.end_us < begun) {
    const std::string name = fmt::format("after push {}", its.pushed);
    event(slice(record, name, "after_push", its.end_us, begun));
  }
  if (begun < granted) event(slice(record, "wait", "wait", begun, granted));
  nlohmann::json iteration = slice(record, fmt::format("iteration {}", record.iteration),
                                   record.late ? "late" : "iteration", granted, end);
  iteration["args"] = {{"sequence", record.sequence}, {"iteration", record.iteration},
                       {"clock", record.clock},       {"staleness", record.staleness},
                       {"samples", record.samples},   {"bytes", record.bytes}};
  if (record.loss) iteration["args"]["loss"] = *record.loss;
  if (record.span_us < 0) iteration["args"]["span"] = "not known";
  // Within the iteration's slice: what it computed itself, and what followed.
  const Micros marked = granted + std::max<Micros>(record.computed_us, 0);
  const bool is_marked = record.exchange_us() >= 0 && marked <= end;
  if (is_marked) {
    iteration["args"]["computed_us"] = record.computed_us;
    iteration["args"]["exchange_us"] = record.exchange_us();
  }
  event(iteration);
  if (is_marked && granted < marked) {
    event(slice(record, "computing", "computing", granted, marked));
  }
  if (is_marked && marked < end) event(slice(record, "exchange", "exchange", marked, end));
  its.end_us = end;
  its.pushed = record.iteration;
  if (record.restarts > 0) {
    add_instant(record, fmt::format("re-synced {} ({} times)", record.rank, record.restarts));
  }
}

void ChromeTrace::add_instant(const Record& record, const std::string& name) {
  nlohmann::json args = {{"sequence", record.sequence}};
  if (record.rank >= 0) args["worker"] = record.rank;
  if (record.superstep >= 0) args["superstep"] = record.superstep;
  if (const std::string details = record_details(record); !details.empty()) {
    args["details"] = details;
  }
  // Of the whole job: a line over all of its tracks.
  event({{"ph", "i"},
         {"s", "p"},
         {"name", name},
         {"cat", to_string(record.kind)},
         {"pid", record.job},
         {"tid", kJobTrack},
         {"ts", record.time_us},
         {"args", args}});
}

}  // namespace syncd::ctl
