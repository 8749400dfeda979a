// See rate_decay.h.
#include "reference_trainer/model/rate_decay.h"

#include <fmt/format.h>

#include "reference_trainer/data/data_file.h"

namespace syncd::trainer {
namespace {

// The text before and after the first `at`; without one, nothing behind it.
std::pair<std::string_view, std::optional<std::string_view>> cut(std::string_view text, char at) {
  const std::size_t position = text.find(at);
  if (position == std::string_view::npos) return {text, std::nullopt};
  return {text.substr(0, position), text.substr(position + 1)};
}

}  // namespace

std::optional<RateDecay> parse_decay(std::string_view text, std::string& error) {
  const auto wrong = [&](const std::string& what) {
    error = fmt::format(
        "--decay: {}: {}; allowed: none, F@N[,N...] (the rate times F before each of these "
        "minibatches of a worker, rising, at most {}), F/N (times F before every N-th one); F more "
        "than 0, to 1",
        show_field(text), what, RateDecay::kStepsMax);
    return std::nullopt;
  };
  if (text == "none") return RateDecay{};
  RateDecay decay;
  const auto [before, steps] = cut(text, '@');
  const auto [factor, every] = cut(before, '/');
  if (!steps && !every) return wrong("it does not say when, as 0.1@200 and 0.98/50 do");
  const auto value = parse_number(factor);
  if (!value || !(*value > 0 && *value <= 1)) {
    return wrong(show_field(factor) + " is not a factor that is more than 0, to 1");
  }
  decay.factor = *value;
  const auto count = [](std::string_view word) {
    const auto number = parse_unsigned(word);
    const bool good = number && *number >= 1 && *number <= 1'000'000'000'000;
    return good ? std::optional(static_cast<std::int64_t>(*number)) : std::nullopt;
  };
  if (!steps) {
    const auto minibatches = count(*every);
    if (!minibatches) return wrong(show_field(*every) + " is not a number of minibatches");
    decay.every = *minibatches;
    return decay;
  }
  for (std::optional<std::string_view> rest = steps; rest;) {
    const auto [word, behind] = cut(*rest, ',');
    const auto minibatch = count(word);
    const auto place = static_cast<std::size_t>(decay.steps);
    if (!minibatch) return wrong(show_field(word) + " is not the number of a minibatch");
    if (place == RateDecay::kStepsMax) return wrong("too many minibatches");
    if (place > 0 && *minibatch <= decay.at[place - 1]) {
      return wrong(fmt::format("{} does not come after {}", word, decay.at[place - 1]));
    }
    decay.at[place] = *minibatch;
    ++decay.steps;
    rest = behind;
  }
  return decay;
}

std::string decay_text(const RateDecay& decay) {
  if (decay.every > 0) return fmt::format("{}/{}", decay.factor, decay.every);
  if (decay.steps == 0) return "none";
  std::string text = fmt::format("{}", decay.factor);
  for (std::int64_t i = 0; i < decay.steps; ++i) {
    text += fmt::format("{}{}", i == 0 ? '@' : ',', decay.at[static_cast<std::size_t>(i)]);
  }
  return text;
}

}  // namespace syncd::trainer
