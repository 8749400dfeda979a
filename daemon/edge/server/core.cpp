// The daemon without its edges; see the header.
#include "daemon/edge/server/core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/core/engine/limits.h"
#include "proto/wire/explanation.h"

namespace syncd::server {
namespace {

// No commit for so long is a disk's usual pace. What is longer alone is a standstill, so that a
// disk on which every commit takes long puts a deadline off and does not lift it.
constexpr Micros kStandstillUs = 1'000'000;

Reply as_reply(Notification&& notice) {
  return {{notice.connection, 0}, notice.after_records, std::move(notice.body)};
}

EngineOptions with_durability(EngineOptions options, const store::Store& store) {
  options.durable = store.mode() == store::Mode::kDurable;
  return options;
}

}  // namespace

Core::Core(EngineOptions options, store::Store& store, Host& host, std::size_t answers_at_once)
    : store_(store),
      host_(host),
      engine_(with_durability(std::move(options), store)),
      gate_(store,
            [this](const Caller& to, wire::Body&& answer) {
              host_.send(to.connection, to.request, std::move(answer));
            }),
      answers_at_once_(answers_at_once) {
  effects_.keeps_records = true;
}

void Core::set_options(EngineOptions options) {
  engine_.set_options(with_durability(std::move(options), store_));
}

const char* Core::mode_text() const {
  return store_.mode() == store::Mode::kDurable ? "durable" : "fast";
}

bool Core::recover(const std::function<void(Micros latest)>& clock, Recovered& recovered,
                   std::string& error, const std::function<void()>& progress,
                   const std::function<void(const std::string& why)>& on_unreadable) {
  const auto restore = [&](store::RecoveredJob&& job, std::string& wrong) {
    if (progress) progress();
    ++recovered.jobs;
    recovered.records += job.records.size();
    if (engine_.restore(job.snapshot ? &*job.snapshot : nullptr, job.records, wrong)) return true;
    const Record* created = job.snapshot          ? &job.snapshot->created
                            : job.records.empty() ? nullptr
                                                  : &job.records.front();
    if (store_.is_shared() && created != nullptr && !created->name.empty()) {
      if (on_unreadable) on_unreadable(wrong);
      recovered.unreadable.push_back(wrong);
      engine_.stand_alone(*created, "this version of syncd cannot read it: " + wrong);
      return true;
    }
    wrong = "store " + store_.describe() + ": " + wrong;
    return false;
  };
  if (!store_.load_each(restore, error)) return false;
  engine_.forget_epochs(store_.removed_epoch());
  for (const KeptCheckpoint& kept : store_.take_kept_checkpoints()) {
    engine_.keep_checkpoint(kept.job, kept.checkpoint);
  }
  clock(engine_.last_time());
  engine_.finish_restore(host_.now());
  return true;
}

bool Core::declare_job(const JobSpec& spec, std::string& error) {
  if (!engine_.declare_job(spec, host_.now(), effects_, error)) {
    error = "job '" + spec.name + "': " + error;
    return false;
  }
  apply();
  return true;
}

void Core::on_request(Request request) {
  step(std::move(request));
}

void Core::on_closed(ConnectionId connection, const std::string& reason, bool by_peer) {
  closing_.push_back({connection, reason, by_peer});
  if (closing_.size() == 1) close_next();
}

// Some of the workers of the connection that was gone first.
void Core::close_next() {
  step(closing_.front());
  if (!engine_.has_workers(closing_.front().connection)) closing_.pop_front();
}

Micros Core::next_deadline() const {
  if (!closing_.empty() || !releases_.empty() || gate_.must_settle_again()) return 0;
  return std::min(engine_.next_deadline(), standstill_at());
}

void Core::on_plan(PlanReady&& ready) {
  step(std::move(ready));
}

void Core::shutdown(const std::string& reason) {
  step(Shutdown{reason});
}

void Core::step(Event event) {
  const Micros at = host_.now();
  gate_.set_time(at);
  if (is_due(at)) fire_timers(at);
  engine_.step(std::move(event), at, effects_);
  apply();
}

void Core::fire_timers() {
  release_some();
  if (!closing_.empty()) close_next();
  const Micros at = host_.now();
  if (is_due(at) || (standstill_at() <= at && !ticked_)) fire_timers(at);
}

void Core::fire_timers(Micros at) {
  gate_.set_time(at);
  note_standstill(at);
  tell_standstill(at);
  // One after the other: the loss of a worker may have its job's graph made anew.
  do {
    engine_.tick(at, effects_, 1);
    apply();
    ticked_ = engine_.next_deadline() <= at;
  } while (ticked_ && host_.now() - at < limits::kTimersPieceUs);
}

// In the order that effects.h asks for. Records reach the store at the turn's end, which comes
// before any of the answers queued here is written. Leaves the effects clear.
void Core::apply() {
  gate_.take(effects_);
  if (effects_.replies.size() == 1 && effects_.has_replies_alone() && releases_.empty()) {
    gate_.pass(std::move(effects_.replies.front()));
    effects_.replies.clear();
  } else {
    apply_all();
  }
}

void Core::apply_all() {
  const std::size_t answers = effects_.replies.size() + effects_.notifications.size();
  if (!releases_.empty() || answers > answers_at_once_) {
    queue_answers(answers);
  } else {
    for (Reply& reply : effects_.replies) gate_.pass(std::move(reply));
    for (Notification& notice : effects_.notifications) gate_.pass(as_reply(std::move(notice)));
  }
  for (Plan& plan : effects_.plans) host_.start_plan(std::move(plan));
  for (LogLine& line : effects_.log) host_.log(std::move(line));
  effects_.clear();
}

// Many are a release of their own. A few go out at once, but for those to connections that have
// some in the queue.
void Core::queue_answers(std::size_t answers) {
  if (answers > answers_at_once_) {
    Release& release = releases_.emplace_back();
    release.replies.swap(effects_.replies);
    release.notifications.swap(effects_.notifications);
    for (const Reply& reply : release.replies) ++queued_[reply.to.connection];
    for (const Notification& notice : release.notifications) ++queued_[notice.connection];
    if (releases_.size() == 1) release_some();
    return;
  }
  for (Reply& reply : effects_.replies) pass_behind(std::move(reply));
  for (Notification& notice : effects_.notifications) pass_behind(as_reply(std::move(notice)));
}

void Core::pass_behind(Reply&& reply) {
  const auto queued = queued_.find(reply.to.connection);
  if (queued == queued_.end()) return gate_.pass(std::move(reply));
  ++queued->second;
  if (!releases_.back().notifications.empty()) releases_.emplace_back();
  releases_.back().replies.push_back(std::move(reply));
}

void Core::release_some() {
  for (std::size_t left = answers_at_once_; left > 0 && !releases_.empty(); --left) {
    Release& release = releases_.front();
    const std::size_t at = release.next++;
    Reply reply = at < release.replies.size()
                      ? std::move(release.replies[at])
                      : as_reply(std::move(release.notifications[at - release.replies.size()]));
    const auto queued = queued_.find(reply.to.connection);
    if (--queued->second == 0) queued_.erase(queued);
    gate_.pass(std::move(reply));
    if (release.next == release.replies.size() + release.notifications.size()) {
      releases_.pop_front();
    }
  }
}

void Core::submit_rest() {
  while (!releases_.empty()) release_some();
  gate_.submit(effects_);
}

void Core::end_turn() {
  ticked_ = false;
  do {
    submit();
    settle();  // a store that commits at once has done so already
  } while (tell_store_state() || take_wanted_snapshots());
  tell_removed();
}

// A store may write within submit(). If the disk holds that up, nobody could show progress
// meanwhile.
void Core::submit() {
  const Micros begun = host_.now();
  gate_.submit(effects_);
  const Micros ended = host_.now();
  if (ended - begun > kStandstillUs) engine_.add_store_stall(begun + kStandstillUs, ended);
}

void Core::settle() {
  if (gate_.waits_since() == kNever) return gate_.settle();
  const Micros at = host_.now();
  note_standstill(at);
  gate_.set_time(at);
  gate_.settle();
  tell_standstill(at);
}

void Core::tell_standstill(Micros at) {
  if (standstill_at() <= at) {
    told_still_since_ = gate_.waits_since();
    host_.log({LogLevel::kWarn,
               "store_stands_still",
               {{"store", store_.describe()},
                {"for", format_duration(at - told_still_since_)},
                {"records", std::to_string(gate_.figures().records_waiting)}}});
  } else if (told_still_since_ >= 0 && gate_.waits_since() > at - kTellStandstillUs) {
    host_.log({LogLevel::kInfo,
               "store_goes_on",
               {{"store", store_.describe()}, {"after", format_duration(at - told_still_since_)}}});
    told_still_since_ = -1;
  }
}

// Answers wait and nothing is committed, or the store takes nothing.
void Core::note_standstill(Micros at) {
  const Micros refuses_since = store_error_since_ < 0 ? kNever : store_error_since_;
  const Micros since = std::min(gate_.waits_since(), refuses_since);
  if (since == kNever || at - since <= kStandstillUs) return;
  engine_.add_store_stall(since + kStandstillUs, at);
}

// True if there are some to hand over.
bool Core::take_wanted_snapshots() {
  const std::vector<JobId> wanted = gate_.take_wanted();
  if (wanted.empty()) return false;
  engine_.take_snapshots(wanted, effects_);
  apply();
  return true;
}

void Core::tell_removed() {
  for (const store::Removed& removed : gate_.take_removed()) {
    LogLine line{
        LogLevel::kInfo,
        removed.first == 0 ? "job_removed" : "history_removed",
        {{"job", "#" + std::to_string(removed.job)}, {"records", std::to_string(removed.records)}}};
    if (!removed.name.empty()) line.fields.emplace_back("name", removed.name);
    if (removed.first != 0) {
      line.fields.emplace_back("first_sequence", std::to_string(removed.first));
    }
    if (removed.checkpoint != 0) {
      line.fields.emplace_back("keeps_checkpoint", std::to_string(removed.checkpoint));
    }
    host_.log(std::move(line));
    for (const std::string& job : removed.forgotten) {
      host_.log({LogLevel::kWarn,
                 "checkpoint_forgotten",
                 {{"job", job}, {"reason", "too many checkpoints of removed jobs are kept"}}});
    }
  }
}

// True if the engine was told something, and may have answered.
bool Core::tell_store_state() {
  if (gate_.writable() == told_writable_) return false;
  note_standstill(host_.now());
  told_writable_ = gate_.writable();
  store_error_since_ = told_writable_ ? -1 : host_.now();
  if (told_writable_) {
    host_.log({LogLevel::kInfo, "store_writable", {{"store", store_.describe()}}});
  } else {
    host_.log({LogLevel::kError,
               "store_not_writable",
               {{"store", store_.describe()}, {"reason", gate_.reason()}}});
  }
  step(StoreState{told_writable_, kReasonForClients});
  return true;
}

}  // namespace syncd::server
