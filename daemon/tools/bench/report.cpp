// See report.h.
#include "daemon/tools/bench/report.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace syncd::bench {
namespace {

std::string with_decimals(double value, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

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
  std::string out = "job " + f.job + ": " + std::to_string(f.workers) + " workers over " +
                    std::to_string(f.connections) +
                    (f.connections == 1 ? " connection, " : " connections, ") + f.policy + ", " +
                    (f.durable ? "durable" : "fast") + "\n";
  out += "joined in " + with_decimals(f.join_s, 3) + " s, then measured for " +
         with_decimals(f.seconds, 3) + " s\n";
  out += "iterations " + std::to_string(f.iterations) + " (" +
         with_decimals(per_second(f.iterations, f), 1) + "/s), requests " +
         std::to_string(f.requests) + " (" + with_decimals(per_second(f.requests, f), 1) + "/s)\n";
  out += "daemon: " + std::to_string(f.frames_in) + " messages in, " +
         std::to_string(f.frames_out) + " out";
  if (f.server_cpu_s >= 0) {
    out += ", " + with_decimals(f.server_cpu_s, 3) + " s of processor time, " +
           with_decimals(cpu_us_per_message(f), 2) + " us for each one in\n";
  } else {
    out += "; its processor time is not known from here\n";
  }
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "\n%-26s %10s %10s %10s %10s %10s\n", "microseconds",
                "count", "p50", "p90", "p99", "max");
  out += line.data();
  for (const Row& row : rows(f)) {
    if (row.spans->count() == 0) continue;
    const auto us = [](std::int64_t ns) { return static_cast<double>(ns) / 1e3; };
    std::snprintf(line.data(), line.size(), "%-26s %10llu %10.1f %10.1f %10.1f %10.1f\n",
                  row.title.c_str(), static_cast<unsigned long long>(row.spans->count()),
                  us(row.spans->percentile(0.5)), us(row.spans->percentile(0.9)),
                  us(row.spans->percentile(0.99)), us(row.spans->max()));
    out += line.data();
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
