// The functions of <syncd/client.h> over libclient. Any thread; nothing thrown leaves this file.
#include "syncd/client.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "answers.h"
#include "arrival.h"
#include "error.h"
#include "libclient/drivers.h"
#include "options.h"
#include "proto/wire/announce.h"

#ifndef SYNCD_VERSION_STRING
#error "the build passes SYNCD_VERSION_STRING and its three numbers"
#endif

static_assert(SYNCD_STEP_PULL == syncd::wire::kStepPull);
static_assert(SYNCD_STEP_BARRIER == syncd::wire::kStepBarrier);
static_assert(SYNCD_STEP_SKIP == syncd::wire::kStepSkip);
static_assert(SYNCD_STEP_STOP == syncd::wire::kStepStop);
static_assert(SYNCD_STEP_RESUMED == syncd::wire::kStepResumed);
static_assert(SYNCD_LEAVE_PREEMPTED == static_cast<int>(syncd::wire::LeaveKind::kPreempted));
static_assert(SYNCD_LEAVE_FAILED == static_cast<int>(syncd::wire::LeaveKind::kFailed));
static_assert(SYNCD_RESUME_CONTINUE == static_cast<int>(syncd::wire::Resume::kContinue));
static_assert(SYNCD_STEP_CHECKPOINT == syncd::wire::kStepCheckpoint);
static_assert(sizeof(syncd_update) == 24, "its layout never changes");

using syncd::Status;
using syncd::capi::guarded;
using syncd::capi::make_timeout;
using syncd::capi::need;
using syncd::capi::Outcome;
using syncd::capi::refuse;
using syncd::client::Ask;
using syncd::client::Completion;
using syncd::client::Driver;
using syncd::client::Drivers;
using syncd::client::Session;
using syncd::client::TimeUs;

// What client and workers share: it lives until the last of them is freed.
namespace syncd::capi {
struct Shared {
  std::shared_ptr<Drivers> drivers;
  // What SYNCD_TIMEOUT_DEFAULT means.
  TimeUs begin_timeout_us = 0;
  TimeUs request_timeout_us = 0;
};
}  // namespace syncd::capi
using syncd::capi::Shared;

struct syncd_client {
  std::shared_ptr<Shared> shared;
};

struct syncd_worker {
  std::shared_ptr<Shared> shared;
  std::shared_ptr<Driver> driver;  // that of its job's shard
  std::shared_ptr<syncd::client::WorkerSignals> signals;
  std::uint32_t* resync_flag = nullptr;  // in `signals`, or the caller's memory
  std::shared_ptr<syncd::capi::Arrival> arrival;
  syncd::client::WorkerId id = syncd::client::kNoWorker;
  std::int32_t rank = 0;
  std::uint32_t world_size = 0;
  std::string job;
  std::string policy;
  // The job whose round made this worker's launch, and the round; empty: none.
  std::string round_job;
  std::uint64_t round = 0;
  syncd::client::Step step;  // that begin gave last: syncd_step points into it
  std::atomic<bool> resumed = false;
  std::atomic<std::int64_t> start_iteration = -1;
  // The checkpoint that it was told of last, and its part of that.
  struct Told {
    std::uint64_t checkpoint = 0;
    std::uint32_t shard = 0;
    std::uint32_t shards = 0;
  };
  void tell(const syncd::client::Step& now) {
    const std::lock_guard lock(told_mutex);
    told = {now.checkpoint, now.shard, now.shards};
  }
  Told what_was_told() const {
    const std::lock_guard lock(told_mutex);
    return told;
  }
  mutable std::mutex told_mutex;
  Told told;
};

static_assert(SYNCD_EVENT_RESYNC == static_cast<int>(syncd::client::Event::Kind::kResync) + 1);
static_assert(SYNCD_EVENT_MEMBERS == static_cast<int>(syncd::client::Event::Kind::kMembers) + 1);
static_assert(SYNCD_EVENT_PLAN == static_cast<int>(syncd::client::Event::Kind::kPlan) + 1);
static_assert(SYNCD_EVENT_STOP == static_cast<int>(syncd::client::Event::Kind::kStop) + 1);
static_assert(SYNCD_EVENT_ROUND == static_cast<int>(syncd::client::Event::Kind::kRound) + 1);
static_assert(SYNCD_EVENT_STRAGGLER ==
              static_cast<int>(syncd::client::Event::Kind::kStraggler) + 1);
static_assert(SYNCD_EVENT_HANG == static_cast<int>(syncd::client::Event::Kind::kHang) + 1);

namespace {

// What an inspection takes; syncd_inspect_callback names it, too.
constexpr std::size_t kInspectBytesMax = 16 * 1024;

// What the structs were in 0.1.0: up to the field named here, whatever is added after it.
constexpr std::size_t kStepFirstSize = SYNCD_SIZE_UP_TO(syncd_step, reserved);
constexpr std::size_t kRoundFirstSize = SYNCD_SIZE_UP_TO(syncd_round, room);
constexpr std::size_t kPushInfoFirstSize = SYNCD_SIZE_UP_TO(syncd_push_info, bytes);
static_assert(sizeof(void*) != 8 || kStepFirstSize == 32, "released layout");
static_assert(sizeof(void*) != 8 || kPushInfoFirstSize == 32, "released layout");

// Gives the result of a call to `take`. One without the result that belongs to it would be a defect
// of this library.
template <typename Result, typename Take>
Outcome give(const char* call, Completion& completion, const Take& take) {
  if (completion.status != Status::kOk) {
    return {completion.status, std::move(completion.message)};
  }
  auto* result = std::get_if<Result>(&completion.result);
  if (result == nullptr) {
    return {Status::kInternal, std::string(call) + ": the call ended without its result"};
  }
  take(*result);
  return {};
}

// Makes one call of the session's for a worker, and waits for its end.
template <typename Method, typename... Given>
Completion ask(const syncd_worker& worker, TimeUs timeout_us, Method method,
               const Given&... given) {
  return worker.driver->perform(
      [&](Session& session, const Ask& ask) { (session.*method)(ask, worker.id, given...); },
      timeout_us);
}
// The same within request_timeout; what it was answered is given to `take`.
template <typename Result, typename Take, typename Method, typename... Given>
Outcome request(const char* call, const syncd_worker* worker, std::int64_t timeout_ms,
                const Take& take, Method method, const Given&... given) {
  const TimeUs timeout_us = make_timeout(call, timeout_ms, worker->shared->request_timeout_us);
  Completion completion = ask(*worker, timeout_us, method, given...);
  return give<Result>(call, completion, take);
}
// The same, where the answer says no more than that it is done.
template <typename Method, typename... Given>
Outcome request(const char* call, const syncd_worker* worker, std::int64_t timeout_ms,
                Method method, const Given&... given) {
  return request<std::monostate>(
      call, worker, timeout_ms, [](auto&) {}, method, given...);
}

// A call of the session's that is about an iteration.
using Call = void (Session::*)(const Ask&, syncd::client::WorkerId, std::int64_t);

[[noreturn, gnu::cold, gnu::noinline]] void refuse_iteration(const char* call,
                                                             std::int64_t iteration) {
  refuse(call, "iteration " + std::to_string(iteration) + "; allowed: 0 or more");
}

void check_iteration(const char* call, std::int64_t iteration) {
  if (iteration < 0) refuse_iteration(call, iteration);
}

// Told before the arrival is touched: a thread of the parent's may have held its lock.
void refuse_forked(const syncd_worker& worker) {
  if (worker.driver->forked()) throw Outcome{Status::kForked, syncd::client::kForkedText};
}

// "worker 3 (worker-3 on node-b) takes 2.1 times its usual time; 3 of 4 workers of ... are slow"
void describe(const syncd::wire::StragglerNotice& of, char* text, std::size_t size) {
  const char* before_note = of.host_note.empty() ? "" : "; ";
  if (of.recovered) {
    std::snprintf(text, size, "worker %u (%s on %s) takes its usual time again%s%s", of.rank,
                  of.name.c_str(), of.host.c_str(), before_note, of.host_note.c_str());
  } else {
    std::snprintf(text, size, "worker %u (%s on %s) takes %.1f times its usual time%s%s", of.rank,
                  of.name.c_str(), of.host.c_str(), of.factor, before_note, of.host_note.c_str());
  }
}

// The caller's function, as the client calls it; none: nobody listens.
std::function<void(const syncd::client::Event&)> make_listener(
    const syncd::capi::JoinSettings& settings) {
  if (settings.on_event == nullptr) return {};
  return [on_event = settings.on_event,
          user_data = settings.user_data](const syncd::client::Event& event) {
    syncd_event made = {sizeof(syncd_event),
                        static_cast<std::int32_t>(event.kind) + 1,
                        0,
                        event.iteration,
                        event.wait_us,
                        event.version,
                        -1,
                        0,
                        0,
                        -1,
                        nullptr};
    char text[1024];  // no memory is taken here, where nobody could be told that there is none
    if (event.kind == syncd::client::Event::Kind::kStraggler) {
      const syncd::wire::StragglerNotice& straggler = event.straggler;
      made.rank = static_cast<std::int32_t>(straggler.rank);
      made.recovered = straggler.recovered ? 1 : 0;
      made.factor = straggler.factor;
      made.since_us = straggler.since_us;
      describe(straggler, text, sizeof text);
      made.text = text;
    } else if (event.kind == syncd::client::Event::Kind::kHang) {
      made.rank = event.hang.rank;
      made.text = event.hang.text.c_str();
    }
    on_event(&made, user_data);
  };
}

std::function<void(const syncd::client::Event&)> make_wait_listener(
    const syncd::capi::JoinSettings& settings) {
  if (settings.on_wait == nullptr) return {};
  return [on_wait = settings.on_wait,
          user_data = settings.user_data](const syncd::client::Event& event) {
    on_wait(event.text.c_str(), event.wait_us, user_data);
  };
}

// Where it begins: with its first step, or anew with its group.
void note_start(syncd_worker& worker, const syncd::client::Step& step) {
  if ((step.flags & SYNCD_STEP_STOP) != 0) return;
  const bool resumed = (step.flags & SYNCD_STEP_RESUMED) != 0;
  if (!resumed && worker.start_iteration >= 0) return;
  worker.start_iteration = step.iteration;
  worker.resumed = resumed;
}

// Likewise the function that says where the process is.
std::function<std::string()> make_inspector(const syncd::capi::JoinSettings& settings) {
  if (settings.on_inspect == nullptr) return {};
  return [on_inspect = settings.on_inspect, user_data = settings.user_data] {
    std::string text(kInspectBytesMax, '\0');
    text.resize(std::min(on_inspect(text.data(), text.size(), user_data), text.size()));
    return text;
  };
}

void check_step(const char* call, const syncd_step* step) {
  need(step, call, "step");
  syncd::capi::check_struct(step, kStepFirstSize, sizeof *step, "syncd_step");
}

// What begin was answered, given to the caller.
Outcome give_step(const char* call, syncd_worker& worker, Completion& completion,
                  syncd_step* step) {
  return give<syncd::client::Step>(call, completion, [&](syncd::client::Step& granted) {
    worker.step = std::move(granted);
    if (worker.step.checkpoint != 0) worker.tell(worker.step);
    const syncd::client::Step& now = worker.step;
    note_start(worker, now);
    const syncd_step made = {
        step->struct_size,  // the caller's own: it may know more fields, or fewer
        now.iteration,     now.staleness,
        now.flags,         0,
        now.view,          now.rank,
        now.size,          now.data.empty() ? nullptr : now.data.data(),
        now.data.size(),   now.reason.empty() ? nullptr : now.reason.c_str()};
    std::memcpy(step, &made, std::min(step->struct_size, sizeof made));
  });
}

// What syncd_worker_arrive() asked for.
Completion wait_for_arrival(syncd_worker& worker, TimeUs timeout_us) {
  using syncd::client::Timeout;
  const Timeout timeout = Timeout::after(timeout_us, Driver::now_us());
  if (auto completion = worker.arrival->take_until(timeout.deadline_us)) return *completion;
  Completion why = ask(worker, syncd::client::kExplainTimeoutUs, &Session::explain);
  if (auto completion = worker.arrival->take()) return *completion;
  Completion late;
  late.status = Status::kTimeout;
  const auto* explanation = std::get_if<syncd::Explanation>(&why.result);
  late.message = "begin";
  if (explanation != nullptr && explanation->iteration >= 0) {
    late.message += "(" + std::to_string(explanation->iteration) + ")";
  }
  late.message += " of worker " + std::to_string(worker.rank) + " not granted after " +
                  syncd::format_duration(timeout_us) + ": ";
  late.message += explanation != nullptr ? to_text(*explanation) : why.message;
  return late;
}

// Targets and collect: gives the `list` of the result to a caller's buffer, by fill(item, place).
// The session keeps the answer, so that a second call with more room finds it.
template <typename Result, typename Item, typename List, typename Fill>
Outcome ask_peers(const char* call, syncd_worker* worker, std::int64_t iteration,
                  std::int64_t timeout_ms, Item* buffer, std::size_t capacity, std::size_t* count,
                  Call method, List Result::*list, const Fill& fill) {
  need(worker, call, "worker");
  need(count, call, "count");
  if (buffer == nullptr && capacity > 0) {
    refuse(call, "the buffer is NULL, but its capacity is " + std::to_string(capacity));
  }
  check_iteration(call, iteration);
  const TimeUs timeout_us = make_timeout(call, timeout_ms, worker->shared->begin_timeout_us);
  Completion completion = ask(*worker, timeout_us, method, iteration);
  return give<Result>(call, completion, [&](const Result& result) {
    const List& items = result.*list;
    *count = items.size();
    if (items.size() > capacity) {
      throw Outcome{Status::kBuffer,
                    std::string(call) + ": the answer has " + std::to_string(items.size()) +
                        " entries, and the buffer takes " + std::to_string(capacity) +
                        "; call again with room for " + std::to_string(items.size())};
    }
    for (const auto& item : items) *buffer++ = fill(item);
  });
}

// Of either kind; the worker may be told of a checkpoint instead.
template <typename Method, typename... Given>
Outcome leave(const char* call, syncd_worker& worker, std::int64_t timeout_ms, Method method,
              const Given&... given) {
  const TimeUs timeout_us = make_timeout(call, timeout_ms, worker.shared->request_timeout_us);
  Completion completion = ask(worker, timeout_us, method, given...);
  if (const auto* step = std::get_if<syncd::client::Step>(&completion.result)) {
    worker.tell(*step);
  }
  return give<std::monostate>(call, completion, [](auto&) {});
}

Outcome wrong_answer(const char* call, const syncd::wire::Body& body) {
  return {Status::kProtocol, std::string(call) + ": the daemon answered with " +
                                 std::string(syncd::wire::body_name(body))};
}

// Consumed and restarted.
Outcome tell(const char* call, syncd_worker* worker, std::int64_t iteration,
             std::int64_t timeout_ms, Call method) {
  need(worker, call, "worker");
  check_iteration(call, iteration);
  return request(call, worker, timeout_ms, method, iteration);
}

// Of the question to the job whose round made the launch, at most: the caller is about to end.
constexpr TimeUs kRoundTimeoutUs = 1'000'000;

// Empty, or why this worker's process group is being formed anew, so that nothing can be saved
// whole any more: the round that made its launch is over. What cannot be found out is no reason.
std::string broken_round(const syncd_worker& worker, TimeUs timeout_us) {
  if (worker.round_job.empty()) return {};
  const syncd::wire::JobsRequest body{worker.round_job};
  timeout_us = std::min(timeout_us, kRoundTimeoutUs);
  std::shared_ptr<Driver> driver;
  Completion completion = worker.shared->drivers->driver_for(worker.round_job, timeout_us, driver);
  if (completion.status == Status::kOk) {
    completion = driver->perform([&](Session& session, const Ask& ask) { session.ask(ask, body); },
                                 timeout_us);
  }
  const auto* result = std::get_if<syncd::client::AskResult>(&completion.result);
  const auto* reply = completion.status != Status::kOk || result == nullptr
                          ? nullptr
                          : std::get_if<syncd::wire::JobsReply>(result->answer.get());
  if (reply == nullptr) return {};
  const std::string which = "round " + std::to_string(worker.round) + " of job '" +
                            worker.round_job + "', which started this worker, ";
  for (auto job = reply->jobs.rbegin(); job != reply->jobs.rend(); ++job) {
    if (job->name != worker.round_job || job->round == 0) continue;
    if (job->round > worker.round) {
      return which + "is over: round " + std::to_string(job->round) + " has begun";
    }
    if (job->round < worker.round) return {};
    if (job->state == "stopped") return which + "is over: the job has ended (" + job->note + ")";
    if (job->round_gone == 0) return {};
    return which + "is broken: " + job->note;
  }
  return {};
}

// From an event's callback, whose thread cannot wait for its own end. Where there is no thread to
// be had, the client stays as it is.
void close_elsewhere(std::shared_ptr<Shared> shared) {
  static_cast<void>(guarded("", nullptr, [&](const char*) {
    auto kept = std::make_unique<std::shared_ptr<Shared>>(std::move(shared));
    std::thread([held = kept.get()] {
      (*held)->drivers->stop();
      delete held;
    }).detach();
    static_cast<void>(kept.release());
  }));
}

}  // namespace

extern "C" {

const char* syncd_version(void) {
  return SYNCD_VERSION_STRING;
}

int32_t syncd_version_number(void) {
  return SYNCD_VERSION_MAJOR_NUMBER * 10000 + SYNCD_VERSION_MINOR_NUMBER * 100 +
         SYNCD_VERSION_PATCH_NUMBER;
}

syncd_status syncd_client_open(const syncd_client_options* options, syncd_client** client,
                               syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(client, call, "client");
    syncd::capi::ClientSettings settings = syncd::capi::make_client_settings(options);
    auto shared = std::make_shared<Shared>();
    shared->begin_timeout_us = settings.begin_timeout_us;
    shared->request_timeout_us = settings.request_timeout_us;
    Completion completion = Drivers::open(std::move(settings.client), shared->drivers);
    return give<syncd::client::ConnectResult>(
        call, completion, [&](auto&) { *client = new syncd_client{std::move(shared)}; });
  });
}

void syncd_client_close(syncd_client* client) {
  if (client == nullptr) return;
  std::shared_ptr<Shared> shared = client->shared;
  // Closing first lets calls that are blocked in it end; they hold what they need. In a forked
  // child this does nothing, and the last reference leaks what belongs to the parent.
  if (shared->drivers->on_loop_thread()) {
    shared->drivers->silence();
    close_elsewhere(std::move(shared));
  } else {
    shared->drivers->stop();
  }
  delete client;
}

syncd_status syncd_join(syncd_client* client, const syncd_join_options* options,
                        syncd_worker** worker, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(client, call, "client");
    need(worker, call, "worker");
    auto made = std::make_unique<syncd_worker>();
    // The client may be closed, and its handle freed, while this call is blocked.
    made->shared = client->shared;
    syncd::capi::JoinSettings settings = syncd::capi::make_join_settings(options);
    const TimeUs timeout_us = make_timeout("syncd_join_options.timeout_ms", settings.timeout_ms,
                                           made->shared->request_timeout_us);
    made->signals = std::make_shared<syncd::client::WorkerSignals>(
        settings.resync_flag, make_listener(settings), make_wait_listener(settings),
        make_inspector(settings));
    made->resync_flag = made->signals->flag();
    made->arrival = std::make_shared<syncd::capi::Arrival>();
    made->job = settings.request.job;
    if (settings.names_launch && settings.request.launch_number > 0) {
      made->round_job = std::string(syncd::kRendezvousPrefix) + settings.request.launch;
      made->round = settings.request.launch_number;
    }
    settings.request.signals = made->signals;
    Completion completion = made->shared->drivers->driver_for(made->job, timeout_us, made->driver);
    if (completion.status == Status::kOk) {
      completion = made->driver->perform(
          [&](Session& session, const Ask& ask) { session.join(ask, std::move(settings.request)); },
          timeout_us);
    }
    if (completion.status != Status::kOk) made->signals->disown();  // the caller frees its memory
    return give<syncd::client::JoinResult>(call, completion, [&](auto& joined) {
      made->id = joined.worker;
      made->rank = static_cast<std::int32_t>(joined.rank);
      made->world_size = joined.world_size;
      made->policy = std::move(joined.policy);
      *worker = made.release();
    });
  });
}

syncd_status syncd_begin(syncd_worker* worker, int64_t timeout_ms, syncd_step* step,
                         syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    check_step(call, step);
    const TimeUs timeout_us = make_timeout(call, timeout_ms, worker->shared->begin_timeout_us);
    const Driver& driver = *worker->driver;
    const bool arrived = worker->arrival->asked() && !driver.forked() && !driver.on_loop_thread();
    Completion completion =
        arrived ? wait_for_arrival(*worker, timeout_us) : ask(*worker, timeout_us, &Session::begin);
    return give_step(call, *worker, completion, step);
  });
}

syncd_status syncd_worker_arrive(syncd_worker* worker, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    refuse_forked(*worker);
    if (!worker->arrival->start(worker->arrival)) return;
    worker->driver->submit(*worker->arrival, [&](Session& session, const Ask& ask) {
      session.begin(ask, worker->id);
    });
  });
}

syncd_status syncd_worker_poll(syncd_worker* worker, int32_t* ready, syncd_step* step,
                               syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) -> Outcome {
    need(worker, call, "worker");
    need(ready, call, "ready");
    check_step(call, step);
    refuse_forked(*worker);
    if (!worker->arrival->asked()) {
      return {Status::kState,
              "syncd_worker_poll: nothing was asked for; call syncd_worker_arrive()"};
    }
    std::optional<Completion> completion = worker->arrival->take();
    Outcome outcome;
    if (completion) outcome = give_step(call, *worker, *completion, step);
    if (outcome.status == Status::kOk) *ready = completion ? 1 : 0;
    return outcome;
  });
}

syncd_status syncd_worker_descriptor(syncd_worker* worker, int32_t* fd, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    need(fd, call, "descriptor");
    refuse_forked(*worker);
    const int made = worker->arrival->descriptor();
    if (made < 0) {
      throw Outcome{Status::kLimit, std::string(call) + ": this process gets no descriptor: " +
                                        std::system_category().message(errno)};
    }
    *fd = made;
  });
}

int32_t syncd_should_resync(const syncd_worker* worker) {
  if (worker == nullptr) return 0;
  return static_cast<int32_t>(
      std::atomic_ref(*worker->resync_flag).load(std::memory_order_relaxed));
}

const uint32_t* syncd_worker_resync_flag(const syncd_worker* worker) {
  return worker != nullptr ? worker->resync_flag : nullptr;
}

syncd_status syncd_worker_explain(const syncd_worker* worker, int64_t timeout_ms,
                                  syncd_explanation** explanation, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    need(explanation, call, "explanation");
    const auto take = [&](syncd::Explanation& given) {
      *explanation = syncd::capi::make_explanation(std::move(given)).release();
    };
    return request<syncd::Explanation>(call, worker, timeout_ms, take, &Session::explain);
  });
}

syncd_status syncd_push(syncd_worker* worker, int64_t iteration, const syncd_push_info* info,
                        int64_t timeout_ms, uint32_t* flags, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    check_iteration(call, iteration);
    syncd::client::PushInfo made;
    if (info != nullptr) {
      syncd_push_info known = SYNCD_PUSH_INFO_INIT;
      syncd::capi::read_struct(info, kPushInfoFirstSize, "syncd_push_info", known);
      // A loss that has overflowed is no reason to stop a training run; it is no number either.
      if (std::isfinite(known.loss)) made.loss = known.loss;
      made.samples = known.samples;
      made.bytes = known.bytes;
    }
    const auto take = [&](const syncd::client::PushResult& pushed) {
      if (flags != nullptr) *flags = pushed.late ? SYNCD_PUSH_LATE : 0;
    };
    return request<syncd::client::PushResult>(call, worker, timeout_ms, take, &Session::push,
                                              iteration, made);
  });
}

syncd_status syncd_worker_restarted(syncd_worker* worker, int64_t iteration, int64_t timeout_ms,
                                    syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    return tell(call, worker, iteration, timeout_ms, &Session::restarted);
  });
}

syncd_status syncd_worker_mark(syncd_worker* worker, int32_t mark, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) -> Outcome {
    need(worker, call, "worker");
    if (mark != SYNCD_MARK_COMPUTED) {
      refuse(call, "mark " + std::to_string(mark) + "; allowed: SYNCD_MARK_COMPUTED (1)");
    }
    refuse_forked(*worker);
    if (worker->signals->mark_computed(Driver::now_us())) return {};
    return {Status::kState, std::string(call) + ": worker " + std::to_string(worker->rank) +
                                " computes no iteration now; syncd_begin() comes first"};
  });
}

syncd_status syncd_worker_phase(syncd_worker* worker, const char* name, int64_t lease_ms,
                                int64_t timeout_ms, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    const TimeUs lease_us = std::clamp(lease_ms, INT64_MIN / 1000, INT64_MAX / 1000) * 1000;
    std::string wrong;
    if (name != nullptr) {
      wrong = syncd::check_phase(name, lease_us);
    } else if (lease_ms != 0) {
      wrong = "a lease of " + std::to_string(lease_ms) +
              " ms without a name; NULL ends the phase and takes a lease of 0";
    }
    if (!wrong.empty()) refuse(call, wrong);
    return request(call, worker, timeout_ms, &Session::phase, name != nullptr ? name : "",
                   lease_us);
  });
}

syncd_status syncd_worker_targets(syncd_worker* worker, int64_t iteration, int64_t timeout_ms,
                                  int32_t* ranks, size_t capacity, size_t* count,
                                  syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    return ask_peers(call, worker, iteration, timeout_ms, ranks, capacity, count, &Session::targets,
                     &syncd::client::TargetsResult::ranks,
                     [](std::uint32_t rank) { return static_cast<std::int32_t>(rank); });
  });
}

syncd_status syncd_worker_collect(syncd_worker* worker, int64_t iteration, int64_t timeout_ms,
                                  syncd_update* updates, size_t capacity, size_t* count,
                                  syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    return ask_peers(call, worker, iteration, timeout_ms, updates, capacity, count,
                     &Session::collect, &syncd::client::CollectResult::updates,
                     [](const syncd::wire::PeerUpdate& update) {
                       return syncd_update{static_cast<std::int32_t>(update.rank), 0,
                                           update.iteration, update.weight};
                     });
  });
}

syncd_status syncd_worker_consumed(syncd_worker* worker, int64_t iteration, int64_t timeout_ms,
                                   syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    return tell(call, worker, iteration, timeout_ms, &Session::consumed);
  });
}

syncd_status syncd_worker_members(const syncd_worker* worker, int64_t timeout_ms,
                                  syncd_members** list, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    need(list, call, "members");
    const auto take = [&](syncd::client::MembersResult& given) {
      *list = syncd::capi::make_members(std::move(given)).release();
    };
    return request<syncd::client::MembersResult>(call, worker, timeout_ms, take, &Session::members);
  });
}

syncd_status syncd_worker_set_data(syncd_worker* worker, const void* data, size_t data_size,
                                   syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    return request(call, worker, SYNCD_WAIT_FOREVER, &Session::set_data,
                   syncd::capi::take_member_data(call, data, data_size));
  });
}

syncd_status syncd_worker_view(const syncd_worker* worker, uint64_t number, int64_t timeout_ms,
                               syncd_view** view, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    need(view, call, "view");
    const auto take = [&](syncd::client::ViewResult& given) {
      *view = syncd::capi::make_view(std::move(given)).release();
    };
    return request<syncd::client::ViewResult>(call, worker, timeout_ms, take, &Session::view,
                                              number);
  });
}

syncd_status syncd_worker_round(const syncd_worker* worker, syncd_round* round,
                                syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    need(round, call, "round");
    syncd::capi::check_struct(round, kRoundFirstSize, sizeof *round, "syncd_round");
    refuse_forked(*worker);
    const syncd::client::RoundState now = worker->signals->round();
    round->number = now.number;
    round->gone = now.gone;
    round->room = now.room;
  });
}

syncd_status syncd_worker_request_checkpoint(syncd_worker* worker, const char* reason,
                                             uint32_t flags, int64_t timeout_ms, uint64_t* number,
                                             syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    if ((flags & ~std::uint32_t{SYNCD_CHECKPOINT_LEAVING}) != 0) {
      refuse(call, "flags " + std::to_string(flags) + "; allowed: SYNCD_CHECKPOINT_LEAVING");
    }
    syncd::wire::AskCheckpoint body;
    if (reason != nullptr) body.reason = reason;
    body.unless_broken = flags != 0;
    if (body.unless_broken) {
      const TimeUs timeout_us = make_timeout(call, timeout_ms, worker->shared->request_timeout_us);
      const std::string broken = broken_round(*worker, timeout_us);
      if (!broken.empty()) throw Outcome{Status::kBroken, std::string(call) + ": " + broken};
    }
    const auto take = [&](const syncd::client::AskResult& result) {
      const auto* asked = std::get_if<syncd::wire::CheckpointAsked>(result.answer.get());
      if (asked == nullptr) throw wrong_answer(call, *result.answer);
      if (number != nullptr) *number = asked->number;
    };
    return request<syncd::client::AskResult>(call, worker, timeout_ms, take, &Session::request,
                                             "request_checkpoint", syncd::wire::Body(body));
  });
}

uint64_t syncd_worker_checkpoint(const syncd_worker* worker) {
  return worker != nullptr ? worker->what_was_told().checkpoint : 0;
}

uint32_t syncd_worker_checkpoint_shard(const syncd_worker* worker, uint64_t number,
                                       uint32_t* shards) {
  syncd_worker::Told told;
  if (worker != nullptr) told = worker->what_was_told();
  if (number == 0 || told.checkpoint != number) told = {};
  if (shards != nullptr) *shards = told.shards;
  return told.shard;
}

syncd_status syncd_worker_checkpointed(syncd_worker* worker, uint64_t number, uint32_t shard,
                                       uint32_t shards, const char* location, int64_t timeout_ms,
                                       syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    syncd::wire::Checkpointed body;
    body.number = number;
    body.shard = shard;
    body.shards = shards;
    if (location != nullptr) body.location = location;
    const auto take = [&](const syncd::client::AskResult& result) {
      if (!std::holds_alternative<syncd::wire::Ok>(*result.answer)) {
        throw wrong_answer(call, *result.answer);
      }
    };
    return request<syncd::client::AskResult>(call, worker, timeout_ms, take, &Session::request,
                                             "checkpointed", syncd::wire::Body(body));
  });
}

namespace {

// From this shard on, at most so many; -1: all.
Outcome find_checkpoint(const char* call, syncd_client* client, const char* job,
                        std::uint32_t first_shard, std::int64_t shards_max, std::int64_t timeout_ms,
                        syncd_checkpoint** checkpoint) {
  need(client, call, "client");
  need(checkpoint, call, "checkpoint");
  const std::shared_ptr<Shared> shared = client->shared;
  const TimeUs timeout_us = make_timeout(call, timeout_ms, shared->request_timeout_us);
  syncd::wire::LatestCheckpointReply all;
  const auto most = static_cast<std::uint64_t>(shards_max);  // of -1: no bound
  syncd::wire::LatestCheckpoint body{syncd::capi::job_name(job), first_shard, shards_max};
  std::shared_ptr<Driver> driver;
  Completion found = shared->drivers->driver_for(body.job, timeout_us, driver);
  if (found.status != Status::kOk) return {found.status, std::move(found.message)};
  for (bool is_whole = false; !is_whole;) {
    Completion completion = driver->perform(
        [&](Session& session, const Ask& ask) { session.ask(ask, body); }, timeout_us);
    const auto take = [&](const syncd::client::AskResult& result) {
      const auto* page = std::get_if<syncd::wire::LatestCheckpointReply>(result.answer.get());
      if (page == nullptr) throw wrong_answer(call, *result.answer);
      // A later one was complete meanwhile: that one, from its beginning.
      const bool goes_on = page->number == all.number && page->epoch == all.epoch;
      if (body.first_shard != first_shard && !goes_on) {
        body.first_shard = first_shard;
        body.shards_max = shards_max;
        return;
      }
      const auto first = body.first_shard;
      std::vector<syncd::wire::CheckpointShard> saved = std::move(all.saved);
      if (first == first_shard) saved.clear();
      all = *page;
      all.saved.insert(all.saved.begin(), std::make_move_iterator(saved.begin()),
                       std::make_move_iterator(saved.end()));
      // An older daemon knows no bound.
      if (all.saved.size() > most) all.saved.resize(most);
      is_whole = page->next_shard <= first || all.saved.size() == most;
      body.first_shard = static_cast<std::uint32_t>(std::max<std::int64_t>(page->next_shard, 0));
      if (shards_max >= 0) body.shards_max = static_cast<std::int64_t>(most - all.saved.size());
    };
    Outcome outcome = give<syncd::client::AskResult>(call, completion, take);
    if (outcome.status != Status::kOk) return outcome;
  }
  *checkpoint = syncd::capi::make_checkpoint(std::move(all)).release();
  return {};
}

}  // namespace

syncd_status syncd_latest_checkpoint(syncd_client* client, const char* job, int64_t timeout_ms,
                                     syncd_checkpoint** checkpoint, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    return find_checkpoint(call, client, job, 0, -1, timeout_ms, checkpoint);
  });
}

syncd_status syncd_latest_checkpoint_part(syncd_client* client, const char* job,
                                          uint32_t first_shard, uint32_t shards_max,
                                          int64_t timeout_ms, syncd_checkpoint** checkpoint,
                                          syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    return find_checkpoint(call, client, job, first_shard, shards_max, timeout_ms, checkpoint);
  });
}

syncd_status syncd_leave(syncd_worker* worker, int64_t timeout_ms, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    return leave(call, *worker, timeout_ms, &Session::leave);
  });
}

syncd_status syncd_leave_as(syncd_worker* worker, int32_t kind, const char* reason,
                            int64_t timeout_ms, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(worker, call, "worker");
    if (kind < SYNCD_LEAVE_LEFT || kind > SYNCD_LEAVE_PREEMPTED) {
      refuse(call, "kind " + std::to_string(kind) +
                       "; allowed: SYNCD_LEAVE_LEFT (0) to "
                       "SYNCD_LEAVE_PREEMPTED (3)");
    }
    const std::string why = syncd::capi::shown_reason(reason != nullptr ? reason : "");
    return leave(call, *worker, timeout_ms, &Session::leave_as,
                 static_cast<syncd::wire::LeaveKind>(kind), why);
  });
}

void syncd_worker_free(syncd_worker* worker) {
  if (worker == nullptr) return;
  if (!worker->driver->forked()) {  // where a thread of the parent's held its locks
    worker->signals->disown();
    worker->arrival->close_descriptor();
    worker->driver->release(worker->id);
  }
  delete worker;
}

int32_t syncd_worker_rank(const syncd_worker* worker) {
  return worker != nullptr ? worker->rank : SYNCD_RANK_ANY;
}

uint32_t syncd_worker_world_size(const syncd_worker* worker) {
  return worker != nullptr ? worker->world_size : 0;
}

const char* syncd_worker_job(const syncd_worker* worker) {
  return worker != nullptr ? worker->job.c_str() : "";
}

const char* syncd_worker_policy(const syncd_worker* worker) {
  return worker != nullptr ? worker->policy.c_str() : "";
}

int32_t syncd_worker_resumed(const syncd_worker* worker) {
  return worker != nullptr && worker->resumed ? 1 : 0;
}

int64_t syncd_worker_start_iteration(const syncd_worker* worker) {
  return worker != nullptr ? worker->start_iteration.load() : -1;
}

}  // extern "C"
