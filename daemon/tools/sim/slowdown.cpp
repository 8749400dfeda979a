// See slowdown.h.
#include "daemon/tools/sim/slowdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "daemon/core/engine/limits.h"
#include "daemon/tools/sim/draws.h"
#include "daemon/tools/sim/number.h"

namespace syncd::sim {
namespace {

// Reads one text; the first thing that is wrong with it ends up in `error`.
class Parser {
 public:
  Parser(std::string_view text, std::string& error) : text_(text), error_(error) {}

  std::optional<Slowdown> parse() {
    if (text_ == "none") return Slowdown{};
    const auto [kind, rest] = split(text_, ':');
    if (kind == "random") return random(rest);
    if (kind == "fixed") return fixed(rest);
    return wrong("'" + std::string(kind) + "' is not a kind of slowdown");
  }

 private:
  std::nullopt_t wrong(const std::string& what) {
    error_ = fmt::format(
        "--slowdown '{}': {}; allowed: {}; factors are 0.001x to 1000000x, probabilities 0 to 1",
        text_, what, known_slowdowns());
    return std::nullopt;
  }

  std::optional<Rank> worker(std::string_view word) {
    Rank rank = 0;
    if (!parse_number(word, rank)) return wrong("'" + std::string(word) + "' is no worker's rank");
    if (rank >= limits::kWorkersPerJobMax) {
      return wrong(fmt::format("there is no worker {}; a job has at most {}", word,
                               limits::kWorkersPerJobMax));
    }
    return rank;
  }

  std::optional<double> factor(std::string_view word) {
    if (!word.ends_with('x')) {
      return wrong("the factor '" + std::string(word) + "' does not end in x");
    }
    const auto value = number(word.substr(0, word.size() - 1));
    if (!value || *value < 0.001 || *value > 1'000'000) {
      return wrong("'" + std::string(word) + "' is not a factor from 0.001x to 1000000x");
    }
    return value;
  }

  std::optional<Slowdown> random(std::string_view rest) {
    const auto [whole, run] = split(rest, ',');
    std::string_view draw = whole;
    Slowdown slowdown;
    if (const std::size_t equals = draw.find('='); equals != std::string_view::npos) {
      slowdown.only = worker(draw.substr(0, equals));
      if (!slowdown.only) return std::nullopt;
      draw.remove_prefix(equals + 1);
    }
    const auto [times, chance] = split(draw, '@');
    if (chance.empty()) return wrong("the probability is missing");
    const auto slow = factor(times);
    if (!slow) return std::nullopt;
    const auto [above, below] = split(chance, '/');
    const bool per_worker = below == "n";
    const bool is_fraction = chance.find('/') != std::string_view::npos;
    const auto numerator = number(above);
    const auto denominator = per_worker || !is_fraction ? std::optional(1.0) : number(below);
    if (!numerator || !denominator || *numerator < 0 || *denominator <= 0 ||
        (!per_worker && *numerator > *denominator)) {
      return wrong("'" + std::string(chance) + "' is not a probability from 0 to 1");
    }
    slowdown.factor = *slow;
    slowdown.probability = *numerator / *denominator;
    slowdown.per_worker = per_worker;
    if (whole.size() < rest.size()) {
      if (!run.starts_with("for=") || !parse_number(run.substr(4), slowdown.run_length) ||
          slowdown.run_length < 1 || slowdown.run_length > 1'000'000) {
        return wrong("'" + std::string(run) + "' is not for=ITERATIONS, 1 to 1000000");
      }
    }
    return slowdown;
  }

  std::optional<Slowdown> fixed(std::string_view rest) {
    Slowdown slowdown;
    for (;;) {
      const std::size_t comma = rest.find(',');
      const std::string_view word = rest.substr(0, comma);
      const auto [who, times] = split(word, '=');
      if (word.find('=') == std::string_view::npos) {
        return wrong("'" + std::string(word) + "' is not WORKER=FACTORx");
      }
      const auto rank = worker(who);
      const auto slow = rank ? factor(times) : std::nullopt;
      if (!slow) return std::nullopt;
      slowdown.fixed.emplace_back(*rank, *slow);
      if (comma == std::string_view::npos) return slowdown;
      rest.remove_prefix(comma + 1);
    }
  }

  std::string_view text_;
  std::string& error_;
};

}  // namespace

const char* known_slowdowns() {
  return "none, random:6x@0.05 (an iteration takes 6 times as long with this probability), "
         "random:6x@1/8, random:6x@1/n (n is the number of workers), random:6x@1/n,for=20 (as "
         "often, "
         "but 20 iterations in a row), random:3=6x@1/8 (worker 3 alone), fixed:3=4x[,5=2x] (worker "
         "3 is 4 times slower)";
}

std::optional<Slowdown> parse_slowdown(std::string_view text, std::string& error) {
  return Parser(text, error).parse();
}

std::string slowdown_problem(const Slowdown& slowdown, std::uint32_t workers, std::uint32_t ranks) {
  const auto missing = [&](Rank rank) {
    return fmt::format("--slowdown: there is no worker {}; allowed: 0 to {}", rank, ranks - 1);
  };
  for (const auto& [rank, factor] : slowdown.fixed) {
    if (rank >= ranks) return missing(rank);
  }
  if (slowdown.only && *slowdown.only >= ranks) return missing(*slowdown.only);
  if (slowdown.per_worker && slowdown.probability > workers) {
    return fmt::format("--slowdown: with {} workers the probability is above 1; allowed: 0 to 1",
                       workers);
  }
  return {};
}

SlowFactors::SlowFactors(const Slowdown& slowdown, std::uint64_t seed, std::uint32_t workers)
    : seed_(seed),
      factor_(slowdown.factor),
      probability_(slowdown.per_worker ? slowdown.probability / std::max(workers, 1U)
                                       : slowdown.probability),
      run_length_(static_cast<std::uint64_t>(slowdown.run_length)),
      only_(slowdown.only) {
  for (const auto& [rank, factor] : slowdown.fixed) {
    if (worker_factor_.size() <= rank) worker_factor_.resize(rank + 1, 1.0);
    worker_factor_[rank] *= factor;
  }
}

double SlowFactors::operator()(Rank worker, Iteration iteration) const {
  const double own = worker < worker_factor_.size() ? worker_factor_[worker] : 1;
  if (probability_ <= 0 || worker != only_.value_or(worker)) return own;
  auto run = static_cast<std::uint64_t>(iteration);
  if (run_length_ > 1) {
    // Runs of different workers begin at different iterations.
    run = (run + draw_bits(seed_, Stream::kRunStart, worker, 0) % run_length_) / run_length_;
  }
  return draw_unit(seed_, Stream::kSlowdown, worker, run) < probability_ ? own * factor_ : own;
}

double SlowFactors::largest() const {
  double largest = 1;
  for (const double own : worker_factor_) largest = std::max(largest, own);
  return probability_ > 0 ? largest * std::max(1.0, factor_) : largest;
}

}  // namespace syncd::sim
