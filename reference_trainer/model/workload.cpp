// The parts that all workloads share: see workload.h. No thread of its own.
#include "reference_trainer/model/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "reference_trainer/model/cnn.h"
#include "reference_trainer/model/mf_batched.h"
#include "reference_trainer/model/svm_batched.h"

namespace syncd::trainer {

namespace {

// What a workload is called and starts from, in the order of WorkloadKind.
struct Defaults {
  std::string_view name;
  std::int32_t batch;
  double learning_rate;
  std::int32_t full_rate_workers;  // as many of them stand that rate
  std::int64_t samples_of_seconds;
  std::unique_ptr<Workload> (*make)(const WorkloadConfig&, const SharedArrays&);
};

constexpr Defaults kDefaults[] = {
    {"svm", 32, 2, 4, 300'000, make_svm},
    {"mf", 128, 0.05, 16, 300'000, make_mf},
    {"cnn", 32, 0.004, 4, 6'400, make_cnn},
};

const Defaults& defaults_of(WorkloadKind kind) {
  return kDefaults[static_cast<std::size_t>(kind)];
}

}  // namespace

std::string_view workload_name(WorkloadKind kind) {
  return defaults_of(kind).name;
}

std::int32_t default_batch(WorkloadKind kind) {
  return defaults_of(kind).batch;
}

double default_learning_rate(WorkloadKind kind, std::int32_t workers) {
  const Defaults& defaults = defaults_of(kind);
  return defaults.learning_rate * std::min(1.0, double(defaults.full_rate_workers) / workers);
}

std::int64_t samples_of_seconds(WorkloadKind kind) {
  return defaults_of(kind).samples_of_seconds;
}

std::unique_ptr<Workload> make_workload(const WorkloadConfig& config, const SharedArrays& data) {
  return defaults_of(config.kind).make(config, data);
}

std::unique_ptr<Workload> make_peer_workload(const WorkloadConfig& config, const Workload& shared,
                                             const SharedArrays& data) {
  WorkloadConfig own = config;
  own.learning_rate = peer_learning_rate(own.learning_rate, own.workers, shared.peer_rate_max());
  return make_workload(own, data);
}

void check_samples(const WorkloadConfig& config, std::size_t training) {
  if (training >= static_cast<std::size_t>(config.workers)) return;
  throw std::invalid_argument(
      fmt::format("{} training samples are too few for {} workers", training, config.workers));
}

void add_update(const Update& update, std::span<float> parameters) {
  if (update.dense()) {
    for (std::size_t i = 0; i < update.deltas.size(); ++i) parameters[i] += update.deltas[i];
    return;
  }
  for (std::size_t i = 0; i < update.indices.size(); ++i) {
    parameters[update.indices[i]] += update.deltas[i];
  }
}

void compute_parts(Stepper& stepper, BatchKey key) {
  stepper.start(key);
  for (int part = 0; part < stepper.micro_batches(); ++part) stepper.compute(part);
}

const Update& compute_minibatch(Stepper& stepper, BatchKey key) {
  compute_parts(stepper, key);
  return stepper.finish();
}

std::int64_t train_serially(const Workload& workload, std::int32_t workers, std::int64_t iterations,
                            std::span<float> parameters,
                            const std::function<bool(std::int64_t done)>& goes_on) {
  const std::unique_ptr<Stepper> stepper = workload.make_stepper();
  std::copy(parameters.begin(), parameters.end(), stepper->replica().begin());
  stepper->replica_changed();
  std::int64_t done = 0;
  while (done < iterations) {
    const BatchKey key{.worker = static_cast<std::int32_t>(done % workers),
                       .iteration = done / workers};
    add_update(compute_minibatch(*stepper, key), stepper->replica());
    stepper->replica_changed();
    ++done;
    if (goes_on && !goes_on(done)) break;
  }
  std::copy(stepper->replica().begin(), stepper->replica().end(), parameters.begin());
  return done;
}

}  // namespace syncd::trainer
