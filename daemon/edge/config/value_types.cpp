// See the header.
#include "daemon/edge/config/value_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <pwd.h>

#include <cstring>
#include <filesystem>

#include "daemon/edge/config/duration.h"
#include "proto/base/number.h"
#include "proto/base/text.h"

namespace syncd::config {
namespace {

constexpr std::size_t kPathBytesMax = 107;  // of a sockaddr_un

bool is_text(const RawValue& value) {
  return value.kind == RawValue::Kind::kText;
}

bool is_off(const std::string& text) {
  return text.empty() || text == "off";
}

std::string absolute(const std::string& path) {
  std::error_code code;
  const std::filesystem::path full = std::filesystem::absolute(path, code);
  return code ? path : full.lexically_normal().string();
}

bool read_list(const RawValue& value, std::vector<std::string>& out) {
  if (value.kind == RawValue::Kind::kList) {
    out = value.list;
  } else if (!is_text(value)) {
    return false;
  } else if (value.typed) {
    out.assign(is_off(value.text) ? 0 : 1, value.text);
  } else {
    out.clear();
    if (is_off(value.text)) return true;
    for (const std::string_view one : split(value.text, ',')) out.emplace_back(trimmed(one, " "));
  }
  return true;
}

std::string show_list(const std::vector<std::string>& items) {
  std::vector<std::string> quoted;
  for (const std::string& item : items) quoted.push_back(toml_string(item));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

// Addresses as they are set: one by itself, none as "off".
std::string show_addresses(const std::vector<std::string>& texts) {
  if (texts.empty()) return toml_string("off");
  return texts.size() == 1 ? toml_string(texts[0]) : show_list(texts);
}

// Texts, each of which `parse` understands.
template <class T, class Parse, class Show>
Type<std::vector<T>> list_of(std::string allowed, Parse parse, Show show,
                             std::string (*join)(const std::vector<std::string>&) = show_list) {
  return {std::move(allowed),
          [parse](const RawValue& value, std::vector<T>& out, std::string& why) {
            std::vector<std::string> texts;
            if (!read_list(value, texts)) return false;
            std::vector<T> found;
            for (const std::string& text : texts) {
              if (!parse(text, found.emplace_back(), why)) return false;
            }
            out = std::move(found);
            return true;
          },
          [show, join](const std::vector<T>& items) {
            std::vector<std::string> texts;
            for (const T& item : items) texts.push_back(show(item));
            return join(texts);
          }};
}

bool fits_socket(const std::string& path, std::string& why) {
  if (path.size() <= kPathBytesMax) return true;
  why = fmt::format("a Unix socket's path has at most {} bytes, this has {}", kPathBytesMax,
                    path.size());
  return false;
}

// `find`: the id of a name, or null.
template <class Id, class Find>
Type<std::vector<Id>> system_ids(std::string allowed, const char* what, Find find) {
  return list_of<Id>(
      std::move(allowed),
      [what, find](const std::string& text, Id& id, std::string& why) {
        if (parse_number(text, id) || find(text.c_str(), id)) return true;
        why = fmt::format("there is no {} '{}' on this machine", what, text);
        return false;
      },
      [](Id id) { return fmt::to_string(id); });
}

bool read_identity(const std::string& text, std::string& out, std::string& why) {
  out = text;
  for (const char* kind : {"cert:", "cert-sha256:", "token:", "uid:", "gid:"}) {
    if (text.starts_with(kind) && text.size() > std::strlen(kind)) return true;
  }
  if (text == "*" || text == "token") return true;
  why = "'" + text + "' is not an identity";
  return false;
}

bool read_rule(const std::string& text, net::AdmissionRules::Allow& rule, std::string& why) {
  const std::size_t blank = text.find(' ');
  const std::size_t job = text.find_first_not_of(' ', blank);
  if (blank == std::string::npos || job == std::string::npos ||
      text.find(' ', job) != std::string::npos) {
    why = "'" + text + "' is not an identity, a blank and a job";
    return false;
  }
  rule.job = text.substr(job);
  return read_identity(text.substr(0, blank), rule.who, why);
}

}  // namespace

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

Type<bool> boolean() {
  return {"true or false",
          [](const RawValue& value, bool& out, std::string& /*why*/) {
            const bool is_boolean = value.kind == RawValue::Kind::kBoolean;
            if (!is_boolean && (value.typed || (value.text != "true" && value.text != "false"))) {
              return false;
            }
            out = is_boolean ? value.boolean : value.text == "true";
            return true;
          },
          [](bool value) { return std::string(value ? "true" : "false"); }};
}

std::string range_text(std::int64_t low, std::int64_t high, const char* zero,
                       const char* high_text) {
  const std::string meaning = zero != nullptr ? fmt::format(" ({})", zero) : "";
  return fmt::format("{}{} to {}", low, meaning,
                     high_text != nullptr ? high_text : fmt::to_string(high));
}

bool read_integer(const RawValue& value, std::int64_t low, std::int64_t high, std::int64_t& out) {
  out = value.integer;
  if (value.kind != RawValue::Kind::kInteger &&
      (value.typed || !is_text(value) || !parse_number(value.text, out))) {
    return false;
  }
  return out >= low && out <= high;
}

Type<Micros> span(Micros low, Micros high, const char* zero, const char* examples) {
  return {fmt::format("a duration from {}{} to {}{}", show_duration(low),
                      zero != nullptr ? fmt::format(" ({})", zero) : "", show_duration(high),
                      examples != nullptr ? fmt::format(", such as {}", examples) : ""),
          [low, high](const RawValue& value, Micros& out, std::string& why) {
            if (value.kind == RawValue::Kind::kInteger) why = "a duration needs a unit";
            Micros us = 0;
            if (!is_text(value) || !parse_duration(value.text, us) || us < low || us > high) {
              return false;
            }
            out = us;
            return true;
          },
          [](Micros us) { return toml_string(show_duration(us)); }};
}

Type<std::uint64_t> span_ms(Micros low, Micros high) {
  const Type<Micros> fine = span(low, high);
  return {fine.allowed,
          [fine](const RawValue& value, std::uint64_t& out, std::string& why) {
            Micros us = 0;
            if (!fine.read(value, us, why)) return false;
            out = static_cast<std::uint64_t>(us / 1000);
            return true;
          },
          [fine](std::uint64_t ms) { return fine.show(static_cast<Micros>(ms) * 1000); }};
}

Type<Micros> job_span() {
  return span(0, limits::kSpanMax, nullptr, "\"500ms\" or \"10s\"");
}

namespace {

Type<Micros> or_auto(const Type<Micros>& set, const std::string& meaning) {
  return {"\"auto\" (" + meaning + "), or " + set.allowed,
          [set](const RawValue& value, Micros& out, std::string& why) {
            if (!is_text(value) || value.text != "auto") return set.read(value, out, why);
            out = kAutoSpan;
            return true;
          },
          [set](Micros us) { return us == kAutoSpan ? toml_string("auto") : set.show(us); }};
}

}  // namespace

Type<Micros> lateness() {
  return or_auto(span(0, limits::kSpanMax, "never", "\"90s\" or \"10m\""),
                 "by the worker's own latest iterations");
}

Type<Micros> exit_grace() {
  return or_auto(span(0, limits::kSpanMax, nullptr, "\"500ms\" or \"10s\""),
                 "half of heartbeat_timeout and 1 s, at most worker_grace");
}

Type<std::string> text(std::string allowed, TextRules rules) {
  return {
      std::move(allowed),
      [rules](const RawValue& value, std::string& out, std::string& why) {
        if (!is_text(value) || (value.text.empty() && !rules.may_be_empty)) return false;
        const bool is_none = value.text.empty() || value.text == rules.none;
        std::string text = is_none ? "" : rules.is_path ? absolute(value.text) : value.text;
        if (value.text == rules.word) text = value.text;
        while (rules.is_directory && text.size() > 1 && text.ends_with('/')) text.pop_back();
        if (rules.is_socket && !fits_socket(text, why)) return false;
        if (rules.is_name && !text.empty() && !is_name(text)) return false;
        out = std::move(text);
        return true;
      },
      [rules](const std::string& text) { return toml_string(text.empty() ? rules.none : text); }};
}

Type<std::string> file_path(std::string allowed) {
  return text(std::move(allowed), {.none = "off", .is_path = true});
}

Type<std::string> socket_path() {
  return text(fmt::format("a path of at most {} bytes, or \"off\"", kPathBytesMax),
              {.none = "off", .is_path = true, .is_socket = true});
}

Type<std::vector<net::TcpAddress>> tcp_addresses() {
  return list_of<net::TcpAddress>(
      "HOST:PORT, several of them, or \"off\"; port 0 takes any free one", net::parse_tcp_address,
      [](const net::TcpAddress& address) { return address.text(); }, show_addresses);
}

Type<std::vector<net::TcpAddress>> reachable_addresses() {
  const auto read_one = [](const std::string& text, net::TcpAddress& address, std::string& why) {
    if (!net::parse_tcp_address(text, address, why)) return false;
    if (address.port == 0) why = "port 0 cannot be connected to";
    if (address.is_wildcard()) why = address.host + " is not one machine's address";
    return why.empty();
  };
  return list_of<net::TcpAddress>(
      "HOST:PORT as clients name it, several of them, or \"off\"", read_one,
      [](const net::TcpAddress& address) { return address.text(); }, show_addresses);
}

Type<std::optional<net::TcpAddress>> tcp_address() {
  using Address = std::optional<net::TcpAddress>;
  return {
      "HOST:PORT or \"off\"; port 0 takes any free one",
      [](const RawValue& value, Address& out, std::string& why) {
        if (!is_text(value)) return false;
        Address address;
        if (!is_off(value.text) && !net::parse_tcp_address(value.text, address.emplace(), why)) {
          return false;
        }
        out = std::move(address);
        return true;
      },
      [](const Address& address) { return toml_string(address ? address->text() : "off"); }};
}

Type<Addresses> control_addresses() {
  return {"a Unix socket's absolute path, HOST:PORT, both, or \"off\"",
          [](const RawValue& value, Addresses& out, std::string& why) {
            std::vector<std::string> texts;
            if (!read_list(value, texts)) return false;
            Addresses found;
            for (const std::string& text : texts) {
              if (!text.starts_with('/')) {
                if (!net::parse_tcp_address(text, found.tcp.emplace_back(), why)) return false;
                continue;
              }
              if (!found.unix_path.empty()) {
                why = "one Unix socket is enough";
                return false;
              }
              if (!fits_socket(text, why)) return false;
              found.unix_path = text;
            }
            out = std::move(found);
            return true;
          },
          [](const Addresses& addresses) {
            std::vector<std::string> texts;
            if (!addresses.unix_path.empty()) texts.push_back(addresses.unix_path);
            for (const net::TcpAddress& address : addresses.tcp) texts.push_back(address.text());
            return show_addresses(texts);
          }};
}

Type<std::vector<uid_t>> users() {
  return system_ids<uid_t>("a list of users, by name or number, as in [\"1000\", \"ops\"]", "user",
                           [](const char* name, uid_t& id) {
                             const passwd* found = getpwnam(name);
                             if (found != nullptr) id = found->pw_uid;
                             return found != nullptr;
                           });
}

Type<std::vector<gid_t>> groups() {
  return system_ids<gid_t>("a list of groups, by name or number, as in [\"998\", \"syncd\"]",
                           "group", [](const char* name, gid_t& id) {
                             const group* found = getgrnam(name);
                             if (found != nullptr) id = found->gr_gid;
                             return found != nullptr;
                           });
}

Type<std::vector<std::string>> etcd_endpoints() {
  const auto read_one = [](const std::string& text, std::string& endpoint, std::string& why) {
    const std::size_t host = text.starts_with("http://") ? 7 : text.starts_with("https://") ? 8 : 0;
    net::TcpAddress address;
    if (host == 0 || !net::parse_tcp_address(text.substr(host), address, why)) return false;
    endpoint = text;
    return true;
  };
  return list_of<std::string>("http://HOST:PORT or https://HOST:PORT, several of them, or \"off\"",
                              read_one, [](const std::string& text) { return text; });
}

Type<std::vector<std::string>> identities(std::string allowed) {
  return list_of<std::string>(std::move(allowed), read_identity,
                              [](const std::string& text) { return text; });
}

Type<std::vector<net::AdmissionRules::Allow>> allow_rules() {
  using Rule = net::AdmissionRules::Allow;
  return list_of<Rule>(
      "a list of \"IDENTITY JOB\", both patterns of *, ? and [...], as in \"cert:*.a.example "
      "a-*\"; "
      "identities are cert:NAME (a DNS name, e-mail address or URI of the certificate), "
      "cert-sha256:DIGEST (of one without any, in hexadecimal), token:NAME, token, uid:N and gid:N",
      read_rule, [](const Rule& rule) { return rule.who + " " + rule.job; });
}

}  // namespace syncd::config
