// Which samples a minibatch holds, and how it is cut into micro-batches. Used by one thread at a
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "reference_trainer/model/random.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

// Parts of a minibatch between which a worker asks whether to start over.
inline constexpr int kMicroBatches = 4;

// Draws minibatches: worker w trains on the samples w, w + workers, w + 2 * workers, ... of the
// (already shuffled) training samples, drawn with replacement.
class BatchSampler {
 public:
  BatchSampler(const WorkloadConfig& config, std::size_t training)
      : seed_(config.seed),
        workers_(static_cast<std::size_t>(config.workers)),
        training_(training),
        samples_(static_cast<std::size_t>(config.batch)) {}

  void start(BatchKey key) {
    const auto worker = static_cast<std::size_t>(key.worker) % workers_;
    const std::size_t own = (training_ - worker + workers_ - 1) / workers_;
    for (std::size_t k = 0; k < samples_.size(); ++k) {
      const std::uint64_t bits =
          draw_bits(seed_ + worker, Stream::kBatch, static_cast<std::uint64_t>(key.iteration), k);
      samples_[k] = worker + workers_ * to_index(bits, own);
    }
  }

  int parts() const {
    return static_cast<int>(std::min<std::size_t>(kMicroBatches, samples_.size()));
  }
  std::size_t size() const { return samples_.size(); }
  std::span<const std::size_t> all() const { return samples_; }

  std::span<const std::size_t> part(int index) const {
    const auto i = static_cast<std::size_t>(index);
    const auto n = static_cast<std::size_t>(parts());
    const std::size_t first = samples_.size() * i / n;
    return std::span(samples_).subspan(first, samples_.size() * (i + 1) / n - first);
  }

 private:
  std::uint64_t seed_;
  std::size_t workers_;
  std::size_t training_;
  std::vector<std::size_t> samples_;
};

}  // namespace syncd::trainer
