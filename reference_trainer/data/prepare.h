// Turns loaded data into what workloads train on: shuffled, split into training and held-out
// samples, and put into shared memory. Also the views through which workloads read it back. Pure
// functions; the views are immutable.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "reference_trainer/data/cifar.h"
#include "reference_trainer/data/libsvm.h"
#include "reference_trainer/data/movielens.h"
#include "reference_trainer/data/shared_arrays.h"

namespace syncd::trainer {

// A tenth of the samples is held out, but at least one and at most this many: the loss is evaluated
// several times a second while training goes on.
inline constexpr std::size_t kHeldOutMax = 10'000;

// How many of `samples` are held out.
std::size_t held_out_count(std::size_t samples);

// Samples [0, training) are for training, the rest are held out.
struct RatingView {
  std::uint32_t users = 0;
  std::uint32_t items = 0;
  std::size_t training = 0;
  std::span<const std::uint32_t> user;
  std::span<const std::uint32_t> item;
  std::span<const float> rating;
};

struct ExampleView {
  std::uint32_t features = 0;
  std::size_t training = 0;
  std::span<const std::uint64_t> row_start;  // one more than there are examples
  std::span<const std::uint32_t> column;
  std::span<const float> value;
  std::span<const float> label;
};

struct ImageView {
  ImageFormat format = ImageFormat::kCifar10;
  std::size_t training = 0;
  // Of all pixels of the training images, per channel, on the scale from 0 to 1.
  std::array<double, kImageChannels> mean{};
  std::array<double, kImageChannels> deviation{};  // 1 where all pixels are equal
  std::span<const std::uint32_t> order;            // of the images, as they were read
  std::span<const std::uint8_t> labels;            // as they were read
  std::span<const std::uint8_t> all_pixels;

  std::size_t size() const { return order.size(); }
  std::uint8_t label(std::size_t sample) const { return labels[order[sample]]; }
  std::span<const std::uint8_t> pixels(std::size_t sample) const {
    return all_pixels.subspan(order[sample] * kImageBytes, kImageBytes);
  }
};

// Shuffles by the seed, splits and shares. Preconditions: at least two samples, of images one to
// train on.
SharedArrays prepare_ratings(const RatingData& data, std::uint64_t seed);
SharedArrays prepare_examples(const ExampleData& data, std::uint64_t seed);

// Holds out the test images, or a tenth of the others where there are none. Takes the images over,
// of which there may be many.
SharedArrays prepare_images(ImageSet images, std::uint64_t seed);

// Throws std::invalid_argument if the arrays hold another kind of data.
RatingView view_ratings(const SharedArrays& arrays);
ExampleView view_examples(const SharedArrays& arrays);
ImageView view_images(const SharedArrays& arrays);

}  // namespace syncd::trainer
