// The linear model: see svm.h. No thread of its own.
#include "reference_trainer/model/svm.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/batch.h"
#include "reference_trainer/model/cnn_backends.h"

namespace syncd::trainer {
namespace {

// log(1 + exp(-m)) without overflow.
double log_loss(double margin) {
  return margin > 0 ? std::log1p(std::exp(-margin)) : -margin + std::log1p(std::exp(margin));
}

double score(const ExampleView& data, std::size_t row, std::span<const float> parameters) {
  double sum = parameters[data.features];
  for (std::uint64_t i = data.row_start[row]; i < data.row_start[row + 1]; ++i) {
    sum += double{parameters[data.column[i]]} * double{data.value[i]};
  }
  return sum;
}

class SvmStepper : public Stepper {
 public:
  SvmStepper(const WorkloadConfig& config, const ExampleView& data)
      : data_(data),
        config_(config),
        sampler_(config, data.training),
        replica_(data.features + std::size_t{1}, 0.0F),
        gradient_(replica_.size(), 1),
        velocity_(config.momentum != 0 ? replica_.size() : 0, 0.0F) {}

  std::span<float> replica() override { return replica_; }
  std::span<float> state() override { return velocity_; }

  void start(BatchKey key) override {
    sampler_.start(key);
    rate_ = config_.rate_at(key.iteration);
    gradient_.clear();
    loss_ = 0;
  }

  int micro_batches() const override { return sampler_.parts(); }

  void compute(int part) override {
    for (const std::size_t row : sampler_.part(part)) add_example(row);
  }

  const Update& finish() override {
    // Features only: the bias is not drawn towards zero.
    for (const std::uint32_t j : gradient_.touched()) {
      if (j != data_.features) {
        gradient_.touch(j)[0] += static_cast<float>(kSvmRegularization * replica_[j]);
      }
    }
    if (velocity_.empty()) {
      gradient_.hand_over(rate_, update_);
    } else {
      step_by_velocity();
    }
    update_.loss = loss_ / static_cast<double>(sampler_.size());
    update_.samples = sampler_.size();
    return update_;
  }

 private:
  void add_example(std::size_t row) {
    const double label = data_.label[row];
    const double margin = label * score(data_, row, replica_);
    loss_ += log_loss(margin);
    const double slope = -label / (1.0 + std::exp(margin)) / static_cast<double>(sampler_.size());
    for (std::uint64_t i = data_.row_start[row]; i < data_.row_start[row + 1]; ++i) {
      gradient_.touch(data_.column[i])[0] += static_cast<float>(slope * data_.value[i]);
    }
    gradient_.touch(data_.features)[0] += static_cast<float>(slope);
  }

  void step_by_velocity() {
    const auto momentum = static_cast<float>(config_.momentum);
    const auto rate = static_cast<float>(rate_);
    update_.deltas.resize(velocity_.size());
    for (float& speed : velocity_) speed *= momentum;
    for (const std::uint32_t j : gradient_.touched()) velocity_[j] += gradient_.touch(j)[0];
    for (std::size_t j = 0; j < velocity_.size(); ++j) update_.deltas[j] = -rate * velocity_[j];
  }

  ExampleView data_;
  WorkloadConfig config_;
  double rate_ = 0;
  BatchSampler sampler_;
  std::vector<float> replica_;
  GradientAccumulator gradient_;
  std::vector<float> velocity_;  // empty: no momentum
  double loss_ = 0;
  Update update_;
};

class Svm : public Workload {
 public:
  Svm(const WorkloadConfig& config, const ExampleView& data) : config_(config), data_(data) {
    if (data.training < static_cast<std::size_t>(config.workers)) {
      throw std::invalid_argument(fmt::format("{} training samples are too few for {} workers",
                                              data.training, config.workers));
    }
  }

  std::string_view name() const override { return "svm"; }
  std::string_view loss_name() const override { return "held-out log loss"; }
  ParameterLayout layout() const override {
    return {.parameters = data_.features + std::size_t{1}};
  }
  std::size_t training_samples() const override { return data_.training; }
  std::size_t held_out_samples() const override { return data_.label.size() - data_.training; }

  void initialize(std::span<float> parameters) const override {
    // The objective is convex: zero is as good a start as any.
    std::fill(parameters.begin(), parameters.end(), 0.0F);
  }

  double evaluate(std::span<const float> parameters) const override {
    double sum = 0;
    for (std::size_t row = data_.training; row < data_.label.size(); ++row) {
      sum += log_loss(double{data_.label[row]} * score(data_, row, parameters));
    }
    return sum / static_cast<double>(held_out_samples());
  }

  // The gradient is a mean over the minibatch, however large that is. On rings of 4, 16 and 25
  // (Hop, parallel order, generated data) the mean of all workers learns best at 4, but one
  // worker's own parameters are then worse than those that it began with; at 2 they are better.
  double peer_rate_max() const override { return 2; }

  std::unique_ptr<Stepper> make_stepper(std::int32_t worker) const override {
    if (config_.backend == Backend::kCuda) {
      return make_cuda_stepper({.config = config_,
                                .worker = worker,
                                .ratings = {},
                                .examples = data_,
                                .images = {},
                                .shape = {}});
    }
    return std::make_unique<SvmStepper>(config_, data_);
  }

 private:
  WorkloadConfig config_;
  ExampleView data_;
};

}  // namespace

std::unique_ptr<Workload> make_svm(const WorkloadConfig& config, const SharedArrays& data) {
  return std::make_unique<Svm>(config, view_examples(data));
}

}  // namespace syncd::trainer
