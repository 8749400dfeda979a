// The learning rate over a run: what --decay says. Pure functions.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace syncd::trainer {

// How the rate falls with a worker's own minibatches, counted from 0. Plain data, because it
// travels through shared memory.
struct RateDecay {
  static constexpr std::size_t kStepsMax = 16;
  double factor = 1;                            // the rate is multiplied by it at each step
  std::int64_t every = 0;                       // a step every so many minibatches; 0: at `at`
  std::array<std::int64_t, kStepsMax> at = {};  // rising
  std::int64_t steps = 0;                       // of `at`

  bool operator==(const RateDecay&) const = default;
};

// The factor of the first rate at a minibatch. O(steps). Here, because the CUDA library needs it.
inline double decayed(const RateDecay& decay, std::int64_t minibatch) {
  std::int64_t steps = 0;
  if (decay.every > 0) {
    steps = minibatch / decay.every;
  } else {
    while (steps < decay.steps && minibatch >= decay.at[static_cast<std::size_t>(steps)]) ++steps;
  }
  return std::pow(decay.factor, static_cast<double>(steps));
}

// One of
//   none
//   0.1@200[,250...]   multiplied by 0.1 before minibatch 200, and again before 250 (at most 16)
//   0.98/50            multiplied by 0.98 before every 50th minibatch
// Empty: `error` says what is wrong and what is allowed.
std::optional<RateDecay> parse_decay(std::string_view text, std::string& error);
// The text that parse_decay() makes it of.
std::string decay_text(const RateDecay& decay);

}  // namespace syncd::trainer
