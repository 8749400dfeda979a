// Error objects of the C interface, and the guard that keeps C++ exceptions inside it. Any thread.
#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "proto/base/status.h"
#include "syncd/client.h"

struct syncd_error {
  syncd::Status status = syncd::Status::kOk;
  std::string message;
};

namespace syncd::capi {

// How functions inside report: a status, and a sentence unless it is kOk.
struct Outcome {
  Status status = Status::kOk;
  std::string message;

  bool ok() const { return status == Status::kOk; }
};

inline Outcome invalid(std::string message) {
  return {Status::kInvalid, std::move(message)};
}

inline Outcome null_argument(const char* call, const char* argument) {
  return invalid(std::string(call) + ": " + argument + " is NULL");
}

// Sets *error, if there is one to set, and returns the code. Where memory has run out, *error is an
// object that needs none.
syncd_status report(Status status, std::string_view message, syncd_error** error) noexcept;

// Runs `body`, which returns an Outcome, and turns whatever comes out of it into a status.
template <typename Body>
syncd_status guarded(syncd_error** error, Body&& body) noexcept {
  try {
    const Outcome outcome = body();
    if (outcome.ok()) return SYNCD_OK;
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
