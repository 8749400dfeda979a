// Shuffle, split, share: see prepare.h. No thread of its own.
#include "reference_trainer/data/prepare.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "reference_trainer/model/random.h"

namespace syncd::trainer {
namespace {

// The first array of a prepared data set says what the others are.
struct Header {
  std::uint64_t kind;
  std::uint64_t training;
  std::uint64_t dimension[2];
};
constexpr std::uint64_t kRatings = 1;
constexpr std::uint64_t kExamples = 2;
constexpr std::uint64_t kImages = 3;

template <typename Index>
std::vector<Index> permutation(Index first, std::size_t count, Random& random) {
  std::vector<Index> order(count);
  std::iota(order.begin(), order.end(), first);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.index(i)]);
  return order;
}

std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  Random random(seed, Stream::kShuffle);
  return permutation(std::size_t{0}, count, random);
}

// Mean and deviation of each channel over some images. Sums of whole numbers: exact.
struct Colours {
  std::array<double, kImageChannels> mean{};
  std::array<double, kImageChannels> deviation{};
};

Colours colours_of(std::span<const std::uint8_t> pixels, std::span<const std::uint32_t> images) {
  std::array<std::uint64_t, kImageChannels> sum{};
  std::array<std::uint64_t, kImageChannels> squares{};
  for (const std::uint32_t image : images) {
    const auto own = pixels.subspan(image * kImageBytes, kImageBytes);
    for (std::size_t i = 0; i < kImageBytes; ++i) {
      sum[i / kImageArea] += own[i];
      squares[i / kImageArea] += std::uint64_t{own[i]} * own[i];
    }
  }
  Colours colours;
  const auto count = static_cast<double>(images.size() * kImageArea);
  for (std::size_t c = 0; c < kImageChannels; ++c) {
    const double mean = static_cast<double>(sum[c]) / count;
    const double variance = static_cast<double>(squares[c]) / count - mean * mean;
    colours.mean[c] = mean / 255;
    colours.deviation[c] = variance > 0 ? std::sqrt(variance) / 255 : 1;
  }
  return colours;
}

template <typename T>
std::vector<T> reordered(const std::vector<T>& values, const std::vector<std::size_t>& order) {
  std::vector<T> result;
  result.reserve(order.size());
  for (const std::size_t place : order) result.push_back(values[place]);
  return result;
}

const Header& header_of(const SharedArrays& arrays, std::uint64_t kind) {
  const auto header = arrays.get<Header>(0);
  if (header.size() != 1 || header[0].kind != kind) {
    throw std::invalid_argument("the prepared data is of another kind than the workload takes");
  }
  return header[0];
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

}  // namespace

std::size_t held_out_count(std::size_t samples) {
  return std::clamp<std::size_t>(samples / 10, 1, kHeldOutMax);
}

SharedArrays prepare_ratings(const RatingData& data, std::uint64_t seed) {
  const std::vector<std::size_t> order = shuffled(data.rating.size(), seed);
  const std::vector<Header> header{
      {kRatings, order.size() - held_out_count(order.size()), {data.users, data.items}}};
  const auto user = reordered(data.user, order);
  const auto item = reordered(data.item, order);
  const auto rating = reordered(data.rating, order);
  return SharedArrays::create({bytes_of(header), bytes_of(user), bytes_of(item), bytes_of(rating)});
}

SharedArrays prepare_examples(const ExampleData& data, std::uint64_t seed) {
  const std::vector<std::size_t> order = shuffled(data.label.size(), seed);
  const std::vector<Header> header{
      {kExamples, order.size() - held_out_count(order.size()), {data.features, 0}}};
  std::vector<std::uint64_t> row_start{0};
  std::vector<std::uint32_t> column;
  std::vector<float> value;
  column.reserve(data.column.size());
  value.reserve(data.value.size());
  for (const std::size_t row : order) {
    for (std::uint64_t i = data.row_start[row]; i < data.row_start[row + 1]; ++i) {
      column.push_back(data.column[i]);
      value.push_back(data.value[i]);
    }
    row_start.push_back(column.size());
  }
  const auto label = reordered(data.label, order);
  return SharedArrays::create(
      {bytes_of(header), bytes_of(row_start), bytes_of(column), bytes_of(value), bytes_of(label)});
}

SharedArrays prepare_images(ImageSet images, std::uint64_t seed) {
  const std::size_t own = images.training.size();
  const std::size_t test = images.test.size();
  Random random(seed, Stream::kShuffle);
  std::vector<std::uint32_t> order = permutation(std::uint32_t{0}, own, random);
  const auto held_out = permutation(static_cast<std::uint32_t>(own), test, random);
  order.insert(order.end(), held_out.begin(), held_out.end());
  const std::vector<Header> header{{kImages,
                                    test > 0 ? own : own - held_out_count(own),
                                    {static_cast<std::uint64_t>(images.format), 0}}};
  const auto joined = [](std::vector<std::uint8_t> values, std::span<const std::uint8_t> more) {
    values.insert(values.end(), more.begin(), more.end());
    return values;
  };
  const auto labels = joined(std::move(images.training.label), images.test.label);
  const auto pixels = joined(std::move(images.training.pixels), images.test.pixels);
  const std::vector<Colours> colours{
      colours_of(pixels, std::span(order).first(header.front().training))};
  return SharedArrays::create(
      {bytes_of(header), bytes_of(colours), bytes_of(order), bytes_of(labels), bytes_of(pixels)});
}

RatingView view_ratings(const SharedArrays& arrays) {
  const Header& header = header_of(arrays, kRatings);
  return {.users = static_cast<std::uint32_t>(header.dimension[0]),
          .items = static_cast<std::uint32_t>(header.dimension[1]),
          .training = header.training,
          .user = arrays.get<std::uint32_t>(1),
          .item = arrays.get<std::uint32_t>(2),
          .rating = arrays.get<float>(3)};
}

ExampleView view_examples(const SharedArrays& arrays) {
  const Header& header = header_of(arrays, kExamples);
  return {.features = static_cast<std::uint32_t>(header.dimension[0]),
          .training = header.training,
          .row_start = arrays.get<std::uint64_t>(1),
          .column = arrays.get<std::uint32_t>(2),
          .value = arrays.get<float>(3),
          .label = arrays.get<float>(4)};
}

ImageView view_images(const SharedArrays& arrays) {
  const Header& header = header_of(arrays, kImages);
  const Colours& colours = arrays.get<Colours>(1)[0];
  return {.format = static_cast<ImageFormat>(header.dimension[0]),
          .training = header.training,
          .mean = colours.mean,
          .deviation = colours.deviation,
          .order = arrays.get<std::uint32_t>(2),
          .labels = arrays.get<std::uint8_t>(3),
          .all_pixels = arrays.get<std::uint8_t>(4)};
}

}  // namespace syncd::trainer
