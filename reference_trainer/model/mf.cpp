// Matrix factorization: see mf.h. No thread of its own.
#include "reference_trainer/model/mf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/batch.h"
#include "reference_trainer/model/cnn_backends.h"

namespace syncd::trainer {
namespace {

constexpr std::size_t kBlock = 1 + kMfFactors;  // bias, then factors
constexpr double kInitialDeviation = 0.3;       // of a factor; biases begin at 0

std::size_t user_block(std::uint32_t user) {
  return user;
}
std::size_t item_block(const RatingView& data, std::uint32_t item) {
  return std::size_t{data.users} + item;
}
std::size_t parameter_count(const RatingView& data) {
  return (std::size_t{data.users} + data.items) * kBlock;
}

// Rate times the mean number of ratings of a row in a minibatch. Hop on a ring of four, whose
// parallel order is the least stable, learns up to 0.15 and diverges from 0.28 on (generated data).
constexpr double kPeerStepOfARowMax = 0.15;

double predict(double mean, std::span<const float> user, std::span<const float> item) {
  double sum = mean + double{user[0]} + double{item[0]};
  for (std::size_t f = 1; f < kBlock; ++f) sum += double{user[f]} * double{item[f]};
  return sum;
}

class MfStepper : public Stepper {
 public:
  MfStepper(const WorkloadConfig& config, const RatingView& data, double mean)
      : data_(data),
        mean_(mean),
        config_(config),
        sampler_(config, data.training),
        replica_(parameter_count(data), 0.0F),
        gradient_(replica_.size(), kBlock) {}

  std::span<float> replica() override { return replica_; }

  void start(BatchKey key) override {
    sampler_.start(key);
    rate_ = config_.rate_at(key.iteration);
    gradient_.clear();
    squared_error_ = 0;
  }

  int micro_batches() const override { return sampler_.parts(); }

  void compute(int part) override {
    for (const std::size_t sample : sampler_.part(part)) add_rating(sample);
  }

  const Update& finish() override {
    gradient_.hand_over(rate_, update_);
    update_.loss = std::sqrt(squared_error_ / static_cast<double>(sampler_.size()));
    update_.samples = sampler_.size();
    return update_;
  }

 private:
  std::span<const float> block(std::size_t index) const {
    return std::span(replica_).subspan(index * kBlock, kBlock);
  }

  void add_rating(std::size_t sample) {
    const std::size_t u = user_block(data_.user[sample]);
    const std::size_t i = item_block(data_, data_.item[sample]);
    const std::span<const float> user = block(u);
    const std::span<const float> item = block(i);
    const double error = predict(mean_, user, item) - double{data_.rating[sample]};
    squared_error_ += error * error;
    const std::span<float> user_gradient = gradient_.touch(u);
    const std::span<float> item_gradient = gradient_.touch(i);
    add_gradient(user_gradient, user, item, error);
    add_gradient(item_gradient, item, user, error);
  }

  // The gradient with respect to `own`, whose partner in the product is `other`.
  static void add_gradient(std::span<float> gradient, std::span<const float> own,
                           std::span<const float> other, double error) {
    gradient[0] += static_cast<float>(error + kMfRegularization * own[0]);
    for (std::size_t f = 1; f < kBlock; ++f) {
      gradient[f] += static_cast<float>(error * other[f] + kMfRegularization * own[f]);
    }
  }

  RatingView data_;
  double mean_;
  WorkloadConfig config_;
  double rate_ = 0;
  BatchSampler sampler_;
  std::vector<float> replica_;
  GradientAccumulator gradient_;
  double squared_error_ = 0;
  Update update_;
};

class Mf : public Workload {
 public:
  Mf(const WorkloadConfig& config, const RatingView& data) : config_(config), data_(data) {
    if (data.training < static_cast<std::size_t>(config.workers)) {
      throw std::invalid_argument(fmt::format("{} training samples are too few for {} workers",
                                              data.training, config.workers));
    }
    mean_ = mean_rating(data);
  }

  std::string_view name() const override { return "mf"; }
  std::string_view loss_name() const override { return "held-out RMSE"; }
  ParameterLayout layout() const override {
    return {.parameters = parameter_count(data_), .block = kBlock};
  }
  std::size_t training_samples() const override { return data_.training; }
  std::size_t held_out_samples() const override { return data_.rating.size() - data_.training; }

  void initialize(std::span<float> parameters) const override {
    Random random(config_.seed, Stream::kInitialParameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const double factor = kInitialDeviation * random.normal();
      parameters[i] = i % kBlock == 0 ? 0.0F : static_cast<float>(factor);
    }
  }

  double evaluate(std::span<const float> parameters) const override {
    double sum = 0;
    for (std::size_t sample = data_.training; sample < data_.rating.size(); ++sample) {
      const auto user = parameters.subspan(user_block(data_.user[sample]) * kBlock, kBlock);
      const auto item = parameters.subspan(item_block(data_, data_.item[sample]) * kBlock, kBlock);
      const double error = predict(mean_, user, item) - double{data_.rating[sample]};
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
    if (config_.backend == Backend::kCuda) {
      return make_cuda_stepper({.config = config_,
                                .worker = worker,
                                .ratings = data_,
                                .mean_rating = mean_,
                                .examples = {},
                                .images = {},
                                .shape = {}});
    }
    return std::make_unique<MfStepper>(config_, data_, mean_);
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
