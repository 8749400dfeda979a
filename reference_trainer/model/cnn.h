// The `cnn` workload: C3F2-Net (cnn_network.h) on images of ten or a hundred classes, trained by
// stochastic gradient descent with momentum and weight decay. Immutable; see workload.h for
// threads.
//
// Parameters: those of CnnLayout. The objective of a minibatch B is
//   mean over B of the cross-entropy  +  weight decay / 2 * sum of w^2
// over all weights w, biases left out. Pixels are normalized by mean and deviation of their channel
// over the training images; images are not changed otherwise.
//
// Momentum: each worker has a velocity of its own, v = momentum * v + gradient, and its update is
// -learning rate * v. The store adds up what the workers send, so it needs to know nothing of
// momentum; with N workers that step at once the common step is as if one velocity had N times the
// learning rate and the mean of their gradients. The velocity changes with every minibatch that was
// computed to its end, and keeps what it has when an update is refused and taken back (late): it
// says where the loss was seen to fall, which stays true.
//
// The paper (ElasticBSP, section 6.2.1) trains with minibatches of 128, learning rate 0.001 and
// weight decay 0.0005, otherwise as AlexNet was, whose momentum is 0.9.
#pragma once

#include <memory>

#include "reference_trainer/model/cnn_network.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

inline constexpr double kCnnMomentum = 0.9;
inline constexpr double kCnnWeightDecay = 0.0005;

// The loss is evaluated on this many of the held-out images, a random choice that stays the same:
// often, while training goes on on the same cores. The accuracy is that on all of them.
inline constexpr std::size_t kCnnLossImagesMax = 256;

// Throws std::invalid_argument: other data, fewer training samples than workers.
std::unique_ptr<Workload> make_cnn(const WorkloadConfig& config, const SharedArrays& data);

// The same with other sizes of layers; `shape` must take images of 3 x 32 x 32 and have a class for
// every label. For tests, which have no time for the real one.
std::unique_ptr<Workload> make_cnn(const WorkloadConfig& config, const SharedArrays& data,
                                   const CnnShape& shape);

}  // namespace syncd::trainer
