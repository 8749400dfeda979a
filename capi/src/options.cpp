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
std::vector<std::uint8_t> take_bytes(const std::string& owner, const void* data,
                                     std::size_t size) {
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

}  // namespace

std::size_t check_struct(const void* given, std::size_t first_size, std::size_t known_size,
                         const char* name) {
  const std::size_t size = *static_cast<const std::size_t*>(given);
  if (size == known_size) return size;
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

std::vector<std::uint8_t> take_member_data(const char* call, const void* data, std::size_t size) {
  return take_bytes(std::string(call) + ": ", data, size);
}

client::TimeUs make_timeout(const char* call, std::int64_t timeout_ms,
                            client::TimeUs otherwise_us) {
  if (timeout_ms == SYNCD_TIMEOUT_DEFAULT) return otherwise_us;
  if (timeout_ms == SYNCD_WAIT_FOREVER || timeout_ms > client::kNever / 1000) {
    return client::kNever;
  }
  if (timeout_ms >= 0) return timeout_ms * 1000;
  refuse(call,
         "a timeout of " + std::to_string(timeout_ms) +
             " ms; allowed: 0 or more, SYNCD_WAIT_FOREVER (-1) or SYNCD_TIMEOUT_DEFAULT (-2)");
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
  check_join(request);
  return settings;
}

}  // namespace syncd::capi
