// What the tests of the trainer's reports say about the runs that they report on.
#pragma once

#include "reference_trainer/report/report.h"

namespace syncd::trainer::testing {

inline ReportContext context() {
  return {.workload = "mf",
          .loss_name = "held-out RMSE",
          .data = "u.data: 100 ratings",
          .workers = 2,
          .seed = 1,
          .slowdown = "fixed:1=4x",
          .iteration_ms = 20,
          .target_loss = 0.8,
          .target_source = "given"};
}

}  // namespace syncd::trainer::testing
