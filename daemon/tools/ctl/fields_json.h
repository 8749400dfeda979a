// JSON of the daemon's answers: an object with a key for each field of a message. A number that is
// -1 where it is not known is null then.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "daemon/tools/ctl/table.h"
#include "proto/wire/fields.h"

namespace syncd::ctl {

template <class T>
nlohmann::json fields_json(const T& object) {
  nlohmann::json out;
  for_each_field(object, [&](auto field, const auto& value) {
    using F = decltype(field);
    nlohmann::json& to = out[std::string(field.name)];
    if constexpr (std::is_same_v<typename F::Type, std::vector<std::uint8_t>>) {
      to = hexadecimal(value);
    } else if constexpr (std::is_same_v<typename F::Type, std::int64_t>) {
      if (value >= 0 || kAbsent<F::member> >= 0) to = value;
    } else {
      to = value;
    }
  });
  return out;
}

// The same with these of its keys only.
template <class T>
nlohmann::json fields_json(const T& object, std::initializer_list<const char*> keys) {
  nlohmann::json all = fields_json(object);
  nlohmann::json out;
  for (const char* key : keys) out[key] = std::move(all.at(key));
  return out;
}

}  // namespace syncd::ctl
