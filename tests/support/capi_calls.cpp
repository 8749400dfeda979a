// Random calls of the C interface; see capi_calls.h.
#include "tests/support/capi_calls.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace syncd::test {
namespace {

constexpr std::size_t kClients = 2;
constexpr std::size_t kWorkers = 3;
constexpr std::size_t kQueues = 2;
// Of those made here; one that was attached to may say anything.
constexpr std::size_t kQueueBytesMax = 1 << 20;
// An out-parameter that a call must leave alone has this value before it, and after it.
constexpr int kUntouched = 77;
// What workers show to each other.
constexpr std::array<char, 1025> kShown{'a', 'b', '\0', 'd'};

void count_event(const syncd_event* event, void* events) {
  const bool known = event->struct_size == sizeof(syncd_event) &&
                     event->kind >= SYNCD_EVENT_RESYNC && event->kind <= SYNCD_EVENT_STRAGGLER;
  if (known) ++*static_cast<std::atomic<std::uint64_t>*>(events);
}

void close(syncd_client*& client) {
  syncd_client_close(std::exchange(client, nullptr));
}
void free(syncd_worker*& worker) {
  syncd_worker_free(std::exchange(worker, nullptr));
}
void free(syncd_update_queue*& queue) {
  syncd_update_queue_free(std::exchange(queue, nullptr));
}

// A queue without edges holds nothing, and may say that its updates would be of any size.
std::size_t room_for_update(syncd_update_queue* queue) {
  return std::min(syncd_update_queue_payload_bytes(queue), kQueueBytesMax);
}

}  // namespace

CapiCalls::CapiCalls(std::string socket, Choices& choices, Complain complain)
    : socket_(std::move(socket)),
      choices_(choices),
      complain_(std::move(complain)),
      clients_(kClients),
      workers_(kWorkers),
      queues_(kQueues) {
  start_server();
}

CapiCalls::~CapiCalls() {
  const bool server_first = choices_.one_in(4);
  if (server_first) stop_server();
  for (syncd_client*& client : clients_) {
    if (choices_.one_in(2)) close(client);
  }
  for (syncd_worker*& worker : workers_) free(worker);
  for (syncd_client*& client : clients_) close(client);
  for (syncd_update_queue*& queue : queues_) free(queue);
  stop_server();
}

void CapiCalls::call() {
  syncd_client*& client = choices_.pick(clients_);
  syncd_worker*& worker = choices_.pick(workers_);
  if (client == nullptr && !choices_.one_in(8)) return open(client);
  if (worker == nullptr && !choices_.one_in(8)) return join(client, worker);
  if (choices_.one_in(12)) return call_queue();
  if (servers_ && choices_.one_in(16)) return call_server();
  call_worker(client, worker);
}

void CapiCalls::call_worker(syncd_client*& client, syncd_worker*& worker) {
  switch (choices_.below(23)) {
    case 0:
      return choices_.one_in(4) ? close_and_free(client) : open(client);
    case 1:
      return choices_.one_in(3) ? free(worker) : join(client, worker);
    case 2:
    case 3:
      return join(client, worker);
    case 4:
    case 5:
    case 6:
      return begin(worker);
    case 7:
    case 8:
    case 9:
      return push(worker);
    case 10:
      check("arrive", [&](auto** error) { return syncd_worker_arrive(worker, error); });
      return;
    case 11:
      return poll(worker);
    case 12:
      check("restarted", [&](auto** error) {
        return syncd_worker_restarted(worker, iteration(), timeout(), error);
      });
      return;
    case 13:
      check("consumed", [&](auto** error) {
        return syncd_worker_consumed(worker, iteration(), timeout(), error);
      });
      return;
    case 14:
      return targets(worker);
    case 15:
      return collect(worker);
    case 16:
      return explain(worker);
    case 17:
      return descriptor(worker);
    case 18:
      return accessors(worker);
    case 19:
      return phase(worker);
    case 20:
      return members(worker);
    case 21:
      return views(worker);
    default:
      if (choices_.one_in(4)) leave(worker);
  }
}

// ---- What every answer is held to
// -----------------------------------------------------------------

void CapiCalls::expect(bool holds, const char* name, const std::string& what) {
  if (!holds) complain_(std::string(name) + ": " + what);
}

template <typename Call>
syncd_status CapiCalls::check(const char* name, Call&& call) {
  syncd_error* error = nullptr;
  const syncd_status status = call(&error);
  expect((status == SYNCD_OK) == (error == nullptr), name, "an error object, or none");
  if (status != SYNCD_OK) {
    ++failed_;
    const std::string text =
        std::string(syncd_strerror(status)) + ": " + syncd_error_message(error);
    expect(syncd_error_code(error) == status, name, text + ": the error has another code");
    expect(std::string_view(syncd_strerror(status)) != "SYNCD_E_?", name, text);
    expect(*syncd_error_message(error) != '\0', name, text + ": no message");
    // Of this library or the daemon, a defect.
    expect(status != SYNCD_E_INTERNAL && status != SYNCD_E_PROTOCOL, name, text);
  }
  syncd_error_free(error);
  return status;
}

void CapiCalls::took(syncd_status status, const syncd_step& step) {
  if (status != SYNCD_OK || (step.flags & SYNCD_STEP_STOP) != 0) return;
  ++granted_;
  latest_ = step.iteration;
}

std::int64_t CapiCalls::iteration() {
  if (choices_.one_in(12)) return choices_.between(-3, 1'000'000);
  return latest_ + choices_.between(-1, 1);
}

std::int64_t CapiCalls::timeout() {
  static constexpr std::array<std::int64_t, 5> kTimeouts{0, 1, 2, 20, -3};
  return choices_.one_in(2) ? 5 : choices_.pick(kTimeouts);
}

// ---- Clients and workers
// --------------------------------------------------------------------------

void CapiCalls::open(syncd_client*& client) {
  if (client != nullptr) return;
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  options.addresses = address_.c_str();
  if (server_ == nullptr) options.connect_timeout_ms = 20;  // else nothing keeps it waiting
  options.reconnect_timeout_ms = 30;                        // for a server that was stopped
  check("open", [&](auto** error) { return syncd_client_open(&options, &client, error); });
}

// Handles of a closed client stay good for nothing but that they may be called.
void CapiCalls::close_and_free(syncd_client*& client) {
  close(client);
  for (syncd_worker*& worker : workers_) {
    if (!choices_.one_in(4)) free(worker);
  }
}

void CapiCalls::join(syncd_client* client, syncd_worker*& worker) {
  if (worker != nullptr) return;
  static constexpr std::array kPolicies{"asp", "hop:ring", "notify_ack:ring", "bsp", "nonsense"};
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  const std::size_t job = choices_.below(choices_.one_in(10) ? kPolicies.size() : 4);
  const std::string name = "job-" + std::to_string(job);
  options.job = name.c_str();
  options.policy = choices_.one_in(10) ? choices_.pick(kPolicies) : kPolicies[job];
  options.rank = static_cast<std::int32_t>(choices_.between(choices_.one_in(10) ? -2 : -1, 2));
  options.world_size = static_cast<std::uint32_t>(choices_.between(0, 2));
  options.timeout_ms = choices_.one_in(4) ? timeout() : 50;
  options.data_size = choices_.below(4);
  if (choices_.one_in(10)) options.data_size = 1025;
  if (!choices_.one_in(10)) options.data = kShown.data();
  if (choices_.one_in(2)) options.on_event = count_event;
  options.user_data = &events_;
  syncd_worker* joined = nullptr;
  check("join", [&](auto** error) { return syncd_join(client, &options, &joined, error); });
  worker = joined;
}

void CapiCalls::begin(syncd_worker* worker) {
  check("begin", [&](auto** error) {
    syncd_step step = SYNCD_STEP_INIT;
    const auto status = syncd_begin(worker, timeout(), &step, error);
    took(status, step);
    return status;
  });
}

void CapiCalls::push(syncd_worker* worker) {
  check("push", [&](auto** error) {
    std::uint32_t flags = kUntouched;
    const auto status = syncd_push(worker, iteration(), nullptr, timeout(), &flags, error);
    expect(status == SYNCD_OK || flags == kUntouched, "push", "flags were touched");
    return status;
  });
}

void CapiCalls::poll(syncd_worker* worker) {
  check("poll", [&](auto** error) {
    syncd_step step = SYNCD_STEP_INIT;
    std::int32_t ready = kUntouched;
    const auto status = syncd_worker_poll(worker, &ready, &step, error);
    expect(status == SYNCD_OK ? ready == 0 || ready == 1 : ready == kUntouched, "poll",
           "ready is " + std::to_string(ready));
    if (ready == 1) took(status, step);
    return status;
  });
}

void CapiCalls::descriptor(syncd_worker* worker) {
  check("descriptor", [&](auto** error) {
    std::int32_t descriptor = -kUntouched;
    const auto status = syncd_worker_descriptor(worker, &descriptor, error);
    expect((status != SYNCD_OK) == (descriptor == -kUntouched), "descriptor",
           "it is " + std::to_string(descriptor));
    return status;
  });
}

void CapiCalls::targets(syncd_worker* worker) {
  check("targets", [&](auto** error) {
    std::vector<std::int32_t> ranks(choices_.below(3));
    std::size_t count = kUntouched;
    const auto status = syncd_worker_targets(worker, iteration(), timeout(), ranks.data(),
                                             ranks.size(), &count, error);
    expect((status == SYNCD_OK || status == SYNCD_E_BUFFER) == (count != kUntouched), "targets",
           "count is " + std::to_string(count));
    return status;
  });
}

void CapiCalls::collect(syncd_worker* worker) {
  check("collect", [&](auto** error) {
    std::vector<syncd_update> updates(choices_.below(4));
    std::size_t count = kUntouched;
    const auto status = syncd_worker_collect(worker, iteration(), timeout(), updates.data(),
                                             updates.size(), &count, error);
    expect((status == SYNCD_OK || status == SYNCD_E_BUFFER) == (count != kUntouched), "collect",
           "count is " + std::to_string(count));
    return status;
  });
}

void CapiCalls::explain(syncd_worker* worker) {
  check("explain", [&](auto** error) {
    syncd_explanation* explanation = nullptr;
    const auto status = syncd_worker_explain(worker, timeout(), &explanation, error);
    expect((status == SYNCD_OK) == (explanation != nullptr), "explain", "an explanation, or none");
    const syncd_waited_for* waited_for = nullptr;
    const std::size_t count = syncd_explanation_workers(explanation, &waited_for);
    expect(count <= 8 && count <= syncd_explanation_waited_for_count(explanation), "explain",
           std::to_string(count) + " workers");
    for (std::size_t i = 0; i < count; ++i) {
      expect(waited_for[i].rank >= 0 && waited_for[i].name != nullptr &&
                 waited_for[i].host != nullptr && waited_for[i].state != nullptr,
             "explain", "a worker without a name");
    }
    syncd_explanation_free(explanation);
    return status;
  });
}

void CapiCalls::phase(syncd_worker* worker) {
  static constexpr std::array kNames{"evaluation", "checkpoint", "", "no spaces"};
  const char* name =
      choices_.one_in(3) ? nullptr : kNames[choices_.below(choices_.one_in(5) ? 4 : 2)];
  std::int64_t lease_ms = name != nullptr ? choices_.between(1, 100) : 0;
  if (choices_.one_in(10)) lease_ms = choices_.between(-1, 1) * 100'000'000;
  check("phase",
        [&](auto** error) { return syncd_worker_phase(worker, name, lease_ms, timeout(), error); });
}

void CapiCalls::views(syncd_worker* worker) {
  const std::string data(choices_.below(1100), 'x');
  check("set_data", [&](auto** error) {
    return syncd_worker_set_data(worker, data.data(), data.size(), error);
  });
  check("view", [&](auto** error) {
    syncd_view* view = nullptr;
    const auto status = syncd_worker_view(worker, choices_.below(3), timeout(), &view, error);
    expect((status == SYNCD_OK) == (view != nullptr), "view", "a view, or none");
    expect((syncd_view_list(view, nullptr) > 0) == (view != nullptr), "view", "an empty view");
    syncd_view_free(view);
    return status;
  });
  check("round", [&](auto** error) {
    syncd_round round = SYNCD_ROUND_INIT;
    return syncd_worker_round(worker, &round, error);
  });
}

void CapiCalls::members(syncd_worker* worker) {
  check("members", [&](auto** error) {
    syncd_members* members = nullptr;
    const auto status = syncd_worker_members(worker, timeout(), &members, error);
    expect((status == SYNCD_OK) == (members != nullptr), "members", "a list, or none");
    const syncd_member* list = nullptr;
    const std::size_t count = syncd_members_list(members, &list);
    expect((count > 0) == (members != nullptr), "members", "this worker is not in its list");
    for (std::size_t i = 0; i < count; ++i) {
      expect(list[i].rank >= 0 && list[i].name != nullptr && list[i].host != nullptr &&
                 list[i].state >= SYNCD_MEMBER_ACTIVE && list[i].state <= SYNCD_MEMBER_LOST &&
                 (list[i].data == nullptr) == (list[i].data_size == 0),
             "members", "a member that makes no sense");
    }
    syncd_members_free(members);
    return status;
  });
}

void CapiCalls::accessors(syncd_worker* worker) {
  syncd_should_resync(worker);
  if (worker != nullptr) {
    check("mark",
          [&](auto** error) { return syncd_worker_mark(worker, SYNCD_MARK_COMPUTED, error); });
  }
  syncd_worker_resync_flag(worker);
  expect(syncd_worker_job(worker) != nullptr, "job", "NULL");
  expect(syncd_worker_policy(worker) != nullptr, "policy", "NULL");
}

void CapiCalls::leave(syncd_worker* worker) {
  if (choices_.one_in(2)) {
    const std::string reason(choices_.below(1200), 'r');
    check("leave_as", [&](auto** error) {
      return syncd_leave_as(worker, static_cast<std::int32_t>(choices_.below(6)) - 1,
                            choices_.one_in(4) ? nullptr : reason.c_str(), timeout(), error);
    });
    return;
  }
  check("leave", [&](auto** error) { return syncd_leave(worker, timeout(), error); });
}

// ---- Servers
// --------------------------------------------------------------------------------------

void CapiCalls::call_server() {
  switch (choices_.below(4)) {
    case 0:
      return server_ != nullptr ? stop_server() : start_server();
    case 1:
      stop_server();
      return start_server();
    case 2:
      return start_wrong_server();
    default:
      const std::size_t index = choices_.below(3);
      expect((syncd_server_address(server_, index) != nullptr) == (server_ && index == 0),
             "address", "an address, or none");
  }
}

void CapiCalls::start_server() {
  syncd_server_options options = SYNCD_SERVER_OPTIONS_INIT;
  options.tcp = "off";
  options.unix_path = socket_.c_str();
  const auto status =
      check("start", [&](auto** error) { return syncd_server_start(&options, &server_, error); });
  expect(status == SYNCD_OK, "start", syncd_strerror(status));
  if (server_ != nullptr) address_ = syncd_server_address(server_, 0);
}

void CapiCalls::stop_server() {
  const auto status = check("stop", [&](auto** error) {
    return syncd_server_stop(std::exchange(server_, nullptr), SYNCD_TIMEOUT_DEFAULT, error);
  });
  expect(status == SYNCD_OK, "stop", syncd_strerror(status));
}

void CapiCalls::start_wrong_server() {
  static constexpr std::array kConfigs{"[[job]", "[store]\npath = 3\n", "[limits]\njobs = -1\n",
                                       "[[job]]\nname = \"a b\"\n", "[log]\nfile = \"/x\"\n"};
  // Room for a struct of a later version, whose size it may claim to have.
  struct Later {
    syncd_server_options options = SYNCD_SERVER_OPTIONS_INIT;
    std::array<char, 5000> more{};
  } later;
  syncd_server_options& options = later.options;
  options.config = choices_.pick(kConfigs);
  if (choices_.one_in(4)) options.struct_size = choices_.below(sizeof(later));
  if (choices_.one_in(4)) options.log_level = static_cast<std::int32_t>(choices_.between(-2, 6));
  syncd_server* none = nullptr;
  const auto status =
      check("start", [&](auto** error) { return syncd_server_start(&options, &none, error); });
  expect(status == SYNCD_E_INVALID && none == nullptr, "start",
         std::string(options.config) + " was taken: " + syncd_strerror(status));
  if (none != nullptr) syncd_server_stop(none, 0, nullptr);
}

// ---- Update queues
// --------------------------------------------------------------------------------

void CapiCalls::call_queue() {
  syncd_update_queue*& queue = choices_.pick(queues_);
  switch (choices_.below(8)) {
    case 0:
      return create_queue(queue);
    case 1:
      return attach_queue(queue);
    case 2:
    case 3:
      return write_queue(queue);
    case 4:
    case 5:
      return read_queue(queue);
    case 6:
      check("clear", [&](auto** error) { return syncd_update_queue_clear(queue, edge(), error); });
      return;
    default:
      expect(syncd_update_queue_newest(queue, edge()) >= -1, "newest", "below -1");
      if (choices_.one_in(3)) free(queue);
  }
}

void CapiCalls::create_queue(syncd_update_queue*& queue) {
  syncd_update_queue_options options = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;
  options.edges = edge();
  options.slots = static_cast<std::uint32_t>(choices_.below(4));
  options.payload_bytes = choices_.one_in(8) ? choices_.below(1 << 30) : 4 * choices_.below(10);
  std::size_t bytes = kUntouched;
  const auto status = check("bytes_needed", [&](auto** error) {
    return syncd_update_queue_bytes_needed(&options, &bytes, error);
  });
  expect(status == SYNCD_OK || bytes == kUntouched, "bytes_needed", "bytes were touched");
  if (status == SYNCD_OK && bytes > kQueueBytesMax) return;
  for (syncd_update_queue*& other : queues_) free(other);  // they may be in this memory
  if (choices_.one_in(2)) {
    options.memory = memory_.data();
    options.memory_bytes = choices_.one_in(4) ? choices_.below(kMemoryBytes + 1) : kMemoryBytes;
  }
  check("create", [&](auto** error) { return syncd_update_queue_create(&options, &queue, error); });
}

// To what may be no queue at all, as if another process had spoilt it.
void CapiCalls::attach_queue(syncd_update_queue*& queue) {
  for (syncd_update_queue*& other : queues_) free(other);
  if (choices_.one_in(2)) {
    const std::size_t at = choices_.below(choices_.one_in(2) ? 128 : kMemoryBytes);
    memory_[at] = static_cast<std::uint8_t>(choices_.below(256));
  }
  const std::size_t bytes = choices_.one_in(4) ? choices_.below(kMemoryBytes + 1) : kMemoryBytes;
  check("attach", [&](auto** error) {
    return syncd_update_queue_attach(memory_.data(), bytes, &queue, error);
  });
}

void CapiCalls::write_queue(syncd_update_queue* queue) {
  const std::vector<std::uint8_t> payload(room_for_update(queue), 7);
  const std::size_t bytes = payload.size() + (choices_.one_in(8) ? 4 : 0);
  check("write", [&](auto** error) {
    return syncd_update_queue_write(queue, edge(), iteration(), payload.data(), bytes, error);
  });
}

void CapiCalls::read_queue(syncd_update_queue* queue) {
  std::vector<std::uint8_t> payload(room_for_update(queue));
  const std::size_t bytes = payload.size() + (choices_.one_in(8) ? 4 : 0);
  check("read", [&](auto** error) {
    return syncd_update_queue_read(queue, edge(), iteration(), payload.data(), bytes, error);
  });
}

}  // namespace syncd::test
