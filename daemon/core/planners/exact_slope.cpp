// See exact_slope.h.
#include "daemon/core/planners/exact_slope.h"

#include <bit>
#include <cmath>
#include <limits>

#include "daemon/core/planners/wide_integer.h"

namespace syncd::planners {

ExactSlope::ExactSlope(std::uint32_t weight, std::span<const Micros> spans) {
  for (const Micros span : spans) {
    value_ += static_cast<double>(weight) / static_cast<double>(span);
    numerators_[span] += weight;
  }
  // Each quotient is off by up to three roundings, each sum by one more.
  relative_error_ =
      (static_cast<double>(spans.size()) + 4) * std::numeric_limits<double>::epsilon();
}

int ExactSlope::compare(std::int64_t count, Micros time) const {
  const double loss = value_ * static_cast<double>(time);
  const double gain = static_cast<double>(count);
  const double doubt = (loss + std::abs(gain)) * 2 * relative_error_;
  if (gain - loss > doubt) return 1;
  if (loss - gain > doubt) return -1;
  if (count <= 0) {
    const bool nothing_lost = time == 0 || value_ == 0;
    return count == 0 && nothing_lost ? 0 : -1;
  }
  return compare_exactly(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(time));
}

// So many bits that S * time, if it is not a whole number, differs from every whole number by more
// than what the cut-off bits can add: the difference is a multiple of 1 / lcm(T_i).
void ExactSlope::expand() const {
  std::size_t bits = 64 + 32 + 1;
  for (const auto& [span, numerator] : numerators_) {
    bits += static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(span)));
  }
  digits_.assign(1 + (bits + 63) / 64, 0);
  std::vector<std::uint64_t> quotient(digits_.size());
  for (const auto& [span, numerator] : numerators_) {
    const auto divisor = static_cast<std::uint64_t>(span);
    std::uint64_t remainder = numerator;
    quotient[0] = remainder / divisor;
    remainder %= divisor;
    for (std::size_t i = 1; i < quotient.size(); ++i) {
      const WideUnsigned dividend = WideUnsigned{remainder} << 64;
      quotient[i] = static_cast<std::uint64_t>(dividend / divisor);
      remainder = static_cast<std::uint64_t>(dividend % divisor);
    }
    std::uint64_t carry = 0;
    for (std::size_t i = digits_.size(); i-- > 0;) {
      const WideUnsigned sum = WideUnsigned{digits_[i]} + quotient[i] + carry;
      digits_[i] = static_cast<std::uint64_t>(sum);
      carry = static_cast<std::uint64_t>(sum >> 64);
    }
  }
}

int ExactSlope::compare_exactly(std::uint64_t count, std::uint64_t time) const {
  if (digits_.empty()) expand();
  // product = digits * time, two words of whole part, then the fraction.
  std::vector<std::uint64_t> product(digits_.size() + 1);
  std::uint64_t carry = 0;
  for (std::size_t i = digits_.size(); i-- > 0;) {
    const WideUnsigned part = WideUnsigned{digits_[i]} * time + carry;
    product[i + 1] = static_cast<std::uint64_t>(part);
    carry = static_cast<std::uint64_t>(part >> 64);
  }
  product[0] = carry;
  const WideUnsigned whole = (WideUnsigned{product[0]} << 64) | product[1];
  if (whole >= count) {
    bool fraction = false;
    for (std::size_t i = 2; i < product.size(); ++i) fraction = fraction || product[i] != 0;
    return whole > count || fraction ? -1 : 0;
  }
  if (count - whole > 1) return 1;
  // S * time is between whole and count = whole + 1. It is count if what is missing from it is no
  // more than what was cut off: less than time * numerators_.size() units of the last word, that is
  // less than 2^96 of them: all words but the last two are full.
  for (std::size_t i = 2; i + 2 < product.size(); ++i) {
    if (product[i] != ~std::uint64_t{0}) return 1;
  }
  const WideUnsigned missing =
      ~((WideUnsigned{product[product.size() - 2]} << 64) | product.back());
  return missing < WideUnsigned{time} * numerators_.size() ? 0 : 1;
}

}  // namespace syncd::planners
