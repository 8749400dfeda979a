// Matrix factorization: see mf_batched.h. No thread of its own.

#include <algorithm>
#include <cmath>

#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/backends.h"
#include "reference_trainer/model/mf_batched.h"
#include "reference_trainer/model/random.h"

namespace syncd::trainer {
namespace {

constexpr double kInitialDeviation = 0.3;  // of a factor; biases begin at 0

// Rate times the mean number of ratings of a row in a minibatch. Hop on a ring of four, whose
// parallel order is the least stable, learns up to 0.15 and diverges from 0.28 on (generated data).
constexpr double kPeerStepOfARowMax = 0.15;

class Mf : public Workload {
 public:
  Mf(const WorkloadConfig& config, const RatingView& data) : config_(config), data_(data) {
    check_samples(config, data.training);
    mean_ = mean_rating(data);
  }

  std::string_view loss_name() const override { return "held-out RMSE"; }
  ParameterLayout layout() const override {
    return {.parameters = (std::size_t{data_.users} + data_.items) * kMfBlock, .block = kMfBlock};
  }
  std::size_t held_out_samples() const override { return data_.rating.size() - data_.training; }

  void initialize(std::span<float> parameters) const override {
    Random random(config_.seed, Stream::kInitialParameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const double factor = kInitialDeviation * random.normal();
      parameters[i] = i % kMfBlock == 0 ? 0.0F : static_cast<float>(factor);
    }
  }

  double evaluate(std::span<const float> parameters) const override {
    double sum = 0;
    for (std::size_t sample = data_.training; sample < data_.rating.size(); ++sample) {
      const float* user = parameters.data() + std::size_t{data_.user[sample]} * kMfBlock;
      const float* item =
          parameters.data() + (std::size_t{data_.users} + data_.item[sample]) * kMfBlock;
      const double error = predict_rating(mean_, user, item) - double{data_.rating[sample]};
      sum += error * error;
    }
    return std::sqrt(sum / static_cast<double>(held_out_samples()));
  }

  // The gradient is a sum over the ratings that a row has in the minibatch.
  double peer_rate_max() const override {
    const double rows = std::min(data_.users, data_.items);
    return kPeerStepOfARowMax * rows / config_.batch;
  }

  std::unique_ptr<Stepper> make_stepper(std::int32_t worker) const override {
    return trainer::make_stepper(
        {.config = config_, .worker = worker, .ratings = data_, .mean_rating = mean_});
  }

 private:
  WorkloadConfig config_;
  RatingView data_;
  double mean_ = 0;
};

}  // namespace

double mean_rating(const RatingView& data) {
  double sum = 0;
  for (std::size_t i = 0; i < data.training; ++i) sum += data.rating[i];
  return sum / static_cast<double>(data.training);
}

std::unique_ptr<Workload> make_mf(const WorkloadConfig& config, const SharedArrays& data) {
  return std::make_unique<Mf>(config, view_ratings(data));
}

}  // namespace syncd::trainer
