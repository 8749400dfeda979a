// The names of message types. Apart from the codec, because the engine uses them too and knows no
// FlatBuffers.
#include <array>

#include "proto/wire/wire.h"

namespace syncd::wire {

std::string_view body_name(const Body& body) {
  // In the order of the variant's alternatives.
  static constexpr std::array<std::string_view, std::variant_size_v<Body>> kNames = {
      "Unknown",
      "Hello",
      "Welcome",
      "Error",
      "Ok",
      "Join",
      "Joined",
      "Leave",
      "Begin",
      "Granted",
      "Push",
      "Pushed",
      "Explain",
      "Explanation",
      "CancelBegin",
      "StopNotice",
      "FencedNotice",
      "ResyncNotice",
      "ShutdownNotice",
      "Heartbeat",
      "HeartbeatAck",
      "StatusRequest",
      "StatusReply",
      "JobsRequest",
      "JobsReply",
      "WorkersRequest",
      "WorkersReply",
      "HistoryRequest",
      "HistoryReply",
      "CreateJobRequest",
      "StopJobRequest",
      "Restarted",
      "Targets",
      "TargetsReply",
      "Collect",
      "CollectReply",
      "Consumed",
      "SetPolicyRequest",
      "Phase",
      "MembersRequest",
      "MembersReply",
      "MembersNotice",
      "PlanNotice",
      "ManageWorkerRequest",
      "CheckpointRequest"};
  return kNames[body.index()];
}

}  // namespace syncd::wire
