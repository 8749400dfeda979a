// Shuffle, split, share: see prepare.h. No thread of its own.
#include "reference_trainer/prepare.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "reference_trainer/random.h"

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

std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  if (count < 2) {
    throw std::invalid_argument("at least two samples are needed: one to train on, one held out");
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Random random(seed, Stream::kShuffle);
  for (std::size_t i = count - 1; i > 0; --i) std::swap(order[i], order[random.index(i + 1)]);
  return order;
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

}  // namespace syncd::trainer
