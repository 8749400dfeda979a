// Every setting in one table: its key, flag, what it allows, and how it is read and shown. Pure
// functions over plain data; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/edge/config/config.h"
#include "daemon/edge/config/raw_value.h"

namespace syncd::config {

struct Setting {
  const char* key;      // "listen.tcp"
  const char* flag;     // "--tcp", or null
  const char* allowed;  // completes "allowed: "
  const char* help;
  // False: the value is not allowed; `why` may say more than `allowed` does.
  bool (*read)(const RawValue& value, Config& config, std::string& why);
  std::string (*show)(const Config& config);  // as TOML
};
const std::vector<Setting>& settings();
const Setting* find_setting(std::string_view key);
// "SYNCD_LISTEN_TCP" for "listen.tcp".
std::string environment_name(const Setting& setting);

// The same for the keys of a [[job]].
struct JobSetting {
  const char* key;
  const char* allowed;
  bool (*read)(const RawValue& value, JobSpec& job, std::string& why);
  std::string (*show)(const JobSpec& job);
};
const std::vector<JobSetting>& job_settings();

// A string as TOML writes it.
std::string toml_string(std::string_view text);

}  // namespace syncd::config
