// A job's history as it is written: makes records, numbers them, hands them to the store, and says
// whether a stored one may follow. It changes nothing else of the job: what a record means is
// Job::apply()'s business, which live and replayed records reach the same way.
//
// What always holds:
// - A record leaves with the next sequence number, and before its consequences do.
// - The epoch and the next incarnation never go down.
// - What is replayed does not leave again.
//
// One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/record.h"
#include "daemon/core/engine/worker.h"

namespace syncd {

class Recorder {
 public:
  Recorder(const EngineServices& engine, Epoch epoch) : engine_(engine), epoch_(epoch) {}

  // ---- what the history has given out so far
  Epoch epoch() const { return epoch_; }
  Incarnation next_incarnation() const { return next_incarnation_; }
  const Record& creation() const { return creation_; }
  const std::string& stop_reason() const { return stop_reason_; }
  // Records after the latest snapshot, which a restart replays.
  std::uint64_t tail() const { return sequence_ - snapshot_sequence_; }

  // ---- making records
  // `worker`: whom the record is about; null: the whole job.
  void begin(Record& record, RecordKind kind, const Worker* worker = nullptr) const {
    record.kind = kind;
    record.job = engine_.job();
    record.time_us = engine_.now();
    record.epoch = epoch_;
    if (worker == nullptr) return;
    record.rank = worker->rank;
    record.incarnation = worker->incarnation;
  }
  Record make(RecordKind kind, const Worker* worker = nullptr) const {
    Record record;
    begin(record, kind, worker);
    return record;
  }
  // For a push, of which there are many: begun where it leaves, to be filled, and then committed by
  // commit_last() without a copy.
  Record& append(RecordKind kind, const Worker& worker) const {
    Record& record = engine_.effects()->records.emplace_back();
    begin(record, kind, &worker);
    return record;
  }

  // ---- committing them. `apply(record)` may make further records.
  template <class Apply>
  void commit(Record&& record, Apply apply) {
    record.sequence = ++sequence_;
    engine_.effects()->records.push_back(record);  // a copy: further records may move the vector
    apply(record);
    count();
  }
  // `apply` may not look at the record any more once it has made another.
  template <class Apply>
  void commit_last(Apply apply) {
    Record& record = engine_.effects()->records.back();
    record.sequence = ++sequence_;
    apply(record);
    count();
  }

  // ---- facts that were recorded, also by earlier daemons
  void apply_created(const Record& record) {
    creation_ = record;
    epoch_ = std::max<Epoch>(record.epoch, 1);
  }
  void apply_joined(const Record& record) {
    next_incarnation_ = std::max(next_incarnation_, record.incarnation + 1);
    epoch_ = std::max(epoch_, record.epoch);
  }
  void apply_stopped(const Record& record) { stop_reason_ = record.reason; }

  void raise_epoch(Epoch epoch) { epoch_ = std::max(epoch_, epoch); }

  // ---- recovery
  bool replaying() const { return replaying_; }
  // Empty, or what makes a stored record or worker impossible by its numbers alone. The store has
  // checked that it is undamaged; this guards the engine against a history that contradicts itself.
  std::string check(const Record& record) const;
  static std::string check(const WorkerSnapshot& worker);
  template <class Apply>
  void replay(const Record& record, Apply apply) {
    sequence_ = record.sequence;
    engine_.replay_time(record.time_us);
    replaying_ = true;
    apply(record);
    replaying_ = false;
  }
  // Its own part of a snapshot.
  void save(JobSnapshot& out) const;
  std::string restore(const JobSnapshot& snapshot);  // empty, or what is impossible in it
  void snapshot_taken() { snapshot_sequence_ = sequence_; }

 private:
  void count() {
    engine_.count_record();
    if (tail() >= engine_.options().snapshot_every_records) [[unlikely]]
      engine_.request_snapshot();
  }

  EngineServices engine_;
  Epoch epoch_;
  Incarnation next_incarnation_ = 1;
  Sequence sequence_ = 0;
  Sequence snapshot_sequence_ = 0;
  bool replaying_ = false;
  Record creation_;
  std::string stop_reason_;
};

}  // namespace syncd
