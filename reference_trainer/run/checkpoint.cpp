// Checkpoints on disk: see checkpoint.h.
//
// A file: magic, its whole length, the identity and the shard as CBOR, and a checksum of all before
// it. The length, the checksum and parameters are as this machine has them.
#include "reference_trainer/run/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "reference_trainer/data/data_file.h"
#include "reference_trainer/run/policies.h"

namespace syncd::trainer {
namespace {

namespace fs = std::filesystem;
using Cbor = nlohmann::json;

constexpr std::string_view kMagic = "syncd trainer checkpoint 2\n";
constexpr std::string_view kEnding = ".ckpt";
constexpr std::size_t kCompleteKept = 2;
constexpr std::size_t kDirectoryBytesMax = 900;  // the daemon takes locations of 1024 bytes

std::uint64_t checksum(std::string_view bytes) {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325ULL;  // FNV-1a
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x0000'0100'0000'01b3ULL;
  }
  return hash;
}

// No damage: it must not be passed over.
class OtherTraining : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

std::string bytes_of(std::uint64_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::uint64_t number_at(std::string_view bytes, std::size_t place) {
  std::uint64_t number = 0;
  bytes.substr(place).copy(reinterpret_cast<char*>(&number), sizeof number);
  return number;
}

Cbor binary(const std::vector<float>& values) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  return Cbor::binary({bytes, bytes + values.size() * sizeof(float)});
}

std::vector<float> floats(const Cbor& binary) {
  const Cbor::binary_t& bytes = binary.get_binary();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::uint8_t*>(values.data()));
  return values;
}

std::string encode(const TrainingIdentity& identity, const Shard& shard) {
  const Cbor fields{{"identity", identity},
                    {"rank", shard.rank},
                    {"iteration", shard.iteration},
                    {"iterations", shard.iterations},
                    {"parameters", binary(shard.parameters)},
                    {"state", binary(shard.state)}};
  std::string body;
  Cbor::to_cbor(fields, body);
  const std::size_t length = kMagic.size() + body.size() + 2 * sizeof(std::uint64_t);
  const std::string file = std::string(kMagic) + bytes_of(length) + body;
  return file + bytes_of(checksum(file));
}

// What a shard's name says.
struct Name {
  CheckpointId id;
  std::uint64_t rank = 0;
  std::uint64_t workers = 0;
};

std::optional<Name> parse_name(std::string_view name) {
  if (!name.ends_with(kEnding)) return std::nullopt;
  std::vector<std::string_view> parts;
  split_fields(name.substr(0, name.size() - kEnding.size()), '-', parts);
  if (parts.size() != 4) return std::nullopt;
  const std::size_t of = parts[3].find("of");
  if (of == std::string_view::npos) return std::nullopt;
  const auto start = parse_unsigned(parts[0]);
  const auto number = parse_unsigned(parts[1]);
  const auto rank = parse_unsigned(parts[3].substr(0, of));
  const auto workers = parse_unsigned(parts[3].substr(of + 2));
  if (!start || !number || !parse_unsigned(parts[2]) || !rank || !workers) return std::nullopt;
  return Name{{*start, *number}, *rank, *workers};
}

// The files of a checkpoint, by rank; `workers` as their names say.
struct Files {
  std::uint64_t workers = 0;
  std::map<std::uint64_t, fs::path> by_rank;

  bool complete() const { return by_rank.size() == workers; }
};

std::map<CheckpointId, Files> list(const fs::path& directory) {
  std::map<CheckpointId, Files> found;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const auto name = parse_name(at->path().filename().native());
    if (!name || name->rank >= name->workers) continue;
    Files& files = found[name->id];
    files.workers = name->workers;
    files.by_rank[name->rank] = at->path();
  }
  if (!error) return found;
  throw CheckpointError(
      fmt::format("--checkpoint: {} cannot be read: {}", directory.string(), error.message()));
}

void remove_older(const fs::path& directory, std::uint64_t rank) {
  const auto found = list(directory);
  std::size_t complete = 0;
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    const auto own = at->second.by_rank.find(rank);
    if (complete >= kCompleteKept && own != at->second.by_rank.end()) {
      std::error_code ignored;  // it is tried again after the next checkpoint
      fs::remove(own->second, ignored);
    }
    complete += at->second.complete() ? 1 : 0;
  }
}

// Throws if the file is of another training.
void compare(const fs::path& file, const TrainingIdentity& stored, const TrainingIdentity& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (i < stored.size() && stored[i] == wanted[i]) continue;
    throw OtherTraining(fmt::format(
        "--checkpoint: {} is of another training: its {} is {}, here it is {}; allowed: the same "
        "training, or another directory",
        file.string(), wanted[i].first, i < stored.size() ? stored[i].second : "not known",
        wanted[i].second));
  }
}

Checkpoint load(CheckpointId id, const Files& files, const TrainingIdentity& identity) {
  Checkpoint result;
  result.id = id;
  for (const auto& [rank, file] : files.by_rank) {
    StoredShard stored = read_shard(file);
    compare(file, stored.identity, identity);
    Shard& shard = stored.shard;
    result.iteration = rank == 0 ? shard.iteration : std::min(result.iteration, shard.iteration);
    result.files.push_back(file);
    result.iterations.push_back(shard.iterations);
    if (rank == 0) result.parameters = std::move(shard.parameters);
  }
  return result;
}

}  // namespace

TrainingIdentity identity_of(const WorkloadConfig& config, std::string_view policy,
                             HopOrder hop_order, std::size_t parameters) {
  TrainingIdentity identity = {{"workload", std::string(workload_name(config.kind))},
                               {"number of workers", std::to_string(config.workers)},
                               {"policy", std::string(policy)},
                               {"seed", std::to_string(config.seed)},
                               {"batch", std::to_string(config.batch)},
                               {"learning rate", fmt::format("{}", config.learning_rate)},
                               {"momentum", fmt::format("{}", config.momentum)},
                               {"weight decay", fmt::format("{}", config.weight_decay)},
                               {"number of parameters", std::to_string(parameters)}};
  if (config.decay != RateDecay{}) identity.emplace_back("decay", decay_text(config.decay));
  if (has_hop_order(policy)) {
    identity.emplace_back("order", hop_order == HopOrder::kSerial ? "serial" : "parallel");
  }
  return identity;
}

fs::path save_shard(const fs::path& directory, const TrainingIdentity& identity, CheckpointId id,
                    const Shard& shard) {
  const auto workers = std::find_if(identity.begin(), identity.end(), [](const auto& field) {
    return field.first == "number of workers";
  });
  const std::string name = fmt::format("{}-{}-{}-{}of{}{}", id.start, id.number, shard.iteration,
                                       shard.rank, workers->second, kEnding);
  const fs::path file = directory / name;
  const fs::path part = directory / fmt::format(".{}.part", name);
  const UniqueFd fd(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  const std::string bytes = encode(identity, shard);
  const bool written = fd.get() >= 0 && write_all(fd.get(), bytes) == bytes.size() &&
                       ::fsync(fd.get()) == 0 && ::rename(part.c_str(), file.c_str()) == 0 &&
                       sync_to_disk(directory.string());
  if (!written) {
    const int reason = errno;
    ::unlink(part.c_str());
    throw CheckpointError(fmt::format("checkpoint {} cannot be saved: {}: {}", id.number,
                                      file.string(), std::strerror(reason)));
  }
  remove_older(directory, static_cast<std::uint64_t>(shard.rank));
  return file;
}

StoredShard read_shard(const fs::path& file) {
  std::string bytes;
  if (!read_file(file.string(), bytes)) {
    throw CheckpointError(
        fmt::format("{} cannot be read: {}", file.string(), std::strerror(errno)));
  }
  constexpr std::size_t kHead = kMagic.size() + sizeof(std::uint64_t);
  const std::string_view all = bytes;
  if (!all.starts_with(kMagic) || all.size() < kHead + sizeof(std::uint64_t)) {
    throw CheckpointError(
        fmt::format("{} is damaged: it does not begin as a checkpoint does", file.string()));
  }
  if (const std::uint64_t length = number_at(all, kMagic.size()); length != all.size()) {
    throw CheckpointError(fmt::format("{} is damaged: it has {} bytes and should have {}",
                                      file.string(), all.size(), length));
  }
  const std::size_t end = all.size() - sizeof(std::uint64_t);
  if (number_at(all, end) != checksum(all.substr(0, end))) {
    throw CheckpointError(fmt::format("{} is damaged: its checksum is wrong", file.string()));
  }
  const Cbor body = Cbor::from_cbor(all.substr(kHead, end - kHead));
  return {.identity = body["identity"].get<TrainingIdentity>(),
          .shard = {.rank = body["rank"],
                    .iteration = body["iteration"],
                    .iterations = body["iterations"],
                    .parameters = floats(body["parameters"]),
                    .state = floats(body["state"])}};
}

fs::path find_shard(const fs::path& directory, CheckpointId id, int rank) {
  const auto found = list(directory);
  if (const auto files = found.find(id); files != found.end()) {
    const auto& by_rank = files->second.by_rank;
    const auto file = by_rank.find(static_cast<std::uint64_t>(rank));
    if (file != by_rank.end()) return file->second;
  }
  throw CheckpointError(fmt::format("the shard of worker {} of checkpoint {} is gone from {}", rank,
                                    id.number, directory.string()));
}

std::int64_t Checkpoint::all_iterations() const {
  return std::accumulate(iterations.begin(), iterations.end(), std::int64_t{0});
}

CheckpointDirectory::CheckpointDirectory(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    throw CheckpointError(
        fmt::format("--checkpoint: {} cannot be made: {}", directory.string(), error.message()));
  }
  directory_ = fs::absolute(directory);
  if (directory_.native().size() > kDirectoryBytesMax) {
    throw CheckpointError(fmt::format("--checkpoint: the path has {} bytes; allowed: {}",
                                      directory_.native().size(), kDirectoryBytesMax));
  }
  const fs::path lock = directory_ / "lock";
  lock_ = UniqueFd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_ || ::access(directory_.c_str(), W_OK | X_OK) != 0) {
    throw CheckpointError(fmt::format("--checkpoint: {} cannot be written: {}", directory.string(),
                                      std::strerror(errno)));
  }
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw CheckpointError(fmt::format(
        "--checkpoint: another trainer uses {}; allowed: one at a time", directory.string()));
  }
}

std::optional<Checkpoint> CheckpointDirectory::newest(
    const TrainingIdentity& identity, int workers,
    const std::function<void(const std::string&)>& tell) const {
  const auto found = list(directory_);
  std::string damage;
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    const auto& [id, files] = *at;
    // Before it is complete, because fewer workers may never have completed it.
    if (files.workers != static_cast<std::uint64_t>(workers)) {
      compare(files.by_rank.begin()->second,
              {{"workload", identity.front().second},
               {"number of workers", std::to_string(files.workers)}},
              identity);
    }
    if (!files.complete()) continue;
    if (!damage.empty()) tell(damage + "; the checkpoint before it is tried");
    try {
      return load(id, files, identity);
    } catch (const OtherTraining&) {
      throw;
    } catch (const CheckpointError& error) {
      damage = error.what();
    }
  }
  if (damage.empty()) return std::nullopt;
  throw CheckpointError(fmt::format(
      "--checkpoint: {}, and there is no complete checkpoint before it; allowed: another directory",
      damage));
}

std::uint64_t CheckpointDirectory::next_start() const {
  const auto found = list(directory_);
  return found.empty() ? 1 : found.rbegin()->first.start + 1;
}

}  // namespace syncd::trainer
