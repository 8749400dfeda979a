// Error objects of the C interface, and the guard that keeps C++ exceptions inside it. Any thread.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "proto/base/status.h"
#include "syncd/client.h"

struct syncd_error {
  syncd::Status status = syncd::Status::kOk;
  std::string message;
};

namespace syncd::capi {

// How functions inside report: a status, and a sentence unless it is kOk. Thrown where an argument
// is wrong; what a call was answered is returned.
struct Outcome {
  Status status = Status::kOk;
  std::string message;
};

[[noreturn]] inline void refuse(std::string message) {
  throw Outcome{Status::kInvalid, std::move(message)};
}

[[noreturn]] inline void refuse(const char* call, const std::string& wrong) {
  refuse(std::string(call) + ": " + wrong);
}

// Not in need(), which each call goes through: a frame for the text would cost more than the check.
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_null(const char* call, const char* name) {
  refuse(call, std::string(name) + " is NULL");
}

inline void need(const void* argument, const char* call, const char* name) {
  if (argument == nullptr) refuse_null(call, name);
}

// Sets *error, if there is one to set, and returns the code. Where memory has run out, *error is an
// object that needs none.
syncd_status report(Status status, std::string_view message, syncd_error** error) noexcept;

// The body of the C function `call`, its __func__: runs body(call), which returns an Outcome or
// nothing, and turns whatever comes out of it into a status.
template <typename Body>
syncd_status guarded(const char* call, syncd_error** error, const Body& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body(call))>) {
      body(call);
    } else if (const Outcome outcome = body(call); outcome.status != Status::kOk) {
      return report(outcome.status, outcome.message, error);
    }
    return SYNCD_OK;
  } catch (const Outcome& outcome) {
    return report(outcome.status, outcome.message, error);
  } catch (const std::bad_alloc&) {
    return report(Status::kNoMemory, "out of memory", error);
  } catch (const std::exception& failure) {
    return report(Status::kInternal, failure.what(), error);
  } catch (...) {
    return report(Status::kInternal, "an unknown exception", error);
  }
}

}  // namespace syncd::capi
