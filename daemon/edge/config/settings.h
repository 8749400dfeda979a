// Every setting is one row of the table in settings.cpp. Flags, --help, --check-config, the manual
// and a reload are made from it. Pure functions over plain data; any thread.
//
// To add a setting, and what fails if a step is forgotten:
// 1. Add its member, with its default, to Config (config.h) or to the struct that uses it. The row
//    does not compile without it.
// 2. Add its row to settings(). Choose its type from value_types.h. Mark it with reloads() if a
//    running daemon can take it on: LoadTest.AReloadTakesExactlyWhatReloads lists those that do not.
// 3. Add a wrong value to LoadTest.EveryWrongValueIsNamedWithItsLine, which names rows without one.
// 4. Test what it does. packaging.rooms fails if nothing outside this room reads the member. What
//    lies in a struct of the network or the engine reaches it by itself, the rest by
//    server_options() (from_config.cpp).
// 5. If a manual page should say more than the row's help, say it there: packaging.documents
//    checks that what a page names exists.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/edge/config/config.h"
#include "daemon/edge/config/raw_value.h"

namespace syncd::config {

// A setting of an Owner: Config, or JobSpec for the keys of a [[job]].
template <class Owner>
struct Row {
  const char* key = nullptr;         // "listen.tcp"
  const char* help = nullptr;        // empty for those of a [[job]]
  std::string allowed;               // completes "allowed: "
  const char* flag = nullptr;        // "--tcp"
  const char* flag_value = nullptr;  // "ADDR:PORT|off"; null: the flag takes none and means true
  bool flag_repeats = false;
  bool reloadable = false;  // SIGHUP takes it on
  // False: the value is not allowed; `why` may say more than `allowed` does.
  std::function<bool(const RawValue& value, Owner& owner, std::string& why)> read;
  std::function<std::string(const Owner& owner)> show;  // as TOML
  std::function<void(const Owner& from, Owner& to)> copy;

  std::string section() const {
    return std::string(key).substr(0, std::string_view(key).find('.'));
  }
  std::string name() const { return key + std::string_view(key).find('.') + 1; }

  Row with_flag(const char* name, const char* value, bool repeats = false) && {
    flag = name;
    flag_value = value;
    flag_repeats = repeats;
    return std::move(*this);
  }
  Row reloads() && {
    reloadable = true;
    return std::move(*this);
  }
};
using Setting = Row<Config>;
using JobSetting = Row<JobSpec>;

const std::vector<Setting>& settings();
const Setting* find_setting(std::string_view key);
// "SYNCD_LISTEN_TCP" for "listen.tcp".
std::string environment_name(std::string_view key);

const std::vector<JobSetting>& job_settings();

// Limits that were settings once. syncd accepts their keys with a warning for one release, and
// their values mean nothing. Tests still need small ones: syncd's hidden flag --test-limit
// KEY=VALUE.
const std::vector<Setting>& test_limits();
const Setting* find_test_limit(std::string_view key);

}  // namespace syncd::config
