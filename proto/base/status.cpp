// See status.h.
#include "proto/base/status.h"

namespace syncd {

std::string_view status_name(Status status) {
  switch (status) {
    case Status::kOk:
      return "SYNCD_OK";
    case Status::kInvalid:
      return "SYNCD_E_INVALID";
    case Status::kNoMemory:
      return "SYNCD_E_NOMEM";
    case Status::kTimeout:
      return "SYNCD_E_TIMEOUT";
    case Status::kUnreachable:
      return "SYNCD_E_UNREACHABLE";
    case Status::kProtocol:
      return "SYNCD_E_PROTOCOL";
    case Status::kAuth:
      return "SYNCD_E_AUTH";
    case Status::kUnknownJob:
      return "SYNCD_E_UNKNOWN_JOB";
    case Status::kPolicyMismatch:
      return "SYNCD_E_POLICY_MISMATCH";
    case Status::kWrongIteration:
      return "SYNCD_E_WRONG_ITERATION";
    case Status::kFenced:
      return "SYNCD_E_FENCED";
    case Status::kRankTaken:
      return "SYNCD_E_RANK_TAKEN";
    case Status::kLimit:
      return "SYNCD_E_LIMIT";
    case Status::kStore:
      return "SYNCD_E_STORE";
    case Status::kCancelled:
      return "SYNCD_E_CANCELLED";
    case Status::kClosed:
      return "SYNCD_E_CLOSED";
    case Status::kForked:
      return "SYNCD_E_FORKED";
    case Status::kUnsupported:
      return "SYNCD_E_UNSUPPORTED";
    case Status::kStopped:
      return "SYNCD_E_STOPPED";
    case Status::kState:
      return "SYNCD_E_STATE";
    case Status::kInternal:
      return "SYNCD_E_INTERNAL";
    case Status::kShutdown:
      return "SYNCD_E_SHUTDOWN";
    case Status::kUnknownWorker:
      return "SYNCD_E_UNKNOWN_WORKER";
    case Status::kJobExists:
      return "SYNCD_E_JOB_EXISTS";
    case Status::kBuffer:
      return "SYNCD_E_BUFFER";
    case Status::kListen:
      return "SYNCD_E_LISTEN";
    case Status::kNoUpdate:
      return "SYNCD_E_NO_UPDATE";
    case Status::kOverwritten:
      return "SYNCD_E_OVERWRITTEN";
    case Status::kTorn:
      return "SYNCD_E_TORN";
  }
  return "SYNCD_E_?";
}

bool status_is_retriable(Status status) {
  switch (status) {
    case Status::kNoMemory:
    case Status::kTimeout:
    case Status::kUnreachable:
    case Status::kStore:
    case Status::kLimit:
    case Status::kShutdown:
    case Status::kNoUpdate:
    case Status::kTorn:
      return true;
    default:
      return false;
  }
}

bool status_is_fatal(Status status) {
  switch (status) {
    case Status::kFenced:
    case Status::kClosed:
    case Status::kForked:
    case Status::kStopped:
    case Status::kProtocol:
    case Status::kAuth:
      return true;
    default:
      return false;
  }
}

}  // namespace syncd
