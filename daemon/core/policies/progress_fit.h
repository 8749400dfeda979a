// What an update that a worker misses costs in progress, fitted from windows of epochs with and
// without restarts, by the rule in specsync.h. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/core/policies/state_reader.h"

namespace syncd {

class ProgressFit {
 public:
  // A push: the loss that it reports, and how many pushes by others it has missed.
  void add(std::optional<double> loss, std::uint64_t missed);
  void end_epoch();
  // Whether this epoch is one with restarts.
  bool restarts() const { return with_; }
  // Progress per iteration falls as 1 / (1 + lambda() * missed).
  double lambda() const;

  // A window that is under way begins anew.
  void save(std::vector<std::int64_t>& out) const;
  void load(StateReader& reader);

 private:
  static constexpr std::int64_t kWith = 5;  // epochs
  static constexpr std::int64_t kWithout = 3;
  static constexpr std::int64_t kEpochsMax = 64;
  static constexpr double kComesApart = 0.05;  // see specsync.h
  static constexpr std::size_t kChoices = 14;

  struct Epoch {
    double losses = 0, squares = 0, missed = 0;
    std::int64_t count = 0, pushes = 0;
  };
  // Of the losses of a window's epochs: the line through them.
  struct Window {
    std::int64_t epochs = 0, lossless = 0;
    // Sums over epochs: x counts pushes that the pulled parameters had, in epochs; y is the mean
    // loss.
    double x = 0, xx = 0, y = 0, xy = 0;
    double noise = 0;   // sum of the means' variances
    double missed = 0;  // sum of means
  };
  struct Slope {
    bool known = false;
    double fall = 0;  // of the loss, per epoch
    double variance = 0;
    double missed = 0;
  };

  static double choice(std::size_t i);
  static Slope slope(const Window& window);
  void judge(const Slope& after);

  bool with_ = true;
  std::int64_t with_epochs_ = kWith;
  std::int64_t without_epochs_ = kWithout;
  Epoch epoch_;
  Window window_;
  Slope before_, trial_;
  std::optional<double> lowest_;  // mean loss of an epoch
  double lowest_variance_ = 0;
  std::array<double, kChoices> weights_{};  // logarithms
};

}  // namespace syncd
