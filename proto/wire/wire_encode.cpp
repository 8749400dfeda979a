// Plain structs to frames. See wire.h.
#include <flatbuffers/flatbuffers.h>

#include <type_traits>
#include <utility>

#include "proto/base/check.h"
#include "proto/wire/hot.h"
#include "proto/wire/wire.h"
#include "proto/wire/wire_generated.h"

namespace syncd::wire {
namespace {

using Builder = flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::String;

// The union's number of a table, whatever the order of types in the union and in Body.
template <class Table>
constexpr fb::Body body_type(Offset<Table>) {
  return fb::BodyTraits<Table>::enum_value;
}

// An empty string is left out; the decoder reads a missing one as empty.
Offset<String> text(Builder& b, const std::string& value) {
  return value.empty() ? Offset<String>{} : b.CreateString(value);
}

fb::WorkerRef worker(const WorkerRef& w) {
  return {w.job, w.rank, w.epoch, w.incarnation};
}

// So are no bytes.
Offset<flatbuffers::Vector<std::uint8_t>> blob(Builder& b, const std::vector<std::uint8_t>& bytes) {
  return bytes.empty() ? Offset<flatbuffers::Vector<std::uint8_t>>{} : b.CreateVector(bytes);
}

// One overload per message: writes its table. What FlatBuffers calls a struct is copied inline.
Offset<fb::Hello> write(Builder& b, const Hello& m) {
  const auto name = text(b, m.client_name);
  const auto version = text(b, m.client_version);
  const auto token = text(b, m.token);
  return fb::CreateHello(b, m.protocol_min, m.protocol_max, name, version, token);
}
Offset<fb::Welcome> write(Builder& b, const Welcome& m) {
  const auto version = text(b, m.server_version);
  return fb::CreateWelcome(b, m.protocol, m.session, version, m.max_frame_bytes,
                           m.heartbeat_interval_ms, m.heartbeat_timeout_ms);
}
Offset<fb::Error> write(Builder& b, const Error& m) {
  return fb::CreateError(b, static_cast<std::int32_t>(m.status), text(b, m.message));
}
Offset<fb::Ok> write(Builder& b, const Ok&) {
  return fb::CreateOk(b);
}
Offset<fb::Join> write(Builder& b, const Join& m) {
  const auto job = text(b, m.job);
  const auto policy = text(b, m.policy);
  const auto name = text(b, m.name);
  const auto host = text(b, m.host);
  const auto phase = text(b, m.phase);
  const auto data = blob(b, m.data);
  return fb::CreateJoin(b, job, policy, name, host, m.rank, m.world_size, m.incarnation, m.granted,
                        m.pushed, m.collected, m.consumed, phase, m.phase_left_us, data, m.notices,
                        m.epoch);
}
Offset<fb::Joined> write(Builder& b, const Joined& m) {
  const auto policy = text(b, m.policy);
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateJoined(b, &ref, m.iteration, policy, m.world_size, m.durable, m.resumed,
                          m.members_version, m.worker_grace_us);
}
Offset<fb::Leave> write(Builder& b, const Leave& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateLeave(b, &ref);
}
Offset<fb::Begin> write(Builder& b, const Begin& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateBegin(b, &ref, m.iteration);
}
Offset<fb::Granted> write(Builder& b, const Granted& m) {
  return fb::CreateGranted(b, m.iteration, m.flags, m.staleness);
}
Offset<fb::Push> write(Builder& b, const Push& m) {
  const fb::WorkerRef ref = worker(m.worker);
  fb::PushBuilder push(b);
  push.add_bytes(m.bytes);
  push.add_samples(m.samples);
  if (m.loss) push.add_loss(*m.loss);
  push.add_iteration(m.iteration);
  push.add_worker(&ref);
  return push.Finish();
}
Offset<fb::Pushed> write(Builder& b, const Pushed& m) {
  return fb::CreatePushed(b, m.iteration, m.late, m.duplicate);
}
Offset<fb::Explain> write(Builder& b, const Explain& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateExplain(b, &ref);
}
Offset<fb::WaitedFor> write(Builder& b, const WaitedFor& m) {
  const auto name = text(b, m.name);
  const auto host = text(b, m.host);
  const auto state = text(b, m.state);
  return fb::CreateWaitedFor(b, m.rank, name, host, m.clock, m.last_push_age_us, state);
}
Offset<fb::JobStatus> write(Builder& b, const JobStatus& m) {
  const auto name = text(b, m.name);
  const auto policy = text(b, m.policy);
  const auto state = text(b, m.state);
  const auto note = text(b, m.note);
  return fb::CreateJobStatus(b, m.id, name, policy, state, m.epoch, m.expected_workers,
                             m.active_workers, m.clock_min, m.clock_max, m.pushes, m.waiting, note,
                             m.created_us);
}
Offset<fb::WorkerStatus> write(Builder& b, const WorkerStatus& m) {
  const auto name = text(b, m.name);
  const auto host = text(b, m.host);
  const auto state = text(b, m.state);
  const auto waiting_for = text(b, m.waiting_for);
  const auto reason = text(b, m.reason);
  const auto late_rule = text(b, m.late_rule);
  const auto data = blob(b, m.data);
  return fb::CreateWorkerStatus(b, m.rank, name, host, state, m.incarnation, m.clock, m.granted,
                                m.last_push_us, m.connected, m.waiting_us, waiting_for, reason,
                                m.warn_after_us, m.evict_after_us, late_rule, m.heard_us, data);
}
Offset<fb::StoredRecord> write(Builder& b, const StoredRecord& m) {
  return fb::CreateStoredRecord(b, m.sequence, b.CreateVector(m.bytes));
}
Offset<fb::MemberStatus> write(Builder& b, const MemberStatus& m) {
  const auto name = text(b, m.name);
  const auto host = text(b, m.host);
  const auto data = blob(b, m.data);
  return fb::CreateMemberStatus(b, m.rank, static_cast<fb::MemberState>(m.state), m.clock, name,
                                host, data);
}
template <class Table, class Plain>
Offset<flatbuffers::Vector<Offset<Table>>> write_all(Builder& b, const std::vector<Plain>& items) {
  std::vector<Offset<Table>> offsets;
  offsets.reserve(items.size());
  for (const Plain& item : items) offsets.push_back(write(b, item));
  return b.CreateVector(offsets);
}
Offset<fb::Explanation> write(Builder& b, const Explanation& m) {
  const auto rule = text(b, m.rule);
  const auto sentence = text(b, m.text);
  const auto ranks = text(b, m.ranks);
  const auto workers = write_all<fb::WaitedFor>(b, m.workers);
  return fb::CreateExplanation(b, rule, sentence, m.iteration, m.waiting_us, m.waited_for_count,
                               ranks, workers);
}
Offset<fb::CancelBegin> write(Builder& b, const CancelBegin& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateCancelBegin(b, &ref, m.iteration);
}
Offset<fb::StopNotice> write(Builder& b, const StopNotice& m) {
  const auto message = text(b, m.message);
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateStopNotice(b, &ref, message);
}
Offset<fb::FencedNotice> write(Builder& b, const FencedNotice& m) {
  const auto message = text(b, m.message);
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateFencedNotice(b, &ref, message);
}
Offset<fb::ResyncNotice> write(Builder& b, const ResyncNotice& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateResyncNotice(b, &ref, m.iteration);
}
Offset<fb::ShutdownNotice> write(Builder& b, const ShutdownNotice& m) {
  return fb::CreateShutdownNotice(b, text(b, m.message));
}
Offset<fb::Heartbeat> write(Builder& b, const Heartbeat&) {
  return fb::CreateHeartbeat(b);
}
Offset<fb::HeartbeatAck> write(Builder& b, const HeartbeatAck&) {
  return fb::CreateHeartbeatAck(b);
}
Offset<fb::StatusRequest> write(Builder& b, const StatusRequest&) {
  return fb::CreateStatusRequest(b);
}
Offset<fb::StatusReply> write(Builder& b, const StatusReply& m) {
  const auto version = text(b, m.server_version);
  const auto store = text(b, m.store);
  const auto mode = text(b, m.mode);
  const auto store_error = text(b, m.store_error);
  return fb::CreateStatusReply(b, version, m.pid, m.started_us, m.now_us, store, mode, m.sessions,
                               m.jobs, m.workers, m.pushes, m.frames_in, m.frames_out, m.read_only,
                               store_error, m.store_error_since_us, m.commit_failures,
                               m.records_removed);
}
Offset<fb::JobsRequest> write(Builder& b, const JobsRequest&) {
  return fb::CreateJobsRequest(b);
}
Offset<fb::JobsReply> write(Builder& b, const JobsReply& m) {
  return fb::CreateJobsReply(b, write_all<fb::JobStatus>(b, m.jobs), m.omitted);
}
Offset<fb::WorkersRequest> write(Builder& b, const WorkersRequest& m) {
  return fb::CreateWorkersRequest(b, text(b, m.job), m.first_rank, m.with_data);
}
Offset<fb::WorkersReply> write(Builder& b, const WorkersReply& m) {
  const auto workers = write_all<fb::WorkerStatus>(b, m.workers);
  return fb::CreateWorkersReply(b, workers, m.next_rank, m.now_us);
}
Offset<fb::HistoryRequest> write(Builder& b, const HistoryRequest& m) {
  return fb::CreateHistoryRequest(b, text(b, m.job), m.from_sequence, m.records_max, m.from_byte);
}
Offset<fb::HistoryReply> write(Builder& b, const HistoryReply& m) {
  const auto records = write_all<fb::StoredRecord>(b, m.records);
  return fb::CreateHistoryReply(b, records, m.next_sequence, m.bytes_left, m.first_sequence);
}
Offset<fb::CreateJobRequest> write(Builder& b, const CreateJobRequest& m) {
  const auto name = text(b, m.name);
  const auto policy = text(b, m.policy);
  return fb::CreateCreateJobRequest(b, name, policy, m.expected_workers, m.min_workers);
}
Offset<fb::StopJobRequest> write(Builder& b, const StopJobRequest& m) {
  const auto job = text(b, m.job);
  const auto reason = text(b, m.reason);
  return fb::CreateStopJobRequest(b, job, reason);
}
Offset<fb::Restarted> write(Builder& b, const Restarted& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateRestarted(b, &ref, m.iteration);
}
Offset<fb::Targets> write(Builder& b, const Targets& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateTargets(b, &ref, m.iteration);
}
Offset<fb::TargetsReply> write(Builder& b, const TargetsReply& m) {
  return fb::CreateTargetsReply(b, m.iteration, b.CreateVector(m.ranks));
}
Offset<fb::Collect> write(Builder& b, const Collect& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateCollect(b, &ref, m.iteration);
}
Offset<fb::CollectReply> write(Builder& b, const CollectReply& m) {
  std::vector<fb::PeerUpdate> updates;
  updates.reserve(m.updates.size());
  for (const PeerUpdate& u : m.updates) updates.emplace_back(u.rank, u.iteration, u.weight);
  return fb::CreateCollectReply(b, m.iteration, b.CreateVectorOfStructs(updates));
}
Offset<fb::Consumed> write(Builder& b, const Consumed& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateConsumed(b, &ref, m.iteration);
}
Offset<fb::SetPolicyRequest> write(Builder& b, const SetPolicyRequest& m) {
  const auto job = text(b, m.job);
  const auto policy = text(b, m.policy);
  return fb::CreateSetPolicyRequest(b, job, policy);
}
Offset<fb::CheckpointRequest> write(Builder& b, const CheckpointRequest& m) {
  return fb::CreateCheckpointRequest(b, text(b, m.path));
}
Offset<fb::Phase> write(Builder& b, const Phase& m) {
  const auto name = text(b, m.name);
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreatePhase(b, &ref, name, m.lease_us);
}
Offset<fb::MembersRequest> write(Builder& b, const MembersRequest& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateMembersRequest(b, &ref, m.first_rank);
}
Offset<fb::MembersReply> write(Builder& b, const MembersReply& m) {
  const auto members = write_all<fb::MemberStatus>(b, m.members);
  return fb::CreateMembersReply(b, members, m.next_rank, m.version);
}
Offset<fb::MembersNotice> write(Builder& b, const MembersNotice& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreateMembersNotice(b, &ref, m.version);
}
Offset<fb::PlanNotice> write(Builder& b, const PlanNotice& m) {
  const fb::WorkerRef ref = worker(m.worker);
  return fb::CreatePlanNotice(b, &ref, m.iteration, m.wait_us);
}
Offset<fb::ManageWorkerRequest> write(Builder& b, const ManageWorkerRequest& m) {
  const auto job = text(b, m.job);
  const auto worker = text(b, m.worker);
  const auto note = text(b, m.text);
  return fb::CreateManageWorkerRequest(b, job, worker, static_cast<fb::WorkerAction>(m.action),
                                       note, m.lease_us);
}

}  // namespace

struct Encoder::Impl {
  Builder builder{1024};
};

Encoder::Encoder() : impl_(new Impl) {}
Encoder::~Encoder() {
  delete impl_;
}
Encoder::Encoder(Encoder&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
Encoder& Encoder::operator=(Encoder&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

void Encoder::append(std::uint64_t id, const Body& body, std::vector<std::uint8_t>& out) {
  if (!append_hot(id, body, out)) append_generic(id, body, out);
}

void Encoder::append_generic(std::uint64_t id, const Body& message,
                             std::vector<std::uint8_t>& out) {
  SYNCD_CHECK(!std::holds_alternative<Unknown>(message));
  Builder& b = impl_->builder;
  b.Clear();
  std::visit(
      [&](const auto& body) {
        using Plain = std::decay_t<decltype(body)>;
        if constexpr (!std::is_same_v<Plain, Unknown>) {
          const auto table = write(b, body);
          const auto root = fb::CreateMessage(b, id, body_type(table), table.Union());
          b.FinishSizePrefixed(root, fb::MessageIdentifier());
          out.insert(out.end(), b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize());
        }
      },
      message);
}

}  // namespace syncd::wire
