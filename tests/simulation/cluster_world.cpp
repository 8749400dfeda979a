// See cluster_world.h.
#include "cluster_world.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "violation.h"

namespace syncd::simulation {
namespace {

using namespace cluster;

constexpr Micros kMillisecond = 1'000;
constexpr Micros kSecond = 1'000'000;
constexpr Micros kTroubleEnds = 40 * kSecond;
constexpr Micros kEnd = 80 * kSecond;
constexpr JobId kJob = 1;
constexpr std::size_t kMembers = 3;
constexpr int kClients = 4;

using Push = std::uint64_t;  // what a client wants recorded, unique

// A record: a push, and bytes without meaning behind it.
std::string record_of(Push push, std::size_t bytes) {
  std::string text(16 + bytes, '.');
  for (std::size_t i = 0; i < 8; ++i) {
    text[i] = static_cast<char>(push >> (8 * i));
    text[8 + i] = static_cast<char>(bytes >> (8 * i));
  }
  return text;
}

std::vector<Push> pushes_of(std::string_view records) {
  std::vector<Push> pushes;
  while (!records.empty()) {
    std::uint64_t push = 0;
    std::uint64_t bytes = 0;
    require(records.size() >= 16, "half a record");
    for (std::size_t i = 0; i < 8; ++i) {
      push |= std::uint64_t{static_cast<std::uint8_t>(records[i])} << (8 * i);
      bytes |= std::uint64_t{static_cast<std::uint8_t>(records[8 + i])} << (8 * i);
    }
    require(records.size() >= 16 + bytes, "half a record");
    records.remove_prefix(16 + bytes);
    pushes.push_back(push);
  }
  return pushes;
}

// One entry, as etcd took it or as a copy has it.
struct Pushes {
  Tail at;
  std::vector<Push> pushes;
};

// A member's copy: everything up to `base`, then entries one by one.
struct Copy {
  Tail base;
  std::vector<Push> history;  // up to base
  std::vector<Pushes> links;

  Tail stamp() const { return links.empty() ? base : links.back().at; }
  std::vector<Push> all() const {
    std::vector<Push> pushes = history;
    for (const Pushes& link : links) {
      pushes.insert(pushes.end(), link.pushes.begin(), link.pushes.end());
    }
    return pushes;
  }
};

// What all members see of the world.
struct Shared {
  Shared(std::uint64_t seed, ClusterMistake mistake)
      : random(seed), cluster(agenda, random, mistake) {}
  bool in_trouble() const { return !cluster.is_calm(); }
  bool chance(std::uint64_t n) { return in_trouble() && random.one_in(n); }
  void acknowledge(Push push) {
    require(committed.contains(push), "a push is acknowledged that is not in the log");
    acknowledged.insert(push);
    heard[push >> 32] = agenda.now();
  }

  test::Random random;
  Agenda agenda;
  Cluster cluster;
  std::vector<Pushes> chain;
  std::set<Push> committed;
  std::set<Push> acknowledged;
  std::vector<Micros> heard = std::vector<Micros>(kClients);  // when each client last was
};

class PushReplica final : public Replica {
 public:
  PushReplica(Shared& world, std::size_t member) : world_(world), member_(member) {}

  Tail stamp() const override { return copy_.stamp(); }
  bool catch_up(const TakeOver& read) override;
  void lead(ShardLog& log, const TakeOver&) override {
    log_ = &log;
    for (const Push push : copy_.all()) known_[push] = 0;
  }
  void stop_leading() override {
    log_ = nullptr;
    known_.clear();
    in_change_.clear();
    settled_ = 0;
    snapshot_sequence_ = 0;
  }
  void settle() override;
  Index covered_before() override;
  void stop_serving() override {}
  bool is_idle() const override { return in_change_.empty(); }
  void lose_copy(bool all) override {
    if (all) {
      copy_ = {};
    } else {  // what was not synced
      copy_.links.resize(world_.random.below(copy_.links.size() + 1));
    }
  }

  void on_push(Push wanted);

 private:
  void check_copy() const;
  void snapshot();

  Shared& world_;
  const std::size_t member_;
  Copy copy_;
  // The leader's engine.
  ShardLog* log_ = nullptr;
  std::map<Push, Ticket> known_;  // pushes, and the change that they are in; 0: recovered
  std::map<Ticket, std::vector<Push>> in_change_;
  Ticket settled_ = 0;
  Sequence snapshot_sequence_ = 0;
};

bool PushReplica::catch_up(const TakeOver& read) {
  const CatchUp how = how_to_catch_up(read, copy_.stamp());
  require(how != CatchUp::kSetBack, "a copy is off the chain");
  if (how == CatchUp::kRebuild) {
    require(read.pointers.size() == 1, "entries are gone, and no snapshot covers them");
    const Pointer& pointer = read.pointers[0].second;
    std::string bytes;
    if (!fetch_snapshot(world_.cluster, kJob, pointer, bytes)) return false;
    copy_ = {};
    copy_.history = pushes_of(bytes);
    require(copy_.history.size() == pointer.sequence, "a snapshot of another sequence");
    // An entry that it has in part is taken from the log again.
    std::size_t covered = 0;
    for (const Pushes& link : world_.chain) {
      if (covered + link.pushes.size() > pointer.sequence) break;
      covered += link.pushes.size();
      copy_.base = link.at;
    }
    copy_.history.resize(covered);
    require(copy_.base.index + 1 >= read.first.index, "a snapshot does not reach to the log");
    ++world_.cluster.figures().rebuilt;
  }
  for (const Entry& entry : read.log) {
    const Index index = read.first.index + static_cast<Index>(&entry - read.log.data());
    if (index != copy_.stamp().index + 1) continue;
    require(entry.previous == copy_.stamp().nonce, "an entry follows another one");
    copy_.links.push_back({{index, entry.nonce}, pushes_of(entry.records)});
  }
  check_copy();
  return true;
}

// It is a range of the chain that ends at its stamp.
void PushReplica::check_copy() const {
  std::vector<Push> pushes;
  for (const Pushes& link : world_.chain) {
    if (link.at.index > copy_.stamp().index) break;
    pushes.insert(pushes.end(), link.pushes.begin(), link.pushes.end());
  }
  require(copy_.all() == pushes, "a copy is no range of the log");
}

// Releases what is committed, and writes the copy.
void PushReplica::settle() {
  std::vector<Push> committed;
  for (; settled_ < log_->committed(); ++settled_) {
    const std::vector<Push>& pushes = in_change_[settled_ + 1];
    committed.insert(committed.end(), pushes.begin(), pushes.end());
    in_change_.erase(settled_ + 1);
  }
  if (copy_.stamp() != log_->tail()) {
    require(copy_.stamp().index + 1 == log_->tail().index, "the leader's copy skips an entry");
    copy_.links.push_back({log_->tail(), committed});
    require(log_->tail().index <= world_.chain.size(), "a leader takes for committed what is not");
    const Pushes& link = world_.chain[log_->tail().index - 1];
    require(link.at == log_->tail() && link.pushes == committed, "what is released is not there");
  }
  for (const Push push : committed) {
    known_[push] = 0;
    world_.acknowledge(push);
  }
  if (world_.random.one_in(40)) snapshot();
}

void PushReplica::snapshot() {
  std::string bytes;
  std::vector<Push> all = copy_.all();
  for (Ticket ticket = settled_ + 1; in_change_.contains(ticket); ++ticket) {
    all.insert(all.end(), in_change_[ticket].begin(), in_change_[ticket].end());
  }
  if (all.size() <= snapshot_sequence_) return;
  snapshot_sequence_ = all.size();
  const std::size_t padding = world_.chance(10) ? 1'000 : 0;
  for (const Push push : all) bytes += record_of(push, padding);
  log_->add_snapshot(kJob, all.size(), std::move(bytes));
}

Index PushReplica::covered_before() {
  Pointer pointer;
  const Cluster& cluster = world_.cluster;
  const auto* item = cluster.etcd().find(cluster.keys().pointer(kJob));
  if (item == nullptr || !decode(item->value, pointer)) return 0;
  std::size_t covered = copy_.history.size();
  Index before = copy_.base.index + 1;
  for (const Pushes& link : copy_.links) {
    if (covered + link.pushes.size() > pointer.sequence) break;
    covered += link.pushes.size();
    before = link.at.index + 1;
  }
  return before;
}

void PushReplica::on_push(Push wanted) {
  if (!world_.cluster.serves(member_)) return;
  const auto at = known_.find(wanted);
  if (at != known_.end()) {
    if (at->second == 0) world_.acknowledge(wanted);
    return;
  }
  const bool large = world_.chance(1000);
  if (large) ++world_.cluster.figures().large;
  const Ticket ticket =
      log_->add({record_of(wanted, large ? kGroupBytesMax + 1 : world_.random.below(100))});
  known_[wanted] = ticket;
  in_change_[ticket] = {wanted};
  world_.cluster.append(member_);
}

class World {
 public:
  World(std::uint64_t seed, ClusterMistake mistake) : shared_(seed, mistake) {
    shared_.cluster.on_entry = [this](const Link& link) {
      shared_.chain.push_back({link.at, pushes_of(link.records)});
      for (const Push push : shared_.chain.back().pushes) {
        require(shared_.committed.insert(push).second, "a push is committed twice");
      }
    };
    std::vector<std::unique_ptr<Replica>> replicas;
    for (std::size_t i = 0; i < kMembers; ++i) {
      replicas.push_back(std::make_unique<PushReplica>(shared_, i));
      replicas_.push_back(static_cast<PushReplica*>(replicas.back().get()));
    }
    shared_.cluster.start(std::move(replicas));
    for (int i = 0; i < kClients; ++i) {
      shared_.agenda.at(shared_.random.between(0, kSecond),
                        [this, i] { push(static_cast<Push>(i) << 32 | 1); });
    }
    shared_.agenda.at(kTroubleEnds, [this] { shared_.cluster.become_calm(); });
  }

  ClusterFigures run() {
    while (shared_.agenda.now() < kEnd && shared_.agenda.step()) shared_.cluster.check_grants();
    for (const Micros heard : shared_.heard) {
      require(heard > kEnd - 10 * kSecond, "a client is not heard any more");
    }
    // Each is there once: none may come twice.
    for (const Push push : shared_.acknowledged) {
      require(shared_.committed.contains(push), "an acknowledged push is not in the log");
    }
    shared_.cluster.figures().acknowledged = shared_.acknowledged.size();
    return shared_.cluster.figures();
  }

 private:
  // Asks until somebody acknowledges it, then for the next one.
  void push(Push wanted) {
    test::Random& random = shared_.random;
    if (shared_.acknowledged.contains(wanted)) {
      shared_.agenda.in(random.between(0, 50 * kMillisecond), [this, wanted] { push(wanted + 1); });
      return;
    }
    const std::size_t member = random.below(kMembers);
    shared_.agenda.in(random.between(kMillisecond / 2, 8 * kMillisecond), [this, member, wanted] {
      if (!shared_.cluster.is_up(member)) return;
      shared_.cluster.when_running(member,
                                   [this, member, wanted] { replicas_[member]->on_push(wanted); });
    });
    shared_.agenda.in(random.between(20 * kMillisecond, 200 * kMillisecond),
                      [this, wanted] { push(wanted); });
  }

  Shared shared_;
  std::vector<PushReplica*> replicas_;
};

}  // namespace

ClusterFigures run_cluster(std::uint64_t seed, ClusterMistake mistake) {
  return World(seed, mistake).run();
}

}  // namespace syncd::simulation
