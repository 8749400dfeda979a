// The devices of the network: see cnn_backends.h. No thread of its own.
#include "reference_trainer/cnn_backends.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "reference_trainer/cuda/plugin.h"

namespace syncd::trainer {
namespace {

// The CUDA library's function, or why there is none.
struct CudaLibrary {
  MakeCudaBackend* make = nullptr;
  std::string problem;
};

CudaLibrary load_cuda_library() {
  // Found through the run path of the program, which names the folder of our libraries.
  void* library = ::dlopen(kCudaLibrary, RTLD_NOW | RTLD_LOCAL);
  void* function = library != nullptr ? ::dlsym(library, kCudaMakeBackend) : nullptr;
  if (function != nullptr) return {reinterpret_cast<MakeCudaBackend*>(function), ""};
  return {
      nullptr,
      fmt::format("the CUDA backend cannot be loaded: {}; it is there where reference_trainer was "
                  "built with the CUDA toolkit (CMake option SYNCD_CUDA=ON) and cuBLAS is "
                  "installed",
                  ::dlerror())};
}

const CudaLibrary& cuda_library() {
  static const CudaLibrary library = load_cuda_library();
  return library;
}

std::unique_ptr<CnnBackend> make_cuda_backend(const CnnShape& shape, std::size_t samples_max) {
  const CudaLibrary& library = cuda_library();
  if (library.make == nullptr) throw std::runtime_error("--backend cuda: " + library.problem);
  std::array<char, 512> error{};
  std::unique_ptr<CnnBackend> backend(
      library.make(shape, CnnLayout(shape), samples_max, error.data(), error.size()));
  if (!backend) throw std::runtime_error(fmt::format("--backend cuda: {}", error.data()));
  return backend;
}

}  // namespace

std::optional<std::string> backend_problem(Backend backend) {
  try {
    make_cnn_backend(backend, CnnShape(), 0);
    return std::nullopt;
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::unique_ptr<CnnBackend> make_cnn_backend(Backend backend, const CnnShape& shape,
                                             std::size_t samples_max) {
  if (backend == Backend::kCuda) return make_cuda_backend(shape, samples_max);
  return make_cpu_backend(shape, samples_max);
}

}  // namespace syncd::trainer
