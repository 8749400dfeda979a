// The devices: see cnn_backends.h. No thread of its own.
#include "reference_trainer/model/cnn_backends.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "reference_trainer/cuda/plugin.h"

namespace syncd::trainer {
namespace {

// The CUDA library, or why there is none.
struct CudaLibrary {
  void* handle = nullptr;
  std::string problem;
};

CudaLibrary load_cuda_library() {
  // Found through the run path of the program, which names the folder of our libraries.
  void* handle = ::dlopen(kCudaLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {nullptr, ::dlerror()};
  const auto* build = static_cast<const char* const*>(::dlsym(handle, kCudaBuild));
  if (build == nullptr || std::string_view(*build) != SYNCD_TRAINER_BUILD) {
    return {nullptr, fmt::format("{} is of another build than this program: install both from one",
                                 kCudaLibrary)};
  }
  return {handle, ""};
}

// Calls one of the functions that make something, whose last arguments take what went wrong.
template <typename Made, typename Function, typename... Arguments>
std::unique_ptr<Made> make_with_cuda(const char* function, const Arguments&... arguments) {
  std::array<char, 512> error{};
  auto* make = reinterpret_cast<Function*>(cuda_function(function));
  std::unique_ptr<Made> made(make(arguments..., error.data(), error.size()));
  if (!made) throw std::runtime_error(fmt::format("--backend cuda: {}", error.data()));
  return made;
}

}  // namespace

void* cuda_function(const char* name) {
  static const CudaLibrary library = load_cuda_library();
  std::string problem = library.problem;
  if (library.handle != nullptr) {
    if (void* function = ::dlsym(library.handle, name)) return function;
    problem = ::dlerror();
  }
  throw std::runtime_error(
      fmt::format("--backend cuda: the CUDA backend cannot be loaded: {}; it is there where "
                  "reference_trainer was built with the CUDA toolkit (CMake option SYNCD_CUDA=ON) "
                  "and cuBLAS is installed",
                  problem));
}

std::optional<std::string> backend_problem(Backend backend, Precision precision) {
  try {
    make_cnn_backend(backend, CnnShape(), 0, precision);
    return std::nullopt;
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::unique_ptr<CnnBackend> make_cnn_backend(Backend backend, const CnnShape& shape,
                                             std::size_t samples_max, Precision precision) {
  if (backend == Backend::kCpu) return make_cpu_backend(shape, samples_max);
  return make_with_cuda<CnnBackend, MakeCudaBackend>(kCudaMakeBackend, shape, CnnLayout(shape),
                                                     samples_max, precision);
}

std::unique_ptr<DeviceStepper> make_cuda_stepper(const StepperRequest& request) {
  return make_with_cuda<DeviceStepper, MakeCudaStepper>(kCudaMakeStepper, request);
}

}  // namespace syncd::trainer
