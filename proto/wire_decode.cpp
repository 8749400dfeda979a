// Frames to plain structs: the one place where bytes from outside are verified. See wire.h.
#include <flatbuffers/flatbuffers.h>

#include <array>
#include <cstring>

#include "proto/wire.h"
#include "proto/wire_generated.h"

namespace syncd::wire {
namespace {

// Our deepest message is Message -> WorkersReply -> [WorkerStatus]; the largest has a few hundred
// tables. A buffer beyond these is made to waste our time.
constexpr flatbuffers::uoffset_t kDepthMax = 16;
constexpr flatbuffers::uoffset_t kTablesMax = 4096;

std::string text(const flatbuffers::String* value) {
  return value == nullptr ? std::string{} : std::string(value->data(), value->size());
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

WaitedFor read(const fb::WaitedFor* t) {
  return {t->rank(),  text(t->name()),       text(t->host()),
          t->clock(), t->last_push_age_us(), text(t->state())};
}
JobStatus read(const fb::JobStatus* t) {
  return {t->id(),        text(t->name()),       text(t->policy()),   text(t->state()),
          t->epoch(),     t->expected_workers(), t->active_workers(), t->clock_min(),
          t->clock_max(), t->pushes(),           t->waiting(),        text(t->note()),
          t->created_us()};
}
WorkerStatus read(const fb::WorkerStatus* t) {
  return {t->rank(),        text(t->name()), text(t->host()),        text(t->state()),
          t->incarnation(), t->clock(),      t->granted(),           t->last_push_us(),
          t->connected(),   t->waiting_us(), text(t->waiting_for()), text(t->reason())};
}
StoredRecord read(const fb::StoredRecord* t) {
  StoredRecord out;
  out.sequence = t->sequence();
  if (t->bytes() != nullptr) out.bytes.assign(t->bytes()->begin(), t->bytes()->end());
  return out;
}
template <class Plain, class Vector>
std::vector<Plain> read_all(const Vector* items) {
  std::vector<Plain> out;
  if (items == nullptr) return out;
  out.reserve(items->size());
  for (const auto* item : *items) out.push_back(read(item));
  return out;
}

Hello read(const fb::Hello* t) {
  return {t->protocol_min(), t->protocol_max(), text(t->client_name()), text(t->client_version()),
          text(t->token())};
}
Welcome read(const fb::Welcome* t) {
  return {t->protocol(),
          t->session(),
          text(t->server_version()),
          t->max_frame_bytes(),
          t->heartbeat_interval_ms(),
          t->heartbeat_timeout_ms()};
}
Join read(const fb::Join* t) {
  return {text(t->job()), text(t->policy()), text(t->name()),  text(t->host()),
          t->rank(),      t->world_size(),   t->incarnation(), t->granted(),
          t->pushed(),    t->collected(),    t->consumed()};
}
Explanation read(const fb::Explanation* t) {
  return {text(t->rule()),
          text(t->text()),
          t->iteration(),
          t->waiting_us(),
          t->waited_for_count(),
          text(t->ranks()),
          read_all<WaitedFor>(t->workers())};
}
StatusReply read(const fb::StatusReply* t) {
  return {text(t->server_version()),
          t->pid(),
          t->started_us(),
          t->now_us(),
          text(t->store()),
          text(t->mode()),
          t->sessions(),
          t->jobs(),
          t->workers(),
          t->pushes(),
          t->frames_in(),
          t->frames_out(),
          t->read_only()};
}

// Fills `body` from a verified union of a known type. False: a required part is missing.
bool read_body(const fb::Message* m, Body& body, std::string& error) {
  switch (m->body_type()) {
    case fb::Body::NONE:
      break;
    case fb::Body::Hello:
      body = read(m->body_as_Hello());
      return true;
    case fb::Body::Welcome:
      body = read(m->body_as_Welcome());
      return true;
    case fb::Body::Error: {
      const auto* t = m->body_as_Error();
      body = Error{static_cast<Status>(t->status()), text(t->message())};
      return true;
    }
    case fb::Body::Ok:
      body = Ok{};
      return true;
    case fb::Body::Join:
      body = read(m->body_as_Join());
      return true;
    case fb::Body::Joined: {
      const auto* t = m->body_as_Joined();
      if (!has_worker(t, "Joined", error)) return false;
      body = Joined{worker(t->worker()), t->iteration(), text(t->policy()),
                    t->world_size(),     t->durable(),   t->resumed()};
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
      body = read(m->body_as_Explanation());
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
      body = StopNotice{worker(t->worker()), text(t->message())};
      return true;
    }
    case fb::Body::FencedNotice: {
      const auto* t = m->body_as_FencedNotice();
      if (!has_worker(t, "FencedNotice", error)) return false;
      body = FencedNotice{worker(t->worker()), text(t->message())};
      return true;
    }
    case fb::Body::ResyncNotice: {
      const auto* t = m->body_as_ResyncNotice();
      if (!has_worker(t, "ResyncNotice", error)) return false;
      body = ResyncNotice{worker(t->worker()), t->iteration()};
      return true;
    }
    case fb::Body::ShutdownNotice:
      body = ShutdownNotice{text(m->body_as_ShutdownNotice()->message())};
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
      body = read(m->body_as_StatusReply());
      return true;
    case fb::Body::JobsRequest:
      body = JobsRequest{};
      return true;
    case fb::Body::JobsReply:
      body = JobsReply{read_all<JobStatus>(m->body_as_JobsReply()->jobs())};
      return true;
    case fb::Body::WorkersRequest: {
      const auto* t = m->body_as_WorkersRequest();
      body = WorkersRequest{text(t->job()), t->first_rank()};
      return true;
    }
    case fb::Body::WorkersReply: {
      const auto* t = m->body_as_WorkersReply();
      body = WorkersReply{read_all<WorkerStatus>(t->workers()), t->next_rank(), t->now_us()};
      return true;
    }
    case fb::Body::HistoryRequest: {
      const auto* t = m->body_as_HistoryRequest();
      body = HistoryRequest{text(t->job()), t->from_sequence(), t->records_max()};
      return true;
    }
    case fb::Body::HistoryReply: {
      const auto* t = m->body_as_HistoryReply();
      body = HistoryReply{read_all<StoredRecord>(t->records()), t->next_sequence()};
      return true;
    }
    case fb::Body::CreateJobRequest: {
      const auto* t = m->body_as_CreateJobRequest();
      body = CreateJobRequest{text(t->name()), text(t->policy()), t->expected_workers(),
                              t->min_workers()};
      return true;
    }
    case fb::Body::StopJobRequest: {
      const auto* t = m->body_as_StopJobRequest();
      body = StopJobRequest{text(t->job()), text(t->reason())};
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
  message.id = m->id();
  if (m->body_type() > fb::Body::MAX) {
    message.body = Unknown{static_cast<std::uint8_t>(m->body_type())};
    return true;
  }
  if (m->body() == nullptr) {
    error = "it has no body";
    return false;
  }
  return read_body(m, message.body, error);
}

}  // namespace

bool decode(std::span<const std::uint8_t> payload, Message& message, std::string& error) {
  // A frame lies anywhere in a stream, but its numbers must be aligned to be read: it is copied to
  // an aligned place, with its prefix in front, as the sender had it.
  constexpr std::size_t kPrefix = sizeof(std::uint32_t);
  if (payload.size() < kPrefix || payload.size() > UINT32_MAX) {
    error = "it is " + std::to_string(payload.size()) + " bytes long, too short for a message";
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
