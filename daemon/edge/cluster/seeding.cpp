// See seeding.h.
#include "daemon/edge/cluster/seeding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <ranges>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/core/cluster/shard_log.h"
#include "daemon/core/cluster/take_over.h"
#include "daemon/edge/cluster/administration.h"
#include "daemon/edge/cluster/log_records.h"
#include "daemon/edge/cluster/random_number.h"
#include "daemon/edge/store/store.h"
#include "proto/base/shard.h"

namespace syncd::cluster {
namespace {

// Who leads a cluster that is being made; no member can have such a name.
constexpr const char* kSeeder = "";
constexpr int kSeedTries = 10;
constexpr std::chrono::milliseconds kSeedRetryAfter(200);
constexpr Micros kStampTimeout = 20'000'000;

// Of a shard, as members on one machine have them.
std::string store_of(const std::string& path, Shard shard) {
  return shard == 0 ? path : fmt::format("{}.{}", path, shard);
}

std::string prefix_of(const ShardKeys& keys) {
  const std::string leader = keys.leader();
  return leader.substr(0, leader.rfind('/') + 1);
}

class Seeder {
 public:
  Seeder(Etcd& etcd, const std::string& name, Shard shard, Micros timeout)
      : etcd_(etcd), name_(name), shard_(shard), keys_(name, shard), timeout_(timeout) {}

  // Whether the cluster may be made of a store with this stamp.
  bool check(const Stamp& stamp, std::string& error);
  // Whether the cluster that is there lacks something that the store has.
  bool is_ahead(const Stamp& stamp, std::string& error);
  bool has_cluster(const Stamp& stamp) const {
    return config_created_ != 0 && before_.generation == stamp.generation;
  }
  // The cluster that is made: of all shards the same.
  Config plan(const Stamp& stamp) const;
  // `config_created`: of the configuration that is there, as check() saw it; 0: it is gone.
  bool begin(const Config& config, Revision config_created, std::string& error);
  Revision config_created() const { return config_created_; }
  bool add(store::RecoveredJob&& job, std::string& error);
  // Of shard 0 last: from there on members can lead.
  bool end(Epoch removed_epoch, std::string& error);

  std::size_t jobs() const { return jobs_; }
  const Tail& tail() const { return log_->tail(); }

 private:
  Answer transact(const Transaction& transaction);
  bool drain(Ticket ticket, std::string& error);

  Etcd& etcd_;
  const std::string name_;
  const Shard shard_;
  const ShardKeys keys_;
  const Micros timeout_;
  const KeyValue* there(const Answer& seen) const { return seen.find(config_key(name_)); }

  Revision config_created_ = 0;
  Revision leader_created_ = 0;
  Config before_;
  Config config_;
  Nonce nonces_{random_number(), 0};
  std::optional<ShardLog> log_;
  store::RecordEncoder encoder_;
  std::size_t jobs_ = 0;
};

// Until an answer decides. What is sent may be sent twice.
Answer Seeder::transact(const Transaction& transaction) {
  Answer answer;
  for (int i = 0; i < kSeedTries; ++i) {
    answer = etcd_.transact(transaction, 0, timeout_);
    if (answer.kind != Answer::Kind::kUnknown) break;
    std::this_thread::sleep_for(kSeedRetryAfter);
  }
  return answer;
}

// Whether the copy has entries that the log in etcd has not, or that is damaged. False, with a
// sentence in `error`: it has none, or that is not known.
bool Seeder::is_ahead(const Stamp& stamp, std::string& error) {
  TakeOver read;
  std::string damaged;
  const Index from = stamp.tail.index + 1;
  const Answer answer = transact(take_over_read(keys_, from));
  if (answer.kind != Answer::Kind::kThen) {
    error = answer.error;
    return false;
  }
  error = "etcd has all that this copy has: start the members";
  return !parse_take_over(keys_, answer, read, damaged, from) ||
         how_to_catch_up(read, stamp.tail) == CatchUp::kSetBack;
}

bool Seeder::check(const Stamp& stamp, std::string& error) {
  const std::string members = keys_.members();
  const Answer seen = transact({{},
                                {{Op::Kind::kGet, config_key(name_)},
                                 {Op::Kind::kGet, keys_.leader()},
                                 {Op::Kind::kGet, members, "", end_of(members)}},
                                {}});
  if (seen.kind != Answer::Kind::kThen) {
    error = seen.error;
    return false;
  }
  std::set<std::string> alive;
  for (const KeyValue& item : seen.got) {
    if (item.key.starts_with(members)) alive.insert(item.key.substr(members.size()));
  }
  const KeyValue* leader = seen.find(keys_.leader());
  Leader who;
  if (leader != nullptr && !(decode(leader->value, who) && who.member == kSeeder)) {
    alive.insert(who.member);
  }
  if (!alive.empty()) {
    error =
        fmt::format("members of cluster '{}' run, or have until a moment ago: {}; stop them all",
                    name_, fmt::join(alive, ", "));
    return false;
  }
  leader_created_ = leader == nullptr ? 0 : leader->created;
  const KeyValue* config = there(seen);
  config_created_ = config == nullptr ? 0 : config->created;
  before_.generation = 0;
  if (config != nullptr && !parse_config(seen, name_, before_, error)) return false;
  if (config != nullptr && (stamp.generation == 0 || stamp.cluster != before_.cluster)) {
    error = fmt::format(
        "cluster '{}' exists already, and the store is no copy of its history: name another "
        "cluster.name; or, if nothing of that cluster is needed, stop its members and remove it, "
        "`etcdctl del --prefix /syncd/{}/v1/`",
        name_, name_);
    return false;
  }
  if (before_.generation > stamp.generation) {
    error = fmt::format("the copy is of generation {}, and the cluster of {}", stamp.generation,
                        before_.generation);
    return false;
  }
  return true;
}

Config Seeder::plan(const Stamp& stamp) const {
  Config config;
  config.shards = stamp.shards;
  config.cluster = stamp.cluster;
  if (stamp.generation == 0) {
    for (std::uint8_t& byte : config.cluster) byte = static_cast<std::uint8_t>(random_number());
  }
  config.generation = std::max(before_.generation, stamp.generation) + 1;
  return config;
}

// Takes away what there is of the cluster, so that no member can lead, and begins a log whose first
// entry is not there any more: an empty copy is made of the snapshots.
bool Seeder::begin(const Config& config, Revision config_created, std::string& error) {
  config_ = config;
  const std::string prefix = prefix_of(keys_);
  const std::string leader = encode(Leader{nonces_, kSeeder});
  const Tail tail{1, {nonces_.process, ++nonces_.count}};
  Transaction anew;
  anew.compares = {{config_key(name_), config_created}, {keys_.leader(), leader_created_}};
  anew.then = {{Op::Kind::kDelete, config_key(name_)},
               {Op::Kind::kDelete, prefix, "", end_of(prefix)}};
  anew.otherwise = {{Op::Kind::kGet, keys_.leader()}};
  Answer answer = transact(anew);
  Transaction made;
  made.compares = {{config_key(name_), 0}, {keys_.leader(), 0}};
  made.then = {{Op::Kind::kPut, keys_.first(), encode(First{2})},
               {Op::Kind::kPut, keys_.tail(), encode(tail)},
               {Op::Kind::kPut, keys_.meta(), encode(Meta{})},
               {Op::Kind::kPut, keys_.leader(), leader}};
  made.otherwise = {{Op::Kind::kGet, keys_.leader()}};
  // An attempt of either whose answer got lost lets the next one find the other branch.
  if (answer.kind != Answer::Kind::kRefused) answer = transact(made);
  const Answer seen = transact({{}, {{Op::Kind::kGet, keys_.leader()}}, {}});
  const KeyValue* item = seen.find(keys_.leader());
  if (item == nullptr || item->value != leader) {
    error = !answer.error.empty() ? answer.error
            : !seen.error.empty() ? seen.error
                                  : "cluster '" + name_ + "' has changed meanwhile: try again";
    return false;
  }
  log_.emplace(keys_, Term{config_.generation, item->created}, nonces_, tail, First{2});
  return true;
}

bool Seeder::drain(Ticket ticket, std::string& error) {
  while (std::optional<Attempt> attempt = log_->next()) {
    const Answer answer = transact(attempt->transaction);
    log_->on_answer(attempt->number, answer);
    if (log_->deposed() || log_->unfit() || answer.kind == Answer::Kind::kUnknown) {
      error = answer.error.empty() ? "somebody else makes the cluster, too" : answer.error;
      return false;
    }
  }
  return log_->committed() >= ticket;
}

bool Seeder::add(store::RecoveredJob&& job, std::string& error) {
  const JobId id = job.snapshot ? job.snapshot->created.job : job.records.front().job;
  if (id % config_.shards != shard_) {
    error = fmt::format(
        "job #{} of the copy for shard {} is of another shard: are the copies mixed up?", id,
        shard_);
    return false;
  }
  Ticket last = log_->committed();
  if (job.snapshot) {
    log_->add_snapshot(job.snapshot->created.job, job.snapshot->sequence,
                       encode_snapshot(*job.snapshot, encoder_));
  }
  for (std::size_t i = 0; i < job.records.size();) {
    std::string bytes;
    // An entry is not divided.
    while (i < job.records.size() && bytes.size() < kGroupBytesMax / 2) {
      bytes += encode_records({job.records[i++]}, encoder_);
    }
    last = log_->add({std::move(bytes)});
  }
  ++jobs_;
  return drain(last, error);
}

bool Seeder::end(Epoch removed_epoch, std::string& error) {
  Transaction made;
  made.compares = {{keys_.leader(), 0, encode(Leader{{nonces_.process, 0}, kSeeder})}};
  if (shard_ == 0) {
    made.then.push_back({Op::Kind::kPut, config_key(name_), encode(config_)});
    for (Shard shard = 0; shard < config_.shards; ++shard) {
      made.then.push_back({Op::Kind::kDelete, ShardKeys(name_, shard).leader()});
    }
  }
  made.then.push_back({Op::Kind::kPut, keys_.meta(), encode(Meta{1, removed_epoch})});
  made.otherwise = {{Op::Kind::kGet, config_key(name_)}};
  const Answer answer = transact(made);
  if (answer.kind == Answer::Kind::kThen) return true;
  const KeyValue* config = there(answer);
  if (config != nullptr && config->value == encode(config_)) return true;  // an answer got lost
  error = answer.error.empty() ? "somebody else makes the cluster, too" : answer.error;
  return false;
}

// `reads_all`: and whether all of the store can be read.
bool read_stamp(store::Options options, bool reads_all, Stamp& stamp, std::string& error) {
  options.read_only = true;
  const auto store = store::open_rocks_store(options, error);
  const auto skip = [](store::RecoveredJob&&, std::string&) { return true; };
  if (store == nullptr || (reads_all && !store->load_each(skip, error))) return false;
  const std::string text = store->stamp();
  stamp = {};
  if (text.empty() || parse_stamp(text, stamp)) return true;
  error = "store " + options.path + ": its cluster's stamp is damaged: '" + text + "'";
  return false;
}

bool write_stamp(store::Store& store, const Stamp& stamp, std::string& error) {
  std::mutex mutex;
  std::string problem;
  store.start([&](const store::CommitReport& report) {
    const std::lock_guard lock(mutex);
    problem = report.error;
  });
  store::Batch batch;
  batch.stamp = to_text(stamp);
  if (store.submit(1, std::move(batch)) && store.close(kStampTimeout, error)) return true;
  const std::lock_guard lock(mutex);
  if (error.empty()) error = problem.empty() ? "the store does not write" : problem;
  return false;
}

}  // namespace

bool read_copy(const std::string& path, Stamp& stamp, std::string& error) {
  store::Options options;
  options.path = path;
  if (!read_stamp(options, false, stamp, error)) return false;
  if (stamp.generation != 0) return true;
  error = "store " + path + " is no copy of a cluster's history";
  return false;
}

bool may_begin_without(const std::string& path, std::string& error) {
  for (Shard shard = 0; shard < kShardsMax; ++shard) {
    store::Options options;
    options.path = store_of(path, shard);
    std::error_code why;
    if (!std::filesystem::exists(options.path + "/CURRENT", why)) {
      if (!why) continue;
      error = fmt::format(
          "whether {} holds a copy of a cluster's history cannot be seen: {}; call this as the "
          "user that syncd runs as",
          options.path, why.message());
      return false;
    }
    Stamp stamp;
    if (!read_stamp(options, false, stamp, error)) return false;
    if (stamp.generation == 0) continue;
    error = fmt::format(
        "{} holds a copy of a cluster's history, up to entry {} of generation {}: begin with it, "
        "`syncctl cluster init --from {}`; to lose it, move it away",
        options.path, stamp.tail.index, stamp.generation, path);
    return false;
  }
  return true;
}

bool seed_from(Etcd& etcd, const std::string& name, const std::string& path, Micros timeout,
               Seeded& seeded, std::string& error) {
  struct Source {
    Stamp stamp;
    std::unique_ptr<store::Store> store;
    std::unique_ptr<Seeder> seeder;
  };
  std::vector<Source> sources;
  bool is_ahead = false;
  for (Shard shard = 0; shard == 0 || shard < sources.front().stamp.shards; ++shard) {
    Source& source = sources.emplace_back();
    store::Options options;
    options.path = store_of(path, shard);
    if (!read_stamp(options, true, source.stamp, error)) return false;
    options.is_copy = source.stamp.generation != 0;
    source.store = store::open_rocks_store(options, error);  // fails if a daemon has it
    if (source.store == nullptr) return false;
    const Stamp& first = sources.front().stamp;
    const Stamp& stamp = source.stamp;
    if (stamp.cluster != first.cluster || stamp.generation != first.generation ||
        stamp.shards != first.shards) {
      error = fmt::format("{} is not a copy of shard {} of the same cluster and generation as {}",
                          options.path, shard, path);
      return false;
    }
    source.seeder = std::make_unique<Seeder>(etcd, name, shard, timeout);
    if (!source.seeder->check(stamp, error)) return false;
    is_ahead =
        is_ahead || !source.seeder->has_cluster(stamp) || source.seeder->is_ahead(stamp, error);
  }
  if (!is_ahead) return false;
  error.clear();
  const Config config = sources.front().seeder->plan(sources.front().stamp);
  seeded.generation = config.generation;
  const auto stamp = [&](const Source& source) {
    const Tail tail = source.seeder->tail();
    return write_stamp(*source.store, {config.cluster, config.generation, tail, config.shards},
                       error);
  };
  // The first takes the old configuration away.
  Revision config_created = sources.front().seeder->config_created();
  for (Source& source : sources) {
    if (!source.seeder->begin(config, std::exchange(config_created, 0), error)) return false;
  }
  // Shard 0 last, with the configuration: nobody leads any of them before.
  for (Source& source : std::views::reverse(sources)) {
    Seeder& seeder = *source.seeder;
    const auto add = [&](store::RecoveredJob&& job, std::string& why) {
      return seeder.add(std::move(job), why);
    };
    if (!source.store->load_each(add, error)) return false;
    // Before there is a cluster that others may lead: a single daemon cannot go on with it then. Of
    // several, which no single daemon opens, all or none may be stamped when this is called again.
    const bool is_only = config.shards == 1;
    if (is_only && !stamp(source)) return false;
    if (!seeder.end(source.store->removed_epoch(), error)) return false;
    seeded.jobs += seeder.jobs();
  }
  return config.shards == 1 || std::ranges::all_of(sources, stamp);
}

}  // namespace syncd::cluster
