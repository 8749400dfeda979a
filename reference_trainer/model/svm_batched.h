// The linear model (svm.h) on a device: see device_model.h.
#pragma once

#include <cmath>
#include <memory>

#include "reference_trainer/model/device_model.h"
#include "reference_trainer/model/svm.h"

namespace syncd::trainer {

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
struct ScoreRows {
  ChosenRows rows;
  const float* label;
  const float* replica;
  Index features;
  float samples;  // of the minibatch
  float* slopes;
  float* losses;

  SYNCD_TRAINER_DEVICE Index terms(Index i) const { return rows.terms(i); }
  SYNCD_TRAINER_DEVICE float operator()(Index i, Index t) const {
    const std::size_t at = rows.place(i, t);
    return replica[rows.column[at]] * rows.value[at];
  }
  SYNCD_TRAINER_DEVICE void store(Index i, float sum) const {
    const float of_label = label[rows.chosen[i]];
    const float margin = of_label * (sum + replica[features]);
    // Without overflow.
    losses[i] = margin > 0 ? log1pf(expf(-margin)) : log1pf(expf(margin)) - margin;
    slopes[i] = -of_label / (1.0F + expf(margin)) / samples;
  }
};

// Adds the gradient of each row, and notes in which features it has some.
struct AddRowGradients {
  ChosenRows rows;
  const float* slopes;
  Index features;
  std::uint32_t minibatch;
  float* gradient;
  std::uint32_t* noted;  // [feature]: the last minibatch that it was in

  SYNCD_TRAINER_DEVICE Index terms(Index i) const { return rows.terms(i); }
  SYNCD_TRAINER_DEVICE float operator()(Index i, Index t) const {
    const std::size_t at = rows.place(i, t);
    const Index feature = rows.column[at];
    atomic_add(gradient + feature, slopes[i] * rows.value[at]);
    write_word(noted + feature, minibatch);
    return 0;
  }
  SYNCD_TRAINER_DEVICE void store(Index i, float) const {
    atomic_add(gradient + features, slopes[i]);
  }
};

// Draws the features of the minibatch towards zero, the bias not.
struct PullFeatures {
  std::uint32_t minibatch;
  const std::uint32_t* noted;
  const float* replica;
  float* gradient;

  SYNCD_TRAINER_DEVICE void operator()(Index feature) const {
    if (noted[feature] != minibatch) return;
    gradient[feature] += static_cast<float>(kSvmRegularization) * replica[feature];
  }
};

template <typename Device>
class SvmModel {
 public:
  static constexpr int kStages = 1;
  static constexpr bool kSparse = true;

  class Data {
   public:
    Data(Device& device, const StepperRequest& request)
        : row_start(sent(device, request.examples.row_start.first(training(request) + 1))),
          column(sent(device, request.examples.column.first(values(request)))),
          value(sent(device, request.examples.value.first(values(request)))),
          label(sent(device, request.examples.label.first(training(request)))) {}

    typename Device::template Buffer<std::uint64_t> row_start;
    typename Device::template Buffer<Index> column;
    typename Device::template Buffer<float> value;
    typename Device::template Buffer<float> label;

   private:
    static std::size_t values(const StepperRequest& request) {
      return request.examples.row_start[training(request)];
    }
  };

  SvmModel(Device& device, const StepperRequest& request, std::shared_ptr<const Data> data,
           std::size_t samples_max)
      : data_(std::move(data)),
        features_(request.examples.features),
        samples_(static_cast<float>(request.config.batch)),
        terms_(request.examples.column.size() / request.examples.label.size() + 1),
        slopes_(device, samples_max),
        losses_(device, samples_max),
        noted_(device, request.examples.features) {
    device.clear(noted_.data(), features_);
  }

  // The gradient is a mean already.
  static SgdRule rule(const StepperRequest& request) {
    return {.rate = static_cast<float>(request.config.learning_rate),
            .momentum = static_cast<float>(request.config.momentum)};
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
                  ScoreRows{rows, data_->label.data(), part.replica, features_, samples_,
                            slopes_.data(), losses_.data()});
    device.reduce(part.samples, terms_,
                  AddRowGradients{rows, slopes_.data(), features_, part.minibatch, part.gradient,
                                  noted_.data()});
    device.reduce(1, part.samples,
                  AddRows{static_cast<Index>(part.samples), 1, losses_.data(), part.loss});
    if (!part.last) return;
    device.for_each(features_,
                    PullFeatures{part.minibatch, noted_.data(), part.replica, part.gradient});
  }

 private:
  std::shared_ptr<const Data> data_;
  Index features_;
  float samples_;
  std::size_t terms_;  // of a row, about
  typename Device::template Buffer<float> slopes_;
  typename Device::template Buffer<float> losses_;
  typename Device::template Buffer<std::uint32_t> noted_;
};

}  // namespace syncd::trainer
