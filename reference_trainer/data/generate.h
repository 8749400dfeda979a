// Synthetic data that can be learned: ratings made by hidden factors, examples labelled by a hidden
// linear model, and images of simple shapes, all with noise. Deterministic for a seed. Pure
// functions.
#pragma once

#include <cstdint>

#include "reference_trainer/data/cifar.h"
#include "reference_trainer/data/libsvm.h"
#include "reference_trainer/data/movielens.h"

namespace syncd::trainer {

struct RatingShape {
  std::uint32_t users = 300;
  std::uint32_t items = 200;
  std::uint32_t factors = 4;  // of the hidden model
  std::size_t ratings = 25'000;
};

struct ExampleShape {
  std::uint32_t features = 500;
  std::uint32_t features_per_example = 20;  // before repeated ones are merged
  std::size_t examples = 20'000;
};

// Ratings mean + user bias + item bias + user factors . item factors + noise, rounded to the
// format's scale. Every user and every item occurs, provided that there are at least users + items
// ratings; popular items occur more often. No pair occurs twice while pairs are plentiful
// (ratings below half of users * items).
RatingData generate_ratings(const RatingShape& shape, RatingFormat format, std::uint64_t seed);

// Examples with values from 0.25 to 1 whose label is drawn with probability logistic(weights .
// example); low feature indices are more frequent, as in text. Both labels occur; the feature count
// may come out below shape.features if the last ones never occur.
ExampleData generate_examples(const ExampleShape& shape, std::uint64_t seed);

struct ImageShape {
  std::size_t training = 5'000;
  std::size_t test = 1'000;
};

// Images of ten shapes (disc, ring, square, frame, two crosses, two kinds of stripes, chequers,
// triangle), one per image, at any place and of any size, in any colour on any other, so that no
// pixel says anything of the class by itself: a linear model hardly does better than guessing, a
// convolutional one learns it in a few hundred minibatches. The shape is the class, of CIFAR-100
// the label modulo 10; the tens there are the pattern of the background.
ImageSet generate_images(const ImageShape& shape, ImageFormat format, std::uint64_t seed);

}  // namespace syncd::trainer
