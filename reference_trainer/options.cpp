// The command line: see options.h. The one file that includes CLI11.
#include "reference_trainer/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>  // fmt::join, since fmt 11

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <type_traits>

#include "daemon/tools/sim/simulation.h"
#include "proto/base/help_lines.h"
#include "reference_trainer/data/data_file.h"
#include "reference_trainer/model/cnn.h"
#include "reference_trainer/run/policies.h"

#ifndef SYNCD_TRAINER_VERSION
#error "the build sets SYNCD_TRAINER_VERSION"
#endif

namespace syncd::trainer {
namespace {

constexpr int kUsageError = 2;
constexpr std::int32_t kDefaultWorkers = 4;
constexpr std::int64_t kDefaultIterations = 150;
constexpr std::int64_t kCheckpointEvery = 50;
constexpr double kMomentumMax = 0.999;

constexpr const char* kDescription =
    "Trains a small model with several worker processes that syncd coordinates, under one\n"
    "synchronization policy or several in turn, and reports what each policy cost and gained.";

constexpr const char* kFooter =
    R"(
Examples:
  reference_trainer --workload mf --generate --compare bsp,asp,ssp:3 --slowdown fixed:3=4x
  reference_trainer --workload svm --data a9a.libsvm --policy ssp:3 --workers 8 --max-seconds 30
  reference_trainer --workload mf --data ml-100k/u.data --daemon unix:/run/syncd/syncd.sock
  reference_trainer --workload cnn --data-dir cifar-10-batches-bin --compare bsp,elastic_bsp:15

Data formats: mf reads MovieLens u.data and ratings.csv, svm reads libsvm files of two classes, cnn
reads the binary versions of CIFAR-10 and CIFAR-100. A tenth of the samples (at most 10000) is held
out, of CIFAR the test images are; the loss is evaluated on those (cnn: on 256 of them).

Exit status: 0 every run ended as it should (a worker that was lost on the way is reported, but
does not count as long as another one finished); 1 a run failed; 2 a flag or the data is wrong;
128 + N ended by signal N.
)";

// A check for CLI11: whole text a whole number within the bounds.
CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  return {[low, high](std::string& text) -> std::string {
            const auto value = parse_unsigned(text);
            if (value && *value <= static_cast<std::uint64_t>(high) &&
                static_cast<std::int64_t>(*value) >= low) {
              return "";
            }
            return fmt::format("{} is not allowed; allowed: a whole number from {} to {}",
                               show_field(text), low, high);
          },
          ""};
}

CLI::Validator number(double low, double high, const char* allowed) {
  return {[low, high, allowed](std::string& text) -> std::string {
            const auto value = parse_number(text);
            if (value && *value >= low && *value <= high) return "";
            return fmt::format("{} is not allowed; allowed: {}", show_field(text), allowed);
          },
          ""};
}

CLI::Validator one_of(std::vector<std::string> words) {
  return {[words = std::move(words)](std::string& text) -> std::string {
            std::string allowed;
            for (const std::string& word : words) {
              if (text == word) return "";
              allowed += (allowed.empty() ? "" : ", ") + word;
            }
            return fmt::format("{} is not allowed; allowed: {}", show_field(text), allowed);
          },
          ""};
}

// What CLI11 fills beside the options, before all of it is checked as a whole.
struct RawFlags {
  std::string policy = "bsp", compare, format, csv_dir, decay = "none", hosts;
  std::optional<StoreIn> store_in;
  double weight_decay = kCnnWeightDecay, delay_ms = 0;
};

// A flag's explanation in lines of its column. CLI11 indents what follows a line end, but makes
// none.
std::string wrapped(std::string_view text) {
  constexpr std::size_t kColumns = 66;
  std::string result;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (column > 0) {
      const bool fits = column + 1 + word.size() <= kColumns;
      result += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    result += word;
    column += word.size();
  }
  return result;
}

// Adds flags to the group of the help that was begun last.
class FlagGroup {
 public:
  explicit FlagGroup(CLI::App& app) : app_(app) {}
  void begin(const char* name) { name_ = name; }

  template <typename T>
  CLI::Option* option(const char* flag, const char* type, T& value, std::string_view help) {
    return app_.add_option(flag, value, wrapped(help))->type_name(type)->group(name_);
  }
  template <typename T>
  void option(const char* flag, const char* type, T& value, const CLI::Validator& check,
              std::string_view help) {
    option(flag, type, value, help)->check(check);
  }
  CLI::Option* flag(const char* flag, bool& value, std::string_view help) {
    return app_.add_flag(flag, value, wrapped(help))->group(name_);
  }
  // An empty name counts as none.
  CLI::Option* path(const char* flag, const char* type, std::optional<std::filesystem::path>& value,
                    std::string_view help) {
    const auto set = [&value](const std::string& text) {
      if (!text.empty()) value = text;
    };
    return app_.add_option_function<std::string>(flag, set, wrapped(help))
        ->type_name(type)
        ->group(name_);
  }
  // One of some words, each of which stands for a value.
  template <typename T>
  CLI::Option* choice(const char* flag, T& value,
                      std::vector<std::pair<std::string, std::type_identity_t<T>>> words,
                      std::string_view help) {
    std::vector<std::string> names;
    for (const auto& [word, meaning] : words) names.push_back(word);
    const auto set = [&value, words = std::move(words)](const std::string& text) {
      for (const auto& [word, meaning] : words) {
        if (word == text) value = meaning;
      }
    };
    return app_.add_option_function<std::string>(flag, set, wrapped(help))
        ->type_name(fmt::format("{}", fmt::join(names, "|")))
        ->check(one_of(names))
        ->group(name_);
  }

 private:
  CLI::App& app_;
  std::string name_;
};

void add_flags(CLI::App& app, RawFlags& raw, Options& options) {
  FlagGroup group(app);

  group.begin("Training");
  group.choice(
      "--workload", options.data.kind,
      {{"svm", WorkloadKind::kSvm}, {"mf", WorkloadKind::kMf}, {"cnn", WorkloadKind::kCnn}},
      "What is trained: svm (linear model, log loss), mf (matrix factorization) or cnn "
      "(C3F2-Net, a convolutional network for images)");
  group.option("--workers", "N", options.workload.workers, whole_number(1, kWorkersMax),
               "Workers (default 4)");
  group.choice("--workers-as", options.workers_as,
               {{"processes", WorkersAs::kProcesses}, {"threads", WorkersAs::kThreads}},
               "What a worker is: a process of its own (default), or a thread of this one");
  group.option("--batch", "N", options.workload.batch, whole_number(1, 1'000'000),
               "Samples per iteration of one worker (default: svm 32, mf 128, cnn 32)");
  group.option(
      "--learning-rate", "RATE", options.workload.learning_rate,
      number(1e-9, 1e3, "a number from 1e-9 to 1000"),
      "Step size, the same for every policy (default: svm 2 and cnn 0.004 for up to 4 workers, "
      "mf 0.05 for up to 16; for more workers less, so that the sum of their rates stays the "
      "same)");
  group.option("--decay", "none|F@N,...|F/N", raw.decay,
               "How the rate falls: 0.1@200,250 = times 0.1 before each of these minibatches of a "
               "worker, 0.98/50 = times 0.98 before every 50th (default none)");
  group.choice("--aggregate", options.aggregate,
               {{"sum", Aggregate::kSum}, {"mean", Aggregate::kMean}},
               "What bsp makes of the updates of a barrier: their sum, as other policies do of all "
               "updates, or their mean, which is the rate divided by the number of workers. The "
               "default rate is chosen for sums: with mean, give one worker's --learning-rate "
               "(default sum)");
  group.option("--momentum", "M", options.workload.momentum,
               number(0, kMomentumMax, "a number from 0 to 0.999"),
               "Of cnn and svm: how much of a worker's last step is in its next one; each worker "
               "has a velocity of its own (default: cnn 0.9, svm 0)");
  group.option("--weight-decay", "D", raw.weight_decay, number(0, 1, "a number from 0 to 1"),
               "Of cnn: how strongly weights, not biases, are drawn towards 0 (default 0.0005)");
  group.choice("--backend", options.workload.backend,
               {{"cpu", Backend::kCpu}, {"cuda", Backend::kCuda}},
               "What computes: the CPU (one core per worker, default) or the GPUs that CUDA shows "
               "(CUDA_VISIBLE_DEVICES), in which the workers take turns");
  group.choice(
      "--precision", options.workload.precision,
      {{"float", Precision::kFloat}, {"tf32", Precision::kTf32}, {"bf16", Precision::kBf16}},
      "Of cnn on a GPU: in what products of matrices multiply; parameters and sums stay "
      "float (default float; the others take compute capability 8.0)");
  group.choice("--store-in", raw.store_in, {{"host", StoreIn::kHost}, {"device", StoreIn::kDevice}},
               "Where the parameters are that workers share or send to each other: in the memory "
               "of the host, or of the GPUs (default: device with --backend cuda, otherwise host)");
  group.option("--seed", "N", options.workload.seed,
               whole_number(0, std::numeric_limits<std::int64_t>::max()),
               "Decides generated data, initial parameters, minibatches and slow iterations "
               "(default 1)");

  group.begin("Policy");
  group.option(
      "--policy", "P", raw.policy,
      "Synchronization policy, such as bsp, ssp:3 or hop:ring_based,max_ig=5 (default bsp)");
  group.option(
      "--compare", "P,P,...", raw.compare,
      "Train under each of these policies in turn, such as bsp,ssp:3,hop:ring,max_ig=2,backup=1: "
      "a comma that no policy's name follows belongs to the policy before it");
  group.choice(
      "--order", options.hop_order,
      {{"parallel", HopOrder::kParallel}, {"serial", HopOrder::kSerial}},
      "Under Hop: parallel = send the parameters, then compute while they travel; serial = "
      "compute, then send the result (default parallel)");
  group.option(
      "--slowdown", "SPEC", options.slowdown,
      "Make workers slow: fixed:3=4x[,5=2x] (these workers always), random:6x@0.05 (any "
      "iteration with this probability), random:6x@1/8, random:6x@1/n, where n is the number of "
      "workers, or random:6x@1/n,for=20, as often, but 20 iterations in a row (default none)");
  group.option("--iteration-ms", "MS", options.iteration_ms,
               number(0, 3.6e6, "milliseconds from 0 to 3600000"),
               "Pretend that an iteration computes at least this long, before any slowdown; 0: as "
               "fast as it goes (default 20)");

  group.begin("End of a run");
  group.option("--max-iterations", "K", options.iterations, whole_number(1, 1'000'000'000),
               "End a run after this many iterations per worker (default 150, unless --max-seconds "
               "is given)");
  group.choice("--budget", options.budget, {{"shared", Budget::kShared}, {"each", Budget::kEach}},
               "How they are counted: shared = workers * K in all, so that every policy does the "
               "same work, whoever does it; each = K for every worker (default shared)");
  group.option("--max-seconds", "S", options.seconds_max,
               number(0.01, 1e7, "seconds from 0.01 to 10000000"), "End a run after this time");
  group.option(
      "--target-loss", "LOSS", options.target_loss, number(0, 1e9, "a number from 0"),
      "End a run when the held-out loss is this low. Without it runs go on, and the time to "
      "a target is reported all the same: the loss that one process alone reaches with half "
      "of the iterations");

  group.begin("Virtual time");
  group.flag("--virtual-time", options.virtual_time,
             "Compute the workers' minibatches one after the other in this process, and take the "
             "time that they need from --iteration-ms or --iteration-time instead of a clock: any "
             "number of workers on any machine, and the same result for the same seed. No daemon "
             "runs: its engine decides here");
  group.option("--iteration-time", "DIST", options.iteration_time,
               "With --virtual-time, in milliseconds: constant:MS, uniform:A-B (one speed per "
               "worker), uniform_each:A-B, normal:MEAN,DEVIATION, lognormal:MEDIAN,SIGMA or "
               "trace:FILE (default: constant, --iteration-ms)");
  group.option("--link-mbps", "MBPS", options.link_mbps,
               "With --virtual-time and --parameters-mb: pulls and pushes take the time that so "
               "many Mbit/s give them. All share the one link of the server; under a policy "
               "without one, each worker's own link sends to one neighbour after another (default: "
               "they take no time)");
  group.option("--parameters-mb", "MB", options.parameters_mb,
               "Megabytes that each of these transfers carries, however large the model is here");
  group.option(
      "--hosts", "H|N,N,...", raw.hosts,
      "With --virtual-time, for graphs by host (clustered): a number of hosts of equal size, or "
      "how many workers are on each, as in 4,2,2 (default: a host for each)");
  group.option("--delay-ms", "MS", raw.delay_ms, number(0, 3.6e6, "milliseconds from 0 to 3600000"),
               "With --virtual-time: how long every message takes, one way (default 0)");

  group.begin("Data");
  group.path("--data", "FILE", options.data.file, "Train on this file");
  group.path("--data-dir", "DIR", options.data.directory,
             "Train on u.data or ratings.csv (mf), train.libsvm (svm), data_batch_*.bin and "
             "test_batch.bin or train.bin and test.bin (cnn) in this directory");
  group.flag("--generate", options.data.generate,
             "Write synthetic data that can be learned into --data-dir (or a temporary directory) "
             "and train on it; so it is, too, where neither --data nor --data-dir is given");
  group.option(
      "--format", "FORMAT", raw.format, one_of({"u.data", "ratings.csv", "cifar-10", "cifar-100"}),
      "Of generated mf data: u.data (default) or ratings.csv. Of images: cifar-10 (default) "
      "or cifar-100, also where a directory holds both and for --data");
  group.option(
      "--samples", "N", options.data.samples, whole_number(1'000, 100'000'000),
      "Samples to generate (default: svm 20000 examples, mf 25000 ratings, cnn 5000 images; "
      "a fifth of the images' number are test images besides)");

  group.begin("Daemon");
  group
      .option("--daemon", "ADDR", options.daemon,
              "Use this syncd, such as unix:/run/syncd/syncd.sock or host:7117 (default: start one "
              "and stop it at the end)")
      ->envname("SYNCD_ADDR");
  group.option("--store", "DIR|memory", options.store,
               "Where the started syncd keeps its history (default memory)");
  group.option("--job", "NAME", options.job,
               "Name of the job; with --compare the run's number and policy are put behind it "
               "(default: made up anew every time)");

  group.begin("Checkpoints");
  group.path("--checkpoint", "DIR", options.checkpoint,
             "Save agreed checkpoints into this directory, which is made where there is none, and "
             "go on from the newest complete one in it. SIGTERM saves one before the run ends");
  group.option("--checkpoint-every", "N", options.checkpoint_every, whole_number(0, 1'000'000'000),
               "With --checkpoint: ask for one every N iterations of a worker; 0: only syncctl "
               "checkpoint and SIGTERM do (default 50)");

  group.begin("Output");
  group.path(
      "--out", "DIR", options.out,
      "Write four CSV files per run into this directory, which is made where there is none: the "
      "loss over time, what each worker did, how stale grants were, and what the workers did in "
      "the middle of the run, moment by moment (default: no files)");
  // What --out was called; accepted for one release, and not in the help.
  app.add_option("--csv-dir", raw.csv_dir)->type_name("DIR|none")->group("");
  group.path("--json-lines", "FILE", options.json_lines,
             "Write what is in the CSV files of all runs into this file, a JSON object a line");
  group.path("--report", "FILE.html", options.report,
             "Write a report with charts: one page that needs no network and no other file");
  group.flag("--json", options.json, "Print JSON instead of the table");
  group.flag("--quiet", options.quiet,
             "Say only what goes wrong on the standard error stream, and show no progress");
  group.flag("--verbose", options.verbose, "Say more on the standard error stream");
}

struct FlagError {
  std::string text;
};

// A job's name as the daemon takes it (64 bytes), with room for a policy behind it.
constexpr std::size_t kJobBytesMax = 40;

void check_job(const std::string& job) {
  if (job.size() <= kJobBytesMax && policy_slug(job) == job) return;
  throw FlagError{fmt::format("--job: {} is not allowed; allowed: 1 to {} of A-Z a-z 0-9 . _ -",
                              show_field(job), kJobBytesMax)};
}

// Throws if one of these flags is given; `why` says when it may be.
void refuse(const CLI::App& app, std::initializer_list<const char*> flags, std::string_view why) {
  for (const char* flag : flags) {
    if (app.count(flag) > 0) throw FlagError{fmt::format("{}: {}", flag, why)};
  }
}

void check_together(const CLI::App& app) {
  if (app.count("--workload") == 0)
    throw FlagError{"--workload is required; allowed: svm, mf, cnn"};
  const std::pair<const char*, const char*> alternatives[] = {
      {"--policy", "--compare"},
      {"--quiet", "--verbose"},
      {"--iteration-ms", "--iteration-time"},
      {"--data", "--generate"},
      {"--out", "--csv-dir"}};
  for (const auto& [one, other] : alternatives) {
    if (app.count(one) == 0 || app.count(other) == 0) continue;
    throw FlagError{fmt::format("{} and {}: only one of them is allowed", one, other)};
  }
}

void read_policies(const CLI::App& app, const RawFlags& raw, Options& options) {
  options.compare = app.count("--compare") > 0;
  const char* flag = options.compare ? "--compare" : "--policy";
  try {
    options.policies = split_policies(options.compare ? raw.compare : raw.policy);
    check_policies(options.policies, options.workload.workers, !options.daemon.empty());
  } catch (const PolicyListError& error) {
    throw FlagError{fmt::format("{}: {}", flag, error.what())};
  }
  if (!options.compare && options.policies.size() > 1) {
    throw FlagError{fmt::format("--policy: {} is {} policies; allowed: one (several: --compare {})",
                                show_field(raw.policy), options.policies.size(), raw.policy)};
  }
  if (app.count("--order") > 0 &&
      std::none_of(options.policies.begin(), options.policies.end(), has_hop_order)) {
    throw FlagError{"--order: only used with a policy hop:..."};
  }
  try {
    check_aggregate(options.aggregate, options.policies);
  } catch (const PolicyListError& error) {
    throw FlagError{fmt::format("--aggregate: {}", error.what())};
  }
  try {
    parse_slowdown(options.slowdown, options.workload.workers);
  } catch (const SlowdownError& error) {
    throw FlagError{error.what()};
  }
}

// A format goes with one workload, and that of ratings only decides what is generated.
void read_format(const CLI::App& app, const RawFlags& raw, Options& options) {
  if (app.count("--format") == 0) return;
  const WorkloadKind kind = options.data.kind;
  if (kind == WorkloadKind::kSvm) refuse(app, {"--format"}, "only used with --workload mf or cnn");
  const bool is_image_format = raw.format.starts_with("cifar");
  if (is_image_format != (kind == WorkloadKind::kCnn)) {
    throw FlagError{fmt::format("--format: {} is not allowed with --workload {}; allowed: {}",
                                show_field(raw.format), workload_name(kind),
                                is_image_format ? "u.data, ratings.csv" : "cifar-10, cifar-100")};
  }
  if (is_image_format) {
    options.data.image_format =
        raw.format == "cifar-10" ? ImageFormat::kCifar10 : ImageFormat::kCifar100;
  } else if (app.count("--generate") == 0) {
    throw FlagError{"--format: only used with --generate"};
  } else {
    options.data.format = raw.format == "u.data" ? RatingFormat::kUData : RatingFormat::kRatingsCsv;
  }
}

void read_data(const CLI::App& app, const RawFlags& raw, Options& options) {
  options.data.seed = options.workload.seed;
  read_format(app, raw, options);
  // Who names no data wants to see something train.
  if (!options.data.file && !options.data.directory) options.data.generate = true;
  if (!options.data.generate) {
    refuse(app, {"--samples"}, "not used with --data and --data-dir, unless with --generate");
  }
}

void read_network(const CLI::App& app, const RawFlags& raw, WorkloadConfig& workload) {
  if (workload.precision != Precision::kFloat && workload.backend != Backend::kCuda) {
    throw FlagError{fmt::format(
        "--precision: {} is only allowed with --backend cuda; allowed with the CPU: float",
        app.get_option("--precision")->results().back())};
  }
  const bool is_cnn = workload.kind == WorkloadKind::kCnn;
  if (!is_cnn) refuse(app, {"--weight-decay", "--precision"}, "only used with --workload cnn");
  if (workload.kind == WorkloadKind::kMf) {
    refuse(app, {"--momentum"}, "only used with --workload cnn or svm");
  }
  if (is_cnn) workload.weight_decay = raw.weight_decay;
  if (is_cnn && app.count("--momentum") == 0) workload.momentum = kCnnMomentum;
}

// The most minibatches that a worker may compute under limits on iterations and time; nothing where
// neither says.
std::optional<std::int64_t> minibatches_max(const Options& options) {
  std::optional<std::int64_t> most;
  if (options.iterations > 0) {
    std::int64_t of_an_iteration = 1;
    for (const std::string& policy : options.policies) {
      const auto peers = peer_policy(policy);
      if (peers) of_an_iteration = std::max(of_an_iteration, peers->every);
    }
    const int workers = options.budget == Budget::kShared ? options.workload.workers : 1;
    const double all =
        static_cast<double>(options.iterations) * static_cast<double>(of_an_iteration) * workers;
    most = static_cast<std::int64_t>(std::min(all, 1e18));
  }
  if (options.seconds_max == 0) return most;
  double shortest_us = options.iteration_ms * 1e3;
  if (!options.iteration_time.empty()) {
    std::string error;
    const auto time = sim::parse_iteration_time(options.iteration_time, error);
    if (!time) throw FlagError{"--iteration-time: " + error};
    using Kind = sim::IterationTime::Kind;
    const bool has_bound = time->kind == Kind::kConstant || time->kind == Kind::kUniform ||
                           time->kind == Kind::kUniformEach;
    shortest_us = has_bound ? time->first_us : 0;
  }
  if (shortest_us < 1) return most;  // as fast as it goes
  const auto in_time = static_cast<std::int64_t>(options.seconds_max * 1e6 / shortest_us) + 1;
  return std::min(most.value_or(in_time), in_time);
}

// A rate of 0 would train nothing.
void read_decay(const RawFlags& raw, Options& options) {
  std::string error;
  const auto decay = parse_decay(raw.decay, error);
  if (!decay) throw FlagError{error};
  options.workload.decay = *decay;
  const auto most = minibatches_max(options);
  constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();
  if (static_cast<float>(options.workload.rate_at(most.value_or(kForEver) - 1)) > 0) return;
  if (!most) {
    throw FlagError{fmt::format(
        "--decay: {} brings the rate to 0 in a run that only --max-seconds ends; allowed: with "
        "--max-iterations, which says how far the rate falls, or F@N,... that leaves more than 0",
        show_field(raw.decay))};
  }
  throw FlagError{
      fmt::format("--decay: under {} the rate has come to 0 by minibatch {}; allowed: what leaves "
                  "more than 0 to the end of the run",
                  show_field(raw.decay), *most)};
}

void read_network_of_hosts(const CLI::App& app, const RawFlags& raw, Options& options) {
  std::string error;
  if (options.link_mbps && !options.parameters_mb) {
    throw FlagError{"--link-mbps: needs --parameters-mb, what a transfer carries"};
  }
  if (options.parameters_mb && !options.link_mbps) {
    throw FlagError{"--parameters-mb: needs --link-mbps, how fast the link is"};
  }
  if (options.link_mbps) {
    const auto us = sim::transfer_time(*options.link_mbps, *options.parameters_mb, error);
    if (!us) throw FlagError{error};
    options.transfer_us = *us;
  }
  if (app.count("--hosts") > 0) {
    auto sizes =
        sim::parse_hosts(raw.hosts, static_cast<std::uint32_t>(options.workload.workers), error);
    if (!sizes) throw FlagError{error};
    options.host_sizes = std::move(*sizes);
  }
}

void read_places(const RawFlags& raw, Options& options) {
  const bool has_device = options.workload.backend != Backend::kCpu;
  options.store_in = raw.store_in.value_or(has_device ? StoreIn::kDevice : StoreIn::kHost);
  if (has_device || options.store_in == StoreIn::kHost) return;
  throw FlagError{
      "--store-in: device is only allowed with --backend cuda; allowed with the CPU: host"};
}

void read_virtual_time(const CLI::App& app, const RawFlags& raw, Options& options) {
  if (!options.virtual_time) {
    refuse(app, {"--iteration-time", "--delay-ms", "--link-mbps", "--parameters-mb", "--hosts"},
           "only used with --virtual-time");
    return;
  }
  // --daemon may come from the environment.
  refuse(app, {"--store", "--job", "--workers-as", "--store-in"}, "not used with --virtual-time");
  read_network_of_hosts(app, raw, options);
  options.delay_us = static_cast<std::int64_t>(raw.delay_ms * 1'000);
  if (!options.iteration_time.empty()) return;
  if (options.iteration_ms <= 0) {
    throw FlagError{"--iteration-ms: 0 is not allowed with --virtual-time; allowed: more than 0"};
  }
  options.iteration_time = fmt::format("constant:{}", options.iteration_ms);
}

void read_checkpoint(const CLI::App& app, Options& options) {
  if (app.count("--checkpoint") == 0) {
    refuse(app, {"--checkpoint-every"}, "only used with --checkpoint");
    options.checkpoint_every = 0;
    return;
  }
  if (!options.checkpoint) {
    throw FlagError{"--checkpoint: an empty name is not allowed; allowed: a directory"};
  }
  for (const char* flag : {"--compare", "--virtual-time"}) {
    if (app.count(flag) > 0) throw FlagError{fmt::format("--checkpoint: not used with {}", flag)};
  }
  if (options.workload.backend != Backend::kCpu) {
    throw FlagError{"--checkpoint: not used with --backend cuda; allowed: cpu"};
  }
}

// What to tell who uses a flag's old name.
std::string renamed_flags(const CLI::App& app) {
  if (app.count("--csv-dir") == 0) return "";
  return "--csv-dir: this flag is now called --out, and the next release refuses the old name; "
         "without --out, as with --csv-dir none, no CSV files are written\n";
}

void read(const CLI::App& app, const RawFlags& raw, Options& options) {
  check_together(app);
  read_policies(app, raw, options);
  read_data(app, raw, options);
  WorkloadConfig& workload = options.workload;
  workload.kind = options.data.kind;
  if (workload.batch == 0) workload.batch = default_batch(workload.kind);
  if (workload.learning_rate == 0) {
    workload.learning_rate = default_learning_rate(workload.kind, workload.workers);
  }
  read_network(app, raw, workload);
  if (options.iterations == 0 && options.seconds_max == 0) options.iterations = kDefaultIterations;
  read_decay(raw, options);
  read_places(raw, options);
  if (options.store_in == StoreIn::kDevice && workload.decay != RateDecay{}) {
    throw FlagError{"--decay: not used with --store-in device; allowed: host"};
  }
  read_virtual_time(app, raw, options);
  read_checkpoint(app, options);
  if (!options.daemon.empty()) {
    refuse(app, {"--store"},
           "only used when a syncd is started; the one at --daemon (or SYNCD_ADDR) has its own");
  }
  if (app.count("--job") > 0) check_job(options.job);
  if (!raw.csv_dir.empty() && raw.csv_dir != "none") options.out = raw.csv_dir;
}

}  // namespace

ParsedCommand parse_command(int argc, const char* const* argv) {
  CLI::App app(kDescription, "reference_trainer");
  app.footer(kFooter);
  syncd::keep_help_lines(app);
  app.set_version_flag("-V,--version", "reference_trainer " SYNCD_TRAINER_VERSION,
                       "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.get_formatter()->column_width(34);
  RawFlags raw;
  Options options;
  options.workload.workers = kDefaultWorkers;
  options.checkpoint_every = kCheckpointEvery;
  add_flags(app, raw, options);
  try {
    app.parse(argc, argv);
    read(app, raw, options);
    return {.exit_status = std::nullopt, .text = renamed_flags(app), .options = std::move(options)};
  } catch (const CLI::CallForHelp&) {
    return {.exit_status = 0, .text = app.help(), .options = {}};
  } catch (const CLI::CallForVersion& version) {
    return {.exit_status = 0, .text = std::string(version.what()) + "\n", .options = {}};
  } catch (const CLI::ParseError& error) {
    return {.exit_status = kUsageError,
            .text = fmt::format("{}; see reference_trainer --help\n", error.what()),
            .options = {}};
  } catch (const FlagError& error) {
    return {.exit_status = kUsageError, .text = error.text + "\n", .options = {}};
  }
}

}  // namespace syncd::trainer
