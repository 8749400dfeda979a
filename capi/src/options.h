// What a caller passed and what the environment says, checked and brought together. Pure functions
// over the environment and one file; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "error.h"
#include "libclient/client.h"

// A struct's size up to and with `field`.
#define SYNCD_SIZE_UP_TO(type, field) (offsetof(type, field) + sizeof(type::field))

namespace syncd::capi {

// A larger struct_size is garbage: no options struct will ever be as large.
inline constexpr std::size_t kStructBytesMax = 4096;

// Reads a struct that begins with its own size, as the caller's version of the header knows it.
//
// `first_size` is the struct's size in the release that brought it: no caller can have a smaller
// one. A struct of an older header is completed by what `known` holds already; one of a newer
// header is taken if everything beyond what we know is zero, that is, unset. Otherwise kInvalid is
// thrown, with both sizes named.
template <typename Struct>
void read_struct(const Struct* given, std::size_t first_size, const char* name, Struct& known) {
  const std::size_t size = given->struct_size;
  const auto complain = [&](const std::string& reason) {
    refuse(std::string(name) + ".struct_size is " + std::to_string(size) + ": " + reason +
           "; set it by the struct's _INIT macro");
  };
  if (size < first_size) {
    complain("this library knows sizes from " + std::to_string(first_size) + " to " +
             std::to_string(sizeof(Struct)));
  }
  if (size > kStructBytesMax) {
    complain("this library takes at most " + std::to_string(kStructBytesMax));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  const auto is_set = [](unsigned char byte) { return byte != 0; };
  if (size > sizeof(Struct) && std::any_of(bytes + sizeof(Struct), bytes + size, is_set)) {
    complain("this library knows the first " + std::to_string(sizeof(Struct)) +
             " bytes, and a later one is set, which it cannot honour");
  }
  std::memcpy(&known, bytes, std::min(size, sizeof(Struct)));
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
  void* user_data = nullptr;
};

// `options` may be null. What is wrong in them, or in the environment, is thrown.
ClientSettings make_client_settings(const syncd_client_options* options);
JoinSettings make_join_settings(const syncd_join_options* options);

// A call's timeout_ms, where `otherwise_us` is what SYNCD_TIMEOUT_DEFAULT means.
client::TimeUs make_timeout(const char* call, std::int64_t timeout_ms, client::TimeUs otherwise_us);

}  // namespace syncd::capi
