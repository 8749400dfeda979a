// The devices: see backends.h. No thread of its own.
#include "reference_trainer/model/backends.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

#include "reference_trainer/cuda/plugin.h"

namespace syncd::trainer {
namespace {

// The library, or why there is none.
const CudaLibrary* load_cuda_library(std::string& problem) {
  // Found through the run path of the program, which names the folder of our libraries.
  void* handle = ::dlopen(kCudaFile, RTLD_NOW | RTLD_LOCAL);
  void* found = handle != nullptr ? ::dlsym(handle, kCudaEntry) : nullptr;
  if (found == nullptr) {
    problem = ::dlerror();
    return nullptr;
  }
  const CudaLibrary* library = reinterpret_cast<CudaEntry*>(found)();
  if (std::string_view(library->build) == SYNCD_TRAINER_BUILD) return library;
  problem =
      fmt::format("{} is of another build than this program: install both from one", kCudaFile);
  return nullptr;
}

// Names the flag that asked for it in what goes wrong.
template <typename Make>
auto on_cuda(const Make& make) {
  try {
    return make();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("--backend cuda: {}", error.what()));
  }
}

}  // namespace

const CudaLibrary& cuda_library() {
  static std::string problem;
  static const CudaLibrary* library = load_cuda_library(problem);
  if (library != nullptr) return *library;
  throw std::runtime_error(fmt::format(
      "the CUDA backend cannot be loaded: {}; it is there where reference_trainer was built with "
      "the CUDA toolkit (CMake option SYNCD_CUDA=ON) and cuBLAS is installed",
      problem));
}

std::optional<std::string> backend_problem(Backend backend, Precision precision) {
  try {
    if (backend == Backend::kCuda) on_cuda([&] { cuda_library().try_gpu(precision); });
    return std::nullopt;
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::unique_ptr<Stepper> make_stepper(const StepperRequest& request) {
  if (request.config.backend == Backend::kCpu) return make_cpu_stepper(request);
  return on_cuda([&] { return cuda_library().make_stepper(request); });
}

}  // namespace syncd::trainer
