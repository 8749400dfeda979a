// Shared by the tests of the trainer: a message of an exception, a prepared small data set, a
// temporary place. Used on the test's thread.
#pragma once

#include <string>

#include "reference_trainer/data/generate.h"
#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer::testing {

// what() of the Error that `action` throws; "no error" if it throws none.
template <typename Error, typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline WorkloadConfig small_config(WorkloadKind kind) {
  return {.kind = kind, .workers = 3, .batch = 24, .learning_rate = 0.05, .seed = 7};
}

inline SharedArrays small_data(WorkloadKind kind) {
  if (kind == WorkloadKind::kSvm) {
    return prepare_examples(
        generate_examples({.features = 40, .features_per_example = 8, .examples = 600}, 11), 11);
  }
  if (kind == WorkloadKind::kCnn) {
    return prepare_images(generate_images({.training = 300, .test = 60}, ImageFormat::kCifar10, 11),
                          11);
  }
  return prepare_ratings(generate_ratings({.users = 30, .items = 20, .factors = 2, .ratings = 280},
                                          RatingFormat::kUData, 11),
                         11);
}

}  // namespace syncd::trainer::testing
