// Every message has a row here: who may send it, where it names its job and who answers it. The
// session, the server, the engine and the fuzz targets go by it. To add a message:
//  1. proto/wire/wire.fbs and wire.h: last of Body. Its fields, in proto/wire/fields.h, or nothing
//     compiles. proto_test compares them with the schema and asks for a sample in
//     tests/unit/proto/samples.h; SYNCD_REWRITE_GOLDEN=1 makes its golden bytes.
//  2. A row below. Without it nothing that includes this file compiles.
//  3. If the server sees it: Server::handle(), in a file handle_*.cpp. The compiler asks for it.
//  4. If the engine answers it: Engine::handle(), for which a static_assert asks. One of a worker
//     (Asker::kItsWorker) goes to on() of the job or its loop, which Engine::route() calls.
//  5. If it is audited: audit_fields(), in audit.cpp. The compiler asks for it.
//  6. A row of the table in tests/unit/server/messages_test.cpp, with which server_test fails
//     otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "proto/wire/wire.h"

namespace syncd {

// Who may ask; each is a narrower circle than the one before.
enum class Asker : std::uint8_t {
  kAnybody,
  kItsWorker,      // who has joined as the message's `worker`, over the same connection
  kJobUser,        // who may use the job (auth.allow)
  kAdministrator,  // who may change the job (auth.admin), over the control socket if there is one
  kOwner,          // likewise, if the rules name them; without rules, who is on this machine
};
enum class Answerer : std::uint8_t {
  kNotAllowed,   // only the daemon sends it
  kHandshake,    // the session, as the next three
  kHeartbeat,    // with a HeartbeatAck
  kNobody,       // nothing needs to happen
  kUnsupported,  // this build does not know the type: an error, or nothing for a notification
  kServer,       // Server::handle()
  kStore,        // likewise, with what another thread reads of the store or does with it
  kServerFirst,  // Server::handle(), and then the engine
  kEngine,
};
enum class Effect : std::uint8_t { kReads, kChanges };

struct MessageFacts {
  Answerer answerer = Answerer::kNotAllowed;
  Asker asker = Asker::kAnybody;
  Effect effect = Effect::kReads;
  // As which action the log tells of it; null: it does not. (Of a join that makes a job it does.)
  const char* audited = nullptr;

  constexpr bool is_request() const { return answerer >= Answerer::kServer; }
  constexpr bool is_administrative() const { return asker >= Asker::kAdministrator; }
  constexpr bool reaches_engine() const { return answerer >= Answerer::kServerFirst; }
};

template <class Message>
struct RequestTraits : MessageFacts {
  std::string Message::*job = nullptr;  // where it names its job; a worker's, by its WorkerRef
};
// Messages of whose rows each says the same.
template <MessageFacts kFacts, class... Messages>
struct Alike : RequestTraits<Messages>... {
  constexpr Alike() : RequestTraits<Messages>{kFacts}... {}
};
template <class... Rows>
struct RequestTable : Rows... {};
template <class... Rows>
RequestTable(Rows...) -> RequestTable<Rows...>;

inline constexpr auto kRequestTable = [] {
  using namespace wire;  // NOLINT(google-build-using-namespace)
  using enum Asker;
  using enum Answerer;
  using enum Effect;
  return RequestTable{
      Alike<MessageFacts{kNotAllowed}, Welcome, Error, Ok, Joined, Granted, Pushed, Explanation,
            StopNotice, FencedNotice, ResyncNotice, ShutdownNotice, StatusReply, JobsReply,
            WorkersReply, HistoryReply, TargetsReply, CollectReply, MembersReply, MembersNotice,
            PlanNotice, ViewGranted, ViewReply, RoundNotice, HangNotice, InspectNotice,
            InspectReply, CheckpointAsked, LatestCheckpointReply, StragglerNotice, Redirect>(),
      RequestTraits<Unknown>{{kUnsupported}},
      RequestTraits<Hello>{{kHandshake}},
      RequestTraits<Heartbeat>{{kHeartbeat}},
      RequestTraits<HeartbeatAck>{{kNobody}},

      RequestTraits<Join>{{kServerFirst, kJobUser, kChanges}, &Join::job},
      Alike<MessageFacts{kEngine, kItsWorker, kChanges}, Leave, Begin, Push, CancelBegin, Restarted,
            Phase, Targets, Collect, Consumed, Arrive, Exchanging, Inspected, AskCheckpoint,
            Checkpointed>(),
      Alike<MessageFacts{kEngine, kItsWorker, kReads}, Explain, MembersRequest, ViewRequest>(),

      RequestTraits<StatusRequest>{{kServer}},
      RequestTraits<JobsRequest>{{kServerFirst}},
      RequestTraits<WorkersRequest>{{kEngine, kJobUser}, &WorkersRequest::job},
      RequestTraits<HistoryRequest>{{kStore, kJobUser}, &HistoryRequest::job},

      RequestTraits<CreateJobRequest>{{kServerFirst, kAdministrator, kChanges, "create_job"},
                                      &CreateJobRequest::name},
      RequestTraits<StopJobRequest>{{kEngine, kAdministrator, kChanges, "stop_job"},
                                    &StopJobRequest::job},
      RequestTraits<SetPolicyRequest>{{kEngine, kAdministrator, kChanges, "set_policy"},
                                      &SetPolicyRequest::job},
      RequestTraits<ManageWorkerRequest>{
          {kEngine, kAdministrator, kChanges, "_worker"},  // drain_worker, kick_worker, ...
          &ManageWorkerRequest::job},
      RequestTraits<ExcludeRequest>{{kEngine, kAdministrator, kChanges, "exclude_host"},
                                    &ExcludeRequest::job},
      RequestTraits<CheckpointRequest>{{kStore, kOwner, kReads, "copy_store"}},
      RequestTraits<InspectRequest>{{kServerFirst, kAdministrator, kReads, "inspect"},
                                    &InspectRequest::job},

      RequestTraits<OrderCheckpoint>{{kEngine, kAdministrator, kChanges, "order_checkpoint"},
                                     &OrderCheckpoint::job},
      RequestTraits<LatestCheckpoint>{{kEngine, kJobUser}, &LatestCheckpoint::job},
  };
}();

// Its row. If this does not convert, the message has none.
template <class Message>
inline constexpr const RequestTraits<Message>& kTraits = kRequestTable;

inline const MessageFacts& facts_of(const wire::Body& body) {
  static constexpr auto kByIndex = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<MessageFacts, sizeof...(I)>{
        kTraits<std::variant_alternative_t<I, wire::Body>>...};
  }
  (std::make_index_sequence<std::variant_size_v<wire::Body>>());
  return kByIndex[body.index()];
}

}  // namespace syncd
