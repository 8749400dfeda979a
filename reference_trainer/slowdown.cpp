// Slow workers on purpose: see slowdown.h. No thread of its own.
#include "reference_trainer/slowdown.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference_trainer/data_file.h"
#include "reference_trainer/random.h"

namespace syncd::trainer {
namespace {

constexpr std::string_view kAllowed =
    "allowed: none, random:FACTORx@PROBABILITY (such as random:6x@0.05 or random:6x@1/n), "
    "fixed:WORKER=FACTORx[,WORKER=FACTORx] (such as fixed:3=4x); factors are 1 to 1000";

[[noreturn]] void fail(std::string_view text, std::string_view reason) {
  throw SlowdownError(fmt::format("{}: {}; {}", show_field(text), reason, kAllowed));
}

double parse_factor(std::string_view text, std::string_view word) {
  if (!word.ends_with('x'))
    fail(text, fmt::format("the factor {} does not end in x", show_field(word)));
  const auto factor = parse_number(word.substr(0, word.size() - 1));
  if (!factor || *factor < 1 || *factor > 1000) {
    fail(text, fmt::format("{} is not a factor from 1x to 1000x", show_field(word)));
  }
  return *factor;
}

double parse_probability(std::string_view text, std::string_view word, int workers) {
  const std::size_t slash = word.find('/');
  const std::string_view below = slash == word.npos ? "1" : word.substr(slash + 1);
  const auto numerator = parse_number(word.substr(0, slash));
  const auto denominator = below == "n" ? std::optional<double>(workers) : parse_number(below);
  if (!numerator || !denominator || *numerator < 0 || *denominator <= 0 ||
      *numerator > *denominator) {
    fail(text, fmt::format("{} is not a probability from 0 to 1", show_field(word)));
  }
  return *numerator / *denominator;
}

void parse_fixed(std::string_view text, std::string_view word, std::vector<double>& factors) {
  const std::size_t equals = word.find('=');
  const auto worker = parse_unsigned(word.substr(0, equals));
  if (equals == word.npos || !worker) {
    fail(text, fmt::format("{} is not WORKER=FACTORx", show_field(word)));
  }
  if (*worker >= factors.size()) {
    fail(text, fmt::format("there is no worker {}; the workers are 0 to {}", *worker,
                           factors.size() - 1));
  }
  factors[*worker] = parse_factor(text, word.substr(equals + 1));
}

}  // namespace

Slowdown Slowdown::parse(std::string_view text, int workers) {
  Slowdown result;
  if (text == "none") return result;
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string_view rest = colon == text.npos ? "" : text.substr(colon + 1);
  if (kind == "random") {
    const std::size_t at = rest.find('@');
    if (at == rest.npos) fail(text, "the probability is missing");
    result.random_factor_ = parse_factor(text, rest.substr(0, at));
    result.probability_ = parse_probability(text, rest.substr(at + 1), workers);
  } else if (kind == "fixed") {
    result.fixed_factors_.assign(static_cast<std::size_t>(workers), 1.0);
    std::vector<std::string_view> words;
    split_fields(rest, ',', words);
    for (const std::string_view word : words) parse_fixed(text, word, result.fixed_factors_);
  } else {
    fail(text, fmt::format("{} is not a kind of slowdown", show_field(kind)));
  }
  return result;
}

double Slowdown::factor(std::uint64_t seed, int worker, std::int64_t iteration) const {
  if (!fixed_factors_.empty()) return fixed_factors_[static_cast<std::size_t>(worker)];
  if (probability_ <= 0) return 1;
  const std::uint64_t bits = draw_bits(seed, Stream::kSlowdown, static_cast<std::uint64_t>(worker),
                                       static_cast<std::uint64_t>(iteration));
  return to_unit(bits) < probability_ ? random_factor_ : 1;
}

double Slowdown::largest_factor() const {
  double largest = probability_ > 0 ? random_factor_ : 1;
  for (const double factor : fixed_factors_) largest = std::max(largest, factor);
  return largest;
}

}  // namespace syncd::trainer
