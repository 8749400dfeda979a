// The daemon without its edges: engine and commit gate, and the order in which what the engine
// wants done is done. It owns no socket, thread, timer or clock; whoever does (server.h: one libuv
// loop) is its Host and tells it of requests, ends of connections, finished plans, commits and the
// passing of time. So the daemon's own code also runs in a simulated world.
//
// One thread, but report().
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/job_spec.h"
#include "daemon/edge/server/commit_gate.h"
#include "daemon/edge/store/store.h"
#include "proto/wire/wire.h"

namespace syncd::server {

class Core {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    // Engine time, which never goes back.
    virtual Micros now() const = 0;
    // To one client; a connection that is gone is skipped. With id 0 a notification.
    virtual void send(ConnectionId connection, RequestId id, wire::Body&& body) = 0;
    // Runs it on any thread, and hands the result to Core::on_plan(), once.
    virtual void start_plan(Plan&& plan) = 0;
    virtual void log(LogLine&& line) = 0;
  };

  // What one event may have answered goes out so many at a time (one may release all workers of a
  // job): a few milliseconds' work. Other clients are served between two slices.
  static constexpr std::size_t kAnswersAtOnce = 4'096;

  // `store` and `host` must outlive it. EngineOptions::durable is set from the store.
  Core(EngineOptions options, store::Store& store, Host& host,
       std::size_t answers_at_once = kAnswersAtOnce);

  // Hands the engine what the store has, before store.start(). Then `clock` gives the time to go on
  // from (host.now() is not asked before), from the latest time in the store; and the engine goes
  // on at host.now(). On false, `error` names store, job and sequence.
  struct Recovered {
    std::size_t jobs = 0;
    std::size_t records = 0;
    // Why each job that it cannot read stands alone. Only in a store that is shared: in one of its
    // own it refuses to start.
    std::vector<std::string> unreadable;
  };
  // `progress`, if not null, is called after each job, and `on_unreadable` before one is to stand
  // alone: it need not return.
  bool recover(const std::function<void(Micros latest)>& clock, Recovered& recovered,
               std::string& error, const std::function<void()>& progress = nullptr,
               const std::function<void(const std::string& why)>& on_unreadable = nullptr);

  // Call after store.start(). On false, `error` names the job and the setting that is wrong.
  bool declare_job(const JobSpec& spec, std::string& error);

  // A request for the engine, of an established session.
  void on_request(Request request);
  // The same of those of which there are many, at a time that one reading of the clock gave for all
  // that one read from a socket brought.
  template <class Call>
  void on_call(const Caller& caller, const Call& call, Micros at) {
    gate_.set_time(at);
    if (is_due(at)) fire_timers(at);
    engine_.call(caller, call, at, effects_);
    apply();
  }
  // `by_peer`: see Disconnected.
  void on_closed(ConnectionId connection, const std::string& reason = {}, bool by_peer = false);
  void on_plan(PlanReady&& ready);
  // The daemon is going away: what stands is answered.
  void shutdown(const std::string& reason);

  // Everything of this turn has been handed over, and nothing queued by send() has left yet:
  // records go to the store, and what waited for a commit that has come about goes out.
  void end_turn();

  // When fire_timers() is to be called next, in engine time; kNever: at no time.
  // Also what one turn has left for the next ones is done in them: then it is at once.
  Micros next_deadline() const;
  void fire_timers();

  // What the store has done; any thread. settle() is to follow on the core's own, in the same turn
  // or in one of its own.
  void report(const store::CommitReport& report) { gate_.report(report); }
  void settle();

  // Nothing waits for the store, and no answer for its slice.
  bool idle() const { return gate_.idle() && releases_.empty(); }
  // The last call: sends all answers that need not wait for the store, and hands over what
  // end_turn() was not called for.
  void submit_rest();
  // What clients are told: pushes are refused while this is false.
  bool writable() const { return told_writable_; }
  const Engine& engine() const { return engine_; }
  // See Engine::forget().
  void forget_job(JobId stopped) { engine_.forget(stopped); }
  void set_options(EngineOptions options);  // for jobs and joins from now on
  const char* mode_text() const;
  StoreFigures store_figures() { return gate_.figures(); }
  // May name paths, which no answer of the core's does: for administrators.
  std::string store_reason() const { return gate_.reason(); }
  // In engine time; -1 while the store can be written.
  Micros store_error_since() const { return store_error_since_; }

 private:
  // From here on the log says that somebody waits.
  static constexpr Micros kTellStandstillUs = 5'000'000;

  void submit();
  void step(Event event);
  void close_next();
  // Whether a timer is, and this turn has not had its part of them.
  bool is_due(Micros at) const { return engine_.next_deadline() <= at && !ticked_; }
  void fire_timers(Micros at);  // for whom something is due
  void apply();
  void apply_all();
  void queue_answers(std::size_t answers);
  void pass_behind(Reply&& reply);
  void release_some();
  bool tell_store_state();
  void note_standstill(Micros at);
  // When the log is to say that the store stands still; a store that reports errors has said so.
  Micros standstill_at() const {
    const bool told = told_still_since_ >= 0 || !told_writable_;
    const Micros since = told ? kNever : gate_.waits_since();
    return since == kNever ? kNever : since + kTellStandstillUs;
  }
  void tell_standstill(Micros at);
  void tell_removed();
  bool take_wanted_snapshots();

  // What is left of the answers of one event.
  struct Release {
    std::vector<Reply> replies;
    std::vector<Notification> notifications;
    std::size_t next = 0;  // of the replies, and then of the notifications
  };

  store::Store& store_;
  Host& host_;
  Engine engine_;
  CommitGate gate_;
  const std::size_t answers_at_once_;
  std::deque<Release> releases_;
  std::unordered_map<ConnectionId, std::size_t> queued_;  // answers in them, of each connection
  std::deque<Disconnected> closing_;  // connections that are gone, and some of their workers not
  Effects effects_;
  bool told_writable_ = true;
  Micros store_error_since_ = -1;
  bool ticked_ = false;           // timers are due that this turn has left for the next one
  Micros told_still_since_ = -1;  // the log has said that it stands still; -1: it has not
};

}  // namespace syncd::server
