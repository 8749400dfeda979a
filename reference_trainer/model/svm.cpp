// The linear model: see svm_batched.h. No thread of its own.

#include <cmath>

#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/backends.h"
#include "reference_trainer/model/svm_batched.h"

namespace syncd::trainer {
namespace {

double score(const ExampleView& data, std::size_t row, std::span<const float> parameters) {
  double sum = parameters[data.features];
  for (std::uint64_t i = data.row_start[row]; i < data.row_start[row + 1]; ++i) {
    sum += double{parameters[data.column[i]]} * double{data.value[i]};
  }
  return sum;
}

class Svm : public Workload {
 public:
  Svm(const WorkloadConfig& config, const ExampleView& data) : config_(config), data_(data) {
    check_samples(config, data.training);
  }

  std::string_view loss_name() const override { return "held-out log loss"; }
  ParameterLayout layout() const override {
    return {.parameters = data_.features + std::size_t{1}};
  }
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
    return trainer::make_stepper({.config = config_, .worker = worker, .examples = data_});
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
