// See status.h.
#include "proto/base/status.h"

namespace syncd {
namespace {

enum class Then { kFailed, kRetry, kOver };
struct Row {
  Status status;
  std::string_view name;
  Then then = Then::kFailed;
};
constexpr Row kRows[] = {
    {Status::kOk, "SYNCD_OK"},
    {Status::kInvalid, "SYNCD_E_INVALID"},
    {Status::kNoMemory, "SYNCD_E_NOMEM", Then::kRetry},
    {Status::kTimeout, "SYNCD_E_TIMEOUT", Then::kRetry},
    {Status::kUnreachable, "SYNCD_E_UNREACHABLE", Then::kRetry},
    {Status::kProtocol, "SYNCD_E_PROTOCOL", Then::kOver},
    {Status::kAuth, "SYNCD_E_AUTH", Then::kOver},
    {Status::kUnknownJob, "SYNCD_E_UNKNOWN_JOB"},
    {Status::kPolicyMismatch, "SYNCD_E_POLICY_MISMATCH"},
    {Status::kWrongIteration, "SYNCD_E_WRONG_ITERATION"},
    {Status::kFenced, "SYNCD_E_FENCED", Then::kOver},
    {Status::kRankTaken, "SYNCD_E_RANK_TAKEN"},
    {Status::kLimit, "SYNCD_E_LIMIT", Then::kRetry},
    {Status::kStore, "SYNCD_E_STORE", Then::kRetry},
    {Status::kCancelled, "SYNCD_E_CANCELLED"},
    {Status::kClosed, "SYNCD_E_CLOSED", Then::kOver},
    {Status::kForked, "SYNCD_E_FORKED", Then::kOver},
    {Status::kUnsupported, "SYNCD_E_UNSUPPORTED"},
    {Status::kStopped, "SYNCD_E_STOPPED", Then::kOver},
    {Status::kState, "SYNCD_E_STATE"},
    {Status::kInternal, "SYNCD_E_INTERNAL"},
    {Status::kShutdown, "SYNCD_E_SHUTDOWN", Then::kRetry},
    {Status::kUnknownWorker, "SYNCD_E_UNKNOWN_WORKER"},
    {Status::kJobExists, "SYNCD_E_JOB_EXISTS"},
    {Status::kBuffer, "SYNCD_E_BUFFER"},
    {Status::kListen, "SYNCD_E_LISTEN"},
    {Status::kNoUpdate, "SYNCD_E_NO_UPDATE", Then::kRetry},
    {Status::kOverwritten, "SYNCD_E_OVERWRITTEN"},
    {Status::kTorn, "SYNCD_E_TORN", Then::kRetry},
    {Status::kBroken, "SYNCD_E_BROKEN"},
    {Status::kCheckpoint, "SYNCD_E_CHECKPOINT", Then::kRetry},
};

Row row_of(Status status) {
  for (const Row& row : kRows) {
    if (row.status == status) return row;
  }
  return {status, "SYNCD_E_?"};
}

}  // namespace

std::string_view status_name(Status status) {
  return row_of(status).name;
}

bool status_is_retriable(Status status) {
  return row_of(status).then == Then::kRetry;
}

bool status_is_fatal(Status status) {
  return row_of(status).then == Then::kOver;
}

}  // namespace syncd
