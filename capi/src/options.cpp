// Options and environment of the C interface. Any thread; reads the environment at each call.
#include "options.h"

#include <errno.h>
#include <unistd.h>

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
#include "proto/base/plain_text.h"
#include "proto/transport/secret_file.h"
#include "proto/wire/announce.h"

namespace syncd::capi {
namespace {

constexpr std::size_t kJobNameBytesMax = 64;
constexpr std::size_t kWorkerNameBytesMax = 128;
constexpr std::size_t kHostBytesMax = 255;
constexpr std::size_t kPolicyBytesMax = 512;
constexpr std::size_t kClientNameBytesMax = 128;
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

// 0 keeps `timeout_us`; -1 is for ever; -2 is what 0 is.
Outcome take_option_ms(const char* field, std::int64_t ms, client::TimeUs& timeout_us) {
  if (ms == 0 || ms == SYNCD_TIMEOUT_DEFAULT) return {};
  return make_timeout(field, ms, timeout_us, timeout_us);
}

Outcome take_seconds(const char* name, client::TimeUs otherwise_us, client::TimeUs& timeout_us) {
  const auto text = environment(name);
  if (!text) return {};
  double seconds = 0;
  const auto [stop, code] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  const bool whole = code == std::errc() && stop == text->data() + text->size();
  if (!whole || !(seconds >= 0 && seconds <= kSecondsMax)) {
    return invalid(std::string(name) + "=" + quote(*text) +
                   " is not a time; allowed: a number of seconds from 0 (the built-in default) to "
                   "1000000000, such as 2.5");
  }
  timeout_us = otherwise_us;
  // Rounded up, so that a tiny time does not become none.
  if (seconds > 0) timeout_us = static_cast<client::TimeUs>(std::ceil(seconds * 1e6));
  return {};
}

struct Timeouts {
  client::TimeUs connect_us = 10'000'000;
  client::TimeUs reconnect_us = 60'000'000;
  client::TimeUs begin_us = client::kNever;
  client::TimeUs request_us = 60'000'000;
};

Outcome make_timeouts(const syncd_client_options& options, Timeouts& timeouts) {
  struct Row {
    const char* field;
    const char* variable;
    std::int64_t ms;
    client::TimeUs& value_us;
  };
  const Row rows[] = {
      {"connect_timeout_ms", "SYNCD_CONNECT_TIMEOUT_SEC", options.connect_timeout_ms,
       timeouts.connect_us},
      {"reconnect_timeout_ms", "SYNCD_RECONNECT_TIMEOUT_SEC", options.reconnect_timeout_ms,
       timeouts.reconnect_us},
      {"begin_timeout_ms", "SYNCD_BEGIN_TIMEOUT_SEC", options.begin_timeout_ms, timeouts.begin_us},
      {"request_timeout_ms", "SYNCD_REQUEST_TIMEOUT_SEC", options.request_timeout_ms,
       timeouts.request_us},
  };
  for (const Row& row : rows) {
    const client::TimeUs built_in_us = row.value_us;
    Outcome outcome = take_option_ms(row.field, row.ms, row.value_us);
    if (outcome.ok()) outcome = take_seconds(row.variable, built_in_us, row.value_us);
    if (!outcome.ok()) return outcome;
  }
  return {};
}

// ---- The client --------------------------------------------------------------------------------

// A variable wins over a field.
std::string text_of(const char* variable, const char* field) {
  const auto value = environment(variable);
  return value ? std::string(*value) : field != nullptr ? field : "";
}

Outcome take_credentials(const syncd_client_options& known, client::ClientOptions& client) {
  client.tls.ca_file = text_of("SYNCD_CA_FILE", known.ca_file);
  client.tls.certificate_file = text_of("SYNCD_CERTIFICATE_FILE", known.certificate_file);
  client.tls.key_file = text_of("SYNCD_KEY_FILE", known.key_file);
  client.server_name = text_of("SYNCD_SERVER_NAME", known.server_name);
  const std::string token_file = text_of("SYNCD_TOKEN_FILE", known.token_file);
  std::string error;
  if (token_file.empty() || read_token_file(token_file, client.token, error)) return {};
  return invalid(std::move(error));
}

Outcome make_endpoints(const char* addresses, std::vector<client::Endpoint>& endpoints) {
  const auto variable = environment("SYNCD_ADDR");
  std::string error;
  if (variable) {
    if (client::parse_endpoints(*variable, endpoints, error)) return {};
    return invalid("SYNCD_ADDR=" + quote(*variable) + ": " + error);
  }
  if (addresses == nullptr) {
    endpoints = client::default_endpoints();
    return {};
  }
  if (client::parse_endpoints(addresses, endpoints, error)) return {};
  return invalid("syncd_client_options.addresses: " + error);
}

// ---- Joining -----------------------------------------------------------------------------------

bool is_job_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kJobNameBytesMax &&
         std::all_of(name.begin(), name.end(), allowed);
}

Outcome make_job(const char* given, std::string& job) {
  const auto variable = environment("SYNCD_JOB");
  job = variable ? std::string(*variable) : given != nullptr ? given : "default";
  if (is_job_name(job)) return {};
  return invalid((variable ? "SYNCD_JOB=" : "syncd_join_options.job is ") + quote(job) +
                 "; allowed: 1 to 64 of the characters A-Z a-z 0-9 . _ -");
}

Outcome check_length(const char* field, std::string_view value, std::size_t bytes_max) {
  if (value.size() <= bytes_max) return {};
  return invalid(std::string(field) + " has " + std::to_string(value.size()) +
                 " bytes; allowed: at most " + std::to_string(bytes_max));
}

// Of what others are shown.
Outcome check_shown(const char* field, std::string_view value, std::size_t bytes_max) {
  if (Outcome outcome = check_length(field, value, bytes_max); !outcome.ok()) return outcome;
  std::string wrong = check_plain(field, value);
  return wrong.empty() ? Outcome{} : invalid(std::move(wrong));
}

std::string this_host() {
  char name[kHostBytesMax + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
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
Outcome take_number(const char* name, Number min, std::optional<Number>& number) {
  const auto text = environment(name);
  if (!text) return {};
  constexpr Number kMax = std::numeric_limits<std::int32_t>::max();
  Number value = 0;
  const auto [stop, code] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (code != std::errc() || stop != text->data() + text->size() || value < min || value > kMax) {
    return invalid(std::string(name) + "=" + quote(*text) + "; allowed: a whole number from " +
                   std::to_string(min) + " to " + std::to_string(kMax));
  }
  number = value;
  return {};
}

Outcome take_starter(bool wants_rank, bool wants_size, client::JoinRequest& request) {
  if (!wants_rank && !wants_size) return {};
  const Starter* starter = nullptr;
  for (const Starter& candidate : kStarters) {
    if (environment(candidate.rank)) {
      starter = &candidate;
      break;
    }
  }
  for (const Starter& candidate : kStarters) {
    if (starter == nullptr && environment(candidate.size)) starter = &candidate;
  }
  if (starter == nullptr) return {};
  std::optional<std::int32_t> rank;
  std::optional<std::uint32_t> size;
  if (wants_rank) {
    if (Outcome outcome = take_number(starter->rank, 0, rank); !outcome.ok()) return outcome;
  }
  if (wants_size) {
    if (Outcome outcome = take_number(starter->size, 1U, size); !outcome.ok()) return outcome;
  }
  if (rank && size && static_cast<std::uint32_t>(*rank) >= *size) {
    return invalid(std::string(starter->rank) + "=" + std::to_string(*rank) + " is not below " +
                   starter->size + "=" + std::to_string(*size) +
                   "; ranks count from 0, or one of the two is another program's");
  }
  if (rank) request.rank = *rank;
  if (size) request.world_size = *size;
  return {};
}

// Numbers workers that nobody has named, within this process.
std::string next_name(const client::JoinRequest& request) {
  if (request.rank >= 0) return "worker-" + std::to_string(request.rank);
  static std::atomic<unsigned> next{0};
  const std::string tail = "-" + std::to_string(getpid()) + "-" + std::to_string(next++);
  return request.host.substr(0, kWorkerNameBytesMax - tail.size()) + tail;
}

Outcome take_data(const syncd_join_options& known, client::JoinRequest& request) {
  if (known.data_size > kMemberDataBytesMax) {
    return invalid("syncd_join_options.data_size is " + std::to_string(known.data_size) +
                   "; allowed: at most " + std::to_string(kMemberDataBytesMax));
  }
  if (known.data == nullptr && known.data_size > 0) {
    return invalid("syncd_join_options.data is NULL, but data_size is " +
                   std::to_string(known.data_size));
  }
  const auto* bytes = static_cast<const std::uint8_t*>(known.data);
  request.data.assign(bytes, bytes + known.data_size);
  return {};
}

Outcome check_join(const client::JoinRequest& request) {
  if (request.name.empty()) {
    return invalid("syncd_join_options.name is empty; allowed: 1 to " +
                   std::to_string(kWorkerNameBytesMax) + " bytes, or NULL");
  }
  Outcome outcome = check_length("syncd_join_options.policy", request.policy, kPolicyBytesMax);
  // The host first: a name may be made of it.
  if (outcome.ok()) outcome = check_shown("syncd_join_options.host", request.host, kHostBytesMax);
  if (outcome.ok()) {
    outcome = check_shown("syncd_join_options.name", request.name, kWorkerNameBytesMax);
  }
  if (!outcome.ok()) return outcome;
  if (request.rank < SYNCD_RANK_ANY) {
    return invalid("syncd_join_options.rank is " + std::to_string(request.rank) +
                   "; allowed: a rank from 0, or SYNCD_RANK_ANY (-1)");
  }
  return {};
}

}  // namespace

Outcome make_timeout(const char* call, std::int64_t timeout_ms, client::TimeUs otherwise_us,
                     client::TimeUs& timeout_us) {
  if (timeout_ms == SYNCD_TIMEOUT_DEFAULT) {
    timeout_us = otherwise_us;
  } else if (timeout_ms == SYNCD_WAIT_FOREVER || timeout_ms > client::kNever / 1000) {
    timeout_us = client::kNever;
  } else if (timeout_ms >= 0) {
    timeout_us = timeout_ms * 1000;
  } else {
    return invalid(
        std::string(call) + ": a timeout of " + std::to_string(timeout_ms) +
        " ms; allowed: 0 or more, SYNCD_WAIT_FOREVER (-1) or SYNCD_TIMEOUT_DEFAULT (-2)");
  }
  return {};
}

Outcome make_client_settings(const syncd_client_options* options, ClientSettings& settings) {
  syncd_client_options known = SYNCD_CLIENT_OPTIONS_INIT;
  if (options != nullptr) {
    Outcome outcome = read_struct(options, kClientOptionsFirstSize, "syncd_client_options", known);
    if (!outcome.ok()) return outcome;
  }
  Outcome outcome = make_endpoints(known.addresses, settings.client.endpoints);
  if (!outcome.ok()) return outcome;
  outcome = take_credentials(known, settings.client);
  if (!outcome.ok()) return outcome;
  settings.client.client_name =
      known.client_name != nullptr ? known.client_name : program_invocation_short_name;
  settings.client.client_version = syncd_version();
  outcome = check_length("syncd_client_options.client_name", settings.client.client_name,
                         kClientNameBytesMax);
  if (!outcome.ok()) return outcome;
  Timeouts timeouts;
  outcome = make_timeouts(known, timeouts);
  if (!outcome.ok()) return outcome;
  settings.client.connect_timeout_us = timeouts.connect_us;
  settings.client.reconnect_timeout_us = timeouts.reconnect_us;
  settings.begin_timeout_us = timeouts.begin_us;
  settings.request_timeout_us = timeouts.request_us;
  return {};
}

Outcome make_join_settings(const syncd_join_options* options, JoinSettings& settings) {
  syncd_join_options known = SYNCD_JOIN_OPTIONS_INIT;
  if (options != nullptr) {
    Outcome outcome = read_struct(options, kJoinOptionsFirstSize, "syncd_join_options", known);
    if (!outcome.ok()) return outcome;
  }
  client::JoinRequest& request = settings.request;
  Outcome outcome = make_job(known.job, request.job);
  if (!outcome.ok()) return outcome;
  if (known.policy != nullptr) request.policy = known.policy;
  request.host = known.host != nullptr ? std::string(known.host) : this_host();
  request.rank = known.rank;
  request.world_size = known.world_size;
  outcome = take_starter(known.rank == SYNCD_RANK_ANY, known.world_size == 0, request);
  if (!outcome.ok()) return outcome;
  request.name = known.name != nullptr ? std::string(known.name) : next_name(request);
  settings.timeout_ms = known.timeout_ms == 0 ? SYNCD_TIMEOUT_DEFAULT : known.timeout_ms;
  settings.resync_flag = known.resync_flag;
  if (reinterpret_cast<std::uintptr_t>(known.resync_flag) % sizeof(std::uint32_t) != 0) {
    return invalid("syncd_join_options.resync_flag is not at a multiple of 4 bytes");
  }
  settings.on_event = known.on_event;
  settings.user_data = known.user_data;
  outcome = take_data(known, request);
  if (!outcome.ok()) return outcome;
  return check_join(request);
}

}  // namespace syncd::capi
