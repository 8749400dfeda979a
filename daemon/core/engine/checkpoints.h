// Agreed checkpoints of a job: its workers save their parameters at iterations that fit together,
// each says where, and a checkpoint is complete once all of its shards are there.
//
// One checkpoint is open at a time, and one more may be queued. An open one is first asked for;
// then it is fixed at which iteration K_i each worker saves: its first grant at or beyond K_i
// carries kStepCheckpoint. With barriers K_i is the clock at the next barrier's release, so that
// all save the same parameters. Otherwise it is just beyond what any worker was granted.
//
// What always holds:
// - K_i is above all that the worker was granted when it was fixed, and it is stored before a grant
//   at or beyond it leaves: such a grant carries the flag, whatever crashes.
// - Who takes part is fixed with K, or when a worker that leaves before that is told to save first;
//   who comes later does not save. So each has a shard of its own, its place among them, from the
//   first flag on.
// - A complete checkpoint has every shard once.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/answers.h"
#include "daemon/core/engine/counters.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/kept_checkpoints.h"
#include "daemon/core/engine/policy.h"
#include "daemon/core/engine/recorder.h"
#include "daemon/core/engine/roster.h"

namespace syncd {

class Checkpoints {
 public:
  Checkpoints(const EngineServices& engine, const JobSpec& spec, Roster& roster, Recorder& recorder,
              Answers& answers, JobCounters& counters)
      : engine_(engine),
        spec_(spec),
        roster_(roster),
        recorder_(recorder),
        answers_(answers),
        counters_(counters) {
    renew_due();
  }
  // The policy that decides from now on, and outlives this or the next call.
  void follow(const PolicyTraits& traits) { traits_ = &traits; }

  // ---- requests. Each is answered.
  void ask(const Caller& caller, Worker& worker, const wire::AskCheckpoint& request);
  void order(const Caller& caller, const wire::OrderCheckpoint& request);
  void saved(const Caller& caller, const Worker& worker, const wire::Checkpointed& answer);
  // The worker wants to leave, and its next iteration would be `due`. True: it is answered that it
  // must save first, which happens once.
  bool holds_leave(const Caller& caller, const Worker& worker, Iteration due);

  // ---- the loop
  // A push is about to count, after which the worker's next iteration is `next`.
  void pushing(Iteration next) {
    if (next >= due_) [[unlikely]]
      ask_every(next);
  }
  // A barrier opens: workers are granted relative clock q and beyond from now on. Live only.
  void barrier(Clock q);
  // What a grant says of the checkpoint that the worker is to save then.
  struct Flag {
    std::uint64_t checkpoint = 0;  // 0: none
    std::uint32_t shard = 0;       // its own, of `shards`
    std::uint32_t shards = 0;
    explicit operator bool() const { return checkpoint != 0; }
    // Into a wire::Granted or wire::ViewGranted.
    template <class Granted>
    void put(Granted& granted) const {
      granted.checkpoint = checkpoint;
      granted.shard = shard;
      granted.shards = shards;
      if (*this) granted.flags |= wire::kStepCheckpoint;
    }
  };
  // The worker is granted an iteration.
  Flag flag(const Worker& worker, Iteration iteration) {
    return open_ ? flag_of_open(worker, iteration) : Flag{};
  }
  // Likewise of a grant that was given before.
  Flag flagged(const Worker& worker) const;
  // The worker has come back and said what it was granted.
  void claimed(const Worker& worker);

  // ---- live, after something that may have made it due
  void settle();  // a worker joined, a policy took over: it may be fixed now
  void check();   // a worker has gone: it may never be complete
  void close_all(const std::string& reason);
  void timed_out();
  // Takes over what the job that had the name before has complete. False: there is no room for it.
  bool inherit(const CheckpointSnapshot& from);

  // ---- recorded facts, live or replayed
  void apply(const Record& record);
  void apply_started(Clock clock);
  void apply_exit(Rank rank);  // its process is no member any more, or another one has its place
  void apply_lost(bool is_lost, Rank rank);
  std::string check(const Record& record) const;  // empty, or what is impossible in it
  void save(JobSnapshot& out) const;
  std::string restore(const JobSnapshot& snapshot);  // empty, or what is impossible in it
  void finish_restore() { arm(); }
  // Its job is forgotten.
  void forget() { engine_.count_shards(-shards_kept()); }

  // ---- views
  const CheckpointSnapshot* latest() const { return latest_ ? &*latest_ : nullptr; }
  std::string note() const;                    // how far the open one is; empty: none is open
  std::uint64_t expected_of(Rank rank) const;  // the one that this worker has yet to save; 0: none
  // `kept`: of the job's name, or null: see KeptCheckpoints.
  wire::LatestCheckpointReply latest(const CompleteCheckpoint* kept,
                                     const wire::LatestCheckpoint& asked) const;
  bool is_open() const { return open_.has_value(); }
  Micros open_since() const { return open_ ? open_->facts.since_us : -1; }
  Micros complete_since() const { return latest_ ? latest_->since_us : -1; }

 private:
  // As a snapshot has it: kCheckpointMemberValues numbers.
  struct Member {
    Rank rank = 0;
    Iteration from = kNoIteration;      // K_i; not fixed yet
    Iteration flagged = kNoIteration;   // the grant that has told it; none yet
    std::int64_t answer = kUnanswered;  // a shard's number, or one of these
  };
  static constexpr std::int64_t kUnanswered = -1, kNothing = -2, kGone = -3;

  struct Open {
    CheckpointSnapshot facts;
    std::vector<Member> members;  // in rank order
    std::uint32_t pending = 0;    // of them, who may still answer

    bool has_members() const { return facts.fixed || !members.empty(); }
  };

  Flag flag_of_open(const Worker& worker, Iteration iteration);
  Flag flag_for(const Member& member) const;
  bool refuses(const Caller& caller, const std::string& reason);
  std::uint64_t ask(std::int64_t rank, const std::string& reason, Iteration next);
  void ask_every(Iteration next);
  template <class At>
  void fix(const At& at);
  void close(const std::string& reason);  // incomplete
  void complete();
  Member* find(Rank rank);
  const Member* find(Rank rank) const { return const_cast<Checkpoints*>(this)->find(rank); }
  static bool takes_part(const Worker& worker) {
    return (worker.notices & wire::kNoticeCheckpoint) != 0;
  }
  bool anybody_takes_part() const;
  RankList not_back() const;
  bool has_barriers() const { return traits_->barrier_every > 0 || traits_->tells_barriers; }
  bool decentralized() const { return traits_->family == Family::kDecentralized; }
  Iteration highest_next() const;
  RankList ranks_with(std::initializer_list<std::int64_t> answers) const;
  std::string shards_text() const;
  void next(Micros now);
  void arm();
  void renew_due();
  std::int64_t shards_kept() const;
  void commit(Record&& record);
  Record make(RecordKind kind, const Worker* worker = nullptr) const;

  EngineServices engine_;
  const JobSpec& spec_;
  Roster& roster_;
  Recorder& recorder_;
  Answers& answers_;
  JobCounters& counters_;
  const PolicyTraits* traits_ = nullptr;
  std::optional<Open> open_;
  std::optional<CheckpointSnapshot> queued_;
  std::optional<CompleteCheckpoint> latest_;
  std::uint64_t asked_ = 0;    // so many numbers were given
  std::uint64_t closed_ = 0;   // the latest one that is complete or was given up
  std::string closed_reason_;  // why it was given up
  // The highest next iteration of a worker when the latest one was asked for, or fixed.
  Iteration clock_ = 0;
  Iteration due_ = kNever;  // when one is wanted by checkpoint_every
  std::vector<Rank> lost_;  // workers of the present group, in rank order; not in a snapshot
};

}  // namespace syncd
