// The gradients of the workloads on the CPU against central differences, and what the workloads
// share: minibatches, held-out samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "reference_trainer/model/batch.h"
#include "tests/unit/reference_trainer/gradient_reference.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::HasSubstr;

TEST(Gradient, OfTheLinearModelMatchesFiniteDifferences) {
  const testing::GradientCase with(WorkloadKind::kSvm);
  testing::expect_gradient(with, *with.workload->make_stepper());
}

TEST(Gradient, OfMatrixFactorizationMatchesFiniteDifferences) {
  const testing::GradientCase with(WorkloadKind::kMf);
  testing::expect_gradient(with, *with.workload->make_stepper());
}

TEST(Gradient, OfTheNetworkMatchesFiniteDifferences) {
  const testing::GradientCase with(WorkloadKind::kCnn);
  testing::expect_gradient(with, *with.workload->make_stepper(), 17);
}

TEST(Batch, IsTheSameForTheSameKeyAndStaysInTheWorkersPartition) {
  const WorkloadConfig config = testing::small_config(WorkloadKind::kMf);
  BatchSampler sampler(config, 100);
  std::set<std::size_t> seen;
  std::vector<std::size_t> first;
  for (std::int64_t iteration = 0; iteration < 50; ++iteration) {
    sampler.start({.worker = 2, .iteration = iteration});
    std::size_t count = 0;
    for (int part = 0; part < sampler.parts(); ++part) {
      for (const std::size_t sample : sampler.part(part)) {
        EXPECT_LT(sample, 100U);
        EXPECT_EQ(sample % 3, 2U);
        seen.insert(sample);
        if (iteration == 0) first.push_back(sample);
        ++count;
      }
    }
    EXPECT_EQ(count, 24U);
  }
  EXPECT_EQ(seen.size(), 33U) << "2, 5, ... 98: every sample of the partition is drawn sometimes";
  sampler.start({.worker = 2, .iteration = 0});
  EXPECT_TRUE(std::equal(sampler.part(0).begin(), sampler.part(0).end(), first.begin()));
}

// Two minibatches on the same parameters: a stepper without momentum and decay gives the gradients.
TEST(Workload, MomentumAndDecayMakeTheSecondUpdateOfTheLinearModel) {
  WorkloadConfig config = testing::small_config(WorkloadKind::kSvm);
  const SharedArrays data = testing::small_data(WorkloadKind::kSvm);
  const auto plain = make_workload(config, data)->make_stepper();
  config.momentum = 0.75;
  config.decay = {.factor = 0.5, .every = 1};
  const auto workload = make_workload(config, data);
  const auto stepper = workload->make_stepper();
  const std::size_t parameters = workload->layout().parameters;
  EXPECT_EQ(stepper->state().size(), parameters) << "a checkpoint has the velocity";
  const auto deltas_of = [&](Stepper& any, std::int64_t iteration) {
    const BatchKey key{.worker = 1, .iteration = iteration};
    return testing::dense(compute_minibatch(any, key), parameters);
  };
  const auto first = deltas_of(*plain, 0);
  const auto second = deltas_of(*plain, 1);
  const auto alike = deltas_of(*stepper, 0);
  const auto found = deltas_of(*stepper, 1);
  double norm = 0;
  for (std::size_t i = 0; i < parameters; ++i) {
    EXPECT_NEAR(alike[i], first[i], 1e-8);
    EXPECT_NEAR(found[i], 0.5 * (0.75 * first[i] + second[i]), 1e-8);
    norm += std::abs(first[i]);
  }
  EXPECT_GT(norm, 1e-3);
}

TEST(Workload, TheRateDecaysForEveryWorkload) {
  for (const WorkloadKind kind : {WorkloadKind::kSvm, WorkloadKind::kMf, WorkloadKind::kCnn}) {
    WorkloadConfig config = testing::small_config(kind);
    const SharedArrays data = testing::small_data(kind);
    config.decay = {.factor = 0.25, .at = {3, 5}, .steps = 2};
    const auto workload = make_workload(config, data);
    for (const std::int64_t iteration : {2, 3, 5}) {
      const double factor = iteration == 2 ? 1 : iteration == 3 ? 0.25 : 0.0625;
      const BatchKey key{.worker = 0, .iteration = iteration};
      const auto stepper = workload->make_stepper();
      const auto fresh = make_workload(testing::small_config(kind), data)->make_stepper();
      workload->initialize(stepper->replica());
      workload->initialize(fresh->replica());
      stepper->replica_changed();
      fresh->replica_changed();
      const Update& all = compute_minibatch(*fresh, key);
      const Update& part = compute_minibatch(*stepper, key);
      ASSERT_EQ(all.deltas.size(), part.deltas.size());
      for (std::size_t i = 0; i < all.deltas.size(); ++i) {
        EXPECT_NEAR(part.deltas[i], factor * double{all.deltas[i]}, 1e-9);
      }
    }
  }
}

TEST(RateDecay, TextsMeanWhatTheySay) {
  const auto parsed = [](std::string_view text) {
    std::string error;
    const auto decay = parse_decay(text, error);
    EXPECT_TRUE(decay) << error;
    EXPECT_EQ(decay_text(*decay), text);
    return *decay;
  };
  EXPECT_EQ(parsed("none"), RateDecay{});
  EXPECT_EQ(decayed(parsed("none"), 1'000'000), 1);
  const RateDecay at = parsed("0.1@200,250");
  EXPECT_EQ(decayed(at, 199), 1);
  EXPECT_EQ(decayed(at, 200), 0.1);
  EXPECT_DOUBLE_EQ(decayed(at, 250), 0.01);
  const RateDecay every = parsed("0.5/50");
  EXPECT_EQ(decayed(every, 49), 1);
  EXPECT_EQ(decayed(every, 50), 0.5);
  EXPECT_EQ(decayed(every, 149), 0.25);
}

TEST(RateDecay, RefusalsNameTheMistakeAndWhatIsAllowed) {
  const auto refusal = [](std::string_view text) {
    std::string error;
    EXPECT_FALSE(parse_decay(text, error)) << text;
    return error;
  };
  EXPECT_EQ(refusal("0@5"),
            "--decay: '0@5': '0' is not a factor that is more than 0, to 1; allowed: none, "
            "F@N[,N...] (the rate times F before each of these minibatches of a worker, rising, at "
            "most 16), F/N (times F before every N-th one); F more than 0, to 1");
  EXPECT_THAT(refusal("2/5"), HasSubstr("'2' is not a factor"));
  EXPECT_THAT(refusal("nan/5"), HasSubstr("'nan' is not a factor"));
  EXPECT_THAT(refusal("0.5"), HasSubstr("it does not say when, as 0.1@200 and 0.98/50 do"));
  EXPECT_THAT(refusal("0.5/0"), HasSubstr("'0' is not a number of minibatches"));
  EXPECT_THAT(refusal("0.5@7,7"), HasSubstr("7 does not come after 7"));
  EXPECT_THAT(refusal("0.5@7,"), HasSubstr("'' is not the number of a minibatch"));
  EXPECT_THAT(refusal("0.5@1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"), HasSubstr("too many"));
}

TEST(Workload, EvaluationUsesHeldOutSamplesAlone) {
  for (const WorkloadKind kind : {WorkloadKind::kSvm, WorkloadKind::kMf}) {
    const SharedArrays data = testing::small_data(kind);
    const auto workload = make_workload(testing::small_config(kind), data);
    EXPECT_EQ(workload->held_out_samples(), kind == WorkloadKind::kSvm ? 60U : 28U);
    std::vector<float> parameters(workload->layout().parameters);
    workload->initialize(parameters);
    const double before = workload->evaluate(parameters);
    EXPECT_GT(before, 0);
    if (kind == WorkloadKind::kSvm) {
      EXPECT_NEAR(before, std::log(2.0), 1e-12);
    }
  }
}

}  // namespace
}  // namespace syncd::trainer
