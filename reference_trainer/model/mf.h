// The `mf` workload: matrix factorization with biases, trained by stochastic gradient descent on
// ratings. Immutable; see workload.h for threads.
//
// The prediction for user u and item i is  mean + b_u + b_i + p_u . q_i, with the mean rating of
// the training samples fixed. Parameters: one block [b, factors] per user, then one per item. The
// objective of a minibatch B is
//   sum over (u, i, r) in B of  (r - prediction)^2 / 2 + kMfRegularization / 2 *
//                               (b_u^2 + b_i^2 + |p_u|^2 + |q_i|^2)
// (a sum, as is usual for this model: each rating makes a step of the learning rate's size).
#pragma once

#include <memory>

#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

inline constexpr std::size_t kMfFactors = 8;
inline constexpr double kMfRegularization = 0.02;

struct RatingView;

// Of the training samples.
double mean_rating(const RatingView& data);

// Throws std::invalid_argument: other data, fewer training samples than workers.
std::unique_ptr<Workload> make_mf(const WorkloadConfig& config, const SharedArrays& data);

}  // namespace syncd::trainer
