// EventList: the engine, its timers, plans and store.
#include <algorithm>
#include <span>
#include <stdexcept>

#include "event_list.h"
#include "tests/support/effects_text.h"

namespace syncd::test {
namespace {

std::string text_of(const Event& event) {
  if (const auto* request = std::get_if<Request>(&event)) {
    return "c" + std::to_string(request->caller.connection) + "r" +
           std::to_string(request->caller.request) + " " + to_text(request->body);
  }
  if (const auto* gone = std::get_if<Disconnected>(&event)) {
    return "disconnected c" + std::to_string(gone->connection);
  }
  if (const auto* plan = std::get_if<PlanReady>(&event)) {
    std::string text =
        "plan " + std::to_string(plan->plan) + " of job " + std::to_string(plan->job) + ":";
    for (const std::int64_t value : plan->result) text += " " + std::to_string(value);
    return text;
  }
  if (const auto* store = std::get_if<StoreState>(&event)) {
    return store->writable ? "store up" : "store down";
  }
  return "shutdown";
}

std::string_view kind_of(const Event& event) {
  constexpr std::string_view kKinds[] = {"request", "disconnected", "plan", "store", "shutdown"};
  return kKinds[event.index()];
}

}  // namespace

void EventList::make_engine() {
  engine_ = std::make_unique<Engine>(options_);
  store_down_ = 0;
  shut_down_ = false;
  plans_.clear();
}

void EventList::begin_text(const std::string& event) {
  ++count_;
  if (text_ != nullptr) *text_ += "> " + seconds_text(now_) + " " + event + "\n";
}

void EventList::declare(const JobSpec& spec) {
  begin_text("declare " + spec.name + " " + spec.policy);
  form_.add_event("declare", {}, now_);
  count("event", "declare");
  std::string error;
  if (!engine_->declare_job(spec, now_, effects_, error)) {
    throw std::runtime_error("a job is refused: " + error);
  }
  absorb();
}

void EventList::step(Event event) {
  begin_text(text_of(event));
  form_.add_event(event, now_);
  count("event", kind_of(event));
  if (const auto* request = std::get_if<Request>(&event)) {
    count("request", wire::body_name(request->body));
  }
  engine_->step(std::move(event), now_, effects_);
  absorb();
}

void EventList::tick(std::size_t timers_max) {
  begin_text("tick");
  const std::int64_t most[] = {timers_max == SIZE_MAX ? -1 : static_cast<std::int64_t>(timers_max)};
  form_.add_event("tick", most, now_);
  count("event", "tick");
  engine_->tick(now_, effects_, timers_max);
  absorb();
}

// Timers fire each at its own time, or all of them when this time is over, as on a busy loop.
void EventList::advance(Micros span) {
  const Micros until = now_ + span;
  const bool busy = random_.one_in(4);
  if (busy) now_ = until;
  for (int fired = 0; engine_->next_deadline() <= until && fired < 100; ++fired) {
    now_ = std::max(now_, engine_->next_deadline());
    tick(timers_max_);
  }
  now_ = until;
}

void EventList::count_effects() {
  for (const Record& record : effects_.records) {
    count("record", to_string(record.kind));
    if (record.late) count("record", "late push");
    if (record.resumed) count("record", "resumed");
    if (record.restarts > 0) count("record", "push after a restart");
  }
  for (const Reply& reply : effects_.replies) {
    count("reply", wire::body_name(reply.body));
    if (const auto* error = std::get_if<wire::Error>(&reply.body)) {
      count("status", status_name(error->status));
    } else if (const auto* granted = std::get_if<wire::Granted>(&reply.body)) {
      if ((granted->flags & wire::kStepPull) != 0) count("flag", "pull");
      if ((granted->flags & wire::kStepBarrier) != 0) count("flag", "barrier");
      if ((granted->flags & wire::kStepSkip) != 0) count("flag", "skip");
      if ((granted->flags & wire::kStepStop) != 0) count("flag", "stop");
    } else if (const auto* pushed = std::get_if<wire::Pushed>(&reply.body)) {
      if (pushed->late) count("flag", "late");
      if (pushed->duplicate) count("flag", "duplicate");
    } else if (const auto* joined = std::get_if<wire::Joined>(&reply.body)) {
      if (joined->resumed) count("flag", "resumed");
    }
  }
  for (const Notification& notice : effects_.notifications) {
    count("notification", wire::body_name(notice.body));
  }
  if (!effects_.snapshots.empty()) count("effect", "snapshot");
  if (!effects_.plans.empty()) count("effect", "plan");
  // What a log line says is not hashed; that an engine warns at all is seen in their number.
  for (const LogLine& line : effects_.log) {
    if (line.level == LogLevel::kWarn) count("effect", "warning");
  }
}

// What the engine said goes into the hash, to the store and to the processes.
void EventList::absorb() {
  results_.clear();
  for (const Plan& plan : effects_.plans) {
    results_.push_back({plan.job, plan.id, plan.work->run()});
  }
  plans_.insert(plans_.end(), results_.begin(), results_.end());
  stored_.insert(stored_.end(), effects_.records.begin(), effects_.records.end());
  snapshots_.insert(snapshots_.end(), effects_.snapshots.begin(), effects_.snapshots.end());
  count_effects();
  blank(effects_);
  form_.add_effects(effects_, results_, engine_->next_deadline());
  if (text_ != nullptr) {
    const std::size_t lines = effects_.log.size();
    effects_.log.clear();
    *text_ += to_text(effects_, now_);
    for (const PlanReady& plan : results_) *text_ += "  result: " + text_of(Event(plan)) + "\n";
    const Micros deadline = engine_->next_deadline();
    *text_ += "  " + std::to_string(lines) + " log lines, next deadline " +
              (deadline == kNever ? "never" : seconds_text(deadline)) + ", hash " +
              std::to_string(form_.events()) + " " + std::to_string(form_.effects()) + "\n";
  }
  // Nothing here makes a further event: the processes only learn.
  for (const Reply& reply : effects_.replies) {
    for (auto& process : processes_) {
      if (process->pending != reply.to.request) continue;
      process->pending = 0;
      answer(*process, reply.body);
      break;
    }
  }
  for (const Notification& notice : effects_.notifications) notify(notice.connection, notice.body);
}

void EventList::deliver_plan() {
  if (plans_.empty()) return;
  const auto at = plans_.begin() + static_cast<std::ptrdiff_t>(random_.below(plans_.size()));
  PlanReady plan = std::move(*at);
  plans_.erase(at);
  if (random_.one_in(8)) plans_.push_back(plan);  // it comes twice
  step(std::move(plan));
}

// The daemon dies, without the latest records of its store, and is started again.
void EventList::restart(std::size_t records_lost) {
  begin_text("restart, " + std::to_string(records_lost) + " records are lost");
  const std::int64_t lost[] = {static_cast<std::int64_t>(records_lost)};
  form_.add_event("restart", lost, now_);
  count("event", records_lost > 0 ? "restart with lost records" : "restart");
  stored_.resize(stored_.size() - std::min(stored_.size(), records_lost));
  std::map<JobId, std::vector<Record>> histories;
  for (const Record& record : stored_) histories[record.job].push_back(record);
  std::erase_if(snapshots_, [&](const JobSnapshot& snapshot) {
    const auto at = histories.find(snapshot.created.job);
    return at == histories.end() || at->second.back().sequence < snapshot.sequence;
  });
  const bool from_snapshots = !random_.one_in(3);
  make_engine();
  for (const auto& [job, records] : histories) {
    const JobSnapshot* latest = nullptr;
    for (const JobSnapshot& snapshot : snapshots_) {
      if (from_snapshots && snapshot.created.job == job) latest = &snapshot;
    }
    if (latest != nullptr) count("event", "restart from a snapshot");
    const std::size_t from = latest == nullptr ? 0 : latest->sequence;
    std::string error;
    if (!engine_->restore(latest, std::span(records).subspan(from), error)) {
      throw std::runtime_error("a history is refused: " + error);
    }
  }
  if (!from_snapshots) snapshots_.clear();  // later ones are made from a state without them
  engine_->finish_restore(now_);
  for (auto& process : processes_) forget_connection(*process);
  add_state();
}

// Recovery has no effects of its own, and not all that an engine knows shows in them.
void EventList::add_state() {
  for (const JobId job : engine_->job_ids()) {
    JobSnapshot snapshot;
    engine_->snapshot(job, snapshot);
    blank(snapshot);
    form_.add_snapshot(snapshot);
    if (text_ != nullptr) *text_ += "  state " + to_text(snapshot, now_) + "\n";
  }
  form_.add_number(engine_->next_deadline());
  form_.add_number(static_cast<std::int64_t>(engine_->stats().pushes));
  form_.add_number(static_cast<std::int64_t>(engine_->stats().grants));
}

}  // namespace syncd::test
