// The functions of <syncd/client.h> over libclient. Any thread; nothing thrown leaves this file.
#include "libclient/client.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "arrival.h"
#include "error.h"
#include "explanation.h"
#include "libclient/driver.h"
#include "members.h"
#include "options.h"
#include "proto/wire/announce.h"
#include "syncd/client.h"

#ifndef SYNCD_VERSION_STRING
#error "the build passes SYNCD_VERSION_STRING and its three numbers"
#endif

static_assert(SYNCD_STEP_PULL == syncd::wire::kStepPull);
static_assert(SYNCD_STEP_BARRIER == syncd::wire::kStepBarrier);
static_assert(SYNCD_STEP_SKIP == syncd::wire::kStepSkip);
static_assert(SYNCD_STEP_STOP == syncd::wire::kStepStop);
static_assert(sizeof(syncd_update) == 24, "its layout never changes");

using syncd::Status;
using syncd::capi::null_argument;
using syncd::capi::Outcome;
using syncd::client::Client;
using syncd::client::Completion;
using syncd::client::TimeUs;

// What client and workers share: it lives until the last of them is freed.
namespace syncd::capi {
struct Shared {
  std::shared_ptr<Client> client;
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
  std::shared_ptr<syncd::client::WorkerSignals> signals;
  std::uint32_t* resync_flag = nullptr;  // in `signals`, or the caller's memory
  std::shared_ptr<syncd::capi::Arrival> arrival;
  syncd::client::WorkerId id = syncd::client::kNoWorker;
  std::int32_t rank = 0;
  std::uint32_t world_size = 0;
  std::string job;
  std::string policy;
};

static_assert(SYNCD_EVENT_RESYNC == static_cast<int>(syncd::client::Event::Kind::kResync) + 1);
static_assert(SYNCD_EVENT_MEMBERS == static_cast<int>(syncd::client::Event::Kind::kMembers) + 1);
static_assert(SYNCD_EVENT_PLAN == static_cast<int>(syncd::client::Event::Kind::kPlan) + 1);
static_assert(SYNCD_EVENT_STOP == static_cast<int>(syncd::client::Event::Kind::kStop) + 1);

namespace {

// What the structs were in 0.1.0: up to the field named here, whatever is added after it.
constexpr std::size_t kStepFirstSize = SYNCD_SIZE_UP_TO(syncd_step, reserved);
constexpr std::size_t kPushInfoFirstSize = SYNCD_SIZE_UP_TO(syncd_push_info, bytes);
static_assert(sizeof(void*) != 8 || kStepFirstSize == 32, "released layout");
static_assert(sizeof(void*) != 8 || kPushInfoFirstSize == 32, "released layout");

Outcome as_outcome(Completion& completion) {
  return {completion.status, std::move(completion.message)};
}

// An answer without the result that belongs to it would be a defect of this library.
template <typename Result>
const Result* result_of(const Completion& completion) {
  return std::get_if<Result>(&completion.result);
}

Outcome no_result(const char* call) {
  return {Status::kInternal, std::string(call) + ": the call ended without its result"};
}

Outcome open(const syncd_client_options* options, syncd_client** client) {
  if (client == nullptr) return null_argument("syncd_client_open", "client");
  syncd::capi::ClientSettings settings;
  Outcome outcome = syncd::capi::make_client_settings(options, settings);
  if (!outcome.ok()) return outcome;
  auto shared = std::make_shared<Shared>();
  shared->begin_timeout_us = settings.begin_timeout_us;
  shared->request_timeout_us = settings.request_timeout_us;
  Completion completion = Client::open(std::move(settings.client), shared->client);
  if (completion.status != Status::kOk) return as_outcome(completion);
  *client = new syncd_client{std::move(shared)};
  return {};
}

// The caller's function, as the client calls it; none: nobody listens.
std::function<void(const syncd::client::Event&)> make_listener(
    const syncd::capi::JoinSettings& settings) {
  if (settings.on_event == nullptr) return {};
  return [on_event = settings.on_event,
          user_data = settings.user_data](const syncd::client::Event& event) {
    const syncd_event made = {sizeof(syncd_event),
                              static_cast<std::int32_t>(event.kind) + 1,
                              0,
                              event.iteration,
                              event.wait_us,
                              event.version};
    on_event(&made, user_data);
  };
}

Outcome join(syncd_client* client, const syncd_join_options* options, syncd_worker** worker) {
  if (client == nullptr) return null_argument("syncd_join", "client");
  if (worker == nullptr) return null_argument("syncd_join", "worker");
  // The client may be closed, and its handle freed, while this call is blocked.
  const std::shared_ptr<Shared> shared = client->shared;
  syncd::capi::JoinSettings settings;
  Outcome outcome = syncd::capi::make_join_settings(options, settings);
  if (!outcome.ok()) return outcome;
  TimeUs timeout_us = 0;
  outcome = syncd::capi::make_timeout("syncd_join_options.timeout_ms", settings.timeout_ms,
                                      shared->request_timeout_us, timeout_us);
  if (!outcome.ok()) return outcome;
  auto made = std::make_unique<syncd_worker>();
  made->shared = shared;
  made->signals =
      std::make_shared<syncd::client::WorkerSignals>(settings.resync_flag, make_listener(settings));
  made->resync_flag = made->signals->flag();
  made->arrival = std::make_shared<syncd::capi::Arrival>();
  made->job = settings.request.job;
  settings.request.signals = made->signals;
  Completion completion = shared->client->join(std::move(settings.request), timeout_us);
  if (completion.status != Status::kOk) {
    made->signals->disown();  // the caller may free its memory now
    return as_outcome(completion);
  }
  auto* joined = std::get_if<syncd::client::JoinResult>(&completion.result);
  if (joined == nullptr) return no_result("syncd_join");
  made->id = joined->worker;
  made->rank = static_cast<std::int32_t>(joined->rank);
  made->world_size = joined->world_size;
  made->policy = std::move(joined->policy);
  *worker = made.release();
  return {};
}

// Told before the arrival is touched: a thread of the parent's may have held its lock.
Outcome forked() {
  return {Status::kForked, syncd::client::kForkedText};
}

// What begin was answered, given to the caller.
Outcome give_step(const char* call, Completion& completion, syncd_step* step) {
  if (completion.status != Status::kOk) return as_outcome(completion);
  const auto* granted = result_of<syncd::client::Step>(completion);
  if (granted == nullptr) return no_result(call);
  // The caller's own struct_size stays: it may know more, or one day fewer, fields than we do.
  step->iteration = granted->iteration;
  step->staleness = granted->staleness;
  step->flags = granted->flags;
  step->reserved = 0;
  return {};
}

// What syncd_worker_arrive() asked for.
Completion wait_for_arrival(syncd_worker& worker, TimeUs timeout_us) {
  using syncd::client::Timeout;
  const Timeout timeout = Timeout::after(timeout_us, syncd::client::Driver::now_us());
  if (auto completion = worker.arrival->take_until(timeout.deadline_us)) return *completion;
  Completion why = worker.shared->client->explain(worker.id, syncd::client::kExplainTimeoutUs);
  if (auto completion = worker.arrival->take()) return *completion;
  Completion late;
  late.status = Status::kTimeout;
  const auto* explanation = result_of<syncd::Explanation>(why);
  late.message = "begin";
  if (explanation != nullptr && explanation->iteration >= 0) {
    late.message += "(" + std::to_string(explanation->iteration) + ")";
  }
  late.message += " of worker " + std::to_string(worker.rank) + " not granted after " +
                  syncd::format_duration(timeout_us) + ": ";
  late.message += explanation != nullptr ? to_text(*explanation) : why.message;
  return late;
}

Outcome begin(syncd_worker* worker, std::int64_t timeout_ms, syncd_step* step) {
  if (worker == nullptr) return null_argument("syncd_begin", "worker");
  if (step == nullptr) return null_argument("syncd_begin", "step");
  syncd_step known = SYNCD_STEP_INIT;
  Outcome outcome = syncd::capi::read_struct(step, kStepFirstSize, "syncd_step", known);
  if (!outcome.ok()) return outcome;
  TimeUs timeout_us = 0;
  outcome = syncd::capi::make_timeout("syncd_begin", timeout_ms, worker->shared->begin_timeout_us,
                                      timeout_us);
  if (!outcome.ok()) return outcome;
  Client& client = *worker->shared->client;
  const bool may_wait = !client.forked() && !client.on_own_thread();
  Completion completion = may_wait && worker->arrival->asked()
                              ? wait_for_arrival(*worker, timeout_us)
                              : client.begin(worker->id, timeout_us);
  return give_step("syncd_begin", completion, step);
}

Outcome arrive(syncd_worker* worker) {
  if (worker == nullptr) return null_argument("syncd_worker_arrive", "worker");
  Client& client = *worker->shared->client;
  const std::shared_ptr<syncd::capi::Arrival> arrival = worker->arrival;
  if (client.forked()) return forked();
  if (!arrival->start()) return {};
  try {
    client.begin_then(worker->id,
                      [arrival](Completion given) { arrival->finish(std::move(given)); });
  } catch (...) {
    arrival->withdraw();
    throw;
  }
  return {};
}

Outcome poll(syncd_worker* worker, std::int32_t* ready, syncd_step* step) {
  const char* call = "syncd_worker_poll";
  if (worker == nullptr) return null_argument(call, "worker");
  if (ready == nullptr) return null_argument(call, "ready");
  if (step == nullptr) return null_argument(call, "step");
  syncd_step known = SYNCD_STEP_INIT;
  Outcome outcome = syncd::capi::read_struct(step, kStepFirstSize, "syncd_step", known);
  if (!outcome.ok()) return outcome;
  Client& client = *worker->shared->client;
  if (client.forked()) return forked();
  if (!worker->arrival->asked()) {
    return {Status::kState, "syncd_worker_poll: nothing was asked for; call syncd_worker_arrive()"};
  }
  std::optional<Completion> completion = worker->arrival->take();
  if (!completion) {
    *ready = 0;
    return {};
  }
  outcome = give_step(call, *completion, step);
  if (outcome.ok()) *ready = 1;
  return outcome;
}

Outcome descriptor(syncd_worker* worker, std::int32_t* descriptor) {
  const char* call = "syncd_worker_descriptor";
  if (worker == nullptr) return null_argument(call, "worker");
  if (descriptor == nullptr) return null_argument(call, "descriptor");
  Client& client = *worker->shared->client;
  if (client.forked()) return forked();
  const int made = worker->arrival->descriptor();
  if (made < 0) {
    return {Status::kLimit, std::string(call) + ": this process gets no descriptor: " +
                                std::system_category().message(errno)};
  }
  *descriptor = made;
  return {};
}

Outcome make_push_info(const syncd_push_info* info, syncd::client::PushInfo& made) {
  if (info == nullptr) return {};
  syncd_push_info known = SYNCD_PUSH_INFO_INIT;
  Outcome outcome = syncd::capi::read_struct(info, kPushInfoFirstSize, "syncd_push_info", known);
  if (!outcome.ok()) return outcome;
  // A loss that has overflowed is no reason to stop a training run; it is no number either.
  if (std::isfinite(known.loss)) made.loss = known.loss;
  made.samples = known.samples;
  made.bytes = known.bytes;
  return {};
}

Outcome check_iteration(const char* call, std::int64_t iteration) {
  if (iteration >= 0) return {};
  return syncd::capi::invalid(std::string(call) + ": iteration " + std::to_string(iteration) +
                              "; allowed: 0 or more");
}

Outcome push(syncd_worker* worker, std::int64_t iteration, const syncd_push_info* info,
             std::int64_t timeout_ms, std::uint32_t* flags) {
  if (worker == nullptr) return null_argument("syncd_push", "worker");
  Outcome outcome = check_iteration("syncd_push", iteration);
  if (!outcome.ok()) return outcome;
  syncd::client::PushInfo made;
  outcome = make_push_info(info, made);
  if (!outcome.ok()) return outcome;
  TimeUs timeout_us = 0;
  outcome = syncd::capi::make_timeout("syncd_push", timeout_ms, worker->shared->request_timeout_us,
                                      timeout_us);
  if (!outcome.ok()) return outcome;
  Completion completion = worker->shared->client->push(worker->id, iteration, made, timeout_us);
  if (completion.status != Status::kOk) return as_outcome(completion);
  const auto* pushed = result_of<syncd::client::PushResult>(completion);
  if (pushed == nullptr) return no_result("syncd_push");
  if (flags != nullptr) *flags = pushed->late ? SYNCD_PUSH_LATE : 0;
  return {};
}

// A buffer that the caller provides for a list.
struct Room {
  const void* memory;
  std::size_t capacity;
  std::size_t* count;
};

// Checks the arguments that targets and collect share, and makes the call.
Outcome ask_peers(const char* call, syncd_worker* worker, std::int64_t iteration,
                  std::int64_t timeout_ms, const Room& room,
                  Completion (Client::*method)(syncd::client::WorkerId, std::int64_t, TimeUs),
                  Completion& completion) {
  if (worker == nullptr) return null_argument(call, "worker");
  if (room.count == nullptr) return null_argument(call, "count");
  if (room.memory == nullptr && room.capacity > 0) {
    return syncd::capi::invalid(std::string(call) + ": the buffer is NULL, but its capacity is " +
                                std::to_string(room.capacity));
  }
  Outcome outcome = check_iteration(call, iteration);
  if (!outcome.ok()) return outcome;
  TimeUs timeout_us = 0;
  outcome =
      syncd::capi::make_timeout(call, timeout_ms, worker->shared->begin_timeout_us, timeout_us);
  if (!outcome.ok()) return outcome;
  completion = ((*worker->shared->client).*method)(worker->id, iteration, timeout_us);
  return as_outcome(completion);
}

// Whether the answer fits. The session keeps it, so that a second call with more room finds it.
Outcome check_room(const char* call, const Room& room, std::size_t needed) {
  *room.count = needed;
  if (needed <= room.capacity) return {};
  return {Status::kBuffer, std::string(call) + ": the answer has " + std::to_string(needed) +
                               " entries, and the buffer takes " + std::to_string(room.capacity) +
                               "; call again with room for " + std::to_string(needed)};
}

Outcome targets(syncd_worker* worker, std::int64_t iteration, std::int64_t timeout_ms,
                std::int32_t* ranks, std::size_t capacity, std::size_t* count) {
  const char* call = "syncd_worker_targets";
  const Room room{ranks, capacity, count};
  Completion completion;
  Outcome outcome =
      ask_peers(call, worker, iteration, timeout_ms, room, &Client::targets, completion);
  if (!outcome.ok()) return outcome;
  const auto* given = result_of<syncd::client::TargetsResult>(completion);
  if (given == nullptr) return no_result(call);
  outcome = check_room(call, room, given->ranks.size());
  if (!outcome.ok()) return outcome;
  for (const std::uint32_t rank : given->ranks) *ranks++ = static_cast<std::int32_t>(rank);
  return {};
}

Outcome collect(syncd_worker* worker, std::int64_t iteration, std::int64_t timeout_ms,
                syncd_update* updates, std::size_t capacity, std::size_t* count) {
  const char* call = "syncd_worker_collect";
  const Room room{updates, capacity, count};
  Completion completion;
  Outcome outcome =
      ask_peers(call, worker, iteration, timeout_ms, room, &Client::collect, completion);
  if (!outcome.ok()) return outcome;
  const auto* given = result_of<syncd::client::CollectResult>(completion);
  if (given == nullptr) return no_result(call);
  outcome = check_room(call, room, given->updates.size());
  if (!outcome.ok()) return outcome;
  for (const syncd::wire::PeerUpdate& update : given->updates) {
    *updates++ = {static_cast<std::int32_t>(update.rank), 0, update.iteration, update.weight};
  }
  return {};
}

// Consumed and restarted.
Outcome tell(const char* call, syncd_worker* worker, std::int64_t iteration,
             std::int64_t timeout_ms,
             Completion (Client::*method)(syncd::client::WorkerId, std::int64_t, TimeUs)) {
  if (worker == nullptr) return null_argument(call, "worker");
  Outcome outcome = check_iteration(call, iteration);
  if (!outcome.ok()) return outcome;
  TimeUs timeout_us = 0;
  outcome =
      syncd::capi::make_timeout(call, timeout_ms, worker->shared->request_timeout_us, timeout_us);
  if (!outcome.ok()) return outcome;
  Completion completion = ((*worker->shared->client).*method)(worker->id, iteration, timeout_us);
  return as_outcome(completion);
}

Outcome phase(syncd_worker* worker, const char* name, std::int64_t lease_ms,
              std::int64_t timeout_ms) {
  const char* call = "syncd_worker_phase";
  if (worker == nullptr) return null_argument(call, "worker");
  const TimeUs lease_us = std::clamp(lease_ms, INT64_MIN / 1000, INT64_MAX / 1000) * 1000;
  std::string wrong;
  if (name != nullptr) {
    wrong = syncd::check_phase(name, lease_us);
  } else if (lease_ms != 0) {
    wrong = "a lease of " + std::to_string(lease_ms) +
            " ms without a name; NULL ends the phase and takes a lease of 0";
  }
  if (!wrong.empty()) return syncd::capi::invalid(std::string(call) + ": " + wrong);
  TimeUs timeout_us = 0;
  Outcome outcome =
      syncd::capi::make_timeout(call, timeout_ms, worker->shared->request_timeout_us, timeout_us);
  if (!outcome.ok()) return outcome;
  Completion completion = worker->shared->client->phase(
      worker->id, name != nullptr ? name : std::string(), lease_us, timeout_us);
  return as_outcome(completion);
}

Outcome explain(const syncd_worker* worker, std::int64_t timeout_ms,
                syncd_explanation** explanation) {
  if (worker == nullptr) return null_argument("syncd_worker_explain", "worker");
  if (explanation == nullptr) return null_argument("syncd_worker_explain", "explanation");
  TimeUs timeout_us = 0;
  Outcome outcome = syncd::capi::make_timeout("syncd_worker_explain", timeout_ms,
                                              worker->shared->request_timeout_us, timeout_us);
  if (!outcome.ok()) return outcome;
  Completion completion = worker->shared->client->explain(worker->id, timeout_us);
  if (completion.status != Status::kOk) return as_outcome(completion);
  auto* given = std::get_if<syncd::Explanation>(&completion.result);
  if (given == nullptr) return no_result("syncd_worker_explain");
  *explanation = syncd::capi::make_explanation(std::move(*given)).release();
  return {};
}

Outcome members(const syncd_worker* worker, std::int64_t timeout_ms, syncd_members** members) {
  const char* call = "syncd_worker_members";
  if (worker == nullptr) return null_argument(call, "worker");
  if (members == nullptr) return null_argument(call, "members");
  TimeUs timeout_us = 0;
  Outcome outcome =
      syncd::capi::make_timeout(call, timeout_ms, worker->shared->request_timeout_us, timeout_us);
  if (!outcome.ok()) return outcome;
  Completion completion = worker->shared->client->members(worker->id, timeout_us);
  if (completion.status != Status::kOk) return as_outcome(completion);
  auto* given = std::get_if<syncd::client::MembersResult>(&completion.result);
  if (given == nullptr) return no_result(call);
  *members = syncd::capi::make_members(std::move(*given)).release();
  return {};
}

Outcome leave(syncd_worker* worker, std::int64_t timeout_ms) {
  if (worker == nullptr) return null_argument("syncd_leave", "worker");
  TimeUs timeout_us = 0;
  Outcome outcome = syncd::capi::make_timeout("syncd_leave", timeout_ms,
                                              worker->shared->request_timeout_us, timeout_us);
  if (!outcome.ok()) return outcome;
  Completion completion = worker->shared->client->leave(worker->id, timeout_us);
  return as_outcome(completion);
}

// From an event's callback, whose thread cannot wait for its own end. Where there is no thread to
// be had, the client stays as it is.
void close_elsewhere(std::shared_ptr<Shared> shared) {
  static_cast<void>(syncd::capi::guarded(nullptr, [&]() -> Outcome {
    auto kept = std::make_unique<std::shared_ptr<Shared>>(std::move(shared));
    std::thread([held = kept.get()] {
      (*held)->client->close();
      delete held;
    }).detach();
    static_cast<void>(kept.release());
    return {};
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
  return syncd::capi::guarded(error, [&] { return open(options, client); });
}

void syncd_client_close(syncd_client* client) {
  if (client == nullptr) return;
  std::shared_ptr<Shared> shared = client->shared;
  // Closing first lets calls that are blocked in it end; they hold what they need. In a forked
  // child this does nothing, and the last reference leaks what belongs to the parent.
  if (shared->client->on_own_thread()) {
    shared->client->silence();
    close_elsewhere(std::move(shared));
  } else {
    shared->client->close();
  }
  delete client;
}

syncd_status syncd_join(syncd_client* client, const syncd_join_options* options,
                        syncd_worker** worker, syncd_error** error) {
  return syncd::capi::guarded(error, [&] { return join(client, options, worker); });
}

syncd_status syncd_begin(syncd_worker* worker, int64_t timeout_ms, syncd_step* step,
                         syncd_error** error) {
  return syncd::capi::guarded(error, [&] { return begin(worker, timeout_ms, step); });
}

syncd_status syncd_worker_arrive(syncd_worker* worker, syncd_error** error) {
  return syncd::capi::guarded(error, [&] { return arrive(worker); });
}

syncd_status syncd_worker_poll(syncd_worker* worker, int32_t* ready, syncd_step* step,
                               syncd_error** error) {
  return syncd::capi::guarded(error, [&] { return poll(worker, ready, step); });
}

syncd_status syncd_worker_descriptor(syncd_worker* worker, int32_t* fd, syncd_error** error) {
  return syncd::capi::guarded(error, [&] { return descriptor(worker, fd); });
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
  return syncd::capi::guarded(error, [&] { return explain(worker, timeout_ms, explanation); });
}

syncd_status syncd_push(syncd_worker* worker, int64_t iteration, const syncd_push_info* info,
                        int64_t timeout_ms, uint32_t* flags, syncd_error** error) {
  return syncd::capi::guarded(error,
                              [&] { return push(worker, iteration, info, timeout_ms, flags); });
}

syncd_status syncd_worker_restarted(syncd_worker* worker, int64_t iteration, int64_t timeout_ms,
                                    syncd_error** error) {
  return syncd::capi::guarded(error, [&] {
    return tell("syncd_worker_restarted", worker, iteration, timeout_ms, &Client::restarted);
  });
}

syncd_status syncd_worker_phase(syncd_worker* worker, const char* name, int64_t lease_ms,
                                int64_t timeout_ms, syncd_error** error) {
  return syncd::capi::guarded(error, [&] { return phase(worker, name, lease_ms, timeout_ms); });
}

syncd_status syncd_worker_targets(syncd_worker* worker, int64_t iteration, int64_t timeout_ms,
                                  int32_t* ranks, size_t capacity, size_t* count,
                                  syncd_error** error) {
  return syncd::capi::guarded(
      error, [&] { return targets(worker, iteration, timeout_ms, ranks, capacity, count); });
}

syncd_status syncd_worker_collect(syncd_worker* worker, int64_t iteration, int64_t timeout_ms,
                                  syncd_update* updates, size_t capacity, size_t* count,
                                  syncd_error** error) {
  return syncd::capi::guarded(
      error, [&] { return collect(worker, iteration, timeout_ms, updates, capacity, count); });
}

syncd_status syncd_worker_consumed(syncd_worker* worker, int64_t iteration, int64_t timeout_ms,
                                   syncd_error** error) {
  return syncd::capi::guarded(error, [&] {
    return tell("syncd_worker_consumed", worker, iteration, timeout_ms, &Client::consumed);
  });
}

syncd_status syncd_worker_members(const syncd_worker* worker, int64_t timeout_ms,
                                  syncd_members** list, syncd_error** error) {
  return syncd::capi::guarded(error, [&] { return members(worker, timeout_ms, list); });
}

syncd_status syncd_leave(syncd_worker* worker, int64_t timeout_ms, syncd_error** error) {
  return syncd::capi::guarded(error, [&] { return leave(worker, timeout_ms); });
}

void syncd_worker_free(syncd_worker* worker) {
  if (worker == nullptr) return;
  const bool forked = worker->shared->client->forked();  // a thread of the parent's held its locks
  if (!forked) worker->signals->disown();
  if (!forked) worker->arrival->close_descriptor();
  worker->shared->client->release(worker->id);
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

}  // extern "C"
