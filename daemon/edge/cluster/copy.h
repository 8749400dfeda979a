// A member's copy of a shard's history: a store on its own disk, that follows the shard's log while
// another member leads it. One thread; calls block on the disk.
//
// What always holds, once it has a generation: the copy is what the log's entries up to its stamp
// came to, and perhaps snapshots of later states, behind which entries are taken up where they go
// on.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/core/cluster/format.h"
#include "daemon/core/cluster/take_over.h"
#include "daemon/edge/store/store.h"

namespace syncd::cluster {

// How far a copy has come, and in which cluster.
struct Stamp {
  std::array<std::uint8_t, 16> cluster{};
  std::uint64_t generation = 0;  // 0: the copy is empty, or its making was interrupted
  Tail tail;
  Shard shards = 1;  // of the cluster

  bool operator==(const Stamp&) const = default;
};
std::string to_text(const Stamp& stamp);
bool parse_stamp(const std::string& text, Stamp& stamp);

// How many copies that were set aside lie beside this one.
std::uint64_t count_set_aside(const std::string& path);

class Copy {
 public:
  // The bytes of a snapshot. False, with a sentence in `error`: etcd did not answer, or a later
  // pointer has taken its place.
  using Fetch = std::function<bool(JobId job, const Pointer& pointer, std::string& bytes,
                                   std::string& error)>;

  // `progress` is called again and again while a call takes long; it may be empty.
  Copy(store::Options options, Shard shard, Fetch fetch, std::function<void()> progress = {});
  ~Copy();
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  // Also again, after kNotYet.
  bool open(std::string& error);
  // Empty after kNotYet, until it is opened again. take_up() needs what is behind the stamp.
  const Stamp& stamp() const { return stamp_; }

  enum class Took : std::uint8_t {
    kAll,      // of what was read, and the disk has it
    kNotYet,   // `error` says why: try again
    kRefused,  // this copy must not be led from nor overwritten, and was not changed
    kSetBack,  // the same, because etcd lacks entries that it has
  };
  // Takes up what `read` has, in the cluster and generation of `config`. A copy that ends before
  // the log begins is set aside, in the directory that set_aside() then names, and made anew.
  Took take_up(const Config& config, const TakeOver& read, std::string& error);
  const std::string& set_aside() const { return set_aside_; }

  // Closes the copy and opens its store anew, for the leader to recover from.
  std::unique_ptr<store::Store> hand_over(std::string& error);

 private:
  bool load(std::string& error);
  bool take_all(const Config& config, const TakeOver& read, std::string& error);
  bool set_store_aside(std::string& error);
  bool discard(std::string& error);
  bool begin_anew(const Config& config, const TakeOver& read, std::string& error);
  bool take_snapshots(const TakeOver& read, bool all, std::string& error);
  void forget_removed();
  bool follow(const TakeOver& read, std::string& error);
  bool submit(store::Batch&& batch, std::string& error);
  bool wait(Ticket ticket, std::string& error);

  store::Options options_;
  const Shard shard_;
  const Fetch fetch_;
  const std::function<void()> progress_;
  // What was fetched for a rebuild that has not succeeded yet.
  std::map<JobId, std::pair<Pointer, std::string>> fetched_;
  Stamp stamp_;
  std::string set_aside_;
  std::map<JobId, Sequence> last_;       // of each job's records
  std::map<JobId, Sequence> snapshots_;  // of each job's latest one
  Ticket submitted_ = 0;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Ticket committed_ = 0;
  std::string problem_;
  bool failed_ = false;
  std::vector<JobId> removed_;  // by retention, since they were forgotten here

  std::unique_ptr<store::Store> store_;  // last: its writer ends first
};

}  // namespace syncd::cluster
