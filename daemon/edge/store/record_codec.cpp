// See record_codec.h.
#include "daemon/edge/store/record_codec.h"

#include <flatbuffers/flatbuffers.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "daemon/edge/store/record_fields.h"
#include "proto/base/crc32c.h"
#include "proto/base/table_codec.h"
#include "proto/record/record_generated.h"

namespace syncd::store {
namespace {

namespace fb = record::fb;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr std::size_t kHeaderBytes = 8;  // checksum, length

// A snapshot has a table a worker, up to limits::kWorkersPerJobMax of them, and so many shards of
// two checkpoints.
constexpr flatbuffers::uoffset_t kDepthMax = 8;
constexpr flatbuffers::uoffset_t kTablesMax = 4'000'000;

// Refuses what no engine writes. The creation record is a snapshot's first field, its workers come
// after that.
struct Reader : table::Reader {
  using table::Reader::accept;

  bool accept(const Record& r) {
    const auto kind = static_cast<std::uint8_t>(r.kind);
    if (kind == 0 || kind > kRecordKindMax) {
      return refuse("it is of kind " + std::to_string(kind) + ", which this version does not know");
    }
    if (job_state <= JobState::kStopped) return true;
    return refuse("its job state " + std::to_string(static_cast<std::uint8_t>(job_state)) +
                  " is unknown");
  }

  bool accept(const CheckpointSnapshot& c) {
    if (c.state <= CheckpointState::kComplete && c.members.size() % kCheckpointMemberValues == 0) {
      return true;
    }
    return refuse("its checkpoint " + std::to_string(c.number) + " is malformed");
  }

  bool accept(const WorkerSnapshot& w) {
    const auto name = [&] { return "worker " + std::to_string(w.rank); };
    if (w.state > WorkerState::kLost) {
      return refuse("the state " + std::to_string(static_cast<std::uint8_t>(w.state)) + " of " +
                    name() + " is unknown");
    }
    if (w.state == WorkerState::kReady || (is_active(w.state) && job_state == JobState::kWaiting)) {
      return refuse(name() + " is " + to_string(w.state) +
                    " in it, which no snapshot of a job that is " + to_string(job_state) + " has");
    }
    if (last_rank && w.rank <= *last_rank) {
      return refuse(name() + " comes after worker " + std::to_string(*last_rank) +
                    ": each has its place by its rank");
    }
    last_rank = w.rank;
    return true;
  }

  bool refuse(std::string why) {
    problem = std::move(why);
    return false;
  }

  JobState job_state = JobState::kWaiting;  // the snapshot's
  std::optional<Rank> last_rank;
};

// Checks the frame around a stored value and places it where its numbers are aligned.
template <class Root>
const Root* open_frame(std::span<const std::uint8_t> bytes, std::vector<std::uint64_t>& aligned,
                       const char* what, std::string& error) {
  if (bytes.size() < kHeaderBytes) {
    error = "it is cut off: " + std::to_string(bytes.size()) + " bytes";
    return nullptr;
  }
  const auto stored_crc = flatbuffers::ReadScalar<std::uint32_t>(bytes.data());
  const std::size_t length = flatbuffers::ReadScalar<std::uint32_t>(bytes.data() + 4);
  if (bytes.size() - kHeaderBytes != length) {
    error = "it should have " + std::to_string(length) + " bytes and has " +
            std::to_string(bytes.size() - kHeaderBytes);
    return nullptr;
  }
  if (mask_crc(crc32c(bytes.subspan(4))) != stored_crc) {
    error = "its checksum does not match: it is damaged";
    return nullptr;
  }
  aligned.resize((length + 7) / 8 + 1);
  std::memcpy(aligned.data(), bytes.data() + kHeaderBytes, length);
  const auto* at = reinterpret_cast<const std::uint8_t*>(aligned.data());
  flatbuffers::Verifier verifier(at, length, kDepthMax, kTablesMax);
  if (verifier.VerifyBuffer<Root>(nullptr)) return flatbuffers::GetRoot<Root>(at);
  error = std::string("it is not ") + what;
  return nullptr;
}

template <class Root, class Plain>
bool read(const Root* root, Plain& plain, Reader reader, std::string& error) {
  plain = {};
  if (table::read(reinterpret_cast<const flatbuffers::Table*>(root), plain, reader)) return true;
  error = std::move(reader.problem);
  return false;
}

}  // namespace

// All records without a text or list, in which the same fields are set, have the same bytes but for
// their numbers. The generic encoder writes the first of them, whose vtable tells where these lie.
class RecordShape {
 public:
  // Which fields are set, a bit each; none: also a text or a list.
  static std::optional<std::uint64_t> of(const Record& record) {
    std::uint64_t set = 0;
    bool has_contents = false;
    each_field([&]<class F>(std::size_t index, F) {
      const auto& value = record.*F::member;
      if constexpr (table::kHasContents<typename F::Type>) {
        has_contents |= !value.empty();
      } else if constexpr (kIsOptional<typename F::Type>) {
        set |= std::uint64_t{value.has_value()} << index;
      } else {
        using Number = table::Number<F>;
        const bool is_set = static_cast<Number>(value) != static_cast<Number>(kAbsent<F::member>);
        set |= std::uint64_t{is_set} << index;
      }
    });
    if (has_contents) return {};
    return set;
  }

  RecordShape(std::uint64_t set, std::span<const std::uint8_t> frame)
      : set_(set), frame_(frame.begin(), frame.end()) {
    const auto* root = flatbuffers::GetRoot<flatbuffers::Table>(frame_.data() + kHeaderBytes);
    const auto table = reinterpret_cast<const std::uint8_t*>(root) - frame_.data();
    each_field([&](std::size_t index, auto) {
      at_[index] =
          static_cast<std::uint16_t>(table + root->GetOptionalFieldOffset(table::slot(index)));
    });
  }

  std::uint64_t set() const { return set_; }

  std::vector<std::uint8_t>& write(const Record& record) {
    each_field([&]<class F>(std::size_t index, F) {
      if constexpr (!table::kHasContents<typename F::Type>) {
        if ((set_ >> index & 1) == 0) return;
        const auto write = [&](auto value) {
          flatbuffers::WriteScalar(frame_.data() + at_[index],
                                   static_cast<table::Number<F>>(value));
        };
        if constexpr (kIsOptional<typename F::Type>) {
          write(*(record.*F::member));
        } else {
          write(record.*F::member);
        }
      }
    });
    return frame_;
  }

 private:
  using Fields = FieldsOf<Record>;
  static_assert(Fields::count < 64);

  template <class Visit>
  static void each_field(const Visit& visit) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (visit(I, typename Fields::template At<I>{}), ...);
    }
    (std::make_index_sequence<Fields::count>{});
  }

  std::uint64_t set_;
  std::vector<std::uint8_t> frame_;
  std::array<std::uint16_t, Fields::count> at_{};  // in the frame, of those that are set
};

struct RecordEncoder::Impl {
  FlatBufferBuilder builder{1024};
  std::vector<std::uint8_t> out;
  // Pushes have few; the others may have as many as they like, and the first ones are kept.
  static constexpr std::size_t kShapesMax = 64;
  std::deque<RecordShape> shapes;
  RecordShape* latest = nullptr;  // most pushes are like the one before

  template <class Plain>
  std::span<const std::uint8_t> frame(const Plain& plain) {
    builder.Clear();
    builder.Finish(Offset<void>(table::write(builder, plain)));
    const std::uint32_t length = builder.GetSize();
    out.resize(kHeaderBytes + length);
    flatbuffers::WriteScalar(out.data() + 4, length);
    std::memcpy(out.data() + kHeaderBytes, builder.GetBufferPointer(), length);
    return sealed(out);
  }

  std::span<const std::uint8_t> record(const Record& record) {
    const std::optional<std::uint64_t> set = RecordShape::of(record);
    if (!set) return frame(record);
    if (latest == nullptr || latest->set() != *set) {
      const auto found = std::ranges::find(shapes, *set, &RecordShape::set);
      if (found == shapes.end() && shapes.size() >= kShapesMax) return frame(record);
      latest = found == shapes.end() ? &shapes.emplace_back(*set, frame(record)) : &*found;
    }
    return sealed(latest->write(record));
  }

  static std::span<const std::uint8_t> sealed(std::vector<std::uint8_t>& frame) {
    const std::uint32_t crc = mask_crc(crc32c(std::span(frame).subspan(4)));
    flatbuffers::WriteScalar(frame.data(), crc);
    return frame;
  }
};

RecordEncoder::RecordEncoder() : impl_(std::make_unique<Impl>()) {}
RecordEncoder::~RecordEncoder() = default;

std::span<const std::uint8_t> RecordEncoder::encode(const Record& record) {
  return impl_->record(record);
}
std::span<const std::uint8_t> RecordEncoder::encode(const JobSnapshot& snapshot) {
  return impl_->frame(snapshot);
}

std::span<const std::uint8_t> RecordEncoder::encode(const KeptCheckpoint& kept) {
  JobSnapshot snapshot;
  snapshot.created.kind = RecordKind::kJobCreated;
  snapshot.created.name = kept.job;
  snapshot.checkpoints = {kept.checkpoint};
  return encode(snapshot);
}

std::size_t record_bytes(std::span<const std::uint8_t> records) {
  if (records.size() < kHeaderBytes) return 0;
  const std::size_t length = flatbuffers::ReadScalar<std::uint32_t>(records.data() + 4);
  return length <= records.size() - kHeaderBytes ? kHeaderBytes + length : 0;
}

bool decode_record(std::span<const std::uint8_t> bytes, Record& record, std::string& error) {
  std::vector<std::uint64_t> aligned;
  const auto* t = open_frame<fb::Record>(bytes, aligned, "a record", error);
  return t != nullptr && read(t, record, Reader{}, error);
}

bool decode_snapshot(std::span<const std::uint8_t> bytes, JobSnapshot& snapshot,
                     std::string& error) {
  std::vector<std::uint64_t> aligned;
  const auto* t = open_frame<fb::JobSnapshot>(bytes, aligned, "a snapshot", error);
  if (t == nullptr) return false;
  if (t->created() == nullptr) {
    error = "it has no creation record";
    return false;
  }
  Reader reader;
  reader.job_state = static_cast<JobState>(t->state());
  return read(t, snapshot, std::move(reader), error);
}

bool decode_kept(std::span<const std::uint8_t> bytes, KeptCheckpoint& kept, std::string& error) {
  JobSnapshot snapshot;
  if (!decode_snapshot(bytes, snapshot, error)) return false;
  const bool is_one = snapshot.checkpoints.size() == 1 &&
                      snapshot.checkpoints.front().state == CheckpointState::kComplete &&
                      !snapshot.checkpoints.front().saved.empty();
  if (!is_one) {
    error = "it is not one complete checkpoint";
    return false;
  }
  kept = {std::move(snapshot.created.name), std::move(snapshot.checkpoints.front())};
  return true;
}

bool decode_creation(std::span<const std::uint8_t> bytes, JobId job, Record& record,
                     std::string& error) {
  if (!decode_record(bytes, record, error)) return false;
  if (record.kind == RecordKind::kJobCreated && record.job == job) return true;
  error = std::string("it is a record of kind ") + to_string(record.kind) + " of job #" +
          std::to_string(record.job);
  return false;
}

bool decode_record(std::span<const std::uint8_t> bytes, JobId job, Sequence sequence,
                   Record& record, std::string& error) {
  if (!decode_record(bytes, record, error)) return false;
  if (record.job == job && record.sequence == sequence) return true;
  error = "it says it is record " + std::to_string(record.sequence) + " of job #" +
          std::to_string(record.job);
  return false;
}

bool decode_snapshot(std::span<const std::uint8_t> bytes, JobId job, JobSnapshot& snapshot,
                     std::string& error) {
  if (!decode_snapshot(bytes, snapshot, error)) return false;
  if (snapshot.created.job == job) return true;
  error = "it is one of job #" + std::to_string(snapshot.created.job);
  return false;
}

}  // namespace syncd::store
