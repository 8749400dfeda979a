// Which devices can compute, and making what computes there. The one place that knows them all.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "reference_trainer/model/cnn_network.h"
#include "reference_trainer/model/device_model.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

// Why this backend cannot be used in this process, for people, or nothing if it can. The CUDA
// library is loaded by the first call that asks for it, and stays. Any thread.
std::optional<std::string> backend_problem(Backend backend,
                                           Precision precision = Precision::kFloat);

// A network for up to `samples_max` samples at once. Throws std::runtime_error with what
// backend_problem() says. The precision is the GPU's; the CPU has float alone.
std::unique_ptr<CnnBackend> make_cnn_backend(Backend backend, const CnnShape& shape,
                                             std::size_t samples_max,
                                             Precision precision = Precision::kFloat);

// A stepper of the request's workload on its backend. Throws likewise.
std::unique_ptr<Stepper> make_stepper(const StepperRequest& request);
std::unique_ptr<Stepper> make_cpu_stepper(const StepperRequest& request);

// The CUDA library (cuda/plugin.h). Throws std::runtime_error if it cannot be loaded. Any thread.
struct CudaLibrary;
const CudaLibrary& cuda_library();

}  // namespace syncd::trainer
