// The small parts of which charts are made: escaped text, numbers, scales, ticks, thinned series.
// Pure functions; nothing here knows what is drawn.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::trainer {

// Text for the inside of an element or of a quoted attribute, of HTML or SVG: the five characters
// that mean something there are replaced, and control characters and bytes that are no UTF-8 become
// U+FFFD.
std::string escape_markup(std::string_view text);

struct Point {
  double x = 0;
  double y = 0;
};

struct Range {
  double low = 0;
  double high = 0;

  bool contains(double value) const { return value >= low && value <= high; }
};

// The finite values' range; {0, 1} if there are none. A single value gets some room on both sides.
Range range_of(std::span<const double> values);

// Maps `from` to `to`, linearly; `to` may run downwards. An empty `from` maps to the middle of
// `to`.
class Scale {
 public:
  Scale(Range from, double to_low, double to_high)
      : from_(from), to_low_(to_low), to_high_(to_high) {}
  double operator()(double value) const;

 private:
  Range from_;
  double to_low_;
  double to_high_;
};

// The smallest 1, 2 or 5 times a power of ten that is at least `least`, which is positive.
double nice_step(double least);

// Multiples of a step of 1, 2 or 5 times a power of ten within the range, and how to write them: at
// most `most` of them (at least 2). `whole`: steps of at least 1. A range that is empty or not
// finite has none.
struct Ticks {
  double step = 1;
  std::vector<double> values;
};
Ticks nice_ticks(Range range, std::size_t most, bool whole = false);

// The range, widened to whole steps of its ticks.
Range nice_range(Range range, std::size_t most, bool whole = false);

// A tick's label, with as many decimals as the step needs; "10k", "2.5M" for large steps.
std::string tick_label(double value, double step);

// A length in user units, with at most one decimal: "12", "12.5". Not finite: "0"; at most 100000
// either way.
std::string length(double value);

// At most `most` (at least 4) of the points, in their order (ascending x): the first, the last, and
// of equal parts of the series the lowest and the highest point, so that spikes stay. Points that
// are not finite mark gaps; one of a part stays where the part has nothing else. O(n).
std::vector<Point> thin(std::span<const Point> points, std::size_t most);

// The same, as the "d" of a path: a line with gaps where a point is not finite. A point that stands
// alone becomes a dot, if the line's caps are round.
std::string line_path(std::span<const Point> points, const Scale& x, const Scale& y);

}  // namespace syncd::trainer
