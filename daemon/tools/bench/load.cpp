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
#include <coroutine>
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
#include "proto/base/clock.h"

namespace syncd::bench {
namespace {

constexpr std::uint32_t kPageRecords = 256;
constexpr const char* kAside = "a request aside";

using Clock = std::chrono::steady_clock;
using client::Ask;
using client::Completion;
using client::Driver;
using client::Session;

std::int64_t now_ns() {
  return clock_ns(CLOCK_MONOTONIC);  // that of steady_clock
}

class Answers;

// What a worker has asked, one thing at a time.
class Request final : public client::Call {
 public:
  Answers* answers = nullptr;
  std::size_t worker = 0;
  const char* name = "";  // for errors
  std::int64_t asked_ns = 0;
  std::int64_t answered_ns = 0;
  Completion completion;

  std::int64_t span_ns() const { return answered_ns - asked_ns; }

 private:
  void finish(Completion&& completion) noexcept override;
};

// What the drivers' threads have to say.
class Answers {
 public:
  void post(Request& answered) {
    const std::lock_guard lock(mutex_);
    answered_.push_back(&answered);
    if (answered_.size() == 1) come_.notify_one();
  }
  // All that have come; waits for the first until `until`.
  void take(std::vector<Request*>& answered, Clock::time_point until) {
    answered.clear();
    std::unique_lock lock(mutex_);
    come_.wait_until(lock, until, [this] { return !answered_.empty(); });
    answered.swap(answered_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable come_;
  std::vector<Request*> answered_;
};

void Request::finish(Completion&& given) noexcept {
  answered_ns = now_ns();
  completion = std::move(given);
  answers->post(*this);
}

// A function that runs from one co_await to the next each time that it is resumed. What it throws,
// resume() throws.
class Routine {
 public:
  struct promise_type {
    Routine get_return_object() { return Routine(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { throw; }
  };
  Routine() = default;
  Routine(Routine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Routine& operator=(Routine&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Routine() {
    if (handle_) handle_.destroy();
  }
  void resume() const { handle_.resume(); }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Routine(Handle handle) : handle_(handle) {}

  Handle handle_;
};
using Pause = std::suspend_always;

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
  const bool known =
      local && name == "syncd" && clock_getcpuclockid(static_cast<pid_t>(pid), &clock) == 0;
  return known ? clock_ns(clock) : -1;
}

class Load {
 public:
  Load(const ctl::Options& connection, const LoadOptions& options);
  Figures run();

 private:
  struct Worker {
    Request request;
    Routine life;
    client::WorkerId id = client::kNoWorker;
    std::uint32_t rank = 0;
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
  Routine live(std::size_t index);
  // These five resume the worker once the daemon has answered or the time has passed.
  template <typename... Taken, typename... Given>
  Pause call(std::size_t index, const char* name, void (Session::*what)(const Ask&, Taken...),
             Given&&... given);
  Pause join(std::size_t index);
  Pause ask_worker(std::size_t index, Question question);
  Pause ask_operator(std::size_t index, Question question, std::int64_t first_rank);
  Pause compute(std::size_t index, std::int64_t iteration);
  Pause push(std::size_t index, std::int64_t iteration);
  std::int64_t take_told(const Request& request);
  void measure(std::size_t index, Spans& spans);
  void pump(Clock::time_point until);
  void end_window();
  void check(const Request& request) const;

  const LoadOptions options_;
  const std::int64_t timeout_ms_;
  Figures figures_;
  std::optional<sim::Durations> durations_;  // none: no computing
  ctl::DaemonLink link_;                     // beside the load
  Reading before_;
  Reading after_;
  Answers answers_;
  std::vector<Request*> taken_;
  std::vector<Worker> workers_;
  std::vector<std::unique_ptr<Driver, StopAndDelete>>
      drivers_;  // end before workers and answers do
  std::vector<Question> questions_;
  Driver* operator_ = nullptr;      // of the drivers; null: no question is for it
  std::queue<std::size_t> asking_;  // workers whose questions are; the first one asks
  std::uint64_t next_record_ = 1;
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
    : options_(options),
      timeout_ms_(connection.timeout_ms),
      workers_(options.workers),
      random_(options.seed) {
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
  }
  if (!link_.choose(figures_.job)) fail_link();
  if (!options.job.empty() && own_job()) {
    throw LoadError(
        ctl::kExitUsage,
        fmt::format("--job {}: there is such a job; syncbench needs one of its own", figures_.job));
  }
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
  if (link_.shards() > 1) options.link.shard = static_cast<std::int32_t>(link_.shard());
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

void Load::check(const Request& request) const {
  const Completion& completion = request.completion;
  if (completion.status == Status::kOk) return;
  const bool gone =
      completion.status == Status::kUnreachable || completion.status == Status::kTimeout;
  throw LoadError(gone ? ctl::kExitUnreachable : ctl::kExitRefused,
                  fmt::format("{}{} of worker {}: {}", gone ? "the daemon went away: " : "",
                              request.name, workers_[request.worker].rank, completion.message));
}

template <typename... Taken, typename... Given>
Pause Load::call(std::size_t index, const char* name, void (Session::*what)(const Ask&, Taken...),
                 Given&&... given) {
  Request& request = workers_[index].request;
  request.name = name;
  request.asked_ns = now_ns();
  drivers_[index % options_.connections]->submit(request, [&](Session& session, const Ask& ask) {
    (session.*what)(ask, std::forward<Given>(given)...);
  });
  return {};
}

Pause Load::join(std::size_t index) {
  client::JoinRequest join;
  join.job = figures_.job;
  join.policy = options_.policy;
  join.name = fmt::format("bench-{}", index);
  join.host = "syncbench";
  join.rank = static_cast<std::int32_t>(index);
  join.world_size = static_cast<std::uint32_t>(workers_.size());
  join.data.assign(options_.member_bytes, 0x5A);
  return call(index, "join", &Session::join, std::move(join));
}

Pause Load::ask_worker(std::size_t index, Question question) {
  const client::WorkerId id = workers_[index].id;
  switch (question) {
    case Question::kExplain:
      return call(index, kAside, &Session::explain, id);
    case Question::kMembers:
      return call(index, kAside, &Session::members, id);
    default:
      return call(index, kAside, &Session::phase, id, "benchmark", 60'000'000);
  }
}

// The time counts from the first of several pages.
Pause Load::ask_operator(std::size_t index, Question question, std::int64_t first_rank) {
  Request& request = workers_[index].request;
  request.name = kAside;
  if (first_rank == 0) request.asked_ns = now_ns();
  wire::Body body = wire::HistoryRequest{figures_.job, next_record_, kPageRecords, 0};
  if (question == Question::kStatus) body = wire::StatusRequest{};
  if (question == Question::kJobs) body = wire::JobsRequest{};
  if (question == Question::kWorkers) {
    body = wire::WorkersRequest{figures_.job, static_cast<std::uint32_t>(first_rank), false};
  }
  operator_->submit(request, [&](Session& session, const Ask& ask) {
    session.ask({ask.op, client::Timeout::after(timeout_ms_ * 1000, ask.now), ask.now}, body);
  });
  return {};
}

// The rank at which the rest of the answer begins; below 0: there is none. Of the workers an
// operator wants all, as `syncctl workers` does; of the history the next page, and the first one
// again once there is no more.
std::int64_t Load::take_told(const Request& request) {
  const wire::Body& told = *std::get<client::AskResult>(request.completion.result).answer;
  if (const auto* page = std::get_if<wire::WorkersReply>(&told)) return page->next_rank;
  if (const auto* history = std::get_if<wire::HistoryReply>(&told)) {
    next_record_ = std::max<std::uint64_t>(1, history->next_sequence);
  }
  return -1;
}

Pause Load::compute(std::size_t index, std::int64_t iteration) {
  timers_.emplace(now_ns() + (*durations_)(workers_[index].rank, iteration) * 1000, index);
  return {};
}

Pause Load::push(std::size_t index, std::int64_t iteration) {
  ++pushes_sent_;
  ++pushes_standing_;
  call(index, "push", &Session::push, workers_[index].id, iteration,
       client::PushInfo{0.25, 128, 0});
  if (barriers_) barriers_->pushing(iteration, workers_[index].request.asked_ns);
  return {};
}

void Load::measure(std::size_t index, Spans& spans) {
  if (!measuring_) return;
  spans.add(workers_[index].request.span_ns());
  ++figures_.requests;
}

// From its join to its leave. As the papers have it, workers under Hop send what they have and
// compute meanwhile, and under NOTIFY-ACK they send what they have computed.
Routine Load::live(std::size_t index) {
  Worker& worker = workers_[index];
  const Completion& answer = worker.request.completion;
  co_await join(index);
  const auto joined = std::get<client::JoinResult>(answer.result);
  worker.id = joined.worker;
  worker.rank = joined.rank;
  figures_.policy = joined.policy;
  figures_.durable = joined.durable;
  ++joined_;
  co_await Pause{};  // until all have joined

  std::uint64_t done = 0;
  do {
    const std::uint64_t pushes_before = pushes_sent_;
    const bool none_under_way = pushes_standing_ == 0;
    co_await call(index, "begin", &Session::begin, worker.id);
    const auto step = std::get<client::Step>(answer.result);
    if ((step.flags & wire::kStepStop) != 0) {
      throw LoadError(ctl::kExitRefused, "job '" + figures_.job + "' was stopped by somebody else");
    }
    measure(index, figures_.begin);
    // The first one waits for the others to have joined, under any policy; and a decentralized one
    // may wait for more than pushes.
    const bool quiet = none_under_way && pushes_before == pushes_sent_ && !is_decentralized_;
    if (measuring_ && done > 0 && (never_waits_ || quiet)) {
      figures_.free_begin.add(worker.request.span_ns());
    }
    if (barriers_) barriers_->granted(step.iteration, worker.request.answered_ns);
    if (is_decentralized_ && (step.flags & wire::kStepSkip) != 0) {
      co_await call(index, "collect", &Session::collect, worker.id, step.iteration - 1);
    }
    if (options_.ask_share > 0 &&
        std::uniform_real_distribution<double>(0, 1)(random_) < options_.ask_share) {
      std::uniform_int_distribution<std::size_t> any(0, questions_.size() - 1);
      const Question question = questions_[any(random_)];
      if (is_for_operator(question)) {
        asking_.push(index);
        if (asking_.front() != index) co_await Pause{};  // until those before it are answered
        for (std::int64_t rank = 0; rank >= 0; rank = take_told(worker.request)) {
          co_await ask_operator(index, question, rank);
        }
        asking_.pop();
        if (!asking_.empty()) workers_[asking_.front()].life.resume();
      } else {
        co_await ask_worker(index, question);
      }
      measure(index, figures_.asked[static_cast<std::size_t>(question)]);
    }
    if (durations_ && !sends_first_) co_await compute(index, step.iteration);
    if (is_decentralized_) {
      co_await call(index, "targets", &Session::targets, worker.id, step.iteration);
      measure(index, figures_.targets);
    }
    co_await push(index, step.iteration);
    --pushes_standing_;
    ++figures_.pushes;
    if (std::get<client::PushResult>(answer.result).late) ++figures_.late;
    measure(index, figures_.push);
    if (measuring_) ++figures_.iterations;
    ++done;
    if (durations_ && sends_first_) co_await compute(index, step.iteration);
    if (is_decentralized_) {
      co_await call(index, "collect", &Session::collect, worker.id, step.iteration);
      measure(index, figures_.collect);
      co_await call(index, "consumed", &Session::consumed, worker.id, step.iteration);
      measure(index, figures_.consumed);
    }
    if (done == options_.iterations) end_window();
  } while (!ending_ && done != options_.iterations);
  co_await call(index, "leave", &Session::leave, worker.id);
  ++left_;
}

// Resumes the workers that were answered, or whose computing is over. Waits until `until` at most.
void Load::pump(Clock::time_point until) {
  // Some libraries overflow on time_point::max().
  until = std::min(until, Clock::now() + std::chrono::seconds(1));
  if (!timers_.empty()) {
    const Clock::time_point due{std::chrono::nanoseconds(timers_.top().first)};
    until = std::min(until, due);
  }
  answers_.take(taken_, until);
  for (const Request* request : taken_) {
    check(*request);
    workers_[request->worker].life.resume();
  }
  while (!timers_.empty() && timers_.top().first <= now_ns()) {
    const std::size_t worker = timers_.top().second;
    timers_.pop();
    workers_[worker].life.resume();
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
  const std::int64_t joining_ns = now_ns();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.request.answers = &answers_;
    worker.request.worker = i;
    worker.rank = static_cast<std::uint32_t>(i);
    worker.life = live(i);
    worker.life.resume();
  }
  while (joined_ < workers_.size()) pump(Clock::time_point::max());
  figures_.join_s = static_cast<double>(now_ns() - joining_ns) / 1e9;
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
  for (const Worker& worker : workers_) worker.life.resume();
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
  // It stays open if this client may not stop jobs.
  wire::Ok ok;
  static_cast<void>(link_.call(wire::StopJobRequest{figures_.job, "syncbench has ended"}, ok));
  return figures_;
}

}  // namespace

Figures run_load(const ctl::Options& connection, const LoadOptions& options) {
  return Load(connection, options).run();
}

}  // namespace syncd::bench
