// See load.h.
#include "daemon/tools/bench/load.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "daemon/core/policies/registry.h"
#include "daemon/tools/bench/operator.h"
#include "daemon/tools/bench/server.h"
#include "daemon/tools/ctl/connection.h"
#include "daemon/tools/sim/iteration_time.h"
#include "libclient/driver.h"

namespace syncd::bench {
namespace {

using Clock = std::chrono::steady_clock;
using client::Ask;
using client::Completion;
using client::Driver;
using client::Session;

enum class Kind : std::uint8_t {
  kJoin,
  kBegin,
  kRenew,  // collect of the iteration before the one to which a step has skipped
  kAside,
  kTargets,
  kPush,
  kCollect,
  kConsumed,
  kLeave
};

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::kJoin:
      return "join";
    case Kind::kBegin:
      return "begin";
    case Kind::kRenew:
    case Kind::kCollect:
      return "collect";
    case Kind::kAside:
      return "a request aside";
    case Kind::kTargets:
      return "targets";
    case Kind::kPush:
      return "push";
    case Kind::kConsumed:
      return "consumed";
    case Kind::kLeave:
      return "leave";
  }
  return "?";
}

// What the drivers' threads have to say.
struct Answer {
  std::size_t worker = 0;
  Kind kind = Kind::kJoin;
  std::int64_t at_ns = 0;
  Completion completion;
  std::int64_t asked_ns = -1;  // -1: when the worker asked
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
    answers_.post({worker_, kind_, now_ns(), std::move(completion), -1});
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
  using Timer = std::pair<std::int64_t, std::size_t>;  // when, which worker

  void open_drivers(const std::vector<client::Endpoint>& endpoints,
                    const ctl::DaemonLink::Credentials& credentials);
  // A call of the session's for a worker; its answer is of `kind`.
  template <typename... Taken, typename... Given>
  void call(std::size_t index, Kind kind, void (Session::*what)(const Ask&, Taken...),
            Given&&... given);
  void join_all();
  void begin(std::size_t worker);
  void ask_aside(std::size_t worker);
  void work(std::size_t worker);
  void compute(std::size_t worker);
  void computed(std::size_t worker);
  void push(std::size_t worker);
  void measure(Spans& spans, const Answer& answer);
  void end_iteration(std::size_t worker);
  void on_answer(const Answer& answer);
  void on_begun(std::size_t worker, const Answer& answer);
  void on_renewed(std::size_t worker);
  void on_pushed(std::size_t worker, const Answer& answer);
  void pump(Clock::time_point until);
  void end_window();
  [[noreturn]] void fail(const Answer& answer) const;

  const LoadOptions options_;
  const std::int64_t timeout_ms_;
  Figures figures_;
  std::optional<sim::Durations> durations_;  // none: no computing
  std::optional<Server> server_;
  Server::Reading before_;
  Server::Reading after_;
  Answers answers_;
  std::vector<Answer> taken_;
  std::vector<std::unique_ptr<Driver, StopAndDelete>> drivers_;  // end before the answers do
  std::vector<Question> questions_;
  std::unique_ptr<Operator> operator_;  // if one of them is for it
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
  std::vector<client::Endpoint> endpoints;
  ctl::DaemonLink::Credentials credentials;
  if (!ctl::how_to_ask(connection, endpoints, credentials, error)) {
    throw LoadError(ctl::kExitUsage, error);
  }
  server_.emplace(endpoints, credentials, timeout_ms_);
  figures_.job = options.job;
  if (figures_.job.empty()) {
    figures_.job =
        "syncbench-" + std::to_string(getpid()) + "-" + std::to_string(now_ns() / 1'000'000);
  } else if (server_->job(figures_.job)) {
    throw LoadError(ctl::kExitUsage, "--job " + figures_.job +
                                         ": there is such a job; syncbench needs one of its own");
  }
  workers_.resize(options.workers);
  open_drivers(endpoints, credentials);
  if (options.ask_share > 0 && std::any_of(questions_.begin(), questions_.end(), is_for_operator)) {
    operator_ = std::make_unique<Operator>(
        endpoints, credentials, timeout_ms_, figures_.job, [this](Operator::Answer answer) {
          Completion completion;
          completion.status = answer.status;
          completion.message = std::move(answer.message);
          answers_.post(
              {answer.asker, Kind::kAside, now_ns(), std::move(completion), answer.asked_ns});
        });
  }
}

void Load::open_drivers(const std::vector<client::Endpoint>& endpoints,
                        const ctl::DaemonLink::Credentials& credentials) {
  client::SessionOptions session;
  for (const client::Endpoint& endpoint : endpoints) {
    session.link.endpoints.push_back(endpoint.text());
  }
  session.link.client_name = "syncbench";
  session.link.client_version = SYNCD_VERSION;
  session.link.token = credentials.token;
  session.reconnect_timeout_us = timeout_ms_ * 1000;
  for (std::size_t i = 0; i < options_.connections; ++i) {
    session.link.seed = options_.seed + i;
    auto driver = std::make_unique<Driver>(
        endpoints, session, client::DriverTls{credentials.tls, credentials.server_name});
    std::string error;
    if (!driver->start(error)) {
      throw LoadError(ctl::kExitUnreachable, "connection " + std::to_string(i) + ": " + error);
    }
    drivers_.emplace_back(driver.release());
  }
}

template <typename... Taken, typename... Given>
void Load::call(std::size_t index, Kind kind, void (Session::*what)(const Ask&, Taken...),
                Given&&... given) {
  workers_[index].asked_ns = now_ns();
  auto* call = new PostingCall(answers_, index, kind);
  drivers_[index % drivers_.size()]->submit(*call, [&](Session& session, const Ask& ask) {
    (session.*what)(ask, std::forward<Given>(given)...);
  });
}

void Load::fail(const Answer& answer) const {
  const Worker& worker = workers_[answer.worker];
  const Status status = answer.completion.status;
  std::string what = std::string(to_string(answer.kind)) + " of worker " +
                     std::to_string(answer.kind == Kind::kJoin ? answer.worker : worker.rank);
  if (status == Status::kUnreachable) what = "the daemon went away: " + what;
  throw LoadError(status == Status::kUnreachable ? ctl::kExitUnreachable : ctl::kExitRefused,
                  what + ": " + answer.completion.message);
}

void Load::join_all() {
  const std::int64_t start_ns = now_ns();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    client::JoinRequest join;
    join.job = figures_.job;
    join.policy = options_.policy;
    join.name = "bench-" + std::to_string(i);
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
      operator_->ask(index, worker.question);
  }
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
  const std::int64_t asked_ns =
      answer.asked_ns < 0 ? workers_[answer.worker].asked_ns : answer.asked_ns;
  spans.add(answer.at_ns - asked_ns);
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
      measure(figures_.asked[static_cast<std::size_t>(worker.question)], answer);
      work(index);
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
  after_ = server_->read();
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
  before_ = server_->read();
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
  figures_.connections = drivers_.size();
  figures_.frames_in = after_.status.frames_in - before_.status.frames_in;
  figures_.frames_out = after_.status.frames_out - before_.status.frames_out;
  if (before_.cpu_ns >= 0 && after_.cpu_ns >= 0) {
    figures_.server_cpu_s = static_cast<double>(after_.cpu_ns - before_.cpu_ns) / 1e9;
  }
  const auto job = server_->job(figures_.job);
  if (!job) throw LoadError(ctl::kExitRefused, "the daemon knows nothing of job " + figures_.job);
  figures_.counted_pushes = job->pushes;
  server_->stop(figures_.job);
  return figures_;
}

}  // namespace

Figures run_load(const ctl::Options& connection, const LoadOptions& options) {
  return Load(connection, options).run();
}

}  // namespace syncd::bench
