// Error objects and status names of the C interface. Any thread.
#include "error.h"

#include <utility>

#define SYNCD_SAME(c_name, cpp_name)                                                           \
  static_assert(                                                                               \
      static_cast<syncd_status>(syncd::Status::cpp_name) == static_cast<syncd_status>(c_name), \
      #c_name " and Status::" #cpp_name " must be one number")
SYNCD_SAME(SYNCD_OK, kOk);
SYNCD_SAME(SYNCD_E_INVALID, kInvalid);
SYNCD_SAME(SYNCD_E_NOMEM, kNoMemory);
SYNCD_SAME(SYNCD_E_TIMEOUT, kTimeout);
SYNCD_SAME(SYNCD_E_UNREACHABLE, kUnreachable);
SYNCD_SAME(SYNCD_E_PROTOCOL, kProtocol);
SYNCD_SAME(SYNCD_E_AUTH, kAuth);
SYNCD_SAME(SYNCD_E_UNKNOWN_JOB, kUnknownJob);
SYNCD_SAME(SYNCD_E_POLICY_MISMATCH, kPolicyMismatch);
SYNCD_SAME(SYNCD_E_WRONG_ITERATION, kWrongIteration);
SYNCD_SAME(SYNCD_E_FENCED, kFenced);
SYNCD_SAME(SYNCD_E_RANK_TAKEN, kRankTaken);
SYNCD_SAME(SYNCD_E_LIMIT, kLimit);
SYNCD_SAME(SYNCD_E_STORE, kStore);
SYNCD_SAME(SYNCD_E_CANCELLED, kCancelled);
SYNCD_SAME(SYNCD_E_CLOSED, kClosed);
SYNCD_SAME(SYNCD_E_FORKED, kForked);
SYNCD_SAME(SYNCD_E_UNSUPPORTED, kUnsupported);
SYNCD_SAME(SYNCD_E_STOPPED, kStopped);
SYNCD_SAME(SYNCD_E_STATE, kState);
SYNCD_SAME(SYNCD_E_INTERNAL, kInternal);
SYNCD_SAME(SYNCD_E_SHUTDOWN, kShutdown);
SYNCD_SAME(SYNCD_E_UNKNOWN_WORKER, kUnknownWorker);
SYNCD_SAME(SYNCD_E_JOB_EXISTS, kJobExists);
SYNCD_SAME(SYNCD_E_BUFFER, kBuffer);
SYNCD_SAME(SYNCD_E_LISTEN, kListen);
SYNCD_SAME(SYNCD_E_NO_UPDATE, kNoUpdate);
SYNCD_SAME(SYNCD_E_OVERWRITTEN, kOverwritten);
SYNCD_SAME(SYNCD_E_TORN, kTorn);
SYNCD_SAME(SYNCD_E_BROKEN, kBroken);
SYNCD_SAME(SYNCD_E_CHECKPOINT, kCheckpoint);
#undef SYNCD_SAME

namespace syncd::capi {
namespace {

// Never freed, and made before anything can run out of memory: the text fits the string itself.
syncd_error* out_of_memory() noexcept {
  static syncd_error error{Status::kNoMemory, "out of memory"};
  return &error;
}
[[maybe_unused]] const syncd_error* const kMadeEarly = out_of_memory();

}  // namespace

syncd_status report(Status status, std::string_view message, syncd_error** error) noexcept {
  if (error != nullptr) {
    try {
      *error = new syncd_error{status, std::string(message)};
    } catch (...) {
      *error = out_of_memory();
      status = Status::kNoMemory;
    }
  }
  return static_cast<syncd_status>(status);
}

}  // namespace syncd::capi

extern "C" {

const char* syncd_strerror(syncd_status status) {
  // Each name is a literal, so that it ends with a zero.
  return syncd::status_name(static_cast<syncd::Status>(status)).data();
}

syncd_status syncd_error_code(const syncd_error* error) {
  return error != nullptr ? static_cast<syncd_status>(error->status) : SYNCD_OK;
}

const char* syncd_error_name(const syncd_error* error) {
  return syncd_strerror(syncd_error_code(error));
}

const char* syncd_error_message(const syncd_error* error) {
  return error != nullptr ? error->message.c_str() : "";
}

int32_t syncd_error_is_retriable(const syncd_error* error) {
  return error != nullptr && syncd::status_is_retriable(error->status) ? 1 : 0;
}

int32_t syncd_error_is_fatal(const syncd_error* error) {
  return error != nullptr && syncd::status_is_fatal(error->status) ? 1 : 0;
}

void syncd_error_free(syncd_error* error) {
  if (error != syncd::capi::out_of_memory()) delete error;
}

}  // extern "C"
