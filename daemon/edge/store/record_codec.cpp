// See record_codec.h.
#include "daemon/edge/store/record_codec.h"

#include <flatbuffers/flatbuffers.h>

#include <cstring>

#include "proto/record/record_generated.h"

namespace syncd::store {
namespace {

namespace fb = record::fb;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::String;

constexpr std::size_t kHeaderBytes = 8;  // checksum, length

// A snapshot has a table a worker, up to limits::kWorkersPerJobMax of them.
constexpr flatbuffers::uoffset_t kDepthMax = 8;
constexpr flatbuffers::uoffset_t kTablesMax = 2'000'000;

Offset<String> text(FlatBufferBuilder& b, const std::string& value) {
  return value.empty() ? Offset<String>{} : b.CreateString(value);
}
// FlatBuffers' verifier does not look at where a vector's numbers begin: in bytes that it has not
// written itself, anywhere.
void read_numbers(const flatbuffers::Vector<std::int64_t>* stored,
                  std::vector<std::int64_t>& values) {
  values.resize(stored == nullptr ? 0 : stored->size());
  if (!values.empty()) std::memcpy(values.data(), stored->Data(), values.size() * 8);
}

std::string text(const String* value) {
  return value == nullptr ? std::string{} : std::string(value->data(), value->size());
}

using Blob = flatbuffers::Vector<std::uint8_t>;
Offset<Blob> blob(FlatBufferBuilder& b, const std::vector<std::uint8_t>& bytes) {
  return bytes.empty() ? Offset<Blob>{} : b.CreateVector(bytes);
}
std::vector<std::uint8_t> blob(const Blob* bytes) {
  if (bytes == nullptr) return {};
  return {bytes->begin(), bytes->end()};
}

Offset<fb::Record> write(FlatBufferBuilder& b, const Record& r) {
  const auto name = text(b, r.name);
  const auto host = text(b, r.host);
  const auto policy = text(b, r.policy);
  const auto config = text(b, r.config);
  const auto reason = text(b, r.reason);
  const auto data = blob(b, r.data);
  Offset<flatbuffers::Vector<std::int64_t>> values;
  if (!r.values.empty()) values = b.CreateVector(r.values);
  fb::RecordBuilder out(b);
  out.add_kind(static_cast<fb::RecordKind>(r.kind));
  out.add_job(r.job);
  out.add_sequence(r.sequence);
  out.add_time_us(r.time_us);
  out.add_epoch(r.epoch);
  out.add_rank(static_cast<std::int32_t>(r.rank));
  out.add_incarnation(r.incarnation);
  out.add_iteration(r.iteration);
  if (!name.IsNull()) out.add_name(name);
  if (!host.IsNull()) out.add_host(host);
  out.add_clock(r.clock);
  out.add_base(r.base);
  out.add_resumed(r.resumed);
  out.add_late(r.late);
  out.add_span_us(r.span_us);
  out.add_waited_us(r.waited_us);
  out.add_staleness(r.staleness);
  if (r.loss) out.add_loss(*r.loss);
  out.add_samples(r.samples);
  out.add_bytes(r.bytes);
  if (!policy.IsNull()) out.add_policy(policy);
  out.add_expected_workers(r.expected_workers);
  out.add_min_workers(r.min_workers);
  if (!config.IsNull()) out.add_config(config);
  if (!reason.IsNull()) out.add_reason(reason);
  out.add_superstep(r.superstep);
  out.add_predicted_us(r.predicted_us);
  out.add_wait_us(r.wait_us);
  if (!values.IsNull()) out.add_values(values);
  out.add_restarts(r.restarts);
  out.add_wasted_us(r.wasted_us);
  out.add_declined(r.declined);
  out.add_predicted_wait_us(r.predicted_wait_us);
  if (!data.IsNull()) out.add_data(data);
  return out.Finish();
}

bool read(const fb::Record* t, Record& r, std::string& error) {
  const auto kind = static_cast<std::uint8_t>(t->kind());
  if (kind == 0 || kind > kRecordKindMax) {
    error = "it is of kind " + std::to_string(kind) + ", which this version does not know";
    return false;
  }
  r.kind = static_cast<RecordKind>(kind);
  r.job = t->job();
  r.sequence = t->sequence();
  r.time_us = t->time_us();
  r.epoch = t->epoch();
  r.rank = t->rank();
  r.incarnation = t->incarnation();
  r.iteration = t->iteration();
  r.name = text(t->name());
  r.host = text(t->host());
  r.clock = t->clock();
  r.base = t->base();
  r.resumed = t->resumed();
  r.late = t->late();
  r.span_us = t->span_us();
  r.waited_us = t->waited_us();
  r.staleness = t->staleness();
  r.loss.reset();
  if (const auto loss = t->loss()) r.loss = *loss;
  r.samples = t->samples();
  r.bytes = t->bytes();
  r.policy = text(t->policy());
  r.expected_workers = t->expected_workers();
  r.min_workers = t->min_workers();
  r.config = text(t->config());
  r.reason = text(t->reason());
  r.superstep = t->superstep();
  r.predicted_us = t->predicted_us();
  r.wait_us = t->wait_us();
  r.restarts = t->restarts();
  r.wasted_us = t->wasted_us();
  r.declined = t->declined();
  r.predicted_wait_us = t->predicted_wait_us();
  r.data = blob(t->data());
  read_numbers(t->values(), r.values);
  return true;
}

Offset<fb::WorkerSnapshot> write(FlatBufferBuilder& b, const WorkerSnapshot& w) {
  const auto name = text(b, w.name);
  const auto host = text(b, w.host);
  const auto data = blob(b, w.data);
  const auto dismissal = text(b, w.dismissal);
  const auto phase = text(b, w.leased_phase);
  return fb::CreateWorkerSnapshot(b, w.rank, name, host, static_cast<std::uint8_t>(w.state),
                                  w.incarnation, w.clock, w.base, w.granted, w.pushed, w.late,
                                  w.own_pushes, w.last_push_us, w.previous_push_us, data, dismissal,
                                  phase, w.phase_us, w.phase_lease_us, w.entered);
}

// Checks the frame around a stored value and places it where its numbers are aligned.
bool open_frame(std::span<const std::uint8_t> bytes, std::vector<std::uint64_t>& aligned,
                std::size_t& length, std::string& error) {
  if (bytes.size() < kHeaderBytes) {
    error = "it is cut off: " + std::to_string(bytes.size()) + " bytes";
    return false;
  }
  const auto stored_crc = flatbuffers::ReadScalar<std::uint32_t>(bytes.data());
  length = flatbuffers::ReadScalar<std::uint32_t>(bytes.data() + 4);
  if (bytes.size() - kHeaderBytes != length) {
    error = "it should have " + std::to_string(length) + " bytes and has " +
            std::to_string(bytes.size() - kHeaderBytes);
    return false;
  }
  if (mask_crc(crc32c(bytes.subspan(4))) != stored_crc) {
    error = "its checksum does not match: it is damaged";
    return false;
  }
  aligned.resize((length + 7) / 8 + 1);
  std::memcpy(aligned.data(), bytes.data() + kHeaderBytes, length);
  return true;
}

}  // namespace

struct RecordEncoder::Impl {
  FlatBufferBuilder builder{1024};
  std::vector<std::uint8_t> out;

  std::span<const std::uint8_t> frame() {
    const std::uint32_t length = builder.GetSize();
    out.resize(kHeaderBytes + length);
    flatbuffers::WriteScalar(out.data() + 4, length);
    std::memcpy(out.data() + kHeaderBytes, builder.GetBufferPointer(), length);
    const std::uint32_t crc = mask_crc(crc32c(std::span(out).subspan(4)));
    flatbuffers::WriteScalar(out.data(), crc);
    return out;
  }
};

RecordEncoder::RecordEncoder() : impl_(std::make_unique<Impl>()) {}
RecordEncoder::~RecordEncoder() = default;

std::span<const std::uint8_t> RecordEncoder::encode(const Record& record) {
  FlatBufferBuilder& b = impl_->builder;
  b.Clear();
  b.Finish(write(b, record));
  return impl_->frame();
}

std::span<const std::uint8_t> RecordEncoder::encode(const JobSnapshot& s) {
  FlatBufferBuilder& b = impl_->builder;
  b.Clear();
  const auto created = write(b, s.created);
  std::vector<Offset<fb::WorkerSnapshot>> offsets;
  offsets.reserve(s.workers.size());
  for (const WorkerSnapshot& worker : s.workers) offsets.push_back(write(b, worker));
  const auto workers = b.CreateVector(offsets);
  const auto policy = text(b, s.policy);
  const auto policy_state = b.CreateVector(s.policy_state);
  const auto stop_reason = text(b, s.stop_reason);
  b.Finish(fb::CreateJobSnapshot(
      b, created, s.sequence, s.time_us, static_cast<std::uint8_t>(s.state), s.epoch,
      s.next_incarnation, s.pushes, s.highest_clock, workers, policy, policy_state, stop_reason));
  return impl_->frame();
}

bool decode_record(std::span<const std::uint8_t> bytes, Record& record, std::string& error) {
  std::vector<std::uint64_t> aligned;
  std::size_t length = 0;
  if (!open_frame(bytes, aligned, length, error)) return false;
  const auto* at = reinterpret_cast<const std::uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(at, length, kDepthMax, kTablesMax);
  if (!verifier.VerifyBuffer<fb::Record>(nullptr)) {
    error = "it is not a record";
    return false;
  }
  return read(flatbuffers::GetRoot<fb::Record>(at), record, error);
}

bool decode_snapshot(std::span<const std::uint8_t> bytes, JobSnapshot& s, std::string& error) {
  std::vector<std::uint64_t> aligned;
  std::size_t length = 0;
  if (!open_frame(bytes, aligned, length, error)) return false;
  const auto* at = reinterpret_cast<const std::uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(at, length, kDepthMax, kTablesMax);
  if (!verifier.VerifyBuffer<fb::JobSnapshot>(nullptr)) {
    error = "it is not a snapshot";
    return false;
  }
  const auto* t = flatbuffers::GetRoot<fb::JobSnapshot>(at);
  if (t->created() == nullptr) {
    error = "it has no creation record";
    return false;
  }
  if (!read(t->created(), s.created, error)) return false;
  if (t->state() > static_cast<std::uint8_t>(JobState::kStopped)) {
    error = "its job state " + std::to_string(t->state()) + " is unknown";
    return false;
  }
  s.sequence = t->sequence();
  s.time_us = t->time_us();
  s.state = static_cast<JobState>(t->state());
  s.epoch = t->epoch();
  s.next_incarnation = t->next_incarnation();
  s.pushes = t->pushes();
  s.highest_clock = t->highest_clock();
  s.policy = text(t->policy());
  s.stop_reason = text(t->stop_reason());
  read_numbers(t->policy_state(), s.policy_state);
  s.workers.clear();
  if (t->workers() == nullptr) return true;
  for (const auto* w : *t->workers()) {
    if (w->state() > static_cast<std::uint8_t>(WorkerState::kLost)) {
      error = "the state " + std::to_string(w->state()) + " of worker " +
              std::to_string(w->rank()) + " is unknown";
      return false;
    }
    const auto state = static_cast<WorkerState>(w->state());
    if (state == WorkerState::kReady || (is_active(state) && s.state == JobState::kWaiting)) {
      error = "worker " + std::to_string(w->rank()) + " is " + to_string(state) +
              " in it, which no snapshot of a job that is " + to_string(s.state) + " has";
      return false;
    }
    if (!s.workers.empty() && w->rank() <= s.workers.back().rank) {
      error = "worker " + std::to_string(w->rank()) + " comes after worker " +
              std::to_string(s.workers.back().rank) + ": each has its place by its rank";
      return false;
    }
    s.workers.push_back({w->rank(), text(w->name()), text(w->host()),
                         static_cast<WorkerState>(w->state()), w->incarnation(), w->clock(),
                         w->base(), w->granted(), w->pushed(), w->late(), w->own_pushes(),
                         w->last_push_us(), w->previous_push_us(), blob(w->data()),
                         text(w->dismissal()), text(w->leased_phase()), w->phase_us(),
                         w->phase_lease_us(), w->entered()});
  }
  return true;
}

}  // namespace syncd::store
