// What a caller passed and what the environment says, checked and brought together. Pure functions
// over the environment and one file; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "error.h"
#include "libclient/drivers.h"

// A struct's size up to and with `field`.
#define SYNCD_SIZE_UP_TO(type, field) (offsetof(type, field) + sizeof(type::field))

namespace syncd::capi {

// Checks a struct of the caller's that begins with its own size, as the caller's version of the
// header knows it, and returns how much of it is ours to read.
//
// `first_size` is the struct's size in the release that brought it: no caller can have a smaller
// one. One of a newer header than ours, of `known_size`, is taken if everything beyond what we know
// is zero, that is, unset. Otherwise kInvalid is thrown, with both sizes named.
std::size_t check_struct(const void* given, std::size_t first_size, std::size_t known_size,
                         const char* name);

// Reads it into `known`, which completes one of an older header by what it holds already.
template <typename Struct>
void read_struct(const Struct* given, std::size_t first_size, const char* name, Struct& known) {
  std::memcpy(&known, given, check_struct(given, first_size, sizeof(Struct), name));
}

struct ClientSettings {
  client::ClientOptions client;
  client::TimeUs begin_timeout_us = client::kNever;
  client::TimeUs request_timeout_us = 60'000'000;
};

struct JoinSettings {
  client::JoinRequest request;
  std::int64_t timeout_ms = SYNCD_TIMEOUT_DEFAULT;
  std::uint32_t* resync_flag = nullptr;
  syncd_event_callback on_event = nullptr;
  syncd_wait_callback on_wait = nullptr;
  void* user_data = nullptr;
  syncd_inspect_callback on_inspect = nullptr;
  // The caller or SYNCD_LAUNCH has named the launch, so that its number may be that of a round.
  bool names_launch = false;
};

// As the daemon takes it from a worker that leaves: escaped where it is no plain text, without
// blanks around it, and cut.
std::string shown_reason(std::string_view reason);

// `options` may be null. What is wrong in them, or in the environment, is thrown.
ClientSettings make_client_settings(const syncd_client_options* options);
JoinSettings make_join_settings(const syncd_join_options* options);

// What a worker shows to the others, of a call's arguments `data` and `data_size`.
std::vector<std::uint8_t> take_member_data(const char* call, const void* data, std::size_t size);

// A job's name; null: what the environment says.
std::string job_name(const char* job);

// A call's timeout_ms, where `otherwise_us` is what SYNCD_TIMEOUT_DEFAULT means.
client::TimeUs make_timeout(const char* call, std::int64_t timeout_ms, client::TimeUs otherwise_us);

}  // namespace syncd::capi
