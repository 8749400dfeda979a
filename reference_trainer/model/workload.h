// What is trained: the seam between the training machinery (store, workers, monitor) and a model.
// A Workload knows the data, the parameters' layout and the held-out loss; a Stepper computes one
// worker's minibatches on some backend. Today's steppers run on the CPU; a stepper on another
// device keeps the same contract, because it owns the memory that pulls write into (replica()) and
// hears when that memory changed. A Workload is immutable and may be used from any thread; a
// Stepper belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reference_trainer/data/shared_arrays.h"
#include "reference_trainer/model/device_view.h"
#include "reference_trainer/model/rate_decay.h"

namespace syncd::trainer {

enum class WorkloadKind : std::int32_t { kSvm = 0, kMf = 1, kCnn = 2 };

// What computes.
enum class Backend : std::int32_t { kCpu = 0, kCuda = 1 };

// In what products of matrices multiply on a GPU; sums, parameters and everything else are float.
// kTf32 and kBf16 keep 10 and 7 bits of a factor's 23, and take compute capability 8.0.
enum class Precision : std::int32_t { kFloat = 0, kTf32 = 1, kBf16 = 2 };

// "svm", "mf", "cnn".
std::string_view workload_name(WorkloadKind kind);

// Everything that, with the data, defines the training; the same in all processes of a run. Plain
// data, because it travels through shared memory.
struct WorkloadConfig {
  WorkloadKind kind = WorkloadKind::kMf;
  std::int32_t workers = 1;
  std::int32_t batch = 0;    // samples per iteration of one worker
  double learning_rate = 0;  // of one worker's first update
  RateDecay decay{};         // and of its later ones
  std::uint64_t seed = 1;
  double momentum = 0;      // cnn and svm
  double weight_decay = 0;  // cnn alone
  Backend backend = Backend::kCpu;
  Precision precision = Precision::kFloat;  // of the backend kCuda alone

  double rate_at(std::int64_t minibatch) const { return learning_rate * decayed(decay, minibatch); }
};

// A workload's own defaults, the same for every policy. All workers' steps add up, so that what can
// be afforded is shared between them: with more than a workload's full-rate workers (4 of cnn and
// svm, 16 of mf, whose steps seldom meet in a parameter), the rate is divided by what they are
// more. Chosen by `redraw_claims --learning-rates`; RESULTS.md has the table.
std::int32_t default_batch(WorkloadKind kind);
double default_learning_rate(WorkloadKind kind, std::int32_t workers);

// How many samples a single process trains on within seconds.
std::int64_t samples_of_seconds(WorkloadKind kind);

// The rate of a worker with parameters of its own. Averaging over the workers divides its step by
// their number, which a greater step makes up for: as far as `most` (peer_rate_max()), and no
// further than kPeerRateFactorMax times.
inline constexpr std::int32_t kPeerRateFactorMax = 4;
constexpr double peer_learning_rate(double rate, std::int32_t workers, double most) {
  return std::clamp(most, rate, rate * std::min(workers, kPeerRateFactorMax));
}

// How the flat vector of parameters is best cut into shards.
struct ParameterLayout {
  std::size_t parameters = 0;
  std::size_t block =
      1;  // parameters that belong together (an embedding row) and stay in one shard
};

// What one minibatch adds to the parameters: the gradient times minus the learning rate. With
// indices, deltas[i] belongs to parameter indices[i] (ascending, each once); without, the update is
// dense and deltas has one entry per parameter.
struct Update {
  std::vector<std::uint32_t> indices;
  std::vector<float> deltas;
  double loss = 0;  // mean training loss of the minibatch before the update
  std::uint64_t samples = 0;

  bool dense() const { return indices.empty() && !deltas.empty(); }
  std::size_t bytes() const {
    return indices.size() * sizeof(std::uint32_t) + deltas.size() * sizeof(float);
  }
};

// Which minibatch: the same key always draws the same samples, so that a restarted iteration
// computes on the same data and every policy sees the same sequence per worker.
struct BatchKey {
  std::int32_t worker = 0;
  std::int64_t iteration = 0;
};

struct BatchScore {
  double loss_sum = 0;      // over the samples, of -log(probability of the label)
  std::size_t correct = 0;  // samples whose label has the highest score
};

class Stepper {
 public:
  virtual ~Stepper() = default;

  // The worker's own copy of the parameters, in host memory. The caller writes pulled values and
  // its own updates here and then calls replica_changed().
  virtual std::span<float> replica() = 0;
  virtual void replica_changed() {}

  // What it carries from one minibatch to the next beside the parameters, such as a velocity; a
  // checkpoint has it too. Empty: nothing. Not of steppers whose memory is a device's.
  virtual std::span<float> state() { return {}; }

  // Chooses the minibatch and forgets what was computed for an earlier one.
  virtual void start(BatchKey key) = 0;

  // The minibatch is computed in this many parts, so that the caller can ask between them whether
  // to start over. compute(part) for part = 0, 1, ... micro_batches() - 1, each once.
  virtual int micro_batches() const = 0;
  virtual void compute(int part) = 0;

  // Where compute() only tells a device what to do, these say how far that is, without waiting.
  // ready(): compute() may be told more; it takes more at any time, but what is queued already
  // cannot be stopped at once. finished(): all that it was told is done.
  virtual bool ready() { return true; }
  virtual bool finished() { return true; }

  // Whether the caller may want to drop a minibatch; where not, it may be computed in fewer parts.
  // Called before start(); true unless it says otherwise.
  virtual void interruptible(bool) {}

  // A word in host memory that a device's kernels look at (pinned and mapped): while it is not 0,
  // what compute() queued ends early and its results are worthless. Whoever advises to start over
  // writes it (syncd_join_options.resync_flag). Lives as long as the stepper. Null: nothing looks
  // there.
  virtual std::uint32_t* resync_flag() { return nullptr; }

  // Nobody wants the minibatch any more: what of it is not done yet may end early.
  virtual void drop() {}

  // True if parts ended early, so that the result is worthless. Asked when all is finished.
  virtual bool interrupted() { return false; }

  // The update of the whole minibatch; valid until the next start().
  virtual const Update& finish() = 0;

  // Its memory, for what works on the same device. replica(), replica_changed() and finish() go
  // through host memory and wait: for callers that know nothing of devices. Whoever uses view()
  // leaves them alone.
  virtual DeviceView view() { return {}; }
  // Mean training loss of the minibatch; waits until its parts are computed.
  virtual double loss() { return finish().loss; }
  virtual std::uint64_t samples() const { return 0; }

  // What the replica makes of these samples, held out or not; waits. Of a network alone: to
  // evaluate other models takes no device.
  virtual BatchScore score(std::size_t /*first*/, std::size_t /*count*/) { return {}; }
};

class Workload {
 public:
  virtual ~Workload() = default;

  virtual std::string_view loss_name() const = 0;  // such as "held-out RMSE"
  virtual ParameterLayout layout() const = 0;
  virtual std::size_t held_out_samples() const = 0;

  // Fills the initial parameters; the same for the same seed.
  virtual void initialize(std::span<float> parameters) const = 0;

  // Loss on the held-out samples, which no stepper ever trains on.
  virtual double evaluate(std::span<const float> parameters) const = 0;

  // Share of all held-out samples whose class the model finds; nothing where it looks for none. May
  // take seconds.
  virtual std::optional<double> accuracy(std::span<const float>) const { return std::nullopt; }

  // What a curve needs of some parameters at a moment, as cheap as evaluate(). The accuracy may be
  // that of fewer samples than accuracy() has.
  struct Assessment {
    double loss = 0;
    std::optional<double> accuracy;
  };
  virtual Assessment assess(std::span<const float> parameters) const {
    return {evaluate(parameters), std::nullopt};
  }

  // The greatest rate that a worker stands which takes the steps of its own minibatches alone, as
  // measured; it may be infinite.
  virtual double peer_rate_max() const = 0;

  // Throws std::runtime_error if the backend cannot be used. Where there are several devices, the
  // workers take turns in them.
  virtual std::unique_ptr<Stepper> make_stepper(std::int32_t worker = 0) const = 0;
};

// The workload over data that prepare.h put into shared memory; `data` must outlive it. Throws
// std::invalid_argument if the data is of another kind or has fewer training samples than workers.
std::unique_ptr<Workload> make_workload(const WorkloadConfig& config, const SharedArrays& data);

// The same for a worker with parameters of its own (peer_learning_rate).
std::unique_ptr<Workload> make_peer_workload(const WorkloadConfig& config, const Workload& shared,
                                             const SharedArrays& data);

// Throws std::invalid_argument where there are fewer training samples than workers.
void check_samples(const WorkloadConfig& config, std::size_t training);

// Adds an update to a copy of the parameters.
void add_update(const Update& update, std::span<float> parameters);

// All parts of one minibatch on the stepper's replica; the result is valid until its next start().
void compute_parts(Stepper& stepper, BatchKey key);
const Update& compute_minibatch(Stepper& stepper, BatchKey key);

// Trains in this process alone, without any coordination: `iterations` minibatches, the workers in
// turn, every update at once visible. What perfectly fresh parameters would give. `goes_on`, if it
// is not empty, hears after every minibatch how many are done, and ends the training by saying
// false. Returns how many were done.
std::int64_t train_serially(const Workload& workload, std::int32_t workers, std::int64_t iterations,
                            std::span<float> parameters,
                            const std::function<bool(std::int64_t done)>& goes_on = {});

}  // namespace syncd::trainer
