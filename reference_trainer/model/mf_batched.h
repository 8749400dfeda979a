// The `mf` workload: matrix factorization with biases, trained by stochastic gradient descent on
// ratings. Immutable; see workload.h for threads.
//
// The prediction for user u and item i is  mean + b_u + b_i + p_u . q_i, with the mean rating of
// the training samples fixed. Parameters: one block [b, factors] per user, then one per item. The
// objective of a minibatch B is
//   sum over (u, i, r) in B of  (r - prediction)^2 / 2 + kMfRegularization / 2 *
//                               (b_u^2 + b_i^2 + |p_u|^2 + |q_i|^2)
// (a sum, as is usual for this model: each rating makes a step of the learning rate's size).
//
// The steps of matrix factorization on any device: see device_model.h.
#pragma once

#include <cmath>
#include <memory>

#include "reference_trainer/model/device_model.h"

namespace syncd::trainer {

inline constexpr std::size_t kMfFactors = 8;
inline constexpr double kMfRegularization = 0.02;

// Of the training samples.
double mean_rating(const RatingView& data);

// Throws std::invalid_argument: other data, fewer training samples than workers.
std::unique_ptr<Workload> make_mf(const WorkloadConfig& config, const SharedArrays& data);

inline constexpr Index kMfBlock = 1 + kMfFactors;  // bias, then factors

template <typename Real>
SYNCD_TRAINER_DEVICE Real predict_rating(Real mean, const float* user, const float* item) {
  Real sum = mean + static_cast<Real>(user[0]) + static_cast<Real>(item[0]);
  for (Index f = 1; f < kMfBlock; ++f) {
    sum += static_cast<Real>(user[f]) * static_cast<Real>(item[f]);
  }
  return sum;
}

// Adds the gradient of each rating of a part, and the sum of the squared errors. Ratings of the
// same user or item meet at the same places.
template <typename Real>
struct AddRatings {
  DevicePart part;
  const Index* user;
  const Index* item;
  const float* rating;
  Index users;
  Real mean;

  SYNCD_TRAINER_DEVICE Index terms(Index) const { return static_cast<Index>(part.samples); }

  SYNCD_TRAINER_DEVICE Real operator()(Index, Index sample) const {
    const Index chosen = part.chosen[sample];
    const Index u = user[chosen];
    const Index i = users + item[chosen];
    const float* of_user = part.replica + std::size_t{u} * kMfBlock;
    const float* of_item = part.replica + std::size_t{i} * kMfBlock;
    const Real error = predict_rating(mean, of_user, of_item) - static_cast<Real>(rating[chosen]);
    add(u, of_user, of_item, error);
    add(i, of_item, of_user, error);
    return error * error;
  }

  SYNCD_TRAINER_DEVICE void store(Index, Real sum) const { *part.loss += static_cast<double>(sum); }

 private:
  // The gradient with respect to `own`, whose partner in the product is `other`.
  SYNCD_TRAINER_DEVICE void add(Index block, const float* own, const float* other,
                                Real error) const {
    constexpr auto kPull = static_cast<Real>(kMfRegularization);
    part.touched.add(block);
    float* gradient = part.gradient + std::size_t{block} * kMfBlock;
    atomic_add(gradient, static_cast<float>(error + kPull * own[0]));
    for (Index f = 1; f < kMfBlock; ++f) {
      atomic_add(gradient + f, static_cast<float>(error * other[f] + kPull * own[f]));
    }
  }
};

template <typename Device>
class MfModel {
 public:
  static constexpr int kStages = 1;
  static constexpr Index kTouchedBlock = kMfBlock;
  using Real = typename Device::Real;

  struct Data {
    Data(Device& device, const StepperRequest& request)
        : user(sent(device, request.ratings.user.first(request.ratings.training))),
          item(sent(device, request.ratings.item.first(request.ratings.training))),
          rating(sent(device, request.ratings.rating.first(request.ratings.training))) {}

    Sent<Device, Index> user;
    Sent<Device, Index> item;
    Sent<Device, float> rating;
  };

  MfModel(Device&, const StepperRequest& request, std::shared_ptr<const Data> data, std::size_t)
      : data_(std::move(data)),
        users_(request.ratings.users),
        mean_(static_cast<Real>(request.mean_rating)) {}

  // The gradient is a sum, as the objective is.
  static SgdRule rule(const StepperRequest&) { return {}; }
  static std::size_t parameters(const StepperRequest& request) {
    return (std::size_t{request.ratings.users} + request.ratings.items) * kMfBlock;
  }
  static std::size_t training(const StepperRequest& request) { return request.ratings.training; }
  static double loss(double sum, double samples) { return std::sqrt(sum / samples); }

  void compute(Device& device, int, const DevicePart& part) {
    device.reduce(1, part.samples,
                  AddRatings<Real>{part, data_->user.data(), data_->item.data(),
                                   data_->rating.data(), users_, mean_});
  }

 private:
  std::shared_ptr<const Data> data_;
  Index users_;
  Real mean_;
};

}  // namespace syncd::trainer
