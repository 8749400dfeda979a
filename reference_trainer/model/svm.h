// The `svm` workload: a linear model for two classes, trained on sparse examples with the log loss.
// Immutable; see workload.h for threads.
//
// Parameters: one weight per feature, then the bias. The objective of a minibatch B is
//   mean over B of log(1 + exp(-y (w . x + b)))  +  kSvmRegularization / 2 * sum of w_j^2
// over the features j that occur in B, so that an update touches those alone. With momentum each
// worker has a velocity of its own, as in cnn.h, and its update touches every feature.
#pragma once

#include <memory>

#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

inline constexpr double kSvmRegularization = 1e-5;

// Throws std::invalid_argument: other data, fewer training samples than workers.
std::unique_ptr<Workload> make_svm(const WorkloadConfig& config, const SharedArrays& data);

}  // namespace syncd::trainer
