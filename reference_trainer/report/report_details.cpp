// Facts about the runs: see report.h. No thread of its own.
#include "reference_trainer/report/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>  // fmt::join, since fmt 11
#include <sched.h>
#include <syncd/client.h>
#include <sys/utsname.h>

#include <chrono>
#include <thread>

#include "proto/base/file.h"
#include "reference_trainer/data/data_file.h"
#include "reference_trainer/options.h"

#ifndef SYNCD_TRAINER_VERSION
#error "the build sets SYNCD_TRAINER_VERSION"
#endif

namespace syncd::trainer {
namespace {

std::string contents(const char* file) {
  std::string text;
  read_file(file, text);
  return text;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// What follows "key:" in the first line that begins with it.
std::string_view value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t colon = line.find(':');
    if (colon != line.npos && trimmed(line.substr(0, colon)) == key) {
      return trimmed(line.substr(colon + 1));
    }
  }
  return "";
}

std::string core_count() {
  const unsigned all = std::thread::hardware_concurrency();
  cpu_set_t set;
  CPU_ZERO(&set);
  const int usable = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  if (usable > 0 && static_cast<unsigned>(usable) < all) {
    return fmt::format("{} of {}", usable, all);
  }
  return fmt::format("{}", all);
}

std::string precision_text(Precision precision) {
  switch (precision) {
    case Precision::kTf32:
      return "matrices multiplied in TF32";
    case Precision::kBf16:
      return "matrices multiplied in bfloat16";
    case Precision::kFloat:
      break;
  }
  return "float";
}

std::vector<Fact> machine_facts() {
  utsname system{};
  const bool is_known = ::uname(&system) == 0;
  return {{"processor", processor_name(contents("/proc/cpuinfo"))},
          {"cores", core_count()},
          {"memory", memory_size(contents("/proc/meminfo"))},
          {"kernel", is_known ? fmt::format("{} {}", system.sysname, system.release) : "unknown"},
          {"architecture", is_known ? std::string(system.machine) : "unknown"}};
}

std::string limits(const Options& options) {
  std::string text;
  if (options.iterations > 0) {
    text = options.budget == Budget::kShared
               ? fmt::format("{} iterations of all workers together",
                             options.iterations * options.workload.workers)
               : fmt::format("{} iterations of every worker", options.iterations);
  }
  if (options.seconds_max > 0) {
    text += fmt::format("{}{:g} s", text.empty() ? "" : ", or ", options.seconds_max);
  }
  if (options.target_loss) {
    text += fmt::format("{}a loss of {:g}", text.empty() ? "" : ", or ", *options.target_loss);
  }
  return text.empty() ? "none" : text;
}

std::string iteration_text(const Options& options) {
  if (options.virtual_time) return options.iteration_time + " ms of virtual time";
  if (options.iteration_ms <= 0) return "as fast as it goes";
  return fmt::format("at least {:g} ms of computing", options.iteration_ms);
}

std::string daemon_text(const Options& options) {
  if (options.virtual_time) return "its engine alone, in virtual time";
  return options.daemon.empty() ? "started for these runs" : "at " + options.daemon;
}

std::string workers_text(const Options& options) {
  const bool threads = options.workers_as == WorkersAs::kThreads;
  return fmt::format("{}{}", options.workload.workers, threads ? ", threads of one process" : "");
}

std::vector<Fact> configuration_facts(const Options& options) {
  std::string policies;
  for (const std::string& policy : options.policies) {
    policies += (policies.empty() ? "" : ", ") + policy;
  }
  const WorkloadConfig& workload = options.workload;
  std::vector<Fact> facts{{"workload", std::string(workload_name(workload.kind))},
                          {"policies", policies},
                          {"workers", workers_text(options)},
                          {"minibatch", fmt::format("{} samples", workload.batch)},
                          {"learning rate", fmt::format("{:g}", workload.learning_rate)}};
  if (workload.decay != RateDecay{}) {
    facts.push_back({"learning rate decays by", decay_text(workload.decay)});
  }
  if (options.aggregate == Aggregate::kMean) {
    facts.push_back(
        {"updates of bsp's barriers", "their mean: the rate over the number of workers"});
  }
  if (workload.momentum > 0) {
    facts.push_back({"momentum", fmt::format("{:g}", workload.momentum)});
  }
  if (workload.kind == WorkloadKind::kCnn) {
    facts.push_back({"weight decay", fmt::format("{:g}", workload.weight_decay)});
  }
  if (workload.backend == Backend::kCuda) {
    const bool on_device = options.store_in == StoreIn::kDevice && !options.virtual_time;
    facts.push_back({"computed by", on_device ? "CUDA, parameters in the GPU's memory"
                                              : "CUDA, parameters in host memory"});
    facts.push_back({"precision", precision_text(workload.precision)});
  }
  facts.push_back({"slowdown", options.slowdown});
  if (options.link_mbps) {
    facts.push_back({"a transfer", fmt::format("{:g} MB over a link of {:g} Mbit/s",
                                               *options.parameters_mb, *options.link_mbps)});
  }
  if (!options.host_sizes.empty()) {
    facts.push_back(
        {"workers on each host", fmt::format("{}", fmt::join(options.host_sizes, ", "))});
  }
  facts.push_back({"iteration", iteration_text(options)});
  facts.push_back({"end of a run", limits(options)});
  facts.push_back({"seed", fmt::format("{}", workload.seed)});
  return facts;
}

}  // namespace

ReportDetails describe_runs(const Options& options, const std::vector<std::string>& arguments) {
  ReportDetails details;
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  details.date = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(now));
  for (const std::string& argument : arguments) {
    details.command += (details.command.empty() ? "" : " ") + shell_quoted(argument);
  }
  details.configuration = configuration_facts(options);
  details.machine = machine_facts();
  details.versions = {{"reference_trainer", SYNCD_TRAINER_VERSION},
                      {"libsyncclient", syncd_version()},
                      {"daemon", daemon_text(options)},
                      {"compiler", __VERSION__}};
  return details;
}

std::string shell_quoted(std::string_view argument) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == argument.npos) {
    return std::string(argument);
  }
  std::string quoted = "'";
  for (const char character : argument) {
    quoted += character == '\'' ? "'\\''" : std::string(1, character);
  }
  return quoted + "'";
}

std::string processor_name(std::string_view cpuinfo) {
  // As x86, POWER and some others call it; ARM has no name there.
  for (const std::string_view key : {"model name", "cpu", "cpu model", "Model", "uarch"}) {
    const std::string_view name = value_of(cpuinfo, key);
    if (!name.empty()) return std::string(name);
  }
  return "unknown";
}

std::string memory_size(std::string_view meminfo) {
  const std::string_view total = value_of(meminfo, "MemTotal");
  const auto kib = parse_unsigned(total.substr(0, total.find(' ')));
  return kib ? fmt::format("{:.1f} GiB", static_cast<double>(*kib) / (1 << 20)) : "unknown";
}

}  // namespace syncd::trainer
