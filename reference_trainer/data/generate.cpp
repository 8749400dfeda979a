// Synthetic data: see generate.h. No thread of its own.
#include "reference_trainer/data/generate.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "reference_trainer/model/random.h"

namespace syncd::trainer {
namespace {

constexpr double kMeanRating = 3.5;
constexpr double kBiasDeviation = 0.35;
constexpr double kFactorDeviation = 0.65;
constexpr double kNoiseDeviation = 0.4;
constexpr int kRedrawsMax = 16;  // enough for a fresh pair while at most half of them are taken

// The hidden model behind the ratings.
struct HiddenFactors {
  std::uint32_t factors = 0;
  std::vector<double> user_bias, item_bias, user_factor, item_factor;

  double predict(std::uint32_t user, std::uint32_t item) const {
    double sum = kMeanRating + user_bias[user] + item_bias[item];
    for (std::uint32_t f = 0; f < factors; ++f) {
      sum += user_factor[std::size_t{user} * factors + f] *
             item_factor[std::size_t{item} * factors + f];
    }
    return sum;
  }
};

std::vector<double> normals(std::size_t count, double deviation, Random& random) {
  std::vector<double> values(count);
  for (double& value : values) value = deviation * random.normal();
  return values;
}

HiddenFactors draw_factors(const RatingShape& shape, Random& random) {
  HiddenFactors hidden;
  hidden.factors = shape.factors;
  hidden.user_bias = normals(shape.users, kBiasDeviation, random);
  hidden.item_bias = normals(shape.items, kBiasDeviation, random);
  hidden.user_factor = normals(std::size_t{shape.users} * shape.factors, kFactorDeviation, random);
  hidden.item_factor = normals(std::size_t{shape.items} * shape.factors, kFactorDeviation, random);
  return hidden;
}

float on_scale(double rating, RatingFormat format) {
  const double step = format == RatingFormat::kUData ? 1.0 : 0.5;
  return static_cast<float>(std::clamp(std::round(rating / step) * step, step, 5.0));
}

struct Pair {
  std::uint32_t user;
  std::uint32_t item;
};

// The i-th pair to try: first every user and every item once, then at random, items skewed so that
// the popular ones are rated about twice as often as the mean.
Pair draw_pair(const RatingShape& shape, std::size_t i, Random& random) {
  const auto user = static_cast<std::uint32_t>(random.index(shape.users));
  const double skewed = std::pow(random.unit(), 1.5);
  const auto item = std::min(shape.items - 1,
                             static_cast<std::uint32_t>(skewed * static_cast<double>(shape.items)));
  if (i < shape.users) return {static_cast<std::uint32_t>(i), item};
  if (i - shape.users < shape.items) return {user, static_cast<std::uint32_t>(i - shape.users)};
  return {user, item};
}

// Columns (ascending, unique) and values of one example.
void draw_features(const ExampleShape& shape, Random& random, ExampleData& data) {
  std::vector<std::uint32_t> columns(shape.features_per_example);
  for (std::uint32_t& column : columns) {
    const double skewed = random.unit() * random.unit();
    column = static_cast<std::uint32_t>(skewed * shape.features);
  }
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  for (const std::uint32_t column : columns) {
    // Four decimals, as most published sets have: it keeps the file small and changes nothing.
    const double value = 0.25 + 0.75 * random.unit();
    data.column.push_back(column);
    data.value.push_back(static_cast<float>(std::round(value * 1e4) / 1e4));
  }
  data.row_start.push_back(data.column.size());
}

}  // namespace

RatingData generate_ratings(const RatingShape& shape, RatingFormat format, std::uint64_t seed) {
  Random random(seed, Stream::kGenerate);
  const HiddenFactors hidden = draw_factors(shape, random);
  RatingData data;
  data.users = shape.users;
  data.items = shape.items;
  std::unordered_set<std::uint64_t> taken;
  for (std::size_t i = 0; i < shape.ratings; ++i) {
    Pair pair = draw_pair(shape, i, random);
    for (int redraw = 0; redraw < kRedrawsMax; ++redraw) {
      if (taken.insert((std::uint64_t{pair.user} << 32) | pair.item).second) break;
      pair = draw_pair(shape, i, random);
    }
    const double noise = kNoiseDeviation * random.normal();
    data.user.push_back(pair.user);
    data.item.push_back(pair.item);
    data.rating.push_back(on_scale(hidden.predict(pair.user, pair.item) + noise, format));
  }
  return data;
}

ExampleData generate_examples(const ExampleShape& shape, std::uint64_t seed) {
  Random random(seed, Stream::kGenerate);
  // About 20 features of mean square 0.44 and weights of deviation 1.5 give margins of about 4:
  // most labels are clear, some are noise.
  const std::vector<double> weights = normals(shape.features, 1.5, random);
  ExampleData data;
  for (std::size_t row = 0; row < shape.examples; ++row) {
    draw_features(shape, random, data);
    double margin = 0;
    for (std::uint64_t i = data.row_start[row]; i < data.row_start[row + 1]; ++i) {
      margin += weights[data.column[i]] * data.value[i];
    }
    const bool positive = random.unit() < 1.0 / (1.0 + std::exp(-margin));
    data.label.push_back(positive ? 1.0F : -1.0F);
  }
  // A model so lopsided that one class is missing cannot be trained on; make the first two differ.
  if (data.label.size() > 1) {
    const float first = data.label.front();
    const bool one_class = std::all_of(data.label.begin(), data.label.end(),
                                       [first](float label) { return label == first; });
    if (one_class) data.label.back() = -first;
  }
  for (const std::uint32_t column : data.column) {
    data.features = std::max(data.features, column + 1);
  }
  return data;
}

}  // namespace syncd::trainer
