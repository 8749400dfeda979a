// The types of settings' values: how each is read, shown as TOML, and what it allows. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/edge/config/config.h"
#include "daemon/edge/config/raw_value.h"

namespace syncd::config {

template <class T>
struct Type {
  std::string allowed;  // completes "allowed: "
  // False: the value is not allowed, and `out` is unchanged; `why` may say more than `allowed`
  // does.
  std::function<bool(const RawValue& value, T& out, std::string& why)> read;
  std::function<std::string(const T& value)> show;
};

// A string as TOML writes it.
std::string toml_string(std::string_view text);

Type<bool> boolean();

// `zero`: what 0 means; `high_text`: where another setting bounds it further.
std::string range_text(std::int64_t low, std::int64_t high, const char* zero,
                       const char* high_text);
bool read_integer(const RawValue& value, std::int64_t low, std::int64_t high, std::int64_t& out);
template <class T>
Type<T> number(std::int64_t low, std::int64_t high, const char* zero = nullptr,
               const char* high_text = nullptr) {
  return {range_text(low, high, zero, high_text),
          [low, high](const RawValue& value, T& out, std::string& /*why*/) {
            std::int64_t number = 0;
            if (!read_integer(value, low, high, number)) return false;
            out = static_cast<T>(number);
            return true;
          },
          [](const T& value) { return std::to_string(value); }};
}

// One of some words; the text that says so may explain them.
template <class T>
Type<T> choice(std::vector<std::pair<std::string, T>> words, std::string allowed) {
  return {std::move(allowed),
          [words](const RawValue& value, T& out, std::string& /*why*/) {
            for (const auto& [word, meaning] : words) {
              if (value.kind != RawValue::Kind::kText || word != value.text) continue;
              out = meaning;
              return true;
            }
            return false;
          },
          [words](const T& value) {
            for (const auto& [word, meaning] : words) {
              if (meaning == value) return toml_string(word);
            }
            return toml_string("");
          }};
}

// `zero`: what 0s means; `examples`: such as "\"7d\"".
Type<Micros> span(Micros low, Micros high, const char* zero = nullptr,
                  const char* examples = nullptr);
Type<std::uint64_t> span_ms(Micros low, Micros high);  // kept in milliseconds
Type<Micros> job_span();                               // of a job's thresholds
Type<Micros> lateness();    // likewise, or "auto": kAutoSpan, the daemon chooses
Type<Micros> exit_grace();  // likewise

struct TextRules {
  std::string none = {};  // how an empty one is written, beside ""
  std::string word = {};  // is kept as it is, whatever else holds
  bool may_be_empty = true;
  bool is_path = false;  // made absolute: clients and tools run in other directories
  bool is_socket = false;
  bool is_directory = false;  // neighbours are named by what is added to it
  bool is_name = false;       // 1 to 64 of A-Z a-z 0-9 . _ -
};
Type<std::string> text(std::string allowed, TextRules rules = {});
Type<std::string> file_path(std::string allowed);  // may be "off"
Type<std::string> socket_path();                   // likewise

Type<std::vector<net::TcpAddress>> tcp_addresses();
// The same of those that others connect to.
Type<std::vector<net::TcpAddress>> reachable_addresses();
Type<std::optional<net::TcpAddress>> tcp_address();
Type<Addresses> control_addresses();

Type<std::vector<std::string>> etcd_endpoints();

// By number or by a name that this machine knows.
Type<std::vector<uid_t>> users();
Type<std::vector<gid_t>> groups();
// Patterns, such as "token:ops".
Type<std::vector<std::string>> identities(std::string allowed);
Type<std::vector<net::AdmissionRules::Allow>> allow_rules();

}  // namespace syncd::config
