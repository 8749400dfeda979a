// See simulate.h.
#include "daemon/tools/ctl/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ostream>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/policy.h"
#include "daemon/core/policies/graph_file.h"
#include "daemon/core/policies/registry.h"
#include "daemon/tools/ctl/commands.h"
#include "daemon/tools/ctl/table.h"
#include "proto/base/number.h"
#include "proto/base/plain_text.h"

namespace syncd::ctl {
namespace {

using Json = nlohmann::ordered_json;

// A sweep runs once per pair: more would take hours and fill no readable table.
constexpr std::size_t kSweepPairsMax = 1000;

// As short as it can be told exactly: "0.000001", "2592000"; "nan".
std::string plain_number(double value, std::chars_format format) {
  std::array<char, 400> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, format).ptr;
  return {text.data(), end};
}

struct Unit {
  const char* name;
  double us;
};
constexpr Unit kSeconds{"seconds", 1e6};
constexpr Unit kMilliseconds{"milliseconds", 1e3};

// A time that was given, rounded to microseconds. Empty: `error` says what `what` is and may be.
std::optional<Micros> micros(const std::string& what, double value, const Unit& unit, Micros lowest,
                             std::string& error) {
  const double us = std::round(value * unit.us);
  constexpr auto kHighest = static_cast<double>(limits::kSpanMax);
  if (us >= static_cast<double>(lowest) && us <= kHighest) return static_cast<Micros>(us);
  const auto in_unit = [&](double number) {
    return plain_number(number / unit.us, std::chars_format::fixed);
  };
  error = fmt::format("{} is {}, allowed are {} from {} to {} (30 days)", what,
                      plain_number(value, std::chars_format::general), unit.name,
                      in_unit(static_cast<double>(lowest)), in_unit(kHighest));
  return std::nullopt;
}

// "3@12.5" or "ssp:3@60": what, and when.
bool add_event(const char* flag, const std::string& text, sim::TimedEvent event,
               std::vector<sim::TimedEvent>& events, std::string& error) {
  const std::size_t at = text.rfind('@');
  const bool is_switch = event.kind == sim::TimedEvent::Kind::kSwitch;
  double seconds = 0;
  bool good =
      at != std::string::npos && parse_number(std::string_view(text).substr(at + 1), seconds);
  if (good && is_switch) {
    event.policy = text.substr(0, at);
  } else if (good) {
    good = parse_number(std::string_view(text).substr(0, at), event.rank) &&
           event.rank < limits::kWorkersPerJobMax;
  }
  if (!good) {
    error = fmt::format(
        "{} '{}': expected is {}", flag, text,
        is_switch ? "POLICY@SECONDS, such as ssp:3@60" : "RANK@SECONDS, such as 3@12.5");
    return false;
  }
  const auto when =
      micros(fmt::format("{} '{}': the time", flag, text), seconds, kSeconds, 0, error);
  if (!when) return false;
  event.at = *when;
  events.push_back(std::move(event));
  return true;
}

std::optional<sim::Options> options_of(const SimulateQuery& query, std::string& error) {
  sim::Options options;
  options.workers = query.workers;
  if (!query.hosts.empty()) {
    auto sizes = sim::parse_hosts(query.hosts, query.workers, error);
    if (!sizes) return std::nullopt;
    options.host_sizes = std::move(*sizes);
  }
  if (query.link_mbps.has_value() != query.parameters_mb.has_value()) {
    error = query.link_mbps ? "--link-mbps needs --parameters-mb, what a transfer carries"
                            : "--parameters-mb needs --link-mbps, how fast the link is";
    return std::nullopt;
  }
  if (query.link_mbps) {
    const auto us = sim::transfer_time(*query.link_mbps, *query.parameters_mb, error);
    if (!us) return std::nullopt;
    options.transfer_us = *us;
  }
  options.seed = query.seed;
  const auto take = [&](const char* flag, double value, const Unit& unit, Micros lowest,
                        Micros& into) {
    const auto us = micros(flag, value, unit, lowest, error);
    if (us) into = *us;
    return us.has_value();
  };
  if (!take("--delay-ms", query.delay_ms, kMilliseconds, 0, options.delay_us) ||
      !take("--plan-delay-ms", query.plan_delay_ms, kMilliseconds, 0, options.plan_delay_us) ||
      !take("--duration-s", query.duration_s, kSeconds, 1, options.duration_us) ||
      !take("--worker-grace-s", query.worker_grace_s, kSeconds, 0, options.worker_grace_us)) {
    return std::nullopt;
  }
  options.serial = query.order == "serial";
  if (!query.order.empty() && query.order != "serial" && query.order != "parallel") {
    error = "--order is '" + query.order + "', allowed are parallel and serial";
    return std::nullopt;
  }
  const auto time = sim::parse_iteration_time(query.iteration_time, error);
  if (!time) return std::nullopt;
  options.iteration_time = *time;
  const auto slowdown = sim::parse_slowdown(query.slowdown, error);
  if (!slowdown) return std::nullopt;
  options.slowdown = *slowdown;
  using EventKind = sim::TimedEvent::Kind;
  const auto add = [&](const char* flag, const std::vector<std::string>& texts, EventKind kind) {
    return std::all_of(texts.begin(), texts.end(), [&](const std::string& text) {
      return add_event(flag, text, {0, kind, 0, {}}, options.events, error);
    });
  };
  if (!add("--fail", query.fails, EventKind::kFail) ||
      !add("--leave", query.leaves, EventKind::kLeave) ||
      !add("--join", query.joins, EventKind::kJoin) ||
      !add("--switch", query.changes, EventKind::kSwitch)) {
    return std::nullopt;
  }
  return options;
}

// "abort_time=10,20,abort_rate=0.1,0.2" as policies over `base`, which itself comes first.
std::optional<std::vector<std::string>> sweep_policies(const std::string& sweep,
                                                       const std::string& base,
                                                       std::string& error) {
  const auto wrong = [&](const std::string& what) {
    error = fmt::format(
        "--sweep '{}': {}; expected is abort_time=MS[,MS...],abort_rate=SHARE[,SHARE...]", sweep,
        what);
    return std::nullopt;
  };
  std::vector<std::string> times;
  std::vector<std::string> rates;
  std::vector<std::string>* into = nullptr;
  for (std::string_view left = sweep;;) {
    const std::size_t comma = left.find(',');
    std::string_view piece = left.substr(0, comma);
    if (const std::size_t equals = piece.find('='); equals != std::string_view::npos) {
      const std::string_view key = piece.substr(0, equals);
      if (key == "abort_time") {
        into = &times;
      } else if (key == "abort_rate") {
        into = &rates;
      } else {
        return wrong("'" + std::string(key) + "' is unknown");
      }
      piece.remove_prefix(equals + 1);
    }
    double value = 0;
    if (into == nullptr || !parse_number(piece, value) || !std::isfinite(value) || value < 0) {
      return wrong("'" + std::string(piece) + "' is not a number of a list");
    }
    into->emplace_back(piece);
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  if (times.empty() || rates.empty()) return wrong("one of the two lists is missing");
  if (times.size() * rates.size() > kSweepPairsMax) {
    return wrong(fmt::format("{} pairs, at most {} are allowed", times.size() * rates.size(),
                             kSweepPairsMax));
  }
  std::vector<std::string> policies{base};
  for (const std::string& time : times) {
    for (const std::string& rate : rates) {
      policies.push_back(fmt::format("specsync:fixed,{},{}+{}", time, rate, base));
    }
  }
  return policies;
}

// What SpecSync's own measure (section 4.2) says of a run as a whole: updates that a push has seen
// more than without speculation, less those that the others missed because it came later.
double gain_over(const sim::Result& base, const sim::Result& result) {
  if (result.iterations_per_s_per_worker <= 0) return -HUGE_VAL;
  return base.missed_updates_mean - result.missed_updates_mean -
         (result.workers - 1) *
             (base.iterations_per_s_per_worker / result.iterations_per_s_per_worker - 1);
}

// If a policy restarts iterations, the output shows what that gains.
bool tells_freshness(const SimulateAnswer& answer) {
  return std::any_of(answer.results.begin(), answer.results.end(),
                     [](const sim::Result& result) { return result.speculates; });
}

// As many digits as mean anything, so that a result reads the same on every machine.
Json rounded(double value) {
  return std::strtod(fmt::format("{:.9g}", value).c_str(), nullptr);
}

Json rounded(const std::optional<double>& value) {
  return value ? rounded(*value) : Json(nullptr);
}

template <class T>
std::string fixed(T value, int digits) {
  return fmt::format("{:.{}f}", static_cast<double>(value), digits);
}

std::string fixed(const std::optional<double>& value, int digits) {
  return value ? fixed(*value, digits) : "-";
}

}  // namespace

std::string simulate_help() {
  return "Iteration times: " + std::string(sim::known_iteration_times()) +
         ".\nSlowdowns: " + sim::known_slowdowns() + ".\nPolicies: " + known_policies() +
         R"(.
Iterations are what is begun and pushed: one batch each. Only under notify_ack:GRAPH,every=N an
iteration is N batches, with a time drawn for each, and one exchange (batches_per_iteration in
JSON): multiply its rate by N to compare it with others.
With --link-mbps and --parameters-mb each transfer of the parameters takes time. With a parameter
server, all pulls and pushes share the one link of the server equally; without one, each worker's own
link sends to one neighbour after another, so N workers have N links. A worker waits for its own transfer.
barrier:GRAPH and async:GRAPH are unsafe baselines (ASAP, section 6.2): a worker posts its update into one
slot per neighbour and goes on, and a reduce finds it whole, half-written (torn), or not there (missing).
Every policy of a comparison sees the same times, and the same seed gives the same result.
JSON: {workers, seed, virtual_s, policies: [{policy, iterations_per_s_per_worker, waiting_share
(blocked in begin, targets and collect, messages' way included), transferring_share (of parameters
and updates over a link), transfers (begun, of a whole model; counted without a link too), staleness_mean,
staleness_max,
barriers, resyncs, restarts, wasted_share (computed and dropped), skipped_per_s_per_worker,
predicted_wait_ms_mean, actual_wait_ms_mean (of recorded barriers, or null)}]}; over a graph also
whole_updates, missing_updates, torn_updates (that reduces named) and reduces_by_updates (at i: reduces
with the whole updates of i neighbours); if a policy speculates
also missed_updates_mean (pushes by others between a worker's last pull and its push) and
updates_per_restart_mean (pushes by others that a restart's pull brought in, or null) of each, and
speculation_off_s of those that do (virtual seconds until it gave restarts up, or null); with --sweep
also gain of each, and best. A run that stalls has stalled_at_s and waits.
specsync stops restarts that cost iterations without making the loss fall faster. A simulation has no
loss: auto_off=off keeps them, as in specsync:auto_off=off+asp.
A table is as wide as the terminal; if there is none, as the variable COLUMNS says, or 80.)";
}

std::optional<SimulateAnswer> answer_simulate(const SimulateQuery& query, std::string& error) {
  auto options = options_of(query, error);
  if (!options) return std::nullopt;
  if (query.policy.empty() == query.compare.empty()) {
    error =
        query.policy.empty()
            ? "which policy? --policy P, or --compare P1,P2,...: allowed are " + known_policies()
            : "--policy and --compare exclude each other";
    return std::nullopt;
  }
  std::vector<std::string> policies;
  if (query.sweep.empty()) {
    policies = query.compare.empty() ? std::vector{query.policy} : split_policy_list(query.compare);
  } else {
    if (query.policy.empty()) {
      error = "--sweep needs --policy BASE, the policy to speculate over, such as asp";
      return std::nullopt;
    }
    auto swept = sweep_policies(query.sweep, query.policy, error);
    if (!swept) return std::nullopt;
    policies = std::move(*swept);
  }
  // All of them first: a mistake in the last one is not found after minutes.
  std::vector<sim::Options> runs;
  for (const std::string& policy : policies) {
    runs.push_back(*options);
    runs.back().policy = policy;
    runs.back().graph_file = read_graph_file(policy);
    error = sim::check_options(runs.back());
    if (!error.empty()) return std::nullopt;
  }
  SimulateAnswer answer;
  for (const sim::Options& run : runs) {
    auto result = sim::simulate(run, error);
    if (!result) return std::nullopt;
    answer.results.push_back(std::move(*result));
  }
  if (query.sweep.empty()) return answer;
  for (const sim::Result& result : answer.results) {
    answer.gains.push_back(gain_over(answer.results.front(), result));
    if (answer.gains.back() > answer.gains[answer.best]) answer.best = answer.gains.size() - 1;
  }
  return answer;
}

Json simulate_json(const SimulateAnswer& answer) {
  const sim::Result& first = answer.results.front();
  Json json;
  json["workers"] = first.workers;
  json["seed"] = first.seed;
  json["virtual_s"] = rounded(first.virtual_s);
  json["policies"] = Json::array();
  for (std::size_t i = 0; i < answer.results.size(); ++i) {
    const sim::Result& result = answer.results[i];
    Json row;
    row["policy"] = result.policy;
    if (result.batches_per_iteration != 1) {
      row["batches_per_iteration"] = result.batches_per_iteration;
    }
    row["iterations_per_s_per_worker"] = rounded(result.iterations_per_s_per_worker);
    row["waiting_share"] = rounded(result.waiting_share);
    row["transferring_share"] = rounded(result.transferring_share);
    row["transfers"] = result.transfers;
    row["staleness_mean"] = rounded(result.staleness_mean);
    row["staleness_max"] = result.staleness_max;
    row["barriers"] = result.barriers;
    row["resyncs"] = result.resyncs;
    row["restarts"] = result.restarts;
    row["wasted_share"] = rounded(result.wasted_share);
    row["skipped_per_s_per_worker"] = rounded(result.skipped_per_s_per_worker);
    row["predicted_wait_ms_mean"] = rounded(result.predicted_wait_ms_mean);
    row["actual_wait_ms_mean"] = rounded(result.actual_wait_ms_mean);
    if (!result.reduces_of.empty()) {
      row["whole_updates"] = result.whole_updates;
      row["missing_updates"] = result.missing_updates;
      row["torn_updates"] = result.torn_updates;
      row["reduces_by_updates"] = result.reduces_of;
    }
    if (tells_freshness(answer)) {
      row["missed_updates_mean"] = rounded(result.missed_updates_mean);
      row["updates_per_restart_mean"] = rounded(result.updates_per_restart_mean);
    }
    if (result.speculates) row["speculation_off_s"] = rounded(result.speculation_off_s);
    if (!answer.gains.empty()) {
      row["gain"] = std::isfinite(answer.gains[i]) ? rounded(answer.gains[i]) : Json(nullptr);
    }
    if (result.stalled) {
      row["stalled_at_s"] = rounded(static_cast<double>(result.stalled_at) / 1e6);
      row["waits"] = Json::array();
      for (const sim::WaitReport& wait : result.waits) row["waits"].push_back(wait.text);
    }
    json["policies"].push_back(std::move(row));
  }
  if (!answer.gains.empty()) json["best"] = answer.results[answer.best].policy;
  return json;
}

std::string simulate_table(const SimulateAnswer& answer, std::size_t columns) {
  const bool swept = !answer.gains.empty();
  const bool freshness = tells_freshness(answer);
  std::vector<std::string> header = {"POLICY"};
  std::vector<std::vector<std::string>> rows;
  for (const sim::Result& result : answer.results) rows.push_back({result.policy});
  using R = sim::Result;
  const auto add = [&](const char* title, auto member, int digits) {
    header.emplace_back(title);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].push_back(fixed(answer.results[i].*member, digits));
    }
  };
  // Left out if no policy has a value.
  const auto add_if_any = [&](const char* title, auto member, int digits) {
    const auto has_it = [&](const R& result) { return static_cast<bool>(result.*member); };
    if (std::ranges::any_of(answer.results, has_it)) add(title, member, digits);
  };
  add("IT/S", &R::iterations_per_s_per_worker, 4);
  add("WAITING", &R::waiting_share, 4);
  add_if_any("LINK", &R::transferring_share, 4);
  add("STALE", &R::staleness_mean, 2);
  add("MAX", &R::staleness_max, 0);
  add_if_any("WASTED", &R::wasted_share, 4);
  add_if_any("SKIPPED/S", &R::skipped_per_s_per_worker, 4);
  add("BARRIERS", &R::barriers, 0);
  add_if_any("FORESEEN", &R::predicted_wait_ms_mean, 1);
  add_if_any("WAITED", &R::actual_wait_ms_mean, 1);
  const bool links_told = header[3] == "LINK";
  const bool waits_told = header.back() == "WAITED";
  if (freshness) {
    add("RESYNCS", &R::resyncs, 0);
    add("RESTARTS", &R::restarts, 0);
    add("MISSED", &R::missed_updates_mean, 2);
    add("FRESH", &R::updates_per_restart_mean, 2);
  }
  if (swept) {
    header.emplace_back("GAIN");
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].push_back(fixed(answer.gains[i], 2));
  }
  const sim::Result& first = answer.results.front();
  std::string text = fmt::format(
      "{} workers, {:.1f} s of virtual time, seed {}\n\n{}\n"
      "IT/S: iterations per second and worker. WAITING, WASTED: shares of its time.\n"
      "STALE, MAX: iterations ahead of the slowest at a grant, mean and most.\n",
      first.workers, first.virtual_s, first.seed, format_table(header, rows, columns));
  if (links_told) text += "LINK: share of its time in which its parameters or its update travel.\n";
  if (waits_told) {
    text += "FORESEEN, WAITED: the longest wait at a barrier, planned and real, mean in ms.\n";
  }
  if (freshness) {
    text +=
        "MISSED: pushes by others between a worker's last pull and its push.\n"
        "FRESH: those that the pull of a restart brought in.\n";
  }
  bool gave_up = false;
  for (const sim::Result& result : answer.results) {
    if (!result.speculation_off_s) continue;
    text +=
        fmt::format("{}: no restarts after {:.1f} s.\n", result.policy, *result.speculation_off_s);
    gave_up = true;
  }
  if (gave_up) {
    text +=
        "They cost iterations, and here no loss is reported that could fall faster.\n"
        "auto_off=off keeps them, as in specsync:auto_off=off+asp.\n";
  }
  for (const sim::Result& result : answer.results) {
    if (result.batches_per_iteration == 1) continue;
    text += fmt::format("{}: an iteration is {} batches.\n", result.policy,
                        result.batches_per_iteration);
  }
  for (const sim::Result& result : answer.results) {
    if (!result.unsafe) continue;
    text += fmt::format(
        "{}: an unsafe baseline. Of the updates that its reduces named, {} were whole, {} were "
        "missing, {} were torn.\n",
        result.policy, result.whole_updates, result.missing_updates, result.torn_updates);
  }
  if (swept) {
    text += "GAIN: missed updates avoided per iteration, less those lost by being slower.\nBest: " +
            answer.results[answer.best].policy + "\n";
  }
  return text;
}

int run_simulate(const SimulateQuery& query, std::ostream& out, std::ostream& err) {
  std::string error;
  const auto answer = answer_simulate(query, error);
  if (!answer) {
    err << "syncctl: " << plain(error) << "\n";
    return kExitUsage;
  }
  if (query.json) {
    out << json_text(simulate_json(*answer));
  } else {
    out << simulate_table(*answer, query.columns);
  }
  int code = kExitOk;
  for (const sim::Result& result : answer->results) {
    for (const std::string& refused : result.refused) {
      err << "syncctl: " << result.policy << ": " << refused << "\n";
      code = kExitRefused;
    }
    if (!result.unsafe && result.missing_updates + result.overwritten_updates > 0) {
      err << fmt::format(
          "syncctl: {}: {} of the collected updates had not arrived, and {} replaced one that "
          "was not yet read\n",
          result.policy, result.missing_updates, result.overwritten_updates);
      code = kExitRefused;
    }
    if (!result.stalled) continue;
    code = kExitRefused;
    err << fmt::format("syncctl: {} stalled at {:.3f} s:\n", result.policy,
                       static_cast<double>(result.stalled_at) / 1e6);
    for (const sim::WaitReport& wait : result.waits) err << "  " << wait.text << "\n";
  }
  return code;
}

}  // namespace syncd::ctl
