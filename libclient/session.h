// A client's session with a daemon: any number of workers over one connection that is made again
// whenever it is lost, with everything unanswered sent again. Owns no socket, thread, clock or
// chance: bytes, operations and times come in; bytes, completions, a wish about the connection and
// the next deadline go out. It therefore runs the same under libuv and in a simulated network. One
// thread at a time.
//
// After each call the driver looks at wish(), output(), completions() and next_deadline().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "libclient/link.h"
#include "proto/base/status.h"
#include "proto/wire/explanation.h"
#include "proto/wire/wire.h"

namespace syncd::client {

using OpId = std::uint64_t;      // the driver's name for an operation
using WorkerId = std::uint64_t;  // the session's name for a worker; never reused
inline constexpr WorkerId kNoWorker = 0;

// How long the daemon may take to say why a request that timed out was not answered.
inline constexpr TimeUs kExplainTimeoutUs = 1'000'000;
// How often a join asks again while its place is held by an earlier connection of our own.
inline constexpr TimeUs kRankRetryUs = 200'000;
inline constexpr TimeUs kNoticedAfterUs = 5'000'000;  // the default of timeouts.heartbeat_timeout
// How often a worker that wants to know is told for what its call waits.
inline constexpr TimeUs kTellWaitUs = 10'000'000;
// How long a begin waits for the job's start.
inline constexpr TimeUs kJoinTimeoutUs = 600'000'000;

// How long a caller waits: until `deadline_us`, which is `allowed_us` after it called. It says the
// latter when it fails, so that the caller finds its own number in the message.
struct Timeout {
  TimeUs deadline_us = kNever;
  TimeUs allowed_us = kNever;

  static Timeout after(TimeUs span_us, TimeUs now) { return {add(now, span_us), span_us}; }
};

// A call as the session takes it: what it is named by, how long it may take, and when it came.
struct Ask {
  OpId op = 0;  // never 0
  Timeout timeout = {};
  TimeUs now = 0;
};

class Session;
// Makes one call of a session's, `[&](Session& session, const Ask& ask) { session.begin(ask, id);
// }`: a reference to a function that lives for as long as the function that is given this.
class MakeCall {
 public:
  template <typename Make>
  MakeCall(const Make& make)  // implicitly, as it is called
      : make_(&make), call_([](const void* of, Session& session, const Ask& ask) {
          (*static_cast<const Make*>(of))(session, ask);
        }) {}
  void operator()(Session& session, const Ask& ask) const { call_(make_, session, ask); }

 private:
  const void* make_;
  void (*call_)(const void*, Session&, const Ask&);
};

struct SessionOptions {
  LinkOptions link;
  // How long a lost connection stays invisible to operations; kNever: for ever.
  TimeUs reconnect_timeout_us = 60'000'000;
  // connect() fails once every endpoint was tried, instead of trying again until its deadline.
  bool one_round = false;
  // Of several daemons another one may be taking over: connect() tries again for so long even so.
  TimeUs take_over_us = 0;
};

// Something that a worker did not ask for.
struct Event {
  enum class Kind : std::uint8_t {
    kResync,
    kMembers,
    kPlan,
    kStop,
    kRound,
    kStraggler,
    kHang,
    kWait
  };
  Kind kind = Kind::kResync;
  std::int64_t iteration = -1;           // kResync, kPlan
  std::uint64_t version = 0;             // kMembers; kRound: the round's number
  std::int64_t wait_us = -1;             // kPlan; kWait: since when a call waits
  std::string text = {};                 // kWait: for what, for people
  wire::StragglerNotice straggler = {};  // kStraggler
  wire::HangNotice hang = {};            // kHang
};

// What is known of the last round, or view, that a worker was granted. See wire::RoundNotice.
struct RoundState {
  std::uint64_t number = 0;  // 0: none was granted
  std::uint32_t gone = 0;
  std::uint32_t room = 0;
  bool operator==(const RoundState&) const = default;
};

// What other threads, and other devices, learn without asking the session. A flag in memory, here
// or the caller's own, that is 1 while the daemon advises to drop the current iteration and start
// it anew, else 0; and functions that are called with events, and with what a call waits for, if
// there are any.
class WorkerSignals {
 public:
  // `flag`: memory of the caller's, valid until disown() has returned; null: here.
  explicit WorkerSignals(std::uint32_t* flag = nullptr,
                         std::function<void(const Event&)> on_event = {},
                         std::function<void(const Event&)> on_wait = {},
                         std::function<std::string()> on_inspect = {})
      : flag_(flag != nullptr ? flag : &own_),
        listens_(on_event != nullptr),
        hears_waits_(on_wait != nullptr),
        on_event_(std::move(on_event)),
        on_wait_(std::move(on_wait)),
        inspects_(on_inspect != nullptr),
        on_inspect_(std::move(on_inspect)) {
    set_resync(false);
  }
  // Any thread.
  void set_resync(bool advised) {
    const std::lock_guard lock(mutex_);
    if (flag_ != nullptr) {
      std::atomic_ref(*flag_).store(advised ? 1 : 0, std::memory_order_relaxed);
    }
  }
  // Any thread.
  void set_round(const RoundState& round) {
    const std::lock_guard lock(mutex_);
    round_ = round;
  }
  RoundState round() {
    const std::lock_guard lock(mutex_);
    return round_;
  }
  // Whether it was made with a function. Any thread.
  bool listens() const { return listens_; }
  bool hears_waits() const { return hears_waits_; }
  // One thread, again and again.
  void deliver(const Event& event) {
    const std::lock_guard lock(event_mutex_);
    if (disowned_) return;
    delivering_ = std::this_thread::get_id();
    (event.kind == Event::Kind::kWait ? on_wait_ : on_event_)(event);
    delivering_ = std::thread::id();
  }
  // How long it has exchanged with the others since the mark; -1: it has not marked its iteration.
  TimeUs exchanging_us(TimeUs now) const {
    const TimeUs marked = marked_us_.load(std::memory_order_relaxed);
    return marked == kNever ? -1 : std::max<TimeUs>(now - marked, 0);
  }
  // From its return on, nothing is written any more, and the function is not called; while it is
  // being called, this waits, but in that call itself.
  void disown() {
    {
      const std::lock_guard lock(mutex_);
      flag_ = nullptr;
    }
    disowned_ = true;
    if (delivering_ != std::this_thread::get_id()) {
      const std::lock_guard wait(event_mutex_);
    }
    if (inspecting_ != std::this_thread::get_id()) {
      const std::lock_guard wait(inspect_mutex_);
    }
  }
  // Whether it was made with a function that says where the process is. Any thread.
  bool inspects() const { return inspects_; }
  // What that function says, or has said less than a second ago. One thread, again and again.
  std::string inspect(TimeUs now) {
    const std::lock_guard lock(inspect_mutex_);
    if (disowned_) return {};
    if (inspected_at_us_ != kNever && now - inspected_at_us_ < 1'000'000) return inspected_;
    inspecting_ = std::this_thread::get_id();
    inspected_ = on_inspect_();
    inspecting_ = std::thread::id();
    inspected_at_us_ = now;
    return inspected_;
  }
  // Where it is. It stays there: ask once, before disown().
  std::uint32_t* flag() const { return flag_; }

  // ---- the mark of a worker that has computed its iteration. No lock: the session says when an
  // iteration begins and ends, the worker's thread marks.
  // The worker computes since then; kNever: it has no iteration.
  void set_computing_since(TimeUs since) {
    marked_us_.store(kNever, std::memory_order_relaxed);
    since_us_.store(since, std::memory_order_relaxed);
  }
  // Any thread. The last mark of an iteration counts. False: it has none.
  bool mark_computed(TimeUs now) {
    if (since_us_.load(std::memory_order_relaxed) == kNever) return false;
    marked_us_.store(now, std::memory_order_relaxed);
    return true;
  }
  // How long it has computed until the mark; -1: there is none.
  TimeUs computed_us() const {
    const TimeUs marked = marked_us_.load(std::memory_order_relaxed);
    const TimeUs since = since_us_.load(std::memory_order_relaxed);
    return marked == kNever || since == kNever ? -1 : std::max<TimeUs>(marked - since, 0);
  }

 private:
  std::mutex mutex_;
  std::uint32_t own_ = 0;
  std::uint32_t* flag_;
  RoundState round_;
  std::atomic<TimeUs> since_us_{kNever};
  std::atomic<TimeUs> marked_us_{kNever};

  const bool listens_;
  const bool hears_waits_;
  std::mutex event_mutex_;  // held while the function is called
  std::function<void(const Event&)> on_event_;
  std::function<void(const Event&)> on_wait_;
  std::atomic<bool> disowned_{false};
  std::atomic<std::thread::id> delivering_{};

  const bool inspects_;
  std::mutex inspect_mutex_;  // held while its function is called
  std::function<std::string()> on_inspect_;
  std::string inspected_;
  TimeUs inspected_at_us_ = kNever;
  std::atomic<std::thread::id> inspecting_{};
};

// An event on its way to its worker's function.
struct PendingEvent {
  std::shared_ptr<WorkerSignals> signals;
  Event event;
};

// A question where a worker's process is, on its way to the worker's function.
struct PendingInspection {
  std::shared_ptr<WorkerSignals> signals;
  WorkerId worker = kNoWorker;
  std::uint64_t number = 0;
};

struct JoinRequest : wire::Join {          // with what a first join may say
  std::shared_ptr<WorkerSignals> signals;  // may be null
  TimeUs join_timeout_us = kJoinTimeoutUs;

  bool listens() const { return signals != nullptr && signals->listens(); }
  bool hears_waits() const { return signals != nullptr && signals->hears_waits(); }
  bool inspects() const { return signals != nullptr && signals->inspects(); }
};

struct PushInfo {
  std::optional<double> loss;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
};

struct JoinResult {
  WorkerId worker = kNoWorker;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  std::int64_t iteration = 0;
  std::string policy;
  bool durable = false;
  bool resumed = false;
  bool views = false;
};
// Without views, the parts about them are empty. `reason` of a stop: why the job has ended.
using Step = wire::ViewGranted;
inline Step make_step(std::int64_t iteration, std::uint32_t flags, std::int64_t staleness = 0) {
  Step step;
  step.iteration = iteration;
  step.flags = flags;
  step.staleness = staleness;
  return step;
}
using PushResult = wire::Pushed;
using TargetsResult = wire::TargetsReply;
using CollectResult = wire::CollectReply;
using MembersResult = wire::MembersReply;  // all of them, in rank order
using ViewResult = wire::ViewReply;        // likewise

struct ConnectResult {
  std::string endpoint;  // the one that answered
  std::uint32_t shard = 0;
  std::uint32_t shards = 1;
};
struct AskResult {
  std::shared_ptr<const wire::Body> answer;  // of any type but Error
};

struct Completion {
  Completion() = default;
  Completion(OpId of, Status why, std::string text)
      : op(of), status(why), message(std::move(text)) {}
  template <typename Result>
  Completion(OpId of, Result&& given) : op(of), result(std::forward<Result>(given)) {}

  OpId op = 0;
  Status status = Status::kOk;
  std::string message;  // empty on success
  std::variant<std::monostate, JoinResult, Step, PushResult, Explanation, TargetsResult,
               CollectResult, MembersResult, ConnectResult, AskResult, ViewResult>
      result;
};

class Session final : private Link::Listener {
 public:
  Session(SessionOptions options, TimeUs now);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // ---- Operations: each completes exactly once, at once or later.

  // Any number of them at a time. Completes when the session is connected and welcomed; fails at
  // the deadline with kUnreachable or what a daemon refused us for; before that, once every
  // endpoint was tried, with a refusal that will not pass.
  void connect(const Ask& ask);
  // Any request that is not a worker's own. It is sent once: fails with kUnreachable if there is no
  // connection now, or if this one is lost before the answer.
  void ask(const Ask& ask, const wire::Body& request);
  void join(const Ask& ask, JoinRequest request);
  // Of begin, targets and collect a worker has one at a time. After kTimeout or kUnreachable the
  // request stays pending, and the next call of its kind waits on.
  void begin(const Ask& ask, WorkerId worker);
  // One at a time per worker. After kTimeout or kUnreachable the push stays pending, and a call
  // with the same iteration waits on for its acknowledgement.
  void push(const Ask& ask, WorkerId worker, std::int64_t iteration, const PushInfo& info);
  // Decentralized policies: to whom does the update of `iteration` go, and which updates are to be
  // reduced? The latest answer of each is kept: a call of the same iteration gets it again.
  void targets(const Ask& ask, WorkerId worker, std::int64_t iteration);
  void collect(const Ask& ask, WorkerId worker, std::int64_t iteration);
  // The updates that collect gave have been read. It is sent again after each reconnect until the
  // daemon has confirmed it; with an allowed time of 0 it completes at once, and other calls may be
  // made meanwhile. One of a later iteration takes its place, since it says as much.
  void consumed(const Ask& ask, WorkerId worker, std::int64_t iteration);
  // The worker followed a re-sync: it has dropped its work on `iteration` and pulls again. As
  // consumed; the worker's resync signal is off from here on.
  void restarted(const Ask& ask, WorkerId worker, std::int64_t iteration);
  // The worker is in a long phase, in which it is not late, for `lease_us` from now, its next begin
  // or its next push; an empty name ends it. As consumed. Precondition: check_phase(), if it has a
  // name.
  void phase(const Ask& ask, WorkerId worker, std::string name, TimeUs lease_us);
  // It may be answered that the worker must save a checkpoint first: the call fails with
  // kCheckpoint, has a Step that names it, and the worker is still a member.
  void leave(const Ask& ask, WorkerId worker);
  // Precondition: the reason is plain text, of at most kLeaveReasonBytesMax.
  void leave_as(const Ask& ask, WorkerId worker, wire::LeaveKind kind, std::string reason);
  void explain(const Ask& ask, WorkerId worker);
  // Who takes part. All changes up to the answer's version are in it; one that comes later is told
  // of by an event again.
  void members(const Ask& ask, WorkerId worker);
  // Jobs with views: what the next begin shows to the others of its view. A begin that is pending
  // keeps what it was made with.
  void set_data(const Ask& ask, WorkerId worker, std::vector<std::uint8_t> data);
  // Who is in a view that was granted to this worker: the latest (0), or the one before.
  void view(const Ask& ask, WorkerId worker, std::uint64_t number);
  // Any other request of the worker's, beside its loop; its WorkerRef is filled in. It is sent
  // again after each reconnect until it is answered: AskResult. `name`: what a message calls it.
  void request(const Ask& ask, WorkerId worker, const char* name, wire::Body body);
  // Where the worker's process is, in the answer to an inspection. Sent once, if there is a
  // connection; completes at once.
  void inspected(const Ask& ask, WorkerId worker, std::uint64_t number, std::string_view text);
  // Withdraws the pending begin, targets or collect; an operation that waits on it completes with
  // kCancelled.
  void cancel_begin(const Ask& ask, WorkerId worker);
  // One of the functions above or below threw bad_alloc: its operation ends here without a
  // completion, as if its time were over. No other operation is touched.
  void abandon(OpId op) noexcept;

  // The driver will not name this worker any more. One that has not left keeps its place at the
  // daemon for as long as the session lives.
  void release(WorkerId worker, TimeUs now);
  // Completes everything with kCancelled and wishes for no connection any more.
  void close();

  // ---- The connection's transport; see Link.

  const LinkWish& wish() const { return link_.wish(); }
  OutBuffer& output() { return link_.output(); }
  void on_connected(std::uint64_t number, TimeUs now) { link_.on_connected(number, now); }
  void on_bytes(std::uint64_t number, std::span<const std::uint8_t> bytes, TimeUs now);
  void on_disconnected(std::uint64_t number, std::string_view reason, TimeUs now);
  void on_refused(std::uint64_t number, Status status, std::string_view reason, TimeUs now);

  void on_time(TimeUs now);
  TimeUs next_deadline() const {
    if (closed_) return kNever;
    const TimeUs unreachable_us = reported_unreachable_ ? kNever : unreachable_due_us();
    return std::min({link_.next_deadline(), scan_at_us_, unreachable_us, say_at_us_});
  }

  // What completed; the driver takes it and leaves it empty.
  std::vector<Completion>& completions() { return completions_; }
  // What is to be told to workers that listen, in order; the driver takes it and leaves it empty.
  std::vector<PendingEvent>& events() { return events_; }
  // Likewise, of workers that are to say where they are.
  std::vector<PendingInspection>& inspections() { return inspections_; }

  bool connected() const { return link_.up(); }
  // As it is shown; LinkWish::endpoint is its index.
  const std::string& endpoint(std::size_t index) const { return link_.endpoint(index); }

 private:
  enum class Membership {
    kJoining,   // never joined yet
    kJoined,    // `ref` is good on this connection
    kResuming,  // was joined; a Join that says so must be answered first
    kDetached,  // no member, or not allowed to resume just now: the next call asks again
    kFenced,    // for good
    kLeft,
  };
  enum Kind : std::uint8_t {
    // A worker has one request of each, in the order in which they are sent.
    kJoin,
    kRestarted,
    kConsumed,
    kPush,
    kBegin,  // or targets or collect: what may wait at the daemon for as long as the policy likes
    kPhase,
    kLeave,
    kWhy,  // an explanation for a caller whose time is over
    kSlots,
    // In the place of begin.
    kTargets = kSlots,
    kCollect,
    // Beside the loop; any number of them.
    kExplain,
    kCancel,
    kMembers,
    kView,
    kData,  // has no request: a name in texts
    kTellWait,
    kRequest
  };
  static constexpr Kind kWait = kBegin;

  // A request's id: its worker, if it has one, a number, its slot; kSlots: beside the loop.
  static constexpr int kSlotBits = 4;
  static constexpr int kWorkerShift = 32;

  // A caller that waits.
  struct Op {
    OpId id = 0;  // 0: there is none
    Timeout timeout;
  };
  // A connect.
  struct Connecting : Op {
    TimeUs take_over_until_us = 0;
  };
  // A request that is pending until it is answered, over as many connections as it takes. It can be
  // pending without a caller (after a timeout); a caller never waits without it.
  struct Pending {
    Kind kind = kJoin;
    bool active = false;
    bool sent_before = false;     // on some earlier connection
    std::uint64_t request = 0;    // its id on this connection; 0: not sent on it
    std::int64_t iteration = -1;  // that it is about; kMembers, kView: where the list goes on
    Op op = {};

    bool is_unsent() const { return active && request == 0; }
  };
  struct Side : Pending {
    MembersResult members;  // what is there of them: they come in parts
    ViewResult view;        // likewise, and which one
    const char* name = "";  // kRequest: what it is called
    wire::Body body;        // kRequest
  };
  struct Worker {
    WorkerId id = kNoWorker;
    JoinRequest params;
    Membership membership = Membership::kJoining;
    bool released = false;     // the driver forgot it
    bool stopped = false;      // the job has ended
    bool end_is_lost = false;  // and the daemon, which has taken it back since, knows nothing of it
    TimeUs grace_us = -1;  // how long the daemon keeps its place while it is away; -1: not known
    TimeUs say_every_us =
        0;  // under observation: how often it says that it exchanges; 0: it is not
    bool any_policy = false;  // the job's policy was switched: resume under whatever it has
    unsigned fences = 0;      // in a row without an answer of another kind
    std::string failure;      // why it is kFenced
    std::string ending;       // why the job has ended, if the daemon has said so
    bool own_former = false;  // another worker of ours that is leaving has its name or rank
    TimeUs join_again_us = kNever;
    TimeUs ask_until_us = kNever;
    wire::WorkerRef ref;

    std::int64_t due = 0;        // the iteration the caller expects next
    std::int64_t next = 0;       // the one to ask for
    std::int64_t joined_at = 0;  // what the latest Joined said
    std::int64_t granted = -1;
    std::int64_t pushed = -1;
    bool open = false;         // `granted` was handed out and is not pushed yet
    bool grant_ready = false;  // a grant came while nobody waited
    bool advised = false;      // its resync signal is on
    bool pushed_late = false;
    Step grant;
    TimeUs granted_at_us = kNever;  // when it arrived
    TimeUs computed_us = -1;        // of the push that is pending
    std::optional<Step> must_save;  // a leave was answered so while nobody waited for it
    // The latest answers of targets and collect.
    TargetsResult targets{-1, {}};
    CollectResult collected{-1, {}};
    std::int64_t consumed = -1;  // confirmed

    Pending pending[kSlots];
    std::vector<Side> sides;
    // The long phase that it announced last; empty: none, or its end is still to be told.
    std::string phase;
    TimeUs phase_until_us = 0;
    PushInfo push_info;
    bool members_told = false;  // an event has said that they changed, and nobody has asked since

    bool views = false;               // begins by Arrive
    bool rounds = false;              // policy gather: no pushes; a begin ends the round
    std::vector<std::uint8_t> data;   // what the next begin shows
    std::vector<std::uint8_t> shown;  // what the latest begin shows
    RoundState round;                 // of the latest view that was granted
    RoundState early_round;           // of a later one, whose grant is under way

    std::uint32_t world_size = 0;  // as the latest Joined says
    TimeUs wait_since_us = 0;      // since when begin, targets or collect is pending
    TimeUs tell_wait_us = kNever;  // when the daemon is to be asked next for what
    wire::LeaveKind leave_kind = wire::LeaveKind::kLeft;
    std::string leave_reason;

    Worker() {
      for (std::size_t i = 0; i < kSlots; ++i) pending[i].kind = static_cast<Kind>(i);
    }
    Pending& operator[](Kind slot) { return pending[slot]; }
    const Pending& operator[](Kind slot) const { return pending[slot]; }
  };
  using Workers = std::map<WorkerId, Worker>;  // in the order of joining: resending is repeatable

  // Link::Listener
  void link_up() override;
  void link_down() override;
  void link_message(const wire::Message& message) override;

  // Requests (session_send.cpp)
  std::uint64_t send(WorkerId worker, Kind slot, const wire::Body& body);
  wire::Body body_of(const Worker& worker, const Pending& pending) const;
  static void forget_requests(Worker& worker);
  static bool has_pending(const Worker& worker);
  void send_join(Worker& worker);
  void send_pending(Worker& worker);
  void resume(Worker& worker);

  // Answers (session_answers.cpp)
  void on_asked(std::uint64_t request, const wire::Body& body);
  [[gnu::always_inline]] inline static Pending* find_pending(Worker& worker, std::uint64_t request);
  [[gnu::always_inline]] inline void on_answer(Worker& worker, Pending& pending,
                                               const wire::Body& body);
  void on_error(Worker& worker, Pending& pending, const wire::Error& error);
  void on_refused(Worker& worker, Pending& pending, const wire::Error& error);
  void step_out_if_over(Worker& worker);
  void on_joined(Worker& worker, const wire::Joined& joined);
  void adopt_iteration(Worker& worker, std::int64_t iteration);
  void on_join_refused(Worker& worker, const wire::Error& error);
  bool ask_again(Worker& worker);
  void forget_rank(const Worker& worker);
  void on_resume_refused(Worker& worker, const wire::Error& error);
  void on_wait_refused(Worker& worker, const wire::Error& error);
  static void drop_granted(Worker& worker);
  static void set_computing_since(Worker& worker, TimeUs since);
  static void end_wait(Worker& worker);
  void on_new_life(Worker& worker);
  void on_granted(Worker& worker, Step&& granted);
  [[gnu::always_inline]] inline void on_pushed(Worker& worker, bool late);
  void on_noted(Worker& worker, Pending& notice);
  template <typename Reply>
  void on_peer_answer(Worker& worker, Reply& kept);
  void on_page(Worker& worker, Side& side, const wire::MembersReply& page);
  template <typename Result>
  void end_side(Worker& worker, Pending& side, Result result) {
    complete_ok(side.op, std::move(result));
    side.active = false;
    drop_unread_sides(worker);
  }
  void tell_event(const Worker& worker, Event event);
  void tell_members(Worker& worker, std::uint64_t version);
  void on_members_notice(const wire::MembersNotice& notice);
  // What a call waits for (session_waits.cpp)
  void plan_telling(Worker& worker);
  void ask_wait(Worker& worker);
  void on_wait_explained(Worker& worker, const Explanation& given);
  void tell_wait(const Worker& worker, std::string text);
  // Views and rounds (session_views.cpp)
  void take_views(Worker& worker, const wire::Joined& joined);
  void adopt_round(Worker& worker, const wire::Joined& joined);
  void end_round(Worker& worker);
  void enter_view(Worker& worker, std::uint64_t number);
  void on_round(Worker& worker, const RoundState& round);
  void set_round(Worker& worker, const RoundState& round);
  void break_round(Worker& worker);
  void on_view_page(Worker& worker, Side& side, const wire::ViewReply& page);
  void on_fenced(Worker& worker, const std::string& message);
  void on_fenced_notice(Worker& worker, const std::string& message);
  void on_stopped(Worker& worker, std::string_view why);
  bool retried_elsewhere(const wire::Error& error);
  void notice(const wire::Body& body);
  Worker* find_ref(const wire::WorkerRef& ref);

  // Jobs under observation (session_observed.cpp)
  void observe(Worker& worker, TimeUs hang_after_us);
  void expect_exchange(const Worker& worker);
  void say_exchanges();

  // Operations (session.cpp)
  template <typename Act>
  void call(const Ask& ask, WorkerId worker, Kind kind, std::int64_t iteration, const Act& act);
  ConnectResult connect_result() const;
  bool is_unreachable() const { return !link_.up() && now_ >= unreachable_due_us(); }
  // A call that comes after the daemon has been lost for too long fails at once.
  void check_link() const {
    if (is_unreachable()) refuse_unreachable();
  }
  [[noreturn, gnu::cold]] void refuse_unreachable() const;
  static void check_stays(const Worker& worker);
  static void check_wait(const Worker& worker, Kind kind, std::int64_t iteration);
  static void check_begin(const Worker& worker);
  static bool check_push(const Worker& worker, std::int64_t iteration);
  static void check_notice(const Worker& worker, Kind kind);
  void wait(Worker& worker, Op op, Kind kind, std::int64_t iteration);
  void peer_call(const Ask& ask, WorkerId worker, Kind kind, std::int64_t iteration);
  void tell(Worker& worker, Kind kind, Op op, std::int64_t iteration);
  void end_phase(Worker& worker, bool told_by_call);
  bool in_phase(const Worker& worker) const {
    return !worker.phase.empty() && now_ < worker.phase_until_us;
  }
  void ask_aside(const Ask& ask, WorkerId worker, Kind kind);
  Side& add_side(Worker& worker, Kind kind, Op op, std::int64_t iteration);
  void send_aside(Worker& worker, Kind kind, Op op, std::int64_t iteration, std::uint64_t view = 0);
  static void check_views(const Worker& worker);
  Worker* find_namesake(const JoinRequest& request, bool& same_name);
  Worker* join_slot(Op& op, JoinRequest& request);
  bool take_over(Worker& worker, JoinRequest& request);
  void wake(Worker& worker);
  void wake(Worker& worker, Kind slot);
  static void clear_resync(Worker& worker);
  void arm(const Op& op) { scan_at_us_ = std::min(scan_at_us_, op.timeout.deadline_us); }

  // The ends of operations (session_ends.cpp)
  void complete(Op& op, Status status, std::string message);
  template <typename Result = std::monostate>
  void complete_ok(Op& op, Result&& result = {}) {
    if (op.id == 0) return;
    completions_.emplace_back(op.id, std::forward<Result>(result));
    op.id = 0;  // only now: there may be no memory
  }
  template <typename Do>
  static void for_each_pending(Worker& worker, const Do& act) {
    for (Pending& pending : worker.pending) act(pending);
    for (Pending& side : worker.sides) act(side);
  }
  void deliver_grant(Worker& worker, Step&& grant);
  void deliver_stop(Worker& worker);
  void deliver_peer_answer(Worker& worker, Op& op, Kind kind);
  void leave_done(Worker& worker);
  void on_leave_held(Worker& worker, const Step& step);
  void deliver_must_save(Worker& worker);
  void fail_waiting(Worker& worker, Status status, const std::string& reason);
  void fail_for_good(Worker& worker, const std::string& reason);
  void orphan_join(Worker& worker);
  static void drop_unread_sides(Worker& worker);
  void erase(WorkerId worker);
  void expire();
  void expire_connect(Op& op);
  void erase_connected() {
    std::erase_if(connecting_, [](const Connecting& op) { return op.id == 0; });
  }
  void expire_worker(Worker& worker);
  void expire_wait(Worker& worker);
  void finish_wait_timeout(Worker& worker, const std::string& reason);
  void fail_unreachable();
  void fail_asked(Status status, const std::string& reason);
  void check_refusal();
  TimeUs unreachable_due_us() const {
    return link_.up() ? kNever : add(link_.down_since_us(), options_.reconnect_timeout_us);
  }

  // Sentences (session_text.cpp)
  static std::string label(const Worker& worker);
  static const char* name_of(Kind kind);
  static std::string call_text(Kind kind, std::int64_t iteration, const Worker& worker);
  static std::string call_text(const Pending& pending, const Worker& worker);
  static std::string join_text(const JoinRequest& request);
  static std::string ended_text(const Worker& worker);
  std::string link_text() const;
  std::string obstacle_text(const Worker& worker) const;

  SessionOptions options_;
  Workers workers_;
  std::unordered_map<std::uint64_t, WorkerId> by_rank_;  // job and rank of those that are joined
  // Changes of membership that were told to workers before they were told that they have joined.
  std::unordered_map<std::uint64_t, wire::MembersNotice> early_notices_;
  std::vector<Completion> completions_;
  std::vector<PendingEvent> events_;
  std::vector<PendingInspection> inspections_;
  std::vector<Connecting> connecting_;
  std::map<std::uint64_t, Op> asked_;  // by request
  std::uint64_t requests_ = 0;         // sent so far
  TimeUs now_ = 0;                     // of the call that runs
  WorkerId next_worker_ = 1;
  // No operation's deadline is earlier than this. It is only a bound: an operation that completes
  // leaves it, so that the usual case costs nothing, and the scan at that time finds the next one.
  TimeUs scan_at_us_ = kNever;
  TimeUs say_at_us_ = kNever;  // when workers are asked whether they exchange for long
  bool reported_unreachable_ = false;
  bool closed_ = false;
  Link link_;  // last: it calls link_up() and the others of the parts above
};

}  // namespace syncd::client
