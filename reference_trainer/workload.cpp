// The parts that all workloads share: see workload.h. No thread of its own.
#include "reference_trainer/workload.h"

#include <algorithm>

#include "reference_trainer/mf.h"
#include "reference_trainer/svm.h"

namespace syncd::trainer {

std::string_view workload_name(WorkloadKind kind) {
  return kind == WorkloadKind::kSvm ? "svm" : "mf";
}

std::int32_t default_batch(WorkloadKind kind) {
  return kind == WorkloadKind::kSvm ? 32 : 128;
}

double default_learning_rate(WorkloadKind kind, std::int32_t workers) {
  const double full = kind == WorkloadKind::kSvm ? 0.25 : 0.05;
  return workers > kFullRateWorkers ? full * kFullRateWorkers / workers : full;
}

std::unique_ptr<Workload> make_workload(const WorkloadConfig& config, const SharedArrays& data) {
  if (config.kind == WorkloadKind::kSvm) return make_svm(config, data);
  return make_mf(config, data);
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

void train_serially(const Workload& workload, std::int32_t workers, std::int64_t iterations,
                    std::span<float> parameters) {
  const std::unique_ptr<Stepper> stepper = workload.make_stepper();
  std::copy(parameters.begin(), parameters.end(), stepper->replica().begin());
  stepper->replica_changed();
  for (std::int64_t i = 0; i < iterations; ++i) {
    stepper->start({.worker = static_cast<std::int32_t>(i % workers), .iteration = i / workers});
    for (int part = 0; part < stepper->micro_batches(); ++part) stepper->compute(part);
    add_update(stepper->finish(), stepper->replica());
    stepper->replica_changed();
  }
  std::copy(stepper->replica().begin(), stepper->replica().end(), parameters.begin());
}

}  // namespace syncd::trainer
