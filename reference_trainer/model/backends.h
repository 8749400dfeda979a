// Which devices can compute, and making what computes there. The one place that knows them all.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "reference_trainer/model/device_model.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

// Why this backend cannot be used in this process, for people, or nothing if it can. The CUDA
// library is loaded by the first call that asks for it, and stays. Any thread.
std::optional<std::string> backend_problem(Backend backend,
                                           Precision precision = Precision::kFloat);

// A stepper of the request's workload on its backend. Throws
// std::runtime_error with what backend_problem() says.
std::unique_ptr<Stepper> make_stepper(const StepperRequest& request);
std::unique_ptr<Stepper> make_cpu_stepper(const StepperRequest& request);

// The CUDA library (cuda/plugin.h). Throws std::runtime_error if it cannot be loaded. Any thread.
struct CudaLibrary;
const CudaLibrary& cuda_library();

}  // namespace syncd::trainer
