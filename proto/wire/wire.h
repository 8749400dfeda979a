// The messages of wire.fbs as plain structs, and the codec between them and frames. Both the daemon
// and the client use it; neither sees a FlatBuffers type. Thread-safe: no state besides the objects
// that are passed in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "proto/base/defaults.h"
#include "proto/base/out_buffer.h"
#include "proto/base/status.h"
#include "proto/wire/explanation.h"

namespace syncd::wire {

struct WorkerRef {
  std::uint32_t job = 0;
  std::uint32_t rank = 0;
  std::uint64_t epoch = 0;
  std::uint64_t incarnation = 0;
  bool operator==(const WorkerRef&) const = default;
};

inline constexpr std::uint32_t kStepPull = 1;
inline constexpr std::uint32_t kStepBarrier = 2;
inline constexpr std::uint32_t kStepSkip = 4;
inline constexpr std::uint32_t kStepStop = 8;
inline constexpr std::uint32_t kStepResumed = 16;
inline constexpr std::uint32_t kStepCheckpoint = 32;

// What a worker may want to be told: bits of Join::notices.
inline constexpr std::uint32_t kNoticeMembers = 1;
inline constexpr std::uint32_t kNoticePlan = 2;
inline constexpr std::uint32_t kNoticeHang = 4;
inline constexpr std::uint32_t kNoticeInspect = 8;
inline constexpr std::uint32_t kNoticeCheckpoint = 16;
inline constexpr std::uint32_t kNoticeStragglers = 32;

struct Hello {
  std::uint16_t protocol_min = 0;
  std::uint16_t protocol_max = 0;
  std::string client_name;
  std::string client_version;
  std::string token;
  std::int32_t shard = -1;
  bool operator==(const Hello&) const = default;
};
struct Welcome {
  std::uint16_t protocol = 0;
  std::uint64_t session = 0;
  std::string server_version;
  std::uint32_t max_frame_bytes = 0;
  std::uint32_t heartbeat_interval_ms = 0;
  std::uint32_t heartbeat_timeout_ms = 0;
  std::uint32_t shard = 0;
  std::uint32_t shards = 1;
  bool operator==(const Welcome&) const = default;
};
struct Redirect {
  std::uint32_t shard = 0;
  std::string addresses;
  std::uint32_t retry_after_ms = 0;
  bool operator==(const Redirect&) const = default;
};
struct Error {
  Status status = Status::kInternal;
  std::string message;
  bool operator==(const Error&) const = default;
};
struct Ok {
  bool operator==(const Ok&) const = default;
};
// What a first join begins with, where its job waits for a new group of workers.
enum class Resume : std::uint8_t { kAuto = 0, kNew = 1, kContinue = 2 };

struct Join {
  std::string job;
  std::string policy;
  std::string name;
  std::string host;
  std::int32_t rank = -1;
  std::uint32_t world_size = 0;
  std::uint64_t incarnation = 0;
  std::int64_t granted = -1;
  std::int64_t pushed = -1;
  std::int64_t collected = -1;
  std::int64_t consumed = -1;
  std::string phase;
  std::int64_t phase_left_us = 0;
  std::vector<std::uint8_t> data;
  std::uint32_t notices = 0;
  Resume resume = Resume::kAuto;
  std::uint64_t epoch = 0;
  std::string launch;
  std::uint64_t launch_number = 0;
  std::int64_t resume_at = -1;
  bool views = false;
  std::int64_t exit_grace_us = -1;
  std::int64_t hang_after_us = 0;
  std::uint32_t heartbeat_timeout_ms = 0;  // 0: as the daemon and the job say
  bool operator==(const Join&) const = default;
};
struct Joined {
  WorkerRef worker;
  std::int64_t iteration = 0;
  std::string policy;
  std::uint32_t world_size = 0;
  bool durable = false;
  bool resumed = false;
  std::uint64_t members_version = 0;
  std::int64_t worker_grace_us = -1;
  bool views = false;
  std::uint64_t round = 0;
  std::uint32_t round_gone = 0;
  std::uint32_t round_room = 0;
  std::uint32_t heartbeat_timeout_ms = 0;  // 0: as Welcome says
  std::int64_t exit_grace_us = -1;
  std::int64_t hang_after_us = 0;
  bool operator==(const Joined&) const = default;
};
enum class LeaveKind : std::uint8_t { kLeft = 0, kFinished = 1, kFailed = 2, kPreempted = 3 };
struct Leave {
  WorkerRef worker;
  LeaveKind kind = LeaveKind::kLeft;
  std::string reason = {};
  bool operator==(const Leave&) const = default;
};
struct Begin {
  WorkerRef worker;
  std::int64_t iteration = 0;
  bool operator==(const Begin&) const = default;
};
struct Granted {
  std::int64_t iteration = 0;
  std::uint32_t flags = 0;
  std::int64_t staleness = 0;
  std::uint64_t checkpoint = 0;
  std::uint32_t shard = 0;
  std::uint32_t shards = 0;
  bool operator==(const Granted&) const = default;
};
struct Push {
  WorkerRef worker;
  std::int64_t iteration = 0;
  std::optional<double> loss;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  std::int64_t computed_us = -1;  // from the grant until its own computing was done; -1: not said
  bool operator==(const Push&) const = default;
};
struct Pushed {
  std::int64_t iteration = 0;
  bool late = false;
  bool duplicate = false;
  bool operator==(const Pushed&) const = default;
};
struct Explain {
  WorkerRef worker;
  bool operator==(const Explain&) const = default;
};
struct CancelBegin {
  WorkerRef worker;
  std::int64_t iteration = 0;
  bool operator==(const CancelBegin&) const = default;
};
struct StopNotice {
  WorkerRef worker;
  std::string message;
  bool operator==(const StopNotice&) const = default;
};
struct FencedNotice {
  WorkerRef worker;
  std::string message;
  bool operator==(const FencedNotice&) const = default;
};
struct ResyncNotice {
  WorkerRef worker;
  std::int64_t iteration = 0;
  bool operator==(const ResyncNotice&) const = default;
};
struct ShutdownNotice {
  std::string message;
  bool operator==(const ShutdownNotice&) const = default;
};
struct Heartbeat {
  bool operator==(const Heartbeat&) const = default;
};
struct HeartbeatAck {
  bool operator==(const HeartbeatAck&) const = default;
};
struct StatusRequest {
  bool operator==(const StatusRequest&) const = default;
};
struct StatusReply {
  std::string server_version;
  std::uint32_t pid = 0;
  std::int64_t started_us = 0;
  std::int64_t now_us = 0;
  std::string store;
  std::string mode;
  std::uint32_t sessions = 0;
  std::uint32_t jobs = 0;
  std::uint32_t workers = 0;
  std::uint64_t pushes = 0;
  std::uint64_t frames_in = 0;
  std::uint64_t frames_out = 0;
  bool read_only = false;
  std::string store_error;
  std::int64_t store_error_since_us = -1;
  std::uint64_t commit_failures = 0;
  std::uint64_t records_removed = 0;
  bool operator==(const StatusReply&) const = default;
};
struct JobsRequest {
  std::string job = {};
  bool operator==(const JobsRequest&) const = default;
};
struct JobStatus {
  std::uint32_t id = 0;
  std::string name;
  std::string policy;
  std::string state;
  std::uint64_t epoch = 0;
  std::uint32_t expected_workers = 0;
  std::uint32_t active_workers = 0;
  std::int64_t clock_min = 0;
  std::int64_t clock_max = 0;
  std::uint64_t pushes = 0;
  std::uint32_t waiting = 0;
  std::string note;
  std::int64_t created_us = 0;
  std::string hang = {};
  std::string hang_ranks = {};
  std::uint32_t stragglers = 0;
  std::uint64_t round = 0;
  std::uint32_t round_gone = 0;
  bool operator==(const JobStatus&) const = default;
};
struct JobsReply {
  std::vector<JobStatus> jobs;
  std::uint32_t omitted = 0;  // jobs that did not fit
  bool operator==(const JobsReply&) const = default;
};
struct WorkersRequest {
  std::string job;
  std::uint32_t first_rank = 0;
  bool with_data = false;
  bool operator==(const WorkersRequest&) const = default;
};
struct WorkerStatus {
  std::uint32_t rank = 0;
  std::string name;
  std::string host;
  std::string state;
  std::uint64_t incarnation = 0;
  std::int64_t clock = 0;
  std::int64_t granted = 0;
  std::int64_t last_push_us = -1;
  bool connected = false;
  std::int64_t waiting_us = -1;
  std::string waiting_for;
  std::string reason;
  std::int64_t warn_after_us = -1;
  std::int64_t evict_after_us = -1;
  std::string late_rule;
  std::int64_t heard_us = -1;
  std::vector<std::uint8_t> data = {};
  std::int64_t computed_us = -1;
  std::int64_t exchange_us = -1;
  std::int64_t straggler_since_us = -1;
  double straggler_factor = 0;
  bool operator==(const WorkerStatus&) const = default;
};
struct WorkersReply {
  std::vector<WorkerStatus> workers;
  std::int64_t next_rank = -1;
  std::int64_t now_us = 0;
  bool operator==(const WorkersReply&) const = default;
};
struct HistoryRequest {
  std::string job;
  std::uint64_t from_sequence = 0;
  std::uint32_t records_max = 0;
  std::uint64_t from_byte = 0;  // of the first record
  bool operator==(const HistoryRequest&) const = default;
};
struct StoredRecord {
  std::uint64_t sequence = 0;
  std::vector<std::uint8_t> bytes;
  bool operator==(const StoredRecord&) const = default;
};
struct HistoryReply {
  std::vector<StoredRecord> records;
  std::uint64_t next_sequence = 0;
  std::uint64_t bytes_left = 0;      // of the last record; ask for them with from_byte
  std::uint64_t first_sequence = 0;  // of what retention has left; 0: not said
  bool operator==(const HistoryReply&) const = default;
};
struct CreateJobRequest {
  std::string name;
  std::string policy;
  std::uint32_t expected_workers = 0;
  std::uint32_t min_workers = 0;
  bool operator==(const CreateJobRequest&) const = default;
};
struct StopJobRequest {
  std::string job;
  std::string reason;
  bool operator==(const StopJobRequest&) const = default;
};
struct Restarted {
  WorkerRef worker;
  std::int64_t iteration = 0;
  bool operator==(const Restarted&) const = default;
};
struct Targets {
  WorkerRef worker;
  std::int64_t iteration = 0;
  bool operator==(const Targets&) const = default;
};
struct TargetsReply {
  std::int64_t iteration = 0;
  std::vector<std::uint32_t> ranks;
  bool operator==(const TargetsReply&) const = default;
};
struct Collect {
  WorkerRef worker;
  std::int64_t iteration = 0;
  bool operator==(const Collect&) const = default;
};
struct PeerUpdate {
  std::uint32_t rank = 0;
  std::int64_t iteration = 0;
  double weight = 0;
  bool operator==(const PeerUpdate&) const = default;
};
struct CollectReply {
  std::int64_t iteration = 0;
  std::vector<PeerUpdate> updates;
  bool operator==(const CollectReply&) const = default;
};
struct Consumed {
  WorkerRef worker;
  std::int64_t iteration = 0;
  bool operator==(const Consumed&) const = default;
};
struct SetPolicyRequest {
  std::string job;
  std::string policy;
  bool operator==(const SetPolicyRequest&) const = default;
};

struct CheckpointRequest {
  std::string path;
  bool operator==(const CheckpointRequest&) const = default;
};

struct Phase {
  WorkerRef worker;
  std::string name;
  std::int64_t lease_us = 0;
  bool operator==(const Phase&) const = default;
};
struct MembersRequest {
  WorkerRef worker;
  std::uint32_t first_rank = 0;
  bool operator==(const MembersRequest&) const = default;
};
enum class MemberState : std::uint8_t { kActive = 0, kDisconnected = 1, kLeft = 2, kLost = 3 };
struct MemberStatus {
  std::uint32_t rank = 0;
  MemberState state = MemberState::kActive;
  std::int64_t clock = 0;
  std::string name;
  std::string host;
  std::vector<std::uint8_t> data;
  bool operator==(const MemberStatus&) const = default;
};
struct MembersReply {
  std::vector<MemberStatus> members;
  std::int64_t next_rank = -1;
  std::uint64_t version = 0;
  bool operator==(const MembersReply&) const = default;
};
struct MembersNotice {
  WorkerRef worker;
  std::uint64_t version = 0;
  bool operator==(const MembersNotice&) const = default;
};
struct PlanNotice {
  WorkerRef worker;
  std::int64_t iteration = 0;
  std::int64_t wait_us = 0;
  bool operator==(const PlanNotice&) const = default;
};

enum class WorkerAction : std::uint8_t { kDrain = 0, kKick = 1, kLease = 2 };
struct ManageWorkerRequest {
  std::string job;
  std::string worker;
  WorkerAction action = WorkerAction::kDrain;
  std::string text;
  std::int64_t lease_us = 0;
  bool operator==(const ManageWorkerRequest&) const = default;
};

struct Arrive {
  WorkerRef worker;
  std::int64_t iteration = 0;
  std::vector<std::uint8_t> data;
  bool operator==(const Arrive&) const = default;
};
struct ViewGranted {
  std::int64_t iteration = 0;
  std::uint32_t flags = 0;
  std::int64_t staleness = 0;
  std::uint64_t view = 0;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::vector<std::uint8_t> data;
  std::string reason;
  std::uint64_t checkpoint = 0;
  std::uint32_t shard = 0;
  std::uint32_t shards = 0;
  bool operator==(const ViewGranted&) const = default;
};
struct ViewRequest {
  WorkerRef worker;
  std::uint64_t view = 0;
  std::uint32_t first_rank = 0;
  bool operator==(const ViewRequest&) const = default;
};
struct ViewMember {
  std::uint32_t rank = 0;
  std::string name;
  std::string host;
  std::vector<std::uint8_t> data;
  bool operator==(const ViewMember&) const = default;
};
struct ViewReply {
  std::uint64_t view = 0;
  std::uint32_t size = 0;
  std::string reason;
  std::vector<ViewMember> members;
  std::int64_t next_rank = -1;
  bool operator==(const ViewReply&) const = default;
};
struct RoundNotice {
  WorkerRef worker;
  std::uint64_t round = 0;
  std::uint32_t gone = 0;
  std::uint32_t room = 0;
  bool operator==(const RoundNotice&) const = default;
};
struct ExcludeRequest {
  std::string job;
  std::string host;
  bool undo = false;
  bool force = false;
  std::string reason;
  bool operator==(const ExcludeRequest&) const = default;
};
struct Exchanging {
  WorkerRef worker;
  std::int64_t iteration = 0;
  std::int64_t for_us = 0;
  bool operator==(const Exchanging&) const = default;
};
struct HangNotice {
  WorkerRef worker;
  std::int32_t rank = -1;
  std::int64_t iteration = -1;
  std::int64_t waiting_us = 0;
  std::string text;
  bool operator==(const HangNotice&) const = default;
};
struct InspectNotice {
  WorkerRef worker;
  std::uint64_t number = 0;
  bool operator==(const InspectNotice&) const = default;
};
struct Inspected {
  WorkerRef worker;
  std::uint64_t number = 0;
  std::vector<std::uint8_t> text;
  bool operator==(const Inspected&) const = default;
};
struct InspectRequest {
  std::string job;
  std::string worker;
  bool stored = false;
  bool operator==(const InspectRequest&) const = default;
};
struct InspectReply {
  std::uint32_t rank = 0;
  std::string name;
  std::string host;
  std::string state;
  std::string stacks;
  std::string failure;
  std::int64_t at_us = -1;
  bool operator==(const InspectReply&) const = default;
};

// ---- agreed checkpoints
struct AskCheckpoint {
  WorkerRef worker;
  std::string reason;
  bool unless_broken = false;
  bool operator==(const AskCheckpoint&) const = default;
};
struct OrderCheckpoint {
  std::string job;
  std::string reason;
  bool operator==(const OrderCheckpoint&) const = default;
};
struct CheckpointAsked {
  std::uint64_t number = 0;
  bool operator==(const CheckpointAsked&) const = default;
};
struct Checkpointed {
  WorkerRef worker;
  std::uint64_t number = 0;
  std::uint32_t shard = 0;
  std::uint32_t shards = 0;
  std::string location;
  bool operator==(const Checkpointed&) const = default;
};
struct LatestCheckpoint {
  std::string job;
  std::uint32_t first_shard = 0;
  std::int64_t shards_max = -1;
  bool operator==(const LatestCheckpoint&) const = default;
};
struct CheckpointShard {
  std::uint32_t shard = 0;
  std::uint32_t rank = 0;
  std::int64_t iteration = 0;
  std::string location;
  bool operator==(const CheckpointShard&) const = default;
};
struct LatestCheckpointReply {
  std::uint64_t number = 0;
  std::uint64_t epoch = 0;
  std::int64_t iteration = 0;
  std::int64_t completed_us = 0;
  std::uint32_t shards = 0;
  std::vector<CheckpointShard> saved;
  std::int64_t next_shard = -1;
  std::uint64_t open = 0;
  std::string open_text;
  std::uint64_t closed = 0;
  std::string closed_reason;
  bool operator==(const LatestCheckpointReply&) const = default;
};

struct StragglerNotice {
  WorkerRef worker;
  std::uint32_t rank = 0;
  std::string name;
  std::string host;
  bool recovered = false;
  double factor = 0;
  std::int64_t since_us = -1;
  std::string host_note;
  bool operator==(const StragglerNotice&) const = default;
};

// A verified message of a type that this build does not know (a newer peer's).
struct Unknown {
  std::uint8_t type = 0;
  bool operator==(const Unknown&) const = default;
};

using Body =
    std::variant<Unknown, Hello, Welcome, Error, Ok, Join, Joined, Leave, Begin, Granted, Push,
                 Pushed, Explain, Explanation, CancelBegin, StopNotice, FencedNotice, ResyncNotice,
                 ShutdownNotice, Heartbeat, HeartbeatAck, StatusRequest, StatusReply, JobsRequest,
                 JobsReply, WorkersRequest, WorkersReply, HistoryRequest, HistoryReply,
                 CreateJobRequest, StopJobRequest, Restarted, Targets, TargetsReply, Collect,
                 CollectReply, Consumed, SetPolicyRequest, Phase, MembersRequest, MembersReply,
                 MembersNotice, PlanNotice, ManageWorkerRequest, CheckpointRequest, Arrive,
                 ViewGranted, ViewRequest, ViewReply, RoundNotice, ExcludeRequest, Exchanging,
                 HangNotice, InspectNotice, Inspected, InspectRequest, InspectReply, AskCheckpoint,
                 OrderCheckpoint, CheckpointAsked, Checkpointed, LatestCheckpoint,
                 LatestCheckpointReply, StragglerNotice, Redirect>;

struct Message {
  std::uint64_t id = 0;
  Body body;
  bool operator==(const Message&) const = default;
};

// The name of the message's type, such as "Begin"; "Unknown" for one this build does not know.
std::string_view body_name(const Body& body);

// The short cut of hot.h: appends the bytes that the generic encoder makes. False: the message has
// none: it is of another type, its id is 0, or it has a long list.
bool append_hot(std::uint64_t id, const Body& body, OutBuffer& out);

// Appends one frame (length prefix and message) to `out`. An Encoder keeps its scratch memory, so
// that encoding in a loop does not allocate; it may be used by one thread at a time.
class Encoder {
 public:
  Encoder();
  ~Encoder();
  Encoder(Encoder&&) noexcept;
  Encoder& operator=(Encoder&&) noexcept;

  // Precondition: message.body is not Unknown.
  void append(const Message& message, std::vector<std::uint8_t>& out) {
    append(message.id, message.body, out);
  }
  void append(std::uint64_t id, const Body& body, std::vector<std::uint8_t>& out);
  void append(std::uint64_t id, const Body& body, OutBuffer& out) {
    if (!append_hot(id, body, out)) append_generic(id, body, out);
  }
  // The same bytes, without the short cuts of hot.h.
  void append_generic(std::uint64_t id, const Body& body, std::vector<std::uint8_t>& out);
  void append_generic(std::uint64_t id, const Body& body, OutBuffer& out);

 private:
  std::span<const std::uint8_t> encode(std::uint64_t id, const Body& body);

  struct Impl;
  Impl* impl_;
};

// Verifies one frame's payload (without the length prefix) and turns it into a plain struct.
// Returns false, with a sentence in `error`, if it is not a valid Message: too deep, too many
// tables, bad offsets, no body, a text over 64 KiB, all over 1 MiB. Throws nothing but bad_alloc.
bool decode(std::span<const std::uint8_t> payload, Message& message, std::string& error);
// The same, without the short cuts of hot.h.
bool decode_generic(std::span<const std::uint8_t> payload, Message& message, std::string& error);

// Whether these bytes are a frame, no less and no more, of a usual size.
inline bool is_one_frame(std::span<const std::uint8_t> bytes) {
  return bytes.size() > 4 && bytes.size() < 256 && bytes[0] == bytes.size() - 4 &&
         (bytes[1] | bytes[2] | bytes[3]) == 0;
}

// Splits a byte stream into frames. Bytes are appended in pieces of any size; next() hands out the
// payload of each whole frame, valid until the next append() or next() call.
class FrameSplitter {
 public:
  enum class Result { kFrame, kNeedMore, kError };

  explicit FrameSplitter(std::size_t max_frame_bytes = kDefaultMaxFrameBytes)
      : max_frame_bytes_(max_frame_bytes) {}

  void append(std::span<const std::uint8_t> bytes);
  // On kError (a length of 0 or over the maximum) `error` names the length and what is allowed; the
  // stream cannot be used any further.
  Result next(std::span<const std::uint8_t>& payload, std::string& error);
  // For the frames that have not been made yet.
  void set_max_frame_bytes(std::size_t bytes) { max_frame_bytes_ = bytes; }
  // Bytes held that no frame has been made of yet.
  std::size_t pending_bytes() const { return buffer_.size() - read_; }
  // Memory that it takes.
  std::size_t held_bytes() const { return buffer_.capacity(); }

 private:
  std::size_t max_frame_bytes_;
  std::vector<std::uint8_t> buffer_;
  std::size_t read_ = 0;
};

}  // namespace syncd::wire
