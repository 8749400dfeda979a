// Matrix factorization (mf.h) on a device: see device_model.h.
#pragma once

#include <cmath>
#include <memory>

#include "reference_trainer/model/device_model.h"
#include "reference_trainer/model/mf.h"

namespace syncd::trainer {

// Adds the gradient of each rating of a part, and the sum of the squared errors. Ratings of the
// same user or item meet at the same places.
struct AddRatings {
  static constexpr Index kBlock = 1 + kMfFactors;  // bias, then factors

  DevicePart part;
  const Index* user;
  const Index* item;
  const float* rating;
  Index users;
  float mean;

  SYNCD_TRAINER_DEVICE Index terms(Index) const { return static_cast<Index>(part.samples); }

  SYNCD_TRAINER_DEVICE float operator()(Index, Index sample) const {
    const Index chosen = part.chosen[sample];
    const std::size_t u = std::size_t{user[chosen]} * kBlock;
    const std::size_t i = (std::size_t{users} + item[chosen]) * kBlock;
    const float* of_user = part.replica + u;
    const float* of_item = part.replica + i;
    float error = mean + of_user[0] + of_item[0] - rating[chosen];
    for (Index f = 1; f < kBlock; ++f) error += of_user[f] * of_item[f];
    add(part.gradient + u, of_user, of_item, error);
    add(part.gradient + i, of_item, of_user, error);
    return error * error;
  }

  SYNCD_TRAINER_DEVICE void store(Index, float sum) const { *part.loss += sum; }

 private:
  // The gradient with respect to `own`, whose partner in the product is `other`.
  SYNCD_TRAINER_DEVICE static void add(float* gradient, const float* own, const float* other,
                                       float error) {
    constexpr auto kPull = static_cast<float>(kMfRegularization);
    atomic_add(gradient, error + kPull * own[0]);
    for (Index f = 1; f < kBlock; ++f) atomic_add(gradient + f, error * other[f] + kPull * own[f]);
  }
};

template <typename Device>
class MfModel {
 public:
  static constexpr int kStages = 1;
  static constexpr bool kSparse = true;

  class Data {
   public:
    Data(Device& device, const StepperRequest& request)
        : user(sent(device, request.ratings.user.first(request.ratings.training))),
          item(sent(device, request.ratings.item.first(request.ratings.training))),
          rating(sent(device, request.ratings.rating.first(request.ratings.training))) {}

    typename Device::template Buffer<Index> user;
    typename Device::template Buffer<Index> item;
    typename Device::template Buffer<float> rating;
  };

  MfModel(Device&, const StepperRequest& request, std::shared_ptr<const Data> data, std::size_t)
      : data_(std::move(data)),
        users_(request.ratings.users),
        mean_(static_cast<float>(request.mean_rating)) {}

  // The gradient is a sum, as the objective is.
  static SgdRule rule(const StepperRequest& request) {
    return {.rate = static_cast<float>(request.config.learning_rate)};
  }
  static std::size_t parameters(const StepperRequest& request) {
    return (std::size_t{request.ratings.users} + request.ratings.items) * AddRatings::kBlock;
  }
  static std::size_t training(const StepperRequest& request) { return request.ratings.training; }
  static double loss(double sum, double samples) { return std::sqrt(sum / samples); }

  void compute(Device& device, int, const DevicePart& part) {
    device.reduce(1, part.samples,
                  AddRatings{part, data_->user.data(), data_->item.data(), data_->rating.data(),
                             users_, mean_});
  }

 private:
  std::shared_ptr<const Data> data_;
  Index users_;
  float mean_;
};

}  // namespace syncd::trainer
