// See report.h.
#include "daemon/tools/bench/report.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace syncd::bench {
namespace {

double per_second(std::uint64_t count, const Figures& f) {
  return f.seconds > 0 ? static_cast<double>(count) / f.seconds : 0;
}

double cpu_us_per_message(const Figures& f) {
  return f.frames_in > 0 ? f.server_cpu_s * 1e6 / static_cast<double>(f.frames_in) : 0;
}

struct Row {
  std::string title;
  std::string key;
  const Spans* spans;
};

std::vector<Row> rows(const Figures& f) {
  std::vector<Row> all = {
      {"begin", "begin", &f.begin},       {"begin, nobody waited for", "free_begin", &f.free_begin},
      {"targets", "targets", &f.targets}, {"push", "push", &f.push},
      {"collect", "collect", &f.collect}, {"consumed", "consumed", &f.consumed},
      {"barrier", "barrier", &f.barrier}};
  for (std::size_t i = 0; i < f.asked.size(); ++i) {
    const std::string name = kQuestionNames[i];
    all.push_back({"aside: " + name, "aside_" + name, &f.asked[i]});
  }
  return all;
}

constexpr std::array<std::pair<const char*, double>, 3> kShares = {
    {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}}};

}  // namespace

bool counts_agree(const Figures& figures) {
  return figures.counted_pushes == figures.pushes - figures.late;
}

std::string report_text(const Figures& f) {
  std::string out = fmt::format(
      "job {}: {} workers over {} connection{}, {}, {}\n"
      "joined in {:.3f} s, then measured for {:.3f} s\n"
      "iterations {} ({:.1f}/s), requests {} ({:.1f}/s)\n"
      "daemon: {} messages in, {} out",
      f.job, f.workers, f.connections, f.connections == 1 ? "" : "s", f.policy,
      f.durable ? "durable" : "fast", f.join_s, f.seconds, f.iterations,
      per_second(f.iterations, f), f.requests, per_second(f.requests, f), f.frames_in,
      f.frames_out);
  out += f.server_cpu_s >= 0
             ? fmt::format(", {:.3f} s of processor time, {:.2f} us for each one in\n",
                           f.server_cpu_s, cpu_us_per_message(f))
             : "; its processor time is not known from here\n";
  out += fmt::format("\n{:<26} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "microseconds", "count",
                     "p50", "p90", "p99", "max");
  for (const Row& row : rows(f)) {
    if (row.spans->count() == 0) continue;
    const auto us = [](std::int64_t ns) { return static_cast<double>(ns) / 1e3; };
    out += fmt::format("{:<26} {:>10} {:10.1f} {:10.1f} {:10.1f} {:10.1f}\n", row.title,
                       row.spans->count(), us(row.spans->percentile(0.5)),
                       us(row.spans->percentile(0.9)), us(row.spans->percentile(0.99)),
                       us(row.spans->max()));
  }
  return out;
}

nlohmann::json report_json(const Figures& f) {
  nlohmann::json out = {{"job", f.job},
                        {"policy", f.policy},
                        {"mode", f.durable ? "durable" : "fast"},
                        {"workers", f.workers},
                        {"connections", f.connections},
                        {"join_s", f.join_s},
                        {"seconds", f.seconds},
                        {"iterations", f.iterations},
                        {"iterations_per_s", per_second(f.iterations, f)},
                        {"requests", f.requests},
                        {"requests_per_s", per_second(f.requests, f)},
                        {"pushes", f.pushes},
                        {"late", f.late},
                        {"daemon_pushes", f.counted_pushes},
                        {"daemon_frames_in", f.frames_in},
                        {"daemon_frames_out", f.frames_out}};
  out["daemon_cpu_s"] = f.server_cpu_s < 0 ? nlohmann::json() : nlohmann::json(f.server_cpu_s);
  out["daemon_cpu_us_per_message"] =
      f.server_cpu_s < 0 ? nlohmann::json() : nlohmann::json(cpu_us_per_message(f));
  for (const Row& row : rows(f)) {
    nlohmann::json spans = {{"count", row.spans->count()}};
    for (const auto& [name, share] : kShares) {
      spans[std::string(name) + "_us"] = static_cast<double>(row.spans->percentile(share)) / 1e3;
    }
    spans["max_us"] = static_cast<double>(row.spans->max()) / 1e3;
    out[row.key] = std::move(spans);
  }
  return out;
}

}  // namespace syncd::bench
