// The `svm` workload: a linear model for two classes, trained on sparse examples with the log loss.
// Immutable; see workload.h for threads.
//
// Parameters: one weight per feature, then the bias. The objective of a minibatch B is
//   mean over B of log(1 + exp(-y (w . x + b)))  +  kSvmRegularization / 2 * sum of w_j^2
// over the features j that occur in B, so that an update touches those alone. With momentum each
// worker has a velocity of its own, as in cnn.h, and its update touches every feature.
//
// The steps of the linear model on any device: see device_model.h.
#pragma once

#include <cmath>
#include <memory>

#include "reference_trainer/model/device_model.h"

namespace syncd::trainer {

inline constexpr double kSvmRegularization = 1e-5;

// Throws std::invalid_argument: other data, fewer training samples than workers.
std::unique_ptr<Workload> make_svm(const WorkloadConfig& config, const SharedArrays& data);

// log(1 + exp(-m)) without overflow.
template <typename Real>
SYNCD_TRAINER_DEVICE Real log_loss(Real margin) {
  using std::exp, std::log1p;
  return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

// Sparse examples in device memory, and which of them a part takes.
struct ChosenRows {
  const Index* chosen;
  const std::uint64_t* row_start;
  const Index* column;
  const float* value;

  SYNCD_TRAINER_DEVICE Index terms(Index i) const {
    return static_cast<Index>(row_start[chosen[i] + 1] - row_start[chosen[i]]);
  }
  // The place of the t-th value of the i-th row.
  SYNCD_TRAINER_DEVICE std::size_t place(Index i, Index t) const {
    return row_start[chosen[i]] + t;
  }
};

// The loss of each row, and the derivative of its score.
template <typename Real>
struct ScoreRows {
  ChosenRows rows;
  const float* label;
  const float* replica;
  Index features;
  Real samples;  // of the minibatch
  Real* slopes;
  float* losses;

  SYNCD_TRAINER_DEVICE Index terms(Index i) const { return rows.terms(i); }
  SYNCD_TRAINER_DEVICE Real operator()(Index i, Index t) const {
    const std::size_t at = rows.place(i, t);
    return static_cast<Real>(replica[rows.column[at]]) * static_cast<Real>(rows.value[at]);
  }
  SYNCD_TRAINER_DEVICE void store(Index i, Real sum) const {
    using std::exp;
    const Real of_label = label[rows.chosen[i]];
    const Real margin = of_label * (sum + static_cast<Real>(replica[features]));
    losses[i] = static_cast<float>(log_loss(margin));
    slopes[i] = -of_label / (1 + exp(margin)) / samples;
  }
};

// Adds the gradient of each row.
template <typename Real>
struct AddRowGradients {
  ChosenRows rows;
  const Real* slopes;
  Index features;
  float* gradient;
  Touched touched;

  SYNCD_TRAINER_DEVICE Index terms(Index i) const { return rows.terms(i); }
  SYNCD_TRAINER_DEVICE float operator()(Index i, Index t) const {
    const std::size_t at = rows.place(i, t);
    add(rows.column[at], slopes[i] * static_cast<Real>(rows.value[at]));
    return 0;
  }
  SYNCD_TRAINER_DEVICE void store(Index i, float) const { add(features, slopes[i]); }

 private:
  SYNCD_TRAINER_DEVICE void add(Index parameter, Real value) const {
    touched.add(parameter);
    atomic_add(gradient + parameter, static_cast<float>(value));
  }
};

// Draws the features of the minibatch towards zero, the bias not.
template <typename Real>
struct PullFeatures {
  Touched touched;
  Index features;
  const float* replica;
  float* gradient;

  SYNCD_TRAINER_DEVICE void operator()(Index i) const {
    if (i >= *touched.count || touched.list[i] == features) return;
    const Index feature = touched.list[i];
    gradient[feature] +=
        static_cast<float>(static_cast<Real>(kSvmRegularization) * replica[feature]);
  }
};

template <typename Device>
class SvmModel {
 public:
  static constexpr int kStages = 1;
  static constexpr Index kTouchedBlock = 1;
  using Real = typename Device::Real;

  struct Data {
    Data(Device& device, const StepperRequest& request)
        : row_start(sent(device, request.examples.row_start.first(training(request) + 1))),
          column(sent(device, request.examples.column.first(values(request)))),
          value(sent(device, request.examples.value.first(values(request)))),
          label(sent(device, request.examples.label.first(training(request)))) {}

    static std::size_t values(const StepperRequest& request) {
      return request.examples.row_start[training(request)];
    }

    Sent<Device, std::uint64_t> row_start;
    Sent<Device, Index> column;
    Sent<Device, float> value;
    Sent<Device, float> label;
  };

  SvmModel(Device& device, const StepperRequest& request, std::shared_ptr<const Data> data,
           std::size_t samples_max)
      : data_(std::move(data)),
        features_(request.examples.features),
        samples_(static_cast<Real>(request.config.batch)),
        terms_(request.examples.column.size() / request.examples.label.size() + 1),
        slopes_(device, samples_max),
        losses_(device, samples_max) {}

  // The gradient is a mean already.
  static SgdRule rule(const StepperRequest& request) {
    return {.momentum = static_cast<float>(request.config.momentum)};
  }
  static std::size_t parameters(const StepperRequest& request) {
    return request.examples.features + std::size_t{1};
  }
  static std::size_t training(const StepperRequest& request) { return request.examples.training; }
  static double loss(double sum, double samples) { return sum / samples; }

  void compute(Device& device, int, const DevicePart& part) {
    const ChosenRows rows{part.chosen, data_->row_start.data(), data_->column.data(),
                          data_->value.data()};
    device.reduce(part.samples, terms_,
                  ScoreRows<Real>{rows, data_->label.data(), part.replica, features_, samples_,
                                  slopes_.data(), losses_.data()});
    device.reduce(
        part.samples, terms_,
        AddRowGradients<Real>{rows, slopes_.data(), features_, part.gradient, part.touched});
    device.reduce(1, part.samples,
                  AddLosses<Real>{static_cast<Index>(part.samples), losses_.data(), part.loss});
    if (!part.last) return;
    device.for_each(device.known(part.touched.count, features_ + std::size_t{1}),
                    PullFeatures<Real>{part.touched, features_, part.replica, part.gradient});
  }

 private:
  std::shared_ptr<const Data> data_;
  Index features_;
  Real samples_;
  std::size_t terms_;  // of a row, about
  typename Device::template Buffer<Real> slopes_;
  typename Device::template Buffer<float> losses_;
};

}  // namespace syncd::trainer
