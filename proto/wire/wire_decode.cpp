// Frames to plain structs: the one place where bytes from outside are verified. See wire.h.
#include <flatbuffers/flatbuffers.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "proto/wire/hot.h"
#include "proto/wire/wire.h"
#include "proto/wire/wire_generated.h"

namespace syncd::wire {
namespace {

// Our deepest message is Message -> WorkersReply -> [WorkerStatus]; the largest has a few hundred
// tables. A buffer beyond these is made to waste our time.
constexpr flatbuffers::uoffset_t kDepthMax = 16;
constexpr flatbuffers::uoffset_t kTablesMax = 4096;

// A text of a message, and all of them together. Offsets may point to one text many times, so that
// a small frame could otherwise ask for a gigabyte.
constexpr std::size_t kTextBytesMax = 64 * 1024;
constexpr std::size_t kAllTextBytesMax = 1024 * 1024;

// What reading one message may still copy; says why when it is not enough.
class Allowance {
 public:
  explicit Allowance(std::size_t frame_bytes) : left_(std::max(frame_bytes, kAllTextBytesMax)) {}

  bool take(std::size_t bytes, const char* what) {
    if (bytes > kTextBytesMax) {
      complain(std::string("it has a ") + what + " of " + std::to_string(bytes) +
               " bytes, allowed are " + std::to_string(kTextBytesMax));
      return false;
    }
    if (bytes > left_) {
      complain("its texts together are too long");
      return false;
    }
    left_ -= bytes;
    return true;
  }
  const std::string& problem() const { return problem_; }

 private:
  void complain(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  std::size_t left_;
  std::string problem_;
};

std::string text(Allowance& allowance, const flatbuffers::String* value) {
  if (value == nullptr || !allowance.take(value->size(), "text")) return {};
  return {value->data(), value->size()};
}

std::vector<std::uint8_t> blob(Allowance& allowance, const flatbuffers::Vector<std::uint8_t>* bytes,
                               const char* what) {
  if (bytes == nullptr || !allowance.take(bytes->size(), what)) return {};
  return {bytes->begin(), bytes->end()};
}

WorkerRef worker(const fb::WorkerRef* w) {
  return {w->job(), w->rank(), w->epoch(), w->incarnation()};
}

// Messages about a worker are nothing without it.
template <class Table>
bool has_worker(const Table* table, const char* name, std::string& error) {
  if (table->worker() != nullptr) return true;
  error = std::string(name) + " names no worker";
  return false;
}

WaitedFor read(Allowance& a, const fb::WaitedFor* t) {
  return {t->rank(),  text(a, t->name()),    text(a, t->host()),
          t->clock(), t->last_push_age_us(), text(a, t->state())};
}
JobStatus read(Allowance& a, const fb::JobStatus* t) {
  return {t->id(),        text(a, t->name()),    text(a, t->policy()), text(a, t->state()),
          t->epoch(),     t->expected_workers(), t->active_workers(),  t->clock_min(),
          t->clock_max(), t->pushes(),           t->waiting(),         text(a, t->note()),
          t->created_us()};
}
WorkerStatus read(Allowance& a, const fb::WorkerStatus* t) {
  return {t->rank(),
          text(a, t->name()),
          text(a, t->host()),
          text(a, t->state()),
          t->incarnation(),
          t->clock(),
          t->granted(),
          t->last_push_us(),
          t->connected(),
          t->waiting_us(),
          text(a, t->waiting_for()),
          text(a, t->reason()),
          t->warn_after_us(),
          t->evict_after_us(),
          text(a, t->late_rule()),
          t->heard_us(),
          blob(a, t->data(), "member's data")};
}
StoredRecord read(Allowance& a, const fb::StoredRecord* t) {
  return {t->sequence(), blob(a, t->bytes(), "stored record")};
}
MemberStatus read(Allowance& a, const fb::MemberStatus* t) {
  return {t->rank(),          static_cast<MemberState>(t->state()), t->clock(), text(a, t->name()),
          text(a, t->host()), blob(a, t->data(), "member's data")};
}
template <class Plain, class Vector>
std::vector<Plain> read_all(Allowance& a, const Vector* items) {
  std::vector<Plain> out;
  if (items == nullptr) return out;
  out.reserve(items->size());
  for (const auto* item : *items) out.push_back(read(a, item));
  return out;
}

Hello read(Allowance& a, const fb::Hello* t) {
  return {t->protocol_min(), t->protocol_max(), text(a, t->client_name()),
          text(a, t->client_version()), text(a, t->token())};
}
Welcome read(Allowance& a, const fb::Welcome* t) {
  return {t->protocol(),
          t->session(),
          text(a, t->server_version()),
          t->max_frame_bytes(),
          t->heartbeat_interval_ms(),
          t->heartbeat_timeout_ms()};
}
Join read(Allowance& a, const fb::Join* t) {
  return {text(a, t->job()),  text(a, t->policy()),
          text(a, t->name()), text(a, t->host()),
          t->rank(),          t->world_size(),
          t->incarnation(),   t->granted(),
          t->pushed(),        t->collected(),
          t->consumed(),      text(a, t->phase()),
          t->phase_left_us(), blob(a, t->data(), "member's data"),
          t->notices(),       t->epoch()};
}
Explanation read(Allowance& a, const fb::Explanation* t) {
  return {text(a, t->rule()),
          text(a, t->text()),
          t->iteration(),
          t->waiting_us(),
          t->waited_for_count(),
          text(a, t->ranks()),
          read_all<WaitedFor>(a, t->workers())};
}
StatusReply read(Allowance& a, const fb::StatusReply* t) {
  return {text(a, t->server_version()),
          t->pid(),
          t->started_us(),
          t->now_us(),
          text(a, t->store()),
          text(a, t->mode()),
          t->sessions(),
          t->jobs(),
          t->workers(),
          t->pushes(),
          t->frames_in(),
          t->frames_out(),
          t->read_only(),
          text(a, t->store_error()),
          t->store_error_since_us(),
          t->commit_failures(),
          t->records_removed()};
}

// Fills `body` from a verified union of a known type. False: a required part is missing.
bool read_body(Allowance& a, const fb::Message* m, Body& body, std::string& error) {
  switch (m->body_type()) {
    case fb::Body::NONE:
      break;
    case fb::Body::Hello:
      body = read(a, m->body_as_Hello());
      return true;
    case fb::Body::Welcome:
      body = read(a, m->body_as_Welcome());
      return true;
    case fb::Body::Error: {
      const auto* t = m->body_as_Error();
      body = Error{static_cast<Status>(t->status()), text(a, t->message())};
      return true;
    }
    case fb::Body::Ok:
      body = Ok{};
      return true;
    case fb::Body::Join:
      body = read(a, m->body_as_Join());
      return true;
    case fb::Body::Joined: {
      const auto* t = m->body_as_Joined();
      if (!has_worker(t, "Joined", error)) return false;
      body =
          Joined{worker(t->worker()), t->iteration(), text(a, t->policy()), t->world_size(),
                 t->durable(),        t->resumed(),   t->members_version(), t->worker_grace_us()};
      return true;
    }
    case fb::Body::Leave: {
      const auto* t = m->body_as_Leave();
      if (!has_worker(t, "Leave", error)) return false;
      body = Leave{worker(t->worker())};
      return true;
    }
    case fb::Body::Begin: {
      const auto* t = m->body_as_Begin();
      if (!has_worker(t, "Begin", error)) return false;
      body = Begin{worker(t->worker()), t->iteration()};
      return true;
    }
    case fb::Body::Granted: {
      const auto* t = m->body_as_Granted();
      body = Granted{t->iteration(), t->flags(), t->staleness()};
      return true;
    }
    case fb::Body::Push: {
      const auto* t = m->body_as_Push();
      if (!has_worker(t, "Push", error)) return false;
      Push push{worker(t->worker()), t->iteration(), std::nullopt, t->samples(), t->bytes()};
      if (const auto loss = t->loss()) push.loss = *loss;
      body = push;
      return true;
    }
    case fb::Body::Pushed: {
      const auto* t = m->body_as_Pushed();
      body = Pushed{t->iteration(), t->late(), t->duplicate()};
      return true;
    }
    case fb::Body::Explain: {
      const auto* t = m->body_as_Explain();
      if (!has_worker(t, "Explain", error)) return false;
      body = Explain{worker(t->worker())};
      return true;
    }
    case fb::Body::Explanation:
      body = read(a, m->body_as_Explanation());
      return true;
    case fb::Body::CancelBegin: {
      const auto* t = m->body_as_CancelBegin();
      if (!has_worker(t, "CancelBegin", error)) return false;
      body = CancelBegin{worker(t->worker()), t->iteration()};
      return true;
    }
    case fb::Body::StopNotice: {
      const auto* t = m->body_as_StopNotice();
      if (!has_worker(t, "StopNotice", error)) return false;
      body = StopNotice{worker(t->worker()), text(a, t->message())};
      return true;
    }
    case fb::Body::FencedNotice: {
      const auto* t = m->body_as_FencedNotice();
      if (!has_worker(t, "FencedNotice", error)) return false;
      body = FencedNotice{worker(t->worker()), text(a, t->message())};
      return true;
    }
    case fb::Body::ResyncNotice: {
      const auto* t = m->body_as_ResyncNotice();
      if (!has_worker(t, "ResyncNotice", error)) return false;
      body = ResyncNotice{worker(t->worker()), t->iteration()};
      return true;
    }
    case fb::Body::ShutdownNotice:
      body = ShutdownNotice{text(a, m->body_as_ShutdownNotice()->message())};
      return true;
    case fb::Body::Heartbeat:
      body = Heartbeat{};
      return true;
    case fb::Body::HeartbeatAck:
      body = HeartbeatAck{};
      return true;
    case fb::Body::StatusRequest:
      body = StatusRequest{};
      return true;
    case fb::Body::StatusReply:
      body = read(a, m->body_as_StatusReply());
      return true;
    case fb::Body::JobsRequest:
      body = JobsRequest{};
      return true;
    case fb::Body::JobsReply: {
      const auto* t = m->body_as_JobsReply();
      body = JobsReply{read_all<JobStatus>(a, t->jobs()), t->omitted()};
      return true;
    }
    case fb::Body::WorkersRequest: {
      const auto* t = m->body_as_WorkersRequest();
      body = WorkersRequest{text(a, t->job()), t->first_rank(), t->with_data()};
      return true;
    }
    case fb::Body::WorkersReply: {
      const auto* t = m->body_as_WorkersReply();
      body = WorkersReply{read_all<WorkerStatus>(a, t->workers()), t->next_rank(), t->now_us()};
      return true;
    }
    case fb::Body::HistoryRequest: {
      const auto* t = m->body_as_HistoryRequest();
      body =
          HistoryRequest{text(a, t->job()), t->from_sequence(), t->records_max(), t->from_byte()};
      return true;
    }
    case fb::Body::HistoryReply: {
      const auto* t = m->body_as_HistoryReply();
      body = HistoryReply{read_all<StoredRecord>(a, t->records()), t->next_sequence(),
                          t->bytes_left(), t->first_sequence()};
      return true;
    }
    case fb::Body::CreateJobRequest: {
      const auto* t = m->body_as_CreateJobRequest();
      body = CreateJobRequest{text(a, t->name()), text(a, t->policy()), t->expected_workers(),
                              t->min_workers()};
      return true;
    }
    case fb::Body::StopJobRequest: {
      const auto* t = m->body_as_StopJobRequest();
      body = StopJobRequest{text(a, t->job()), text(a, t->reason())};
      return true;
    }
    case fb::Body::Restarted: {
      const auto* t = m->body_as_Restarted();
      if (!has_worker(t, "Restarted", error)) return false;
      body = Restarted{worker(t->worker()), t->iteration()};
      return true;
    }
    case fb::Body::Targets: {
      const auto* t = m->body_as_Targets();
      if (!has_worker(t, "Targets", error)) return false;
      body = Targets{worker(t->worker()), t->iteration()};
      return true;
    }
    case fb::Body::TargetsReply: {
      const auto* t = m->body_as_TargetsReply();
      TargetsReply reply{t->iteration(), {}};
      if (t->ranks() != nullptr) reply.ranks.assign(t->ranks()->begin(), t->ranks()->end());
      body = std::move(reply);
      return true;
    }
    case fb::Body::Collect: {
      const auto* t = m->body_as_Collect();
      if (!has_worker(t, "Collect", error)) return false;
      body = Collect{worker(t->worker()), t->iteration()};
      return true;
    }
    case fb::Body::CollectReply: {
      const auto* t = m->body_as_CollectReply();
      CollectReply reply{t->iteration(), {}};
      if (t->updates() != nullptr) {
        // The verifier looks at where a list's length is, not at where its structs are.
        if (reinterpret_cast<std::uintptr_t>(t->updates()->Data()) % alignof(fb::PeerUpdate) != 0) {
          error = "CollectReply has a list at a wrong place";
          return false;
        }
        reply.updates.reserve(t->updates()->size());
        for (const fb::PeerUpdate* u : *t->updates()) {
          reply.updates.push_back({u->rank(), u->iteration(), u->weight()});
        }
      }
      body = std::move(reply);
      return true;
    }
    case fb::Body::Consumed: {
      const auto* t = m->body_as_Consumed();
      if (!has_worker(t, "Consumed", error)) return false;
      body = Consumed{worker(t->worker()), t->iteration()};
      return true;
    }
    case fb::Body::SetPolicyRequest: {
      const auto* t = m->body_as_SetPolicyRequest();
      body = SetPolicyRequest{text(a, t->job()), text(a, t->policy())};
      return true;
    }
    case fb::Body::CheckpointRequest: {
      const auto* t = m->body_as_CheckpointRequest();
      body = CheckpointRequest{text(a, t->path())};
      return true;
    }
    case fb::Body::Phase: {
      const auto* t = m->body_as_Phase();
      if (!has_worker(t, "Phase", error)) return false;
      body = Phase{worker(t->worker()), text(a, t->name()), t->lease_us()};
      return true;
    }
    case fb::Body::MembersRequest: {
      const auto* t = m->body_as_MembersRequest();
      if (!has_worker(t, "MembersRequest", error)) return false;
      body = MembersRequest{worker(t->worker()), t->first_rank()};
      return true;
    }
    case fb::Body::MembersReply: {
      const auto* t = m->body_as_MembersReply();
      body = MembersReply{read_all<MemberStatus>(a, t->members()), t->next_rank(), t->version()};
      return true;
    }
    case fb::Body::MembersNotice: {
      const auto* t = m->body_as_MembersNotice();
      if (!has_worker(t, "MembersNotice", error)) return false;
      body = MembersNotice{worker(t->worker()), t->version()};
      return true;
    }
    case fb::Body::PlanNotice: {
      const auto* t = m->body_as_PlanNotice();
      if (!has_worker(t, "PlanNotice", error)) return false;
      body = PlanNotice{worker(t->worker()), t->iteration(), t->wait_us()};
      return true;
    }
    case fb::Body::ManageWorkerRequest: {
      const auto* t = m->body_as_ManageWorkerRequest();
      body = ManageWorkerRequest{text(a, t->job()), text(a, t->worker()),
                                 static_cast<WorkerAction>(t->action()), text(a, t->text()),
                                 t->lease_us()};
      return true;
    }
  }
  error = "it has no body";
  return false;
}

bool decode_aligned(const std::uint8_t* frame, std::size_t bytes, Message& message,
                    std::string& error) {
  flatbuffers::Verifier verifier(frame, bytes, kDepthMax, kTablesMax);
  if (!fb::VerifySizePrefixedMessageBuffer(verifier)) {
    error = "it is not a valid message of this protocol";
    return false;
  }
  const fb::Message* m = fb::GetSizePrefixedMessage(frame);
  if (m->body() == nullptr || m->body_type() == fb::Body::NONE) {
    error = "it has no body";
    return false;
  }
  message.id = m->id();
  if (m->body_type() > fb::Body::MAX) {
    message.body = Unknown{static_cast<std::uint8_t>(m->body_type())};
    return true;
  }
  Allowance allowance(bytes);
  if (!read_body(allowance, m, message.body, error)) return false;
  if (allowance.problem().empty()) return true;
  error = allowance.problem();
  return false;
}

}  // namespace

bool decode(std::span<const std::uint8_t> payload, Message& message, std::string& error) {
  return decode_hot(payload, message) || decode_generic(payload, message, error);
}

bool decode_generic(std::span<const std::uint8_t> payload, Message& message, std::string& error) {
  // A frame lies anywhere in a stream, but its numbers must be aligned to be read: it is copied to
  // an aligned place, with its prefix in front, as the sender had it.
  constexpr std::size_t kPrefix = sizeof(std::uint32_t);
  constexpr std::size_t kPayloadMin = 2 * sizeof(std::uint32_t);  // root offset and identifier
  constexpr std::size_t kPayloadMax = std::size_t{1} << 30;       // the verifier takes below 2 GiB
  if (payload.size() < kPayloadMin || payload.size() > kPayloadMax) {
    error = "it is " + std::to_string(payload.size()) + " bytes long, a message has " +
            std::to_string(kPayloadMin) + " to " + std::to_string(kPayloadMax);
    return false;
  }
  const auto place = [&](std::uint64_t* words) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(words);
    const auto length = static_cast<std::uint32_t>(payload.size());
    flatbuffers::WriteScalar(bytes, length);
    std::memcpy(bytes + kPrefix, payload.data(), payload.size());
    return decode_aligned(bytes, kPrefix + payload.size(), message, error);
  };
  std::array<std::uint64_t, 128> small;
  if (kPrefix + payload.size() <= sizeof small) return place(small.data());
  std::vector<std::uint64_t> large((kPrefix + payload.size() + 7) / 8);
  return place(large.data());
}

}  // namespace syncd::wire
