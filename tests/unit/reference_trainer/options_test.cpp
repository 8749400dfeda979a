// The command line: defaults, what is taken, and that errors name the flag, the value and what is
// allowed.
#include "reference_trainer/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class OptionsTest : public ::testing::Test {
 protected:
  void SetUp() override { ::unsetenv("SYNCD_ADDR"); }

  static ParsedCommand parse(std::vector<const char*> words) {
    words.insert(words.begin(), "reference_trainer");
    return parse_command(static_cast<int>(words.size()), words.data());
  }
  static Options good(std::vector<const char*> words) {
    words.insert(words.begin(), {"--workload", "mf"});
    const ParsedCommand command = parse(words);
    EXPECT_FALSE(command.exit_status.has_value()) << command.text;
    return command.options;
  }
  static std::string error(std::vector<const char*> words) {
    words.insert(words.begin(), {"--workload", "mf"});
    const ParsedCommand command = parse(words);
    EXPECT_EQ(command.exit_status.value_or(0), 2);
    return command.text;
  }
};

TEST_F(OptionsTest, WhoNamesNoDataGetsGenerated) {
  EXPECT_TRUE(good({}).data.generate);
  EXPECT_FALSE(good({"--data", "f"}).data.generate);
  EXPECT_FALSE(good({"--data-dir", "d"}).data.generate);
  EXPECT_TRUE(good({"--data-dir", "d", "--generate"}).data.generate);
}

TEST_F(OptionsTest, HasDefaultsThatMakeARun) {
  const Options options = good({"--generate"});
  EXPECT_THAT(options.policies, ElementsAre("bsp"));
  EXPECT_EQ(options.workload.workers, 4);
  EXPECT_EQ(options.workload.batch, default_batch(WorkloadKind::kMf));
  EXPECT_EQ(options.workload.learning_rate, default_learning_rate(WorkloadKind::kMf, 4));
  EXPECT_EQ(options.iterations, 150);
  EXPECT_EQ(options.iteration_ms, 20);
  EXPECT_EQ(options.budget, Budget::kShared);
  EXPECT_EQ(options.store, "memory");
  EXPECT_TRUE(options.daemon.empty());
  EXPECT_FALSE(options.target_loss.has_value());
  EXPECT_FALSE(options.out.has_value());
}

TEST_F(OptionsTest, TakesEveryFlag) {
  const Options options = good({"--workers",
                                "6",
                                "--compare",
                                "bsp,asp,ssp:3",
                                "--slowdown",
                                "fixed:5=4x",
                                "--iteration-ms",
                                "2.5",
                                "--max-iterations",
                                "9",
                                "--budget",
                                "each",
                                "--max-seconds",
                                "3",
                                "--target-loss",
                                "0.5",
                                "--seed",
                                "12",
                                "--batch",
                                "5",
                                "--learning-rate",
                                "0.1",
                                "--data-dir",
                                "/d",
                                "--generate",
                                "--format",
                                "ratings.csv",
                                "--samples",
                                "5000",
                                "--daemon",
                                "host:7117",
                                "--job",
                                "night",
                                "--out",
                                "/c",
                                "--json",
                                "--verbose"});
  EXPECT_THAT(options.policies, ElementsAre("bsp", "asp", "ssp:3"));
  EXPECT_TRUE(options.compare && options.json && options.verbose && options.data.generate);
  EXPECT_EQ(options.workload.workers, 6);
  EXPECT_EQ(options.slowdown, "fixed:5=4x");
  EXPECT_EQ(options.iteration_ms, 2.5);
  EXPECT_FALSE(options.virtual_time);
  EXPECT_EQ(options.iterations, 9);
  EXPECT_EQ(options.budget, Budget::kEach);
  EXPECT_EQ(options.seconds_max, 3);
  EXPECT_EQ(options.target_loss, 0.5);
  EXPECT_EQ(options.workload.seed, 12U);
  EXPECT_EQ(options.data.seed, 12U);
  EXPECT_EQ(options.workload.batch, 5);
  EXPECT_EQ(options.workload.learning_rate, 0.1);
  EXPECT_EQ(options.data.directory, "/d");
  EXPECT_EQ(options.data.format, RatingFormat::kRatingsCsv);
  EXPECT_EQ(options.data.samples, 5'000U);
  EXPECT_EQ(options.daemon, "host:7117");
  EXPECT_EQ(options.job, "night");
  EXPECT_EQ(options.out, "/c");
}

TEST_F(OptionsTest, WorkersAreProcessesAndParametersAreWhereIsComputed) {
  const std::vector<const char*> cnn{"--workload", "cnn", "--generate"};
  const auto with = [&](std::vector<const char*> more) {
    more.insert(more.begin(), cnn.begin(), cnn.end());
    return parse(more);
  };
  EXPECT_EQ(with({}).options.workers_as, WorkersAs::kProcesses);
  EXPECT_EQ(with({"--workers-as", "processes"}).options.workers_as, WorkersAs::kProcesses);
  EXPECT_EQ(with({"--workers-as", "threads"}).options.workers_as, WorkersAs::kThreads);
  EXPECT_THAT(with({"--workers-as", "fibers"}).text,
              HasSubstr("--workers-as: 'fibers' is not allowed; allowed: processes, threads"));
  EXPECT_EQ(with({}).options.store_in, StoreIn::kHost);
  EXPECT_EQ(with({"--store-in", "host"}).options.store_in, StoreIn::kHost);
  EXPECT_EQ(with({"--backend", "cuda"}).options.store_in, StoreIn::kDevice);
  EXPECT_EQ(with({"--backend", "cuda", "--store-in", "host"}).options.store_in, StoreIn::kHost);
  EXPECT_EQ(with({"--backend", "cuda", "--store-in", "device"}).options.store_in, StoreIn::kDevice);
  EXPECT_THAT(with({"--store-in", "device"}).text,
              HasSubstr("--store-in: device is only allowed with --backend cuda"));
  EXPECT_THAT(with({"--store-in", "gpu"}).text,
              HasSubstr("--store-in: 'gpu' is not allowed; allowed: host, device"));
}

TEST_F(OptionsTest, CheckpointsAreOfOneRealRunOnTheCpu) {
  const std::vector<const char*> mf{"--workload", "mf", "--generate"};
  const auto with = [&](std::vector<const char*> more) {
    more.insert(more.begin(), mf.begin(), mf.end());
    return parse(more);
  };
  EXPECT_FALSE(with({}).options.checkpoint);
  EXPECT_EQ(with({"--checkpoint", "/c"}).options.checkpoint, "/c");
  EXPECT_EQ(with({"--checkpoint", "/c"}).options.checkpoint_every, 50);
  EXPECT_EQ(with({"--checkpoint", "/c", "--checkpoint-every", "0"}).options.checkpoint_every, 0);
  const auto error = [&](std::vector<const char*> more) {
    const ParsedCommand parsed = with(more);
    EXPECT_EQ(parsed.exit_status, 2);
    return parsed.text;
  };
  EXPECT_THAT(error({"--checkpoint-every", "5"}),
              HasSubstr("--checkpoint-every: only used with --checkpoint"));
  EXPECT_THAT(error({"--checkpoint", "/c", "--checkpoint-every", "-1"}),
              HasSubstr("--checkpoint-every: '-1' is not allowed; allowed: a whole number from 0"));
  EXPECT_THAT(error({"--checkpoint", ""}), HasSubstr("--checkpoint: "));
  EXPECT_THAT(error({"--checkpoint", "/c", "--compare", "bsp,asp"}),
              HasSubstr("--checkpoint: not used with --compare"));
  EXPECT_THAT(error({"--checkpoint", "/c", "--virtual-time"}),
              HasSubstr("--checkpoint: not used with --virtual-time"));
  EXPECT_THAT(error({"--checkpoint", "/c", "--backend", "cuda"}),
              HasSubstr("--checkpoint: not used with --backend cuda; allowed: cpu"));
}

TEST_F(OptionsTest, ANetworkHasMomentumAndItsOwnFormats) {
  const Options standard = parse({"--workload", "cnn", "--generate"}).options;
  EXPECT_EQ(standard.workload.kind, WorkloadKind::kCnn);
  EXPECT_EQ(standard.workload.batch, default_batch(WorkloadKind::kCnn));
  EXPECT_EQ(standard.workload.momentum, 0.9);
  EXPECT_EQ(standard.workload.weight_decay, 0.0005);
  EXPECT_FALSE(standard.data.image_format.has_value());
  const Options given = parse({"--workload", "cnn", "--data", "f", "--format", "cifar-100",
                               "--momentum", "0", "--weight-decay", "0.01"})
                            .options;
  EXPECT_EQ(given.workload.momentum, 0);
  EXPECT_EQ(given.workload.weight_decay, 0.01);
  EXPECT_EQ(given.data.image_format, ImageFormat::kCifar100);
  EXPECT_EQ(given.workload.backend, Backend::kCpu);
  const ParsedCommand cuda = parse({"--workload", "cnn", "--generate", "--backend", "cuda"});
  EXPECT_EQ(cuda.options.workload.backend, Backend::kCuda);
  EXPECT_EQ(cuda.options.workload.precision, Precision::kFloat);
  EXPECT_EQ(parse({"--workload", "mf", "--generate", "--backend", "cuda"}).options.workload.backend,
            Backend::kCuda);
  const auto fast =
      parse({"--workload", "cnn", "--generate", "--backend", "cuda", "--precision", "tf32"});
  EXPECT_EQ(fast.options.workload.precision, Precision::kTf32);
  EXPECT_THAT(parse({"--workload", "cnn", "--backend", "gpu"}).text,
              HasSubstr("--backend: 'gpu' is not allowed; allowed: cpu, cuda"));
  EXPECT_THAT(parse({"--workload", "cnn", "--generate", "--momentum", "1"}).text,
              HasSubstr("--momentum: '1' is not allowed; allowed: a number from 0 to 0.999"));
  EXPECT_EQ(good({}).workload.momentum, 0) << "the other workloads have none";
}

TEST_F(OptionsTest, CsvFilesAreWrittenWhereToldAndOtherwiseNowhere) {
  EXPECT_FALSE(good({"--compare", "bsp,asp"}).out.has_value());
  EXPECT_EQ(good({"--compare", "bsp,asp", "--out", "d"}).out, "d");
  EXPECT_EQ(good({"--out", "none"}).out, "none") << "a directory as any other";
  EXPECT_EQ(parse({"--workload", "mf", "--out", "d"}).text, "") << "nothing to warn of";
}

TEST_F(OptionsTest, TheOldNameOfOutIsTakenWithAWarning) {
  const ParsedCommand old = parse({"--workload", "mf", "--csv-dir", "d"});
  EXPECT_FALSE(old.exit_status.has_value());
  EXPECT_EQ(old.options.out, "d");
  EXPECT_THAT(old.text, HasSubstr("--csv-dir: this flag is now called --out"));
  const ParsedCommand none =
      parse({"--workload", "mf", "--compare", "bsp,asp", "--csv-dir", "none"});
  EXPECT_FALSE(none.exit_status.has_value());
  EXPECT_FALSE(none.options.out.has_value());
  EXPECT_EQ(none.text, old.text);
  EXPECT_THAT(error({"--csv-dir", "d", "--out", "e"}),
              HasSubstr("--out and --csv-dir: only one of them is allowed"));
  EXPECT_THAT(parse({"--help"}).text, Not(HasSubstr("--csv-dir")));
}

TEST_F(OptionsTest, TheDefaultLearningRateShrinksWhereManyStepAtOnce) {
  EXPECT_EQ(good({"--workers", "16"}).workload.learning_rate, 0.05);
  EXPECT_EQ(good({"--workers", "64"}).workload.learning_rate, 0.05 / 4);
  EXPECT_EQ(good({"--workers", "64", "--learning-rate", "0.05"}).workload.learning_rate, 0.05);
}

TEST_F(OptionsTest, ATimeLimitReplacesTheDefaultLimitOnIterations) {
  EXPECT_EQ(good({"--max-seconds", "5"}).iterations, 0);
}

TEST_F(OptionsTest, TheDaemonMayComeFromTheEnvironmentAndTheFlagWins) {
  ::setenv("SYNCD_ADDR", "unix:/e.sock", 1);
  EXPECT_EQ(good({}).daemon, "unix:/e.sock");
  EXPECT_EQ(good({"--daemon", "unix:/f.sock"}).daemon, "unix:/f.sock");
  EXPECT_THAT(error({"--store", "/x"}), HasSubstr("--store: only used when a syncd is started"));
  ::unsetenv("SYNCD_ADDR");
}

TEST_F(OptionsTest, NumbersOutOfRangeSayWhatIsAllowed) {
  EXPECT_THAT(error({"--workers", "0"}),
              HasSubstr("--workers: '0' is not allowed; allowed: a whole number from 1 to 1024"));
  EXPECT_THAT(error({"--workers", "many"}), HasSubstr("--workers: 'many' is not allowed"));
  EXPECT_THAT(error({"--workers", "2.5"}), HasSubstr("'2.5'"));
  EXPECT_THAT(error({"--batch", "0"}), HasSubstr("--batch: '0'"));
  EXPECT_THAT(error({"--max-iterations", "-3"}), HasSubstr("'-3' is not allowed"));
  EXPECT_THAT(error({"--iteration-ms", "-1"}), HasSubstr("milliseconds from 0 to 3600000"));
  EXPECT_THAT(error({"--max-seconds", "0"}), HasSubstr("--max-seconds: '0'"));
  EXPECT_THAT(error({"--learning-rate", "nan"}), HasSubstr("--learning-rate: 'nan'"));
  EXPECT_THAT(error({"--target-loss", "x"}), HasSubstr("--target-loss: 'x'"));
  EXPECT_THAT(error({"--seed", "-1"}), HasSubstr("--seed: '-1'"));
  EXPECT_THAT(error({"--samples", "10", "--generate"}), HasSubstr("--samples: '10'"));
}

TEST_F(OptionsTest, WordsOutOfTheirListSayTheList) {
  EXPECT_THAT(parse({"--workload", "lstm"}).text,
              HasSubstr("--workload: 'lstm' is not allowed; allowed: svm, mf, cnn"));
  EXPECT_THAT(parse({}).text, HasSubstr("--workload is required"));
  EXPECT_THAT(error({"--budget", "all"}), HasSubstr("allowed: shared, each"));
  EXPECT_THAT(error({"--format", "csv", "--generate"}), HasSubstr("allowed: u.data, ratings.csv, "
                                                                  "cifar-10, cifar-100"));
  EXPECT_THAT(error({"--what"}), HasSubstr("--what"));
}

TEST_F(OptionsTest, PoliciesAndSlowdownsAreJudgedByTheirOwnRules) {
  EXPECT_THAT(error({"--policy", "fast"}), HasSubstr("--policy: policy 'fast' is unknown"));
  EXPECT_THAT(error({"--policy", "bsp,asp"}), AllOf(HasSubstr("--policy: 'bsp,asp' is 2 policies"),
                                                    HasSubstr("--compare bsp,asp")));
  EXPECT_THAT(error({"--compare", "bsp,hop:ring,"}),
              HasSubstr("--compare: nothing stands after a comma of 'hop:ring,'"));
  EXPECT_THAT(
      error({"--workers", "3", "--compare", "bsp,hop:ring_based"}),
      AllOf(HasSubstr("--compare: policy 'hop:ring_based'"), HasSubstr("the nearest are 2 and 4")));
  EXPECT_THAT(error({"--slowdown", "fixed:4=2x"}),
              HasSubstr("--slowdown: there is no worker 4; allowed: 0 to 3"));
  EXPECT_THAT(error({"--policy", "bsp", "--compare", "bsp"}),
              HasSubstr("--policy and --compare: only one of them is allowed"));
}

TEST_F(OptionsTest, AnOrderIsHopsAlone) {
  EXPECT_EQ(good({"--compare", "bsp,hop:ring"}).hop_order, HopOrder::kParallel);
  EXPECT_EQ(good({"--compare", "bsp,hop:ring", "--order", "serial"}).hop_order, HopOrder::kSerial);
  EXPECT_THAT(error({"--policy", "hop:ring", "--order", "random"}),
              HasSubstr("allowed: parallel, serial"));
  for (const char* policy : {"bsp", "notify_ack:ring"}) {
    EXPECT_THAT(error({"--policy", policy, "--order", "parallel"}),
                HasSubstr("--order: only used with a policy hop:..."));
  }
}

TEST_F(OptionsTest, TheRateAndWhatBecomesOfUpdates) {
  EXPECT_EQ(good({}).aggregate, Aggregate::kSum);
  EXPECT_EQ(good({"--compare", "bsp,asp", "--aggregate", "mean"}).aggregate, Aggregate::kMean);
  EXPECT_THAT(error({"--compare", "bsp,hop:ring", "--aggregate", "mean"}),
              HasSubstr("--aggregate: mean is not allowed with hop:ring, whose workers average "
                        "parameters, not updates; allowed: sum"));
  EXPECT_THAT(error({"--compare", "asp,ssp:3", "--aggregate", "mean"}),
              HasSubstr("--aggregate: mean changes bsp alone, which is not among the policies"));
  EXPECT_THAT(error({"--aggregate", "median"}), HasSubstr("allowed: sum, mean"));
  EXPECT_EQ(good({"--decay", "0.5@100"}).workload.decay,
            (RateDecay{.factor = 0.5, .at = {100}, .steps = 1}));
  EXPECT_THAT(error({"--decay", "0@100"}), HasSubstr("--decay: '0@100': '0' is not a factor"));
  EXPECT_THAT(
      error({"--decay", "0.001/1"}),
      HasSubstr("--decay: under '0.001/1' the rate has come to 0 by minibatch 600; allowed: "
                "what leaves more than 0 to the end of the run"));
  EXPECT_EQ(good({"--decay", "0.001/100"}).workload.decay.every, 100);
  // Two minibatches an iteration.
  const std::vector<const char*> each{"--decay",  "0.1/2", "--max-iterations", "60",
                                      "--budget", "each",  "--policy",         "notify_ack:ring"};
  EXPECT_EQ(good(each).workload.decay.every, 2);
  std::vector<const char*> twice = each;
  twice.back() = "notify_ack:ring,every=2";
  EXPECT_THAT(error(twice), HasSubstr("the rate has come to 0 by minibatch 120; allowed"));
  EXPECT_THAT(error({"--decay", "0.9/5", "--max-iterations", "1000000000", "--policy",
                     "notify_ack:ring,every=1000000000"}),
              HasSubstr("by minibatch 1000000000000000000;"));
  EXPECT_EQ(parse({"--workload", "svm"}).options.workload.momentum, 0);
  EXPECT_EQ(parse({"--workload", "svm", "--momentum", "0.9"}).options.workload.momentum, 0.9);
  EXPECT_EQ(parse({"--workload", "cnn"}).options.workload.momentum, 0.9);
  EXPECT_THAT(parse({"--workload", "svm", "--momentum", "1"}).text,
              HasSubstr("--momentum: '1' is not allowed; allowed: a number from 0 to 0.999"));
  EXPECT_THAT(parse({"--workload", "cnn", "--backend", "cuda", "--decay", "0.5@9"}).text,
              HasSubstr("--decay: not used with --store-in device; allowed: host"));
}

TEST_F(OptionsTest, ADecayLeavesARateAlsoWhereOnlyATimeEndsTheRun) {
  // 20 ms an iteration: 500 minibatches in 10 s.
  EXPECT_THAT(
      error({"--decay", "0.001/1", "--max-seconds", "10"}),
      HasSubstr("--decay: under '0.001/1' the rate has come to 0 by minibatch 501; allowed"));
  EXPECT_EQ(good({"--decay", "0.98/50", "--max-seconds", "10"}).workload.decay.every, 50);
  EXPECT_EQ(good({"--decay", "0.001/1", "--max-seconds", "10", "--max-iterations", "2"}).iterations,
            2);
  EXPECT_THAT(error({"--decay", "0.001/1", "--max-seconds", "10", "--max-iterations", "200"}),
              HasSubstr("by minibatch 501"));
  const auto timed = [](const char* decay, const char* time) {
    return std::vector<const char*>{
        "--decay", decay, "--max-seconds", "10", "--virtual-time", "--iteration-time", time};
  };
  EXPECT_THAT(error(timed("0.001/1", "uniform:100-200")), HasSubstr("by minibatch 101"));
  // Nothing says how many minibatches there can be.
  const std::string unbounded =
      "in a run that only --max-seconds ends; allowed: with "
      "--max-iterations";
  EXPECT_THAT(error(timed("0.9/50", "lognormal:100,0.2")), HasSubstr(unbounded));
  EXPECT_THAT(error({"--decay", "0.9/50", "--max-seconds", "10", "--iteration-ms", "0"}),
              HasSubstr("--decay: '0.9/50' brings the rate to 0 " + unbounded));
  EXPECT_EQ(good({"--decay", "0.1@50,90", "--max-seconds", "10", "--iteration-ms", "0"})
                .workload.decay.steps,
            2);
  EXPECT_THAT(error({"--decay", "1e-30@5,9", "--max-seconds", "10", "--iteration-ms", "0"}),
              HasSubstr("--decay: '1e-30@5,9' brings the rate to 0"));
  EXPECT_EQ(
      good({"--decay", "1/5", "--max-seconds", "10", "--iteration-ms", "0"}).workload.decay.every,
      5);
  EXPECT_THAT(error(timed("0.9/50", "sometimes")), HasSubstr("--iteration-time: "));
}

TEST_F(OptionsTest, LinksAndHostsAreThoseOfVirtualTime) {
  const Options options =
      good({"--virtual-time", "--link-mbps", "100", "--parameters-mb", "12.5", "--hosts", "1,3"});
  EXPECT_EQ(options.transfer_us, 1'000'000);
  EXPECT_THAT(options.host_sizes, ElementsAre(1, 3));
  for (const char* flag : {"--link-mbps", "--parameters-mb", "--hosts"}) {
    EXPECT_THAT(error({flag, "4"}),
                HasSubstr(std::string(flag) + ": only used with --virtual-time"));
  }
  EXPECT_THAT(error({"--virtual-time", "--link-mbps", "0", "--parameters-mb", "1"}),
              HasSubstr("--link-mbps is 0, allowed is more than 0"));
  EXPECT_THAT(error({"--virtual-time", "--link-mbps", "100", "--parameters-mb", "0"}),
              HasSubstr("--parameters-mb is 0, allowed is more than 0"));
  EXPECT_THAT(error({"--virtual-time", "--link-mbps", "100"}),
              HasSubstr("--link-mbps: needs --parameters-mb"));
  EXPECT_THAT(error({"--virtual-time", "--hosts", "2,3"}),
              HasSubstr("--hosts '2,3': the hosts have 5 workers; allowed"));
}

TEST_F(OptionsTest, FlagsThatWouldHaveNoEffectAreRefused) {
  EXPECT_THAT(error({"--samples", "5000", "--data", "f"}),
              HasSubstr("--samples: not used with --data and --data-dir, unless with --generate"));
  EXPECT_EQ(good({"--samples", "5000"}).data.samples, 5000U);
  EXPECT_THAT(parse({"--workload", "svm", "--generate", "--format", "u.data"}).text,
              HasSubstr("--format: only used with --workload mf or cnn"));
  EXPECT_THAT(error({"--format", "u.data"}), HasSubstr("--format: only used with --generate"));
  EXPECT_THAT(error({"--format", "cifar-100", "--generate"}),
              HasSubstr("--format: 'cifar-100' is not allowed with --workload mf; allowed: u.data, "
                        "ratings.csv"));
  EXPECT_THAT(parse({"--workload", "cnn", "--generate", "--format", "u.data"}).text,
              HasSubstr("with --workload cnn; allowed: cifar-10, cifar-100"));
  EXPECT_THAT(error({"--momentum", "0.5"}),
              HasSubstr("--momentum: only used with --workload cnn or svm"));
  EXPECT_THAT(error({"--weight-decay", "0"}), HasSubstr("--weight-decay: only used with"));
  EXPECT_THAT(error({"--precision", "float"}),
              HasSubstr("--precision: only used with --workload cnn"));
  EXPECT_THAT(parse({"--workload", "cnn", "--generate", "--precision", "bf16"}).text,
              HasSubstr("--precision: bf16 is only allowed with --backend cuda; allowed with the "
                        "CPU: float"));
  EXPECT_THAT(error({"--generate", "--data", "f"}), HasSubstr("--data and --generate: only one"));
  EXPECT_THAT(error({"--job", "a/b"}), HasSubstr("--job: 'a/b' is not allowed"));
}

TEST_F(OptionsTest, ReportsGoWhereTheyAreToldTo) {
  const Options none = good({});
  EXPECT_FALSE(none.report || none.json_lines || none.quiet);
  const Options all = good({"--report", "a.html", "--json-lines", "b", "--quiet"});
  EXPECT_EQ(all.report, "a.html");
  EXPECT_EQ(all.json_lines, "b");
  EXPECT_TRUE(all.quiet);
  EXPECT_THAT(error({"--quiet", "--verbose"}),
              HasSubstr("--quiet and --verbose: only one of them is allowed"));
}

TEST_F(OptionsTest, HelpAndVersionGoToStandardOutput) {
  const ParsedCommand help = parse({"--help"});
  EXPECT_EQ(help.exit_status, 0);
  for (const char* flag : {"--workload", "--compare", "--slowdown", "--max-iterations", "--daemon",
                           "--out", "Exit status"}) {
    EXPECT_THAT(help.text, HasSubstr(flag));
  }
  const ParsedCommand version = parse({"--version"});
  EXPECT_EQ(version.exit_status, 0);
  EXPECT_THAT(version.text, HasSubstr("reference_trainer "));
}

TEST_F(OptionsTest, VirtualTimeHasItsOwnFlags) {
  const ParsedCommand plain = parse({"--workload", "mf", "--generate", "--virtual-time"});
  EXPECT_TRUE(plain.options.virtual_time);
  EXPECT_EQ(plain.options.iteration_time, "constant:20");
  const ParsedCommand drawn = parse({"--workload", "mf", "--generate", "--virtual-time",
                                     "--iteration-time", "uniform:1000-1500", "--delay-ms", "2"});
  EXPECT_EQ(drawn.options.iteration_time, "uniform:1000-1500");
  EXPECT_EQ(drawn.options.delay_us, 2'000);
  EXPECT_EQ(good({"--virtual-time", "--slowdown", "random:6x@1/8"}).slowdown, "random:6x@1/8");
  const auto error = [](std::vector<const char*> more) {
    std::vector<const char*> arguments = {"--workload", "mf", "--generate"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return parse(arguments).text;
  };
  EXPECT_THAT(error({"--iteration-time", "constant:1"}),
              HasSubstr("only used with --virtual-time"));
  EXPECT_THAT(error({"--virtual-time", "--store", "x"}), HasSubstr("--store: not used with"));
  EXPECT_THAT(error({"--virtual-time", "--workers-as", "threads"}),
              HasSubstr("--workers-as: not used with"));
  EXPECT_THAT(error({"--virtual-time", "--store-in", "host"}),
              HasSubstr("--store-in: not used with"));
  EXPECT_THAT(error({"--virtual-time", "--iteration-ms", "0"}), HasSubstr("more than 0"));
  EXPECT_THAT(error({"--virtual-time", "--iteration-ms", "5", "--iteration-time", "constant:1"}),
              HasSubstr("only one of them is allowed"));
}

}  // namespace
}  // namespace syncd::trainer
