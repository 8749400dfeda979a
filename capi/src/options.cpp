// Options and environment of the C interface. Any thread; reads the environment at each call.
#include "options.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "proto/base/defaults.h"
#include "proto/base/names.h"
#include "proto/base/number.h"
#include "proto/base/plain_text.h"
#include "proto/transport/secret_file.h"
#include "proto/wire/announce.h"

namespace syncd::capi {
namespace {

constexpr std::size_t kWorkerNameBytesMax = 128;
constexpr std::size_t kHostBytesMax = 255;
constexpr std::size_t kPolicyBytesMax = 512;
constexpr std::size_t kClientNameBytesMax = 128;
constexpr std::size_t kLaunchBytesMax = 64;
constexpr std::size_t kLeaveReasonBytesMax = 1024;
// A larger struct_size is garbage: no options struct will ever be as large.
constexpr std::size_t kStructBytesMax = 4096;
constexpr double kSecondsMax = 1e9;  // 31 years

// What the structs were in 0.1.0: up to the field named here, whatever is added after it.
constexpr std::size_t kClientOptionsFirstSize =
    SYNCD_SIZE_UP_TO(syncd_client_options, request_timeout_ms);
constexpr std::size_t kJoinOptionsFirstSize = SYNCD_SIZE_UP_TO(syncd_join_options, timeout_ms);
static_assert(sizeof(void*) != 8 || kClientOptionsFirstSize == 64, "released layout");
static_assert(sizeof(void*) != 8 || kJoinOptionsFirstSize == 56, "released layout");

// A variable that is set to nothing counts as not set.
std::optional<std::string_view> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string quote(std::string_view text) {
  return "'" + std::string(text) + "'";
}

// ---- Times -------------------------------------------------------------------------------------

// From a field, and from a variable, which wins; 0 means what `timeout_us` is before.
void take_timeout(const char* field, std::int64_t ms, const char* variable,
                  client::TimeUs& timeout_us) {
  const client::TimeUs built_in_us = timeout_us;
  if (ms != 0) timeout_us = make_timeout(field, ms, built_in_us);
  const auto text = environment(variable);
  if (!text) return;
  double seconds = 0;
  if (!parse_number(*text, seconds) || !(seconds >= 0 && seconds <= kSecondsMax)) {
    refuse(std::string(variable) + "=" + quote(*text) +
           " is not a time; allowed: a number of seconds from 0 (the built-in default) to "
           "1000000000, such as 2.5");
  }
  timeout_us = built_in_us;
  // Rounded up, so that a tiny time does not become none.
  if (seconds > 0) timeout_us = static_cast<client::TimeUs>(std::ceil(seconds * 1e6));
}

// ---- The client --------------------------------------------------------------------------------

// A variable wins over a field.
std::string text_of(const char* variable, const char* field) {
  const auto value = environment(variable);
  return value ? std::string(*value) : field != nullptr ? field : "";
}

std::vector<client::Endpoint> make_endpoints(const char* addresses) {
  const auto variable = environment("SYNCD_ADDR");
  if (!variable && addresses == nullptr) return client::default_endpoints();
  std::vector<client::Endpoint> endpoints;
  std::string error;
  if (!client::parse_endpoints(variable ? *variable : addresses, endpoints, error)) {
    refuse((variable ? "SYNCD_ADDR=" + quote(*variable) : "syncd_client_options.addresses") + ": " +
           error);
  }
  return endpoints;
}

// ---- Joining -----------------------------------------------------------------------------------

std::string make_job(const char* given) {
  const auto variable = environment("SYNCD_JOB");
  std::string job = variable ? std::string(*variable) : given != nullptr ? given : "default";
  if (!is_name(job)) {
    refuse((variable ? "SYNCD_JOB=" : "syncd_join_options.job is ") + quote(job) +
           "; allowed: 1 to 64 of the characters A-Z a-z 0-9 . _ -");
  }
  return job;
}

void check_length(const char* field, std::string_view value, std::size_t bytes_max) {
  if (value.size() <= bytes_max) return;
  refuse(std::string(field) + " has " + std::to_string(value.size()) + " bytes; allowed: at most " +
         std::to_string(bytes_max));
}

// Of what others are shown.
void check_shown(const char* field, std::string_view value, std::size_t bytes_max) {
  check_length(field, value, bytes_max);
  if (std::string wrong = check_plain(field, value); !wrong.empty()) refuse(std::move(wrong));
}

// What started this process says which of how many it is. Rank and size come from the same starter:
// a job step started inside another one sees the variables of both.
struct Starter {
  const char* rank;
  const char* size;
};
constexpr Starter kStarters[] = {{"RANK", "WORLD_SIZE"},
                                 {"SLURM_PROCID", "SLURM_NTASKS"},
                                 {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}};

template <typename Number>
std::optional<Number> take_number(const char* name, Number min) {
  const auto text = environment(name);
  if (!text) return {};
  constexpr Number kMax = std::numeric_limits<std::int32_t>::max();
  Number value = 0;
  if (!parse_number(*text, value) || value < min || value > kMax) {
    refuse(std::string(name) + "=" + quote(*text) + "; allowed: a whole number from " +
           std::to_string(min) + " to " + std::to_string(kMax));
  }
  return value;
}

void take_starter(bool wants_rank, bool wants_size, client::JoinRequest& request) {
  if (!wants_rank && !wants_size) return;
  const auto find = [](const char* Starter::*variable) {
    return std::find_if(std::begin(kStarters), std::end(kStarters),
                        [&](const Starter& each) { return environment(each.*variable); });
  };
  const Starter* starter = find(&Starter::rank);
  if (starter == std::end(kStarters)) starter = find(&Starter::size);
  if (starter == std::end(kStarters)) return;
  std::optional<std::int32_t> rank;
  std::optional<std::uint32_t> size;
  if (wants_rank) rank = take_number(starter->rank, 0);
  if (wants_size) size = take_number(starter->size, 1U);
  if (rank && size && static_cast<std::uint32_t>(*rank) >= *size) {
    refuse(std::string(starter->rank) + "=" + std::to_string(*rank) + " is not below " +
           starter->size + "=" + std::to_string(*size) +
           "; ranks count from 0, or one of the two is another program's");
  }
  if (rank) request.rank = *rank;
  if (size) request.world_size = *size;
}

// Numbers workers that nobody has named, within this process.
std::string next_name(const client::JoinRequest& request) {
  if (request.rank >= 0) return "worker-" + std::to_string(request.rank);
  static std::atomic<unsigned> next{0};
  const std::string tail = "-" + std::to_string(getpid()) + "-" + std::to_string(next++);
  return request.host.substr(0, kWorkerNameBytesMax - tail.size()) + tail;
}

// `owner` is what has the two: "syncd_join_options.".
std::vector<std::uint8_t> take_bytes(const std::string& owner, const void* data, std::size_t size) {
  if (size > kMemberDataBytesMax) {
    refuse(owner + "data_size is " + std::to_string(size) + "; allowed: at most " +
           std::to_string(kMemberDataBytesMax));
  }
  if (data == nullptr && size > 0) {
    refuse(owner + "data is NULL, but data_size is " + std::to_string(size));
  }
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  return {bytes, bytes + size};
}

// ---- Launches

void check_launch(const char* what, std::string_view name) {
  check_length(what, name, kLaunchBytesMax);
  if (std::string wrong = check_plain(what, name); !wrong.empty()) refuse(std::move(wrong));
}

// "NAME" or "NAME/NUMBER".
void take_launch_text(std::string_view text, client::JoinRequest& request) {
  const std::size_t slash = text.rfind('/');
  request.launch = text.substr(0, slash);
  const bool has_number = slash != std::string_view::npos;
  if (request.launch.empty() ||
      (has_number && !parse_number(text.substr(slash + 1), request.launch_number))) {
    refuse("SYNCD_LAUNCH=" + quote(plain(text)) +
           "; allowed: NAME or NAME/NUMBER, such as 'llm/3'");
  }
  check_launch("the name in SYNCD_LAUNCH", request.launch);
}

// A variable that another program has set for its own purposes is not worth an error.
std::string foreign_name(std::string_view text) {
  std::string name(text.substr(0, kLaunchBytesMax));
  return check_plain("", name).empty() ? name : std::string();
}

std::uint32_t foreign_number(const char* variable) {
  std::uint32_t number = 0;
  const auto text = environment(variable);
  if (text && !parse_number(*text, number)) number = 0;
  return number;
}

// True: the caller or SYNCD_LAUNCH names it.
bool take_launch(const syncd_join_options& known, client::JoinRequest& request) {
  if (known.launch != nullptr) {
    request.launch = known.launch;
    request.launch_number = known.launch_number;
    if (request.launch.empty() && known.launch_number != 0) {
      refuse("syncd_join_options.launch_number is " + std::to_string(known.launch_number) +
             ", but the launch has no name");
    }
    check_launch("syncd_join_options.launch", request.launch);
    return true;
  }
  if (known.launch_number != 0) {
    refuse("syncd_join_options.launch_number is " + std::to_string(known.launch_number) +
           ", but launch is NULL; give the name, too");
  }
  const auto torch_run = environment("TORCHELASTIC_RUN_ID");
  if (const auto own = environment("SYNCD_LAUNCH")) {
    take_launch_text(*own, request);
    return true;
  }
  if (torch_run && *torch_run != "none") {  // what torchrun says without --rdzv-id
    request.launch = foreign_name(*torch_run);
  } else if (const auto slurm = environment("SLURM_JOB_ID")) {
    request.launch = foreign_name(*slurm);
    // A job that is requeued begins its steps anew.
    request.launch_number = (std::uint64_t{foreign_number("SLURM_RESTART_COUNT")} << 32) |
                            foreign_number("SLURM_STEP_ID");
    if (request.launch.empty()) request.launch_number = 0;
  }
  return false;
}

void take_resume(const syncd_join_options& known, client::JoinRequest& request) {
  if (known.resume > SYNCD_RESUME_CONTINUE) {
    refuse("syncd_join_options.resume is " + std::to_string(known.resume) +
           "; allowed: SYNCD_RESUME_AUTO (0), SYNCD_RESUME_NEW (1) and SYNCD_RESUME_CONTINUE (2)");
  }
  const bool continues = known.resume == SYNCD_RESUME_CONTINUE;
  if (continues ? known.resume_at < 0 : known.resume_at != 0) {
    refuse("syncd_join_options.resume_at is " + std::to_string(known.resume_at) +
           (continues ? "; allowed: an iteration from 0"
                      : "; allowed: 0, unless resume is SYNCD_RESUME_CONTINUE"));
  }
  request.resume = static_cast<wire::Resume>(known.resume);
  if (continues) request.resume_at = known.resume_at;
}

void take_exit_grace(std::int64_t ms, client::JoinRequest& request) {
  constexpr std::int64_t kMsMax = kPhaseLeaseUsMax / 1000;  // a day
  if (ms < SYNCD_EXIT_GRACE_NONE || ms > kMsMax) {
    refuse("syncd_join_options.exit_grace_ms is " + std::to_string(ms) + "; allowed: 1 to " +
           std::to_string(kMsMax) + ", 0 (as the job says) or SYNCD_EXIT_GRACE_NONE (-1)");
  }
  if (ms != 0) request.exit_grace_us = std::max<std::int64_t>(ms, 0) * 1000;
}

void take_heartbeat_timeout(std::uint32_t ms, client::JoinRequest& request) {
  if (ms != 0 && (ms < kHeartbeatTimeoutMinMs || ms > kHeartbeatTimeoutMaxMs)) {
    refuse("syncd_join_options.heartbeat_timeout_ms is " + std::to_string(ms) +
           "; allowed: " + std::to_string(kHeartbeatTimeoutMinMs) + " to " +
           std::to_string(kHeartbeatTimeoutMaxMs) + ", or 0 (as the daemon says)");
  }
  request.heartbeat_timeout_ms = ms;
}

void take_hang_after(std::int64_t ms, client::JoinRequest& request) {
  constexpr std::int64_t kMsMax = std::int64_t{30} * 24 * 3600 * 1000;
  if (ms < SYNCD_HANG_AUTO || ms > kMsMax) {
    refuse("syncd_join_options.hang_after_ms is " + std::to_string(ms) + "; allowed: 0 (off) to " +
           std::to_string(kMsMax) + ", or SYNCD_HANG_AUTO (-1)");
  }
  request.hang_after_us = ms == SYNCD_HANG_AUTO ? -1 : ms * 1000;
}

void check_join(const client::JoinRequest& request) {
  if (request.name.empty()) {
    refuse("syncd_join_options.name is empty; allowed: 1 to " +
           std::to_string(kWorkerNameBytesMax) + " bytes, or NULL");
  }
  check_length("syncd_join_options.policy", request.policy, kPolicyBytesMax);
  // The host first: a name may be made of it.
  check_shown("syncd_join_options.host", request.host, kHostBytesMax);
  check_shown("syncd_join_options.name", request.name, kWorkerNameBytesMax);
  if (request.rank < SYNCD_RANK_ANY) {
    refuse("syncd_join_options.rank is " + std::to_string(request.rank) +
           "; allowed: a rank from 0, or SYNCD_RANK_ANY (-1)");
  }
}

// ---- What each call checks. Refusals are functions of their own, so that a call that is in order
// sets up no frame for their texts.

// Of a caller that was built with another version's header.
[[gnu::noinline]] std::size_t check_other_struct(const void* given, std::size_t size,
                                                 std::size_t first_size, std::size_t known_size,
                                                 const char* name) {
  const auto complain = [&](const std::string& reason) {
    refuse(std::string(name) + ".struct_size is " + std::to_string(size) + ": " + reason +
           "; set it by the struct's _INIT macro");
  };
  if (size < first_size) {
    complain("this library knows sizes from " + std::to_string(first_size) + " to " +
             std::to_string(known_size));
  }
  if (size > kStructBytesMax) {
    complain("this library takes at most " + std::to_string(kStructBytesMax));
  }
  const auto* bytes = static_cast<const unsigned char*>(given);
  const auto is_set = [](unsigned char byte) { return byte != 0; };
  if (size > known_size && std::any_of(bytes + known_size, bytes + size, is_set)) {
    complain("this library knows the first " + std::to_string(known_size) +
             " bytes, and a later one is set, which it cannot honour");
  }
  return std::min(size, known_size);
}

[[noreturn, gnu::cold, gnu::noinline]] void refuse_timeout(const char* call,
                                                           std::int64_t timeout_ms) {
  refuse(call,
         "a timeout of " + std::to_string(timeout_ms) +
             " ms; allowed: 0 or more, SYNCD_WAIT_FOREVER (-1) or SYNCD_TIMEOUT_DEFAULT (-2)");
}

}  // namespace

std::size_t check_struct(const void* given, std::size_t first_size, std::size_t known_size,
                         const char* name) {
  const std::size_t size = *static_cast<const std::size_t*>(given);
  if (size == known_size) return size;
  return check_other_struct(given, size, first_size, known_size, name);
}

std::vector<std::uint8_t> take_member_data(const char* call, const void* data, std::size_t size) {
  return take_bytes(std::string(call) + ": ", data, size);
}

client::TimeUs make_timeout(const char* call, std::int64_t timeout_ms,
                            client::TimeUs otherwise_us) {
  if (timeout_ms == SYNCD_TIMEOUT_DEFAULT) return otherwise_us;
  if (timeout_ms == SYNCD_WAIT_FOREVER || timeout_ms > client::kNever / 1000) {
    return client::kNever;
  }
  if (timeout_ms < 0) refuse_timeout(call, timeout_ms);
  return timeout_ms * 1000;
}

std::string shown_reason(std::string_view reason) {
  std::string shown;
  while (!reason.empty()) {
    const TextCharacter next = first_text_character(reason);
    std::string piece;
    if (is_plain(next)) {
      piece = reason.substr(0, next.bytes);
    } else {
      append_escaped(next, piece);
    }
    if (shown.size() + piece.size() > kLeaveReasonBytesMax) break;
    shown += piece;
    reason.remove_prefix(next.bytes);
  }
  shown.erase(shown.find_last_not_of(' ') + 1);
  shown.erase(0, shown.find_first_not_of(' '));
  return shown;
}

std::string job_name(const char* job) {
  return make_job(job);
}

ClientSettings make_client_settings(const syncd_client_options* options) {
  syncd_client_options known = SYNCD_CLIENT_OPTIONS_INIT;
  if (options != nullptr) {
    read_struct(options, kClientOptionsFirstSize, "syncd_client_options", known);
  }
  ClientSettings settings;
  client::ClientOptions& client = settings.client;
  client::LinkOptions& link = client.session.link;
  client.endpoints = make_endpoints(known.addresses);
  client.tls.ca_file = text_of("SYNCD_CA_FILE", known.ca_file);
  client.tls.certificate_file = text_of("SYNCD_CERTIFICATE_FILE", known.certificate_file);
  client.tls.key_file = text_of("SYNCD_KEY_FILE", known.key_file);
  client.server_name = text_of("SYNCD_SERVER_NAME", known.server_name);
  const std::string token_file = text_of("SYNCD_TOKEN_FILE", known.token_file);
  std::string error;
  if (!token_file.empty() && !read_token_file(token_file, link.token, error)) refuse(error);
  link.client_name =
      known.client_name != nullptr ? known.client_name : program_invocation_short_name;
  link.client_version = syncd_version();
  check_length("syncd_client_options.client_name", link.client_name, kClientNameBytesMax);
  take_timeout("connect_timeout_ms", known.connect_timeout_ms, "SYNCD_CONNECT_TIMEOUT_SEC",
               client.connect_timeout_us);
  take_timeout("reconnect_timeout_ms", known.reconnect_timeout_ms, "SYNCD_RECONNECT_TIMEOUT_SEC",
               client.session.reconnect_timeout_us);
  take_timeout("begin_timeout_ms", known.begin_timeout_ms, "SYNCD_BEGIN_TIMEOUT_SEC",
               settings.begin_timeout_us);
  take_timeout("request_timeout_ms", known.request_timeout_ms, "SYNCD_REQUEST_TIMEOUT_SEC",
               settings.request_timeout_us);
  return settings;
}

JoinSettings make_join_settings(const syncd_join_options* options) {
  syncd_join_options known = SYNCD_JOIN_OPTIONS_INIT;
  if (options != nullptr) read_struct(options, kJoinOptionsFirstSize, "syncd_join_options", known);
  JoinSettings settings;
  client::JoinRequest& request = settings.request;
  request.job = make_job(known.job);
  if (known.policy != nullptr) request.policy = known.policy;
  request.host = known.host != nullptr ? std::string(known.host) : this_host();
  request.rank = known.rank;
  request.world_size = known.world_size;
  take_starter(known.rank == SYNCD_RANK_ANY, known.world_size == 0, request);
  request.name = known.name != nullptr ? std::string(known.name) : next_name(request);
  settings.timeout_ms = known.timeout_ms == 0 ? SYNCD_TIMEOUT_DEFAULT : known.timeout_ms;
  settings.resync_flag = known.resync_flag;
  if (reinterpret_cast<std::uintptr_t>(known.resync_flag) % sizeof(std::uint32_t) != 0) {
    refuse("syncd_join_options.resync_flag is not at a multiple of 4 bytes");
  }
  settings.on_event = known.on_event;
  settings.user_data = known.user_data;
  request.data = take_bytes("syncd_join_options.", known.data, known.data_size);
  if (known.views > 1) {
    refuse("syncd_join_options.views is " + std::to_string(known.views) + "; allowed: 0 or 1");
  }
  request.views = known.views != 0;
  settings.names_launch = take_launch(known, request);
  take_resume(known, request);
  take_exit_grace(known.exit_grace_ms, request);
  take_heartbeat_timeout(known.heartbeat_timeout_ms, request);
  take_timeout("syncd_join_options.join_timeout_ms", known.join_timeout_ms,
               "SYNCD_JOIN_TIMEOUT_SEC", request.join_timeout_us);
  settings.on_wait = known.on_wait;
  if (known.checkpoints > 1) {
    refuse("syncd_join_options.checkpoints is " + std::to_string(known.checkpoints) +
           "; allowed: 0 or 1");
  }
  if (known.checkpoints != 0) request.notices |= wire::kNoticeCheckpoint;
  settings.on_inspect = known.on_inspect;
  take_hang_after(known.hang_after_ms, request);
  check_join(request);
  return settings;
}

}  // namespace syncd::capi
