// See push_forecast.h.
#include "daemon/core/planners/push_forecast.h"

#include <algorithm>
#include <bit>

namespace syncd::planners {

Micros PushForecast::add(Micros due, Micros span) {
  const auto parts = static_cast<std::uint64_t>(std::max<Micros>(span / kParts, 1));
  const Micros key = due & ~static_cast<Micros>(std::bit_floor(parts) - 1);
  ++due_[key];
  return key;
}

void PushForecast::remove(Micros key) {
  const auto it = due_.find(key);
  if (it != due_.end() && --it->second == 0) due_.erase(it);
}

std::optional<Micros> PushForecast::best(const View& view, double price) const {
  const auto others = static_cast<double>(view.others);
  const double price_per_us = price / static_cast<double>(view.span);
  std::optional<Micros> best;
  double most = 0;
  const auto consider = [&](Micros at, std::int64_t pushes) {
    const double value = static_cast<double>(std::min(pushes, view.others)) / others -
                         price_per_us * static_cast<double>(at - view.pull);
    if (value <= most) return;
    most = value;
    best = at;
  };
  std::int64_t pushes = view.seen;
  if (view.now > view.pull) consider(view.now, pushes);
  const Micros soonest = view.now + std::max<Micros>(view.span / kLate, 1);
  for (auto it = due_.lower_bound(view.now - view.span / kLost); it != due_.end(); ++it) {
    const auto& [key, count] = *it;
    const Micros at = std::max(key, soonest);
    // Not even all the others' pushes are worth more from here on.
    if (1 - price_per_us * static_cast<double>(at - view.pull) <= most) break;
    pushes += key == view.own_key ? count - 1 : count;
    consider(at, pushes);
  }
  return best;
}

double forecast_price(double span, double error) {
  // From simulations of 40 workers with normal times: with a deviation of 5, 7.5 and 10 % of the
  // mean, clusters hold at prices up to 3, 2 and 1.5. Such forecasts are off by 0.85 deviations.
  constexpr double kLowest = 1.2, kHighest = 3;
  if (error <= 0) return kHighest;
  return std::clamp(0.128 * span / error, kLowest, kHighest);
}

}  // namespace syncd::planners
