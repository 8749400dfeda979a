// reference_trainer: wiring of data, daemon, runs and report. The parent process has one thread;
// workers are processes of their own, or threads beside it (worker.h).
#include <fmt/format.h>
#include <fmt/ranges.h>  // fmt::join, since fmt 11
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <stdexcept>

#include "reference_trainer/data/data_file.h"
#include "reference_trainer/model/backends.h"
#include "reference_trainer/options.h"
#include "reference_trainer/params/device_queues.h"
#include "reference_trainer/params/store_devices.h"
#include "reference_trainer/report/progress.h"
#include "reference_trainer/report/report.h"
#include "reference_trainer/run/checkpoint.h"
#include "reference_trainer/run/clock.h"
#include "reference_trainer/run/daemon_process.h"
#include "reference_trainer/run/policies.h"
#include "reference_trainer/run/process.h"
#include "reference_trainer/run/run.h"
#include "reference_trainer/run/worker.h"

namespace {

using namespace syncd::trainer;

constexpr int kOk = 0;
constexpr int kRunFailed = 1;
constexpr int kBadInput = 2;
constexpr std::size_t kJobBytesMax = 64;  // of a job's name, as the daemon allows

// Progress for people. Whether anybody reads it does not matter.
void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stderr);
}

// The result. False if it cannot be written.
bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

// One process's iterations against which policies are measured when no target is given: half of
// what a run may make (without a limit on the iterations, a hundred per worker), but no more than a
// moment's work.
std::int64_t target_iterations(const Options& options) {
  const std::int64_t per_worker = options.iterations > 0 ? options.iterations / 2 : 100;
  const std::int64_t most = samples_of_seconds(options.workload.kind) / options.workload.batch;
  return std::max<std::int64_t>(1, std::min(per_worker * options.workload.workers, most));
}

bool wants_progress(const Options& options) {
  return !options.quiet && !options.json;
}

// The loss that one process reaches in target_iterations(): seconds in which nothing else happens,
// so that it is said.
void find_target(const Options& options, const Workload& workload, ReportContext& context) {
  const std::int64_t iterations = target_iterations(options);
  ProgressLine progress(STDERR_FILENO, wants_progress(options));
  if (!options.quiet && !progress.is_shown()) {
    say(
        fmt::format("finding the target loss: one process trains for {} iterations (--target-loss "
                    "names one instead)",
                    iterations));
  }
  std::vector<float> parameters(workload.layout().parameters);
  workload.initialize(parameters);
  SystemClock clock;
  const std::int64_t start_us = clock.now_us();
  const std::int64_t done = train_serially(
      workload, options.workload.workers, iterations, parameters, [&](std::int64_t iteration) {
        const std::int64_t spent_us = clock.now_us() - start_us;
        progress.show("target loss", {.iterations = iteration,
                                      .iterations_max = iterations,
                                      .seconds = in_seconds(spent_us),
                                      .seconds_max = 0,
                                      .loss = std::numeric_limits<double>::quiet_NaN()});
        return interrupt_count() == 0;
      });
  context.target_loss = workload.evaluate(parameters);
  context.target_source = fmt::format("what one process reaches in {} iterations", done);
}

// Of the settings that the table's first line names only where they are given.
std::vector<std::string> more_settings(const Options& options) {
  std::vector<std::string> settings;
  if (options.workload.decay != RateDecay{}) {
    settings.push_back("decay " + decay_text(options.workload.decay));
  }
  if (options.aggregate == Aggregate::kMean) settings.emplace_back("aggregate mean");
  if (options.link_mbps) {
    settings.push_back(fmt::format("{:g} MB a transfer over {:g} Mbit/s", *options.parameters_mb,
                                   *options.link_mbps));
  }
  if (!options.host_sizes.empty()) {
    settings.push_back(fmt::format("hosts {}", fmt::join(options.host_sizes, ",")));
  }
  return settings;
}

ReportContext make_context(const Options& options, const Workload& workload,
                           const std::string& data, const ReportDetails& details) {
  ReportContext context{.workload = std::string(workload_name(options.workload.kind)),
                        .loss_name = std::string(workload.loss_name()),
                        .data = data,
                        .workers = options.workload.workers,
                        .seed = options.workload.seed,
                        .hop_order = options.hop_order,
                        .slowdown = options.slowdown,
                        .iteration_ms = options.virtual_time ? 0 : options.iteration_ms,
                        .virtual_iteration_time = options.iteration_time,
                        .more_settings = more_settings(options),
                        .target_loss = options.target_loss,
                        .target_source = "given",
                        .configuration = details.configuration};
  if (!context.target_loss) find_target(options, workload, context);
  return context;
}

std::string job_name(const Options& options, const std::string& policy, std::size_t run) {
  if (!options.job.empty() && !options.compare) return options.job;
  std::string base = options.job;
  if (base.empty()) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
    base = fmt::format("{}-{}-{}", workload_name(options.workload.kind), seconds, ::getpid());
  }
  return fmt::format("{}-{}-{}", base, run + 1, policy_slug(policy)).substr(0, kJobBytesMax);
}

// Under this policy, with the rate that its aggregate takes.
WorkloadConfig workload_under(const std::string& policy, const Options& options) {
  WorkloadConfig config = options.workload;
  config.learning_rate /= rate_divisor(options.aggregate, policy, config.workers);
  return config;
}

RunSettings make_settings(const Options& options, const CheckpointPlan* checkpoint,
                          const std::string& addresses, std::size_t run) {
  const std::string& policy = options.policies[run];
  RunSettings settings = options;
  settings.workload = workload_under(policy, options);
  settings.policy = policy;
  settings.job = job_name(options, policy, run);
  settings.addresses = addresses;
  settings.iteration_us = static_cast<std::int64_t>(options.iteration_ms * 1'000);
  settings.stop_at_loss = options.target_loss;
  settings.plan = checkpoint;
  return settings;
}

std::string summary(const RunResult& result) {
  if (!result.failure.empty()) return "failed: " + result.failure;
  return fmt::format("{} iterations in {:.1f} s, loss {:.4f}", result.iterations, result.seconds,
                     result.final_loss());
}

// Trains under each policy in turn. Stops early only at a signal or when the daemon is gone.
std::vector<RunResult> run_all(const Options& options, const SharedArrays& data,
                               const CheckpointPlan* checkpoint, DaemonProcess* daemon,
                               const std::string& addresses) {
  std::vector<RunResult> results;
  ProgressLine progress(STDERR_FILENO, wants_progress(options));
  const auto say_above = [&](const std::string& line) {
    progress.clear();
    say(line);
  };
  for (std::size_t run = 0; run < options.policies.size() && interrupt_count() == 0; ++run) {
    const RunSettings settings = make_settings(options, checkpoint, addresses, run);
    const std::string label =
        fmt::format("[{}/{}] {}", run + 1, options.policies.size(), settings.policy);
    if (options.verbose && !options.virtual_time) {
      say(fmt::format("{}: training as job {} at {}", label, settings.job, addresses));
    } else if (!options.quiet && !progress.is_shown()) {
      say(label + ": training");
    }
    const RunObserver observer{
        .notify = [&](const std::string& line) { say_above(fmt::format("{}: {}", label, line)); },
        .progress = [&](const RunProgress& state) { progress.show(label, state); }};
    const std::unique_ptr<Workload> workload = make_workload(settings.workload, data);
    results.push_back(options.virtual_time
                          ? run_virtually(settings, options, *workload, data, observer)
                          : run_training(settings, *workload, data, daemon, observer));
    progress.clear();
    if (!options.quiet || !results.back().failure.empty()) {
      say(fmt::format("{}: {}", label, summary(results.back())));
    }
    if (daemon != nullptr && daemon->failure()) break;
  }
  return results;
}

int exit_status(const std::vector<RunResult>& results) {
  if (interrupt_signal() != 0) return 128 + interrupt_signal();
  for (const RunResult& result : results) {
    if (!result.failure.empty()) return kRunFailed;
  }
  return kOk;
}

// Before the first run rather than in the middle of a comparison.
void check_memory(const Options& options, const Workload& workload) {
  if (options.virtual_time) return;  // what workers send stays in this process, and is no queue
  for (const std::string& policy : options.policies) {
    const auto peers = peer_policy(policy);
    if (!peers) continue;
    try {
      device_queue_shape(options.workload.workers, peers->slots, workload.layout().parameters);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("{}: {}", policy, error.what()));
    }
  }
}

// Before the first run rather than after hours of training.
void check_output(const char* flag, const std::optional<std::filesystem::path>& file) {
  if (!file) return;
  const std::filesystem::path directory = file->has_parent_path() ? file->parent_path() : ".";
  std::string problem;
  if (std::filesystem::is_directory(*file)) {
    problem = "it is a directory; allowed: a file, which is replaced";
  } else if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    problem = fmt::format("directory {}: {}", directory.string(), std::strerror(errno));
  }
  if (!problem.empty()) {
    throw DatasetError(fmt::format("{}: {} cannot be written: {}", flag, file->string(), problem));
  }
}

// Writes what is asked for beside the table; returns what to say of it.
std::string write_files(const Options& options, const ReportContext& context,
                        const ReportDetails& details, const std::vector<RunResult>& results) {
  std::string text;
  if (options.out) {
    const auto files = write_csv_files(*options.out, context, results);
    text = fmt::format("wrote {} CSV files to {}\n", files.size(), options.out->string());
  }
  if (options.json_lines) {
    write_data_file(*options.json_lines, render_json_lines(context, results));
    text += fmt::format("wrote {}\n", options.json_lines->string());
  }
  if (options.report) {
    write_data_file(*options.report, render_html(context, details, results));
    text += fmt::format("wrote {}\n", options.report->string());
  }
  return text;
}

// Workers that share parameters on a device are processes where these can share its memory.
void choose_workers(Options& options) {
  if (options.virtual_time || options.workers_as == WorkersAs::kThreads ||
      options.store_in == StoreIn::kHost) {
    return;
  }
  const auto problem = sharing_problem(store_device(options.workload.backend),
                                       options.workload.backend, own_program().string());
  if (!problem) return;
  say(
      fmt::format("processes cannot share the GPU's memory here ({}): workers are threads of this "
                  "process instead (--workers-as threads; --store-in host would keep them "
                  "processes)",
                  *problem));
  options.workers_as = WorkersAs::kThreads;
}

// Tells this start's workers from those of an earlier one, which a daemon that was started again
// would otherwise wait for. Where the environment has a launch: 0.
std::uint64_t launch_number() {
  const char* launch = std::getenv("SYNCD_LAUNCH");
  if (launch != nullptr && *launch != '\0') return 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

// What this start saves, and goes on from, which is told.
CheckpointPlan plan_checkpoints(const Options& options, const CheckpointDirectory& directory,
                                std::size_t parameters) {
  const std::string& policy = options.policies.front();
  const TrainingIdentity identity =
      identity_of(workload_under(policy, options), policy, options.hop_order, parameters);
  CheckpointPlan plan{.directory = directory.path(),
                      .every = options.checkpoint_every,
                      .start = directory.next_start(),
                      .launch = launch_number(),
                      .resume = directory.newest(identity, options.workload.workers, say)};
  if (plan.resume && !options.quiet) {
    say(fmt::format("going on at iteration {}, from checkpoint {} of start {} in {}",
                    plan.resume->iteration, plan.resume->id.number, plan.resume->id.start,
                    directory.path().string()));
  }
  return plan;
}

int train(Options options, const std::vector<std::string>& arguments) {
  if (const auto problem = backend_problem(options.workload.backend, options.workload.precision)) {
    throw std::runtime_error(*problem);
  }
  choose_workers(options);
  if (options.workers_as == WorkersAs::kThreads) {
    // Options have what these say; in the client library they would win over what a worker is told.
    ::unsetenv("SYNCD_ADDR");
    ::unsetenv("SYNCD_JOB");
  }
  const TemporaryDirectory scratch;
  const Dataset dataset = obtain_dataset(options.data, scratch.path());
  const std::unique_ptr<Workload> workload = make_workload(options.workload, dataset.arrays);
  if (options.out) {
    std::error_code error;
    std::filesystem::create_directories(*options.out, error);
    if (error) {
      throw DatasetError(
          fmt::format("--out: {} cannot be made: {}", options.out->string(), error.message()));
    }
  }
  check_output("--report", options.report);
  check_output("--json-lines", options.json_lines);
  const ReportDetails details = describe_runs(options, arguments);
  check_memory(options, *workload);
  std::optional<CheckpointDirectory> checkpoints;
  std::optional<CheckpointPlan> plan;
  if (options.checkpoint) {
    checkpoints.emplace(*options.checkpoint);
    plan = plan_checkpoints(options, *checkpoints, workload->layout().parameters);
  }
  const ReportContext context = make_context(options, *workload, dataset.description, details);
  if (options.verbose) say(dataset.description);
  std::optional<DaemonProcess> daemon;
  if (options.daemon.empty() && !options.virtual_time)
    daemon.emplace(DaemonOptions{options.store, options.verbose});
  const std::string addresses = daemon ? daemon->address() : options.daemon;
  const std::vector<RunResult> results = run_all(options, dataset.arrays, plan ? &*plan : nullptr,
                                                 daemon ? &*daemon : nullptr, addresses);
  const std::optional<std::string> daemon_problem = daemon ? daemon->stop() : std::nullopt;

  std::string text = options.json ? render_json(context, results) : render_report(context, results);
  const std::string written = write_files(options, context, details, results);
  if (!options.json) text += written;
  const bool printed = print(text);
  if (!printed) say(fmt::format("the report cannot be written: {}", std::strerror(errno)));
  if (daemon_problem) {
    say(*daemon_problem);
  }
  const int status = exit_status(results);
  return status == kOk && (daemon_problem || !printed) ? kRunFailed : status;
}

}  // namespace

int main(int argc, char** argv) {
  if (is_worker_command(argc, argv)) return worker_main(argc, argv);
  if (is_sharing_trial(argc, argv)) return sharing_trial_main(argc, argv);
  const ParsedCommand command = parse_command(argc, argv);
  if (command.exit_status) {
    fmt::print(*command.exit_status == 0 ? stdout : stderr, "{}", command.text);
    return *command.exit_status;
  }
  fmt::print(stderr, "{}", command.text);
  watch_interrupts();
  try {
    const int status = train(command.options, {argv, argv + argc});
    if (threads_left_behind()) {
      std::fflush(nullptr);
      std::_Exit(status);
    }
    return status;
  } catch (const ProcessError& error) {
    say(fmt::format("reference_trainer: {}", error.what()));
    return kRunFailed;
  } catch (const syncd::SharedMemoryError& error) {
    say(fmt::format("reference_trainer: {}", error.what()));
    return kRunFailed;
  } catch (const std::exception& error) {
    say(fmt::format("reference_trainer: {}", error.what()));
    return kBadInput;
  }
}
