// See load.h. An operator's questions go one at a time over a connection of its own, as syncctl's
// do.
#include "daemon/tools/bench/load.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "daemon/core/policies/registry.h"
#include "daemon/tools/ctl/connection.h"
#include "daemon/tools/ctl/daemon_link.h"
#include "daemon/tools/sim/iteration_time.h"

namespace syncd::bench {
namespace {

constexpr std::uint32_t kPageRecords = 256;

using Clock = std::chrono::steady_clock;
using client::Ask;
using client::Completion;
using client::Driver;
using client::Session;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

enum class Kind : std::uint8_t {
  kJoin,
  kBegin,
  kRenew,  // collect of the iteration before the one to which a step has skipped
  kAside,
  kOperator,  // likewise, by the operator
  kTargets,
  kPush,
  kCollect,
  kConsumed,
  kLeave
};

constexpr std::array kKindNames = {
    "join",    "begin", "collect", "a request aside", "a request aside",
    "targets", "push",  "collect", "consumed",        "leave"};

// What the drivers' threads have to say.
struct Answer {
  std::size_t worker = 0;
  Kind kind = Kind::kJoin;
  std::int64_t at_ns = 0;
  Completion completion;
};

class Answers {
 public:
  void post(Answer answer) {
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(answer));
    if (answers_.size() == 1) come_.notify_one();
  }
  // All that have come; waits for the first until `until`.
  void take(std::vector<Answer>& answers, Clock::time_point until) {
    answers.clear();
    std::unique_lock lock(mutex_);
    come_.wait_until(lock, until, [this] { return !answers_.empty(); });
    answers.swap(answers_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable come_;
  std::vector<Answer> answers_;
};

class PostingCall final : public client::Call {
 public:
  PostingCall(Answers& answers, std::size_t worker, Kind kind)
      : answers_(answers), worker_(worker), kind_(kind) {}

 private:
  void finish(Completion&& completion) noexcept override {
    answers_.post({worker_, kind_, now_ns(), std::move(completion)});
    delete this;
  }

  Answers& answers_;
  const std::size_t worker_;
  const Kind kind_;
};

// Of a driver that was started; every call of it is finished then.
struct StopAndDelete {
  void operator()(Driver* driver) const {
    driver->stop();
    delete driver;
  }
};

// The processor time of a daemon so far; -1: it does not run on this machine.
std::int64_t cpu_ns_of(const std::string& endpoint, std::uint32_t pid) {
  const bool local = endpoint.starts_with("unix:") || endpoint.find(":127.") != std::string::npos ||
                     endpoint.find(":localhost:") != std::string::npos ||
                     endpoint.find(":[::1]:") != std::string::npos;
  std::ifstream in(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(in, name);
  clockid_t clock{};
  timespec t{};
  if (!local || name != "syncd" || clock_getcpuclockid(static_cast<pid_t>(pid), &clock) != 0 ||
      clock_gettime(clock, &t) != 0) {
    return -1;
  }
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

class Load {
 public:
  Load(const ctl::Options& connection, const LoadOptions& options);
  Figures run();

 private:
  struct Worker {
    client::WorkerId id = client::kNoWorker;
    std::uint32_t rank = 0;
    std::int64_t iteration = -1;  // granted
    std::uint64_t done = 0;
    std::int64_t asked_ns = 0;
    std::uint64_t pushes_before = 0;
    bool quiet = false;                      // no push was under way when it asked to begin
    Question question = Question::kExplain;  // the one that it asks aside
  };
  struct Reading {
    wire::StatusReply status;
    std::int64_t cpu_ns = -1;
  };
  using Timer = std::pair<std::int64_t, std::size_t>;  // when, which worker

  Reading read_daemon();
  std::optional<wire::JobStatus> own_job();
  [[noreturn]] void fail_link() const;
  void open_drivers(const ctl::Address& address);
  // A call of the session's for a worker; its answer is of `kind`.
  template <typename... Taken, typename... Given>
  void call(std::size_t index, Kind kind, void (Session::*what)(const Ask&, Taken...),
            Given&&... given);
  void join_all();
  void begin(std::size_t worker);
  void ask_aside(std::size_t worker);
  void ask_operator();
  void ask_operator(const wire::Body& request);
  void work(std::size_t worker);
  void compute(std::size_t worker);
  void computed(std::size_t worker);
  void push(std::size_t worker);
  void measure(Spans& spans, const Answer& answer);
  void end_iteration(std::size_t worker);
  void on_answer(const Answer& answer);
  void on_begun(std::size_t worker, const Answer& answer);
  void on_renewed(std::size_t worker);
  void on_told(const Answer& answer);
  void on_aside(const Answer& answer);
  void on_pushed(std::size_t worker, const Answer& answer);
  void pump(Clock::time_point until);
  void end_window();
  [[noreturn]] void fail(const Answer& answer) const;

  const LoadOptions options_;
  const std::int64_t timeout_ms_;
  Figures figures_;
  std::optional<sim::Durations> durations_;  // none: no computing
  ctl::DaemonLink link_;                     // beside the load
  Reading before_;
  Reading after_;
  Answers answers_;
  std::vector<Answer> taken_;
  std::vector<std::unique_ptr<Driver, StopAndDelete>> drivers_;  // end before the answers do
  std::vector<Question> questions_;
  Driver* operator_ = nullptr;      // of the drivers; null: no question is for it
  std::queue<std::size_t> asking_;  // workers whose questions are; the first one's is under way
  std::uint64_t next_record_ = 1;
  std::vector<Worker> workers_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::mt19937_64 random_;
  std::size_t joined_ = 0;
  std::size_t left_ = 0;
  std::uint64_t pushes_sent_ = 0;
  std::uint64_t pushes_standing_ = 0;
  bool never_waits_ = false;  // the policy
  bool is_decentralized_ = false;
  bool sends_first_ = false;  // of these, the one whose workers send before they compute
  bool measuring_ = false;
  bool ending_ = false;
  std::int64_t started_ns_ = 0;
  std::optional<BarrierTimes> barriers_;
};

Load::Load(const ctl::Options& connection, const LoadOptions& options)
    : options_(options), timeout_ms_(connection.timeout_ms), random_(options.seed) {
  std::string error;
  if (options.iteration_time != "0") {
    const auto time = sim::parse_iteration_time(options.iteration_time, error);
    if (!time) throw LoadError(ctl::kExitUsage, "--iteration-time " + error);
    const auto slowdown = sim::parse_slowdown(options.slowdown, error);
    if (!slowdown) throw LoadError(ctl::kExitUsage, error);
    durations_.emplace(*time, *slowdown, options.seed, static_cast<std::uint32_t>(options.workers));
  } else if (options.slowdown != "none") {
    throw LoadError(ctl::kExitUsage, "--slowdown needs an --iteration-time to slow down");
  }
  if (!parse_questions(options.ask, questions_, error)) {
    throw LoadError(ctl::kExitUsage, "--ask " + error);
  }
  ctl::Address address;
  if (!ctl::how_to_ask(connection, address, error)) throw LoadError(ctl::kExitUsage, error);
  if (!link_.open(address, timeout_ms_)) fail_link();
  figures_.job = options.job;
  if (figures_.job.empty()) {
    figures_.job = fmt::format("syncbench-{}-{}", getpid(), now_ns() / 1'000'000);
  } else if (own_job()) {
    throw LoadError(
        ctl::kExitUsage,
        fmt::format("--job {}: there is such a job; syncbench needs one of its own", figures_.job));
  }
  workers_.resize(options.workers);
  open_drivers(address);
}

Load::Reading Load::read_daemon() {
  Reading reading;
  if (!link_.read(wire::StatusRequest{}, reading.status)) fail_link();
  reading.cpu_ns = cpu_ns_of(link_.endpoint(), reading.status.pid);
  return reading;
}

std::optional<wire::JobStatus> Load::own_job() {
  wire::JobsReply reply;
  if (!link_.read(wire::JobsRequest{}, reply)) fail_link();
  const wire::JobStatus* found = ctl::find_job(reply.jobs, figures_.job);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

void Load::fail_link() const {
  const bool refused = link_.failure() == ctl::DaemonLink::Failure::kRefused;
  throw LoadError(refused ? ctl::kExitRefused : ctl::kExitUnreachable, link_.error());
}

void Load::open_drivers(const ctl::Address& address) {
  client::SessionOptions options;
  options.link.client_name = "syncbench";
  options.reconnect_timeout_us = timeout_ms_ * 1000;
  const bool asks = options_.ask_share > 0 && std::ranges::any_of(questions_, is_for_operator);
  for (std::size_t i = 0; i < options_.connections + (asks ? 1 : 0); ++i) {
    options.link.seed = options_.seed + i;
    auto driver = ctl::make_driver(address, options);
    std::string error;
    if (!driver->start(error)) {
      throw LoadError(ctl::kExitUnreachable, fmt::format("connection {}: {}", i, error));
    }
    drivers_.emplace_back(driver.release());
  }
  if (!asks) return;
  operator_ = drivers_.back().get();
  const Completion connected = operator_->perform(
      [](Session& session, const Ask& ask) { session.connect(ask); }, timeout_ms_ * 1000);
  if (connected.status != Status::kOk) {
    throw LoadError(ctl::kExitUnreachable, connected.message);
  }
}

template <typename... Taken, typename... Given>
void Load::call(std::size_t index, Kind kind, void (Session::*what)(const Ask&, Taken...),
                Given&&... given) {
  workers_[index].asked_ns = now_ns();
  auto* call = new PostingCall(answers_, index, kind);
  drivers_[index % options_.connections]->submit(*call, [&](Session& session, const Ask& ask) {
    (session.*what)(ask, std::forward<Given>(given)...);
  });
}

void Load::fail(const Answer& answer) const {
  const Worker& worker = workers_[answer.worker];
  const Status status = answer.completion.status;
  const bool gone = status == Status::kUnreachable || status == Status::kTimeout;
  throw LoadError(gone ? ctl::kExitUnreachable : ctl::kExitRefused,
                  fmt::format("{}{} of worker {}: {}", gone ? "the daemon went away: " : "",
                              kKindNames[static_cast<std::size_t>(answer.kind)],
                              answer.kind == Kind::kJoin ? answer.worker : worker.rank,
                              answer.completion.message));
}

void Load::join_all() {
  const std::int64_t start_ns = now_ns();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    client::JoinRequest join;
    join.job = figures_.job;
    join.policy = options_.policy;
    join.name = fmt::format("bench-{}", i);
    join.host = "syncbench";
    join.rank = static_cast<std::int32_t>(i);
    join.world_size = static_cast<std::uint32_t>(workers_.size());
    join.data.assign(options_.member_bytes, 0x5A);
    call(i, Kind::kJoin, &Session::join, std::move(join));
  }
  while (joined_ < workers_.size()) pump(Clock::time_point::max());
  figures_.join_s = static_cast<double>(now_ns() - start_ns) / 1e9;
}

void Load::begin(std::size_t index) {
  Worker& worker = workers_[index];
  worker.pushes_before = pushes_sent_;
  worker.quiet = pushes_standing_ == 0;
  call(index, Kind::kBegin, &Session::begin, worker.id);
}

void Load::ask_aside(std::size_t index) {
  Worker& worker = workers_[index];
  std::uniform_int_distribution<std::size_t> any(0, questions_.size() - 1);
  worker.question = questions_[any(random_)];
  switch (worker.question) {
    case Question::kExplain:
      call(index, Kind::kAside, &Session::explain, worker.id);
      break;
    case Question::kMembers:
      call(index, Kind::kAside, &Session::members, worker.id);
      break;
    case Question::kPhase:
      call(index, Kind::kAside, &Session::phase, worker.id, "benchmark", 60'000'000);
      break;
    default:
      asking_.push(index);
      if (asking_.size() == 1) ask_operator();
  }
}

void Load::ask_operator() {
  Worker& worker = workers_[asking_.front()];
  worker.asked_ns = now_ns();
  switch (worker.question) {
    case Question::kStatus:
      return ask_operator(wire::StatusRequest{});
    case Question::kJobs:
      return ask_operator(wire::JobsRequest{});
    case Question::kWorkers:
      return ask_operator(wire::WorkersRequest{figures_.job, 0, false});
    default:
      return ask_operator(wire::HistoryRequest{figures_.job, next_record_, kPageRecords, 0});
  }
}

void Load::ask_operator(const wire::Body& request) {
  auto* call = new PostingCall(answers_, asking_.front(), Kind::kOperator);
  operator_->submit(*call, [&](Session& session, const Ask& ask) {
    session.ask({ask.op, client::Timeout::after(timeout_ms_ * 1000, ask.now), ask.now}, request);
  });
}

// Of the workers it wants all, as `syncctl workers` does; of the history the next page, and the
// first one again once there is no more.
void Load::on_told(const Answer& answer) {
  const wire::Body& told = *std::get<client::AskResult>(answer.completion.result).answer;
  if (const auto* page = std::get_if<wire::WorkersReply>(&told)) {
    const std::int64_t next = page->next_rank;
    if (next >= 0) {
      return ask_operator(
          wire::WorkersRequest{figures_.job, static_cast<std::uint32_t>(next), false});
    }
  } else if (const auto* history = std::get_if<wire::HistoryReply>(&told)) {
    next_record_ = std::max<std::uint64_t>(1, history->next_sequence);
  }
  asking_.pop();
  if (!asking_.empty()) ask_operator();
  on_aside(answer);
}

void Load::on_aside(const Answer& answer) {
  const Question question = workers_[answer.worker].question;
  measure(figures_.asked[static_cast<std::size_t>(question)], answer);
  work(answer.worker);
}

// What comes after begin: as the papers have it, workers under Hop send what they have and compute
// meanwhile, and under NOTIFY-ACK they send what they have computed.
void Load::work(std::size_t index) {
  if (sends_first_) {
    call(index, Kind::kTargets, &Session::targets, workers_[index].id, workers_[index].iteration);
  } else {
    compute(index);
  }
}

void Load::compute(std::size_t index) {
  if (!durations_) {
    computed(index);
    return;
  }
  const Worker& worker = workers_[index];
  timers_.emplace(now_ns() + (*durations_)(worker.rank, worker.iteration) * 1000, index);
}

void Load::computed(std::size_t index) {
  if (!is_decentralized_) {
    push(index);
  } else if (sends_first_) {
    call(index, Kind::kCollect, &Session::collect, workers_[index].id, workers_[index].iteration);
  } else {
    call(index, Kind::kTargets, &Session::targets, workers_[index].id, workers_[index].iteration);
  }
}

void Load::measure(Spans& spans, const Answer& answer) {
  if (!measuring_) return;
  spans.add(answer.at_ns - workers_[answer.worker].asked_ns);
  ++figures_.requests;
}

void Load::push(std::size_t index) {
  Worker& worker = workers_[index];
  ++pushes_sent_;
  ++pushes_standing_;
  call(index, Kind::kPush, &Session::push, worker.id, worker.iteration,
       client::PushInfo{0.25, 128, 0});
  if (barriers_) barriers_->pushing(worker.iteration, worker.asked_ns);
}

void Load::on_begun(std::size_t index, const Answer& answer) {
  Worker& worker = workers_[index];
  const auto& step = std::get<client::Step>(answer.completion.result);
  if ((step.flags & wire::kStepStop) != 0) {
    throw LoadError(ctl::kExitRefused, "job '" + figures_.job + "' was stopped by somebody else");
  }
  worker.iteration = step.iteration;
  measure(figures_.begin, answer);
  // The first one waits for the others to have joined, under any policy; and a decentralized one
  // may wait for more than pushes.
  const bool quiet = worker.quiet && worker.pushes_before == pushes_sent_ && !is_decentralized_;
  if (measuring_ && worker.done > 0 && (never_waits_ || quiet)) {
    figures_.free_begin.add(answer.at_ns - worker.asked_ns);
  }
  if (barriers_) barriers_->granted(worker.iteration, answer.at_ns);
  if (is_decentralized_ && (step.flags & wire::kStepSkip) != 0) {
    call(index, Kind::kRenew, &Session::collect, workers_[index].id, worker.iteration - 1);
  } else {
    on_renewed(index);
  }
}

void Load::on_renewed(std::size_t index) {
  const bool asks = options_.ask_share > 0 &&
                    std::uniform_real_distribution<double>(0, 1)(random_) < options_.ask_share;
  if (asks) {
    ask_aside(index);
  } else {
    work(index);
  }
}

void Load::on_pushed(std::size_t index, const Answer& answer) {
  Worker& worker = workers_[index];
  --pushes_standing_;
  ++figures_.pushes;
  if (std::get<client::PushResult>(answer.completion.result).late) ++figures_.late;
  measure(figures_.push, answer);
  if (measuring_) ++figures_.iterations;
  ++worker.done;
  if (!is_decentralized_) {
    end_iteration(index);
  } else if (sends_first_) {
    compute(index);
  } else {
    call(index, Kind::kCollect, &Session::collect, workers_[index].id, worker.iteration);
  }
}

void Load::end_iteration(std::size_t index) {
  const Worker& worker = workers_[index];
  const bool last = options_.iterations > 0 && worker.done >= options_.iterations;
  if (last) end_window();
  if (last || ending_) {
    call(index, Kind::kLeave, &Session::leave, worker.id);
  } else {
    begin(index);
  }
}

void Load::on_answer(const Answer& answer) {
  if (answer.completion.status != Status::kOk) fail(answer);
  const std::size_t index = answer.worker;
  Worker& worker = workers_[index];
  switch (answer.kind) {
    case Kind::kJoin: {
      const auto& joined = std::get<client::JoinResult>(answer.completion.result);
      worker.id = joined.worker;
      worker.rank = joined.rank;
      figures_.policy = joined.policy;
      figures_.durable = joined.durable;
      ++joined_;
      break;
    }
    case Kind::kBegin:
      on_begun(index, answer);
      break;
    case Kind::kRenew:
      on_renewed(index);
      break;
    case Kind::kAside:
      on_aside(answer);
      break;
    case Kind::kOperator:
      on_told(answer);
      break;
    case Kind::kTargets:
      measure(figures_.targets, answer);
      push(index);
      break;
    case Kind::kPush:
      on_pushed(index, answer);
      break;
    case Kind::kCollect:
      measure(figures_.collect, answer);
      call(index, Kind::kConsumed, &Session::consumed, workers_[index].id, worker.iteration);
      break;
    case Kind::kConsumed:
      measure(figures_.consumed, answer);
      end_iteration(index);
      break;
    case Kind::kLeave:
      ++left_;
      break;
  }
}

// Hands out what has come, and lets those go on whose computing is over. Waits until `until` at
// most.
void Load::pump(Clock::time_point until) {
  // Not for ever, which some libraries cannot count to.
  until = std::min(until, Clock::now() + std::chrono::seconds(1));
  if (!timers_.empty()) {
    const Clock::time_point due{std::chrono::nanoseconds(timers_.top().first)};
    until = std::min(until, due);
  }
  answers_.take(taken_, until);
  for (const Answer& answer : taken_) on_answer(answer);
  while (!timers_.empty() && timers_.top().first <= now_ns()) {
    const std::size_t worker = timers_.top().second;
    timers_.pop();
    computed(worker);
  }
}

void Load::end_window() {
  if (!measuring_) return;
  measuring_ = false;
  ending_ = options_.iterations == 0;
  figures_.seconds = static_cast<double>(now_ns() - started_ns_) / 1e9;
  after_ = read_daemon();
}

Figures Load::run() {
  join_all();
  const PolicyTraits traits = traits_or_none(figures_.policy);
  never_waits_ = !traits.waits;
  is_decentralized_ = traits.family == Family::kDecentralized;
  sends_first_ = is_decentralized_ && !traits.peer_loop.push_follows_data;
  // What an overlay holds back is not the daemon's time.
  const bool meets_each_time = traits.all_meet && traits.barrier_every == 1;
  if (meets_each_time && traits.grant_delay_us == 0) barriers_.emplace(workers_.size());
  before_ = read_daemon();
  started_ns_ = now_ns();
  measuring_ = true;
  for (std::size_t i = 0; i < workers_.size(); ++i) begin(i);
  if (options_.iterations == 0) {
    const Clock::time_point end{
        std::chrono::nanoseconds(started_ns_ + static_cast<std::int64_t>(options_.seconds * 1e9))};
    while (Clock::now() < end) pump(end);
    end_window();
  }
  while (left_ < workers_.size()) pump(Clock::time_point::max());
  if (barriers_) figures_.barrier = barriers_->spans();
  figures_.workers = workers_.size();
  figures_.connections = options_.connections;
  figures_.frames_in = after_.status.frames_in - before_.status.frames_in;
  figures_.frames_out = after_.status.frames_out - before_.status.frames_out;
  if (before_.cpu_ns >= 0 && after_.cpu_ns >= 0) {
    figures_.server_cpu_s = static_cast<double>(after_.cpu_ns - before_.cpu_ns) / 1e9;
  }
  const auto job = own_job();
  if (!job) throw LoadError(ctl::kExitRefused, "the daemon knows nothing of job " + figures_.job);
  figures_.counted_pushes = job->pushes;
  // A daemon that lets only others stop a job keeps it open.
  wire::Ok ok;
  static_cast<void>(link_.call(wire::StopJobRequest{figures_.job, "syncbench has ended"}, ok));
  return figures_;
}

}  // namespace

Figures run_load(const ctl::Options& connection, const LoadOptions& options) {
  return Load(connection, options).run();
}

}  // namespace syncd::bench
