// Which devices can compute the network, and making it there. The one place that knows them all.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "reference_trainer/cnn_network.h"
#include "reference_trainer/workload.h"

namespace syncd::trainer {

// Why this backend cannot be used in this process, for people, or nothing if it can. The CUDA
// library is loaded by the first call that asks for it, and stays. Any thread.
std::optional<std::string> backend_problem(Backend backend);

// A network for up to `samples_max` samples at once. Throws std::runtime_error with what
// backend_problem() says.
std::unique_ptr<CnnBackend> make_cnn_backend(Backend backend, const CnnShape& shape,
                                             std::size_t samples_max);

}  // namespace syncd::trainer
