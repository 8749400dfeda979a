// The parameters that all worker processes of a run share, in POSIX shared memory, cut into shards.
//
// Rules, per shard:
//  - Readers copy without a lock and check a sequence number before and after (a seqlock): a copy
//    that a writer disturbed is thrown away and made again, so a torn read is never returned. A
//    reader that is disturbed again and again takes the writers' lock for one copy.
//  - Writers hold a process-shared, robust mutex. Before they change a value they note the old one
//    in the shard's journal. If a writer dies in the middle (SIGKILL), whoever takes the lock next,
//    writer or reader, puts the old values back: the half-written update is gone as if it had never
//    begun, and is counted in rolled_back_updates().
//  - An update that spans several shards is atomic in each shard, not across them, as in any
//  sharded
//    parameter server: a reader may see it in one shard and not yet in another, and of a writer
//    that died between two shards the first one stays.
//
// All functions may be called by any thread of any process that has the store mapped, except as
// said. Every value is a lock-free atomic accessed with acquire and release, so there is no data
// race in the language's sense either.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "libclient/shared_memory.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

// The store cannot be used as asked: a wrong update, or a lock held for longer than the lock
// timeout by a process that is stopped or stuck (it is named).
class StoreError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Locks are held for microseconds; whoever waits this long waits for a stopped process.
inline constexpr std::int64_t kStoreLockTimeoutMs = 20'000;

// Floats per shard, unless a block is larger: small enough that workers that write at the same time
// seldom meet, large enough that the bookkeeping of a shard (one cache line or two) does not
// matter.
inline constexpr std::size_t kShardFloats = 512;

class ParameterStore {
 public:
  // A new store that holds `initial`. Throws SharedMemoryError, or std::invalid_argument if the
  // layout does not fit `initial` or exceeds what 32-bit indices reach.
  static ParameterStore create(const ParameterLayout& layout, std::span<const float> initial);

  // The store behind an inherited descriptor. Throws SharedMemoryError if it is none.
  static ParameterStore attach(int fd);

  std::size_t parameters() const;
  std::size_t shards() const;
  std::size_t shard_floats() const;                     // all but the last shard have this many
  std::size_t first_of_shard(std::size_t shard) const;  // index of its first parameter
  std::size_t size_of_shard(std::size_t shard) const;

  // Adds the update. Indices must ascend and be in range, else StoreError and nothing is changed.
  void apply(const Update& update);

  // Takes the update back: subtracts it (equal up to float rounding).
  void take_back(const Update& update);

  // Copies one shard, untorn, into `out` (size_of_shard floats). Returns its version, which grows
  // with every change of the shard.
  std::uint64_t read_shard(std::size_t shard, std::span<float> out) const;
  std::uint64_t version(std::size_t shard) const;

  // Copies everything; each shard untorn.
  void read_all(std::span<float> out) const;

  // Updates in the parameters: those applied less those taken back. An update whose writer died
  // on the way is not counted, whatever of it stays.
  std::int64_t updates() const;

  // Half-written updates of dead writers that were taken back so far.
  std::uint64_t rolled_back_updates() const;

  // How long this process waits for a shard's lock; kStoreLockTimeoutMs at first. Not while other
  // threads use this object.
  void set_lock_timeout_ms(std::int64_t timeout_ms) { lock_timeout_ms_ = timeout_ms; }

  int fd() const { return memory_.fd(); }

 private:
  friend class ShardWriter;
  struct Header;
  struct Shard;
  struct Places;
  struct JournalEntry;

  explicit ParameterStore(SharedMemory memory);
  void check(const Update& update) const;
  void apply_scaled(const Update& update, float scale);
  void roll_back(std::size_t shard) const;

  SharedMemory memory_;
  Header* header_ = nullptr;
  Shard* shards_ = nullptr;
  std::atomic<float>* values_ = nullptr;
  JournalEntry* journal_ = nullptr;
  std::int64_t lock_timeout_ms_ = kStoreLockTimeoutMs;
};

// One change of one shard. The constructor takes the shard's lock, the destructor gives it back; a
// change that is not committed is rolled back. ParameterStore::apply is made of these; tests use it
// to die in the middle. Used by one thread.
class ShardWriter {
 public:
  // Throws StoreError if the lock cannot be had in time.
  ShardWriter(const ParameterStore& store, std::size_t shard);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Notes the present values of these parameters (indices in the whole store, each once), without
  // which add() must not touch them, and makes readers wait. `indices` must stay valid until
  // commit.
  void begin(std::span<const std::uint32_t> indices);
  void begin_all();  // all parameters of the shard

  // Adds to the parameter noted at `place` (begin_all: the place in the shard).
  void add(std::size_t place, float delta);

  // Makes the change final and visible.
  void commit();

 private:
  const ParameterStore& store_;
  std::size_t shard_;
  bool open_ = false;
};

// Renews one worker's copy of the parameters, shard by shard, leaving out shards that did not
// change since its last pull. Used by one thread.
class StoreReader {
 public:
  explicit StoreReader(const ParameterStore& store)
      : store_(store), seen_(store.shards(), kNeverSeen) {}

  // Returns how many shards were copied.
  std::size_t pull(std::span<float> replica);

 private:
  static constexpr std::uint64_t kNeverSeen = ~std::uint64_t{0};

  const ParameterStore& store_;
  std::vector<std::uint64_t> seen_;
};

}  // namespace syncd::trainer
