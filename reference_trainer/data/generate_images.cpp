// Synthetic images: see generate.h. No thread of its own. Nothing here calls the mathematical
// library, whose last digits differ between systems: a seed means the same bytes everywhere.
#include <algorithm>
#include <array>
#include <cmath>

#include "reference_trainer/data/generate.h"
#include "reference_trainer/model/random.h"

namespace syncd::trainer {
namespace {

constexpr std::size_t kShapes = 10;
constexpr double kRadiusMin = 7;
constexpr double kRadiusMax = 11;
constexpr double kStripesPerRadius = 2.5;
constexpr double kContrastMin = 60;  // of the shape's colour against the background, per channel
constexpr double kContrastMax = 100;
constexpr double kNoise = 30;      // largest deviation of a pixel
constexpr double kRipple = 28;     // height of the background's waves (CIFAR-100)
constexpr double kSlopeMax = 1.5;  // of the background's brightness, per pixel

// Waves of the background, whole ones across the image: what tells apart CIFAR-100's classes that
// have the same shape.
constexpr std::array<std::array<int, 2>, 10> kWaves{
    {{0, 0}, {3, 0}, {0, 3}, {3, 3}, {3, -3}, {6, 0}, {0, 6}, {6, 6}, {6, -6}, {6, 3}}};

bool in_band(double x, double low, double high) {
  return x >= low && x < high;
}

// Whether stripe number floor(x) is painted.
bool is_striped(double x) {
  return static_cast<long>(std::floor(x)) % 2 == 0;
}

// Whether the shape covers the point (x, y), for a shape of radius 1 around the origin.
bool covers(std::size_t shape, double x, double y) {
  const double ax = std::abs(x);
  const double ay = std::abs(y);
  const double square = std::max(ax, ay);
  const double distance2 = x * x + y * y;
  switch (shape) {
    case 0:
      return distance2 < 1;  // disc
    case 1:
      return in_band(distance2, 0.4, 1);  // ring
    case 2:
      return square < 0.9;  // square
    case 3:
      return in_band(square, 0.6, 0.95);  // frame
    case 4:
      return std::min(ax, ay) < 0.25 && square < 1;  // upright cross
    case 5:
      return std::abs(ax - ay) < 0.35 && square < 0.9;  // diagonal cross
    case 6:
      return square < 0.95 && is_striped(y * kStripesPerRadius);  // lying stripes
    case 7:
      return square < 0.95 && is_striped(x * kStripesPerRadius);  // standing stripes
    case 8:
      return square < 0.95 &&
             is_striped(x * kStripesPerRadius) != is_striped(y * kStripesPerRadius);
    default:
      return in_band(y, -0.9, 0.9) && ax < (y + 0.9) * 0.55;  // triangle
  }
}

// A wave of period 1 between -1 and 1, made of straight lines.
double triangle_wave(double x) {
  const double phase = x - std::floor(x);
  return phase < 0.5 ? 4 * phase - 1 : 3 - 4 * phase;
}

double between(double low, double high, Random& random) {
  return low + (high - low) * random.unit();
}

void draw_image(std::size_t shape, std::size_t wave, Random& random,
                std::vector<std::uint8_t>& pixels) {
  const double side = kImageSide;
  const double radius = between(kRadiusMin, kRadiusMax, random);
  const double center_x = between(radius, side - radius, random);
  const double center_y = between(radius, side - radius, random);
  const double slope_x = between(-kSlopeMax, kSlopeMax, random);
  const double slope_y = between(-kSlopeMax, kSlopeMax, random);
  const double wave_phase = random.unit();
  for (std::size_t channel = 0; channel < kImageChannels; ++channel) {
    const double background = between(70, 185, random);
    const double contrast = between(kContrastMin, kContrastMax, random);
    const double offset = random.unit() < 0.5 ? contrast : -contrast;
    for (std::size_t row = 0; row < kImageSide; ++row) {
      for (std::size_t column = 0; column < kImageSide; ++column) {
        const double x = static_cast<double>(column) + 0.5;
        const double y = static_cast<double>(row) + 0.5;
        double value = background + slope_x * (x - side / 2) + slope_y * (y - side / 2);
        const double ripples = (kWaves[wave][0] * x + kWaves[wave][1] * y) / side;
        if (wave != 0) value += kRipple * triangle_wave(ripples + wave_phase);
        if (covers(shape, (x - center_x) / radius, (y - center_y) / radius)) value += offset;
        value += kNoise * (random.unit() + random.unit() - 1);
        pixels.push_back(static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0)));
      }
    }
  }
}

ImageData draw_images(std::size_t count, ImageFormat format, Random& random) {
  ImageData data;
  data.label.reserve(count);
  data.pixels.reserve(count * kImageBytes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t label = random.index(class_count(format));
    data.label.push_back(static_cast<std::uint8_t>(label));
    draw_image(label % kShapes, label / kShapes, random, data.pixels);
  }
  return data;
}

}  // namespace

ImageSet generate_images(const ImageShape& shape, ImageFormat format, std::uint64_t seed) {
  Random random(seed, Stream::kGenerate);
  ImageSet set;
  set.format = format;
  set.training = draw_images(shape.training, format, random);
  set.test = draw_images(shape.test, format, random);
  return set;
}

}  // namespace syncd::trainer
