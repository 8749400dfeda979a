// See iteration_time.h.
#include "daemon/tools/sim/iteration_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "daemon/core/engine/limits.h"
#include "daemon/tools/sim/draws.h"
#include "daemon/tools/sim/number.h"
#include "proto/base/check.h"

namespace syncd::sim {
namespace {

// Milliseconds to microseconds, if it is a time that an iteration may take.
std::optional<double> time_of(std::string_view text) {
  const auto ms = number(text);
  if (!ms || *ms * 1000 < 1 || *ms * 1000 > static_cast<double>(limits::kSpanMax)) {
    return std::nullopt;
  }
  return *ms * 1000;
}

}  // namespace

const char* known_iteration_times() {
  return "constant:MS, uniform:A-B (one speed per worker), uniform_each:A-B, "
         "normal:MEAN,DEVIATION (a draw below 0.001 counts as 0.001), lognormal:MEDIAN,SIGMA (all "
         "three drawn at "
         "every iteration), trace:FILE (a history export); milliseconds";
}

std::optional<IterationTime> parse_iteration_time(std::string_view text, std::string& error) {
  const auto [name, rest] = split(text, ':');
  const auto wrong = [&](const std::string& what) -> std::optional<IterationTime> {
    error = fmt::format("iteration time '{}': {}", text, what);
    return std::nullopt;
  };
  // "FIRST<at>SECOND", both milliseconds if `unit_us` is 1000. False: `expected` was not met.
  IterationTime time;
  const auto take_two = [&](char at, double unit_us, double least, double most) {
    const auto [one, other] = split(rest, at);
    const auto first = time_of(one);
    const auto second = number(other);
    if (!first || !second || *second < least || *second * unit_us > most) return false;
    time.first_us = *first;
    time.second = *second * unit_us;
    return true;
  };
  const auto expected = [&](const std::string& form) {
    return wrong(fmt::format("expected is {}; times are milliseconds from 0.001 to {}", form,
                             limits::kSpanMax / 1000));
  };
  constexpr auto kSpanMost = static_cast<double>(limits::kSpanMax);
  using Kind = IterationTime::Kind;
  if (name == "constant") {
    const auto us = time_of(rest);
    if (!us) return expected("constant:MS, such as constant:1000");
    time.first_us = *us;
  } else if (name == "uniform" || name == "uniform_each") {
    time.kind = name == "uniform" ? Kind::kUniform : Kind::kUniformEach;
    if (!take_two('-', 1000, 0.001, kSpanMost)) {
      return expected(fmt::format("{0}:A-B, such as {0}:1000-1500", name));
    }
    if (time.first_us > time.second) return wrong("the first time is above the second");
  } else if (name == "normal") {
    time.kind = Kind::kNormal;
    if (!take_two(',', 1000, 0, kSpanMost)) {
      return expected("normal:MEAN,DEVIATION, such as normal:1000,100, with a deviation from 0");
    }
  } else if (name == "lognormal") {
    time.kind = Kind::kLognormal;
    if (!take_two(',', 1, 0, 10)) {
      return expected(
          "lognormal:MEDIAN,SIGMA, such as lognormal:1000,0.3, with a sigma from 0 to 10");
    }
  } else if (name == "trace") {
    time.kind = Kind::kTrace;
    std::string why;
    if (rest.empty()) return wrong("expected is trace:FILE");
    time.trace = read_trace_file(std::string(rest), why);
    if (!time.trace) return wrong(why);
  } else {
    return wrong(std::string("allowed are ") + known_iteration_times());
  }
  return time;
}

Durations::Durations(IterationTime time, const Slowdown& slowdown, std::uint64_t seed,
                     std::uint32_t workers)
    : time_(std::move(time)), seed_(seed), slow_(slowdown, seed, workers) {}

double Durations::base(Rank worker, Iteration iteration) const {
  const auto k = static_cast<std::uint64_t>(iteration);
  const auto between = [&](double unit) {
    return time_.first_us + unit * (time_.second - time_.first_us);
  };
  switch (time_.kind) {
    case IterationTime::Kind::kConstant:
      break;
    case IterationTime::Kind::kUniform:
      return between(draw_unit(seed_, Stream::kSpeed, worker, 0));
    case IterationTime::Kind::kUniformEach:
      return between(draw_unit(seed_, Stream::kTime, worker, k));
    case IterationTime::Kind::kNormal:
      // Far below the mean there is no time left: what no computation can take is the least it can.
      return std::max(1.0, time_.first_us + time_.second * draw_normal(seed_, worker, k));
    case IterationTime::Kind::kLognormal:
      return time_.first_us * std::exp(time_.second * draw_normal(seed_, worker, k));
    case IterationTime::Kind::kTrace: {
      const auto& spans = time_.trace->spans[worker % time_.trace->spans.size()];
      return static_cast<double>(spans[k % spans.size()]);
    }
  }
  return time_.first_us;
}

Micros Durations::operator()(Rank worker, Iteration iteration) const {
  SYNCD_CHECK(iteration >= 0);
  double us = base(worker, iteration) * slow_(worker, iteration);
  // Far draws of a wide distribution must not overflow the sums of times.
  us = std::min(us, static_cast<double>(limits::kSpanMax));
  return std::max<Micros>(1, std::llround(us));
}

}  // namespace syncd::sim
