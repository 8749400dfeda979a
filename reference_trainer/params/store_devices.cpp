// The devices that keep parameters, and the trial of sharing: see store_devices.h.
#include "reference_trainer/params/store_devices.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "proto/base/file.h"
#include "reference_trainer/cuda/plugin.h"
#include "reference_trainer/data/data_file.h"
#include "reference_trainer/model/backends.h"
#include "reference_trainer/params/cpu_machine.h"

namespace syncd::trainer {

namespace {

constexpr const char* kTrialFlag = "--internal-sharing-trial";
constexpr std::int64_t kTrialMs =
    60'000;  // starting CUDA takes seconds on a machine with many GPUs
constexpr std::size_t kTrialParameters = 1'024;
constexpr float kTrialValue = 42;

}  // namespace

StoreDevice& store_device(Backend backend) {
  if (backend == Backend::kCpu) {
    static MachineDevice<CpuMachine> cpu{CpuMachine()};
    return cpu;
  }
  static const std::unique_ptr<StoreDevice> device = cuda_library().make_store_device();
  return *device;
}

bool is_sharing_trial(int argc, const char* const* argv) {
  return argc > 1 && std::strcmp(argv[1], kTrialFlag) == 0;
}

int sharing_trial_main(int argc, const char* const* argv) {
  const auto fd = argc == 4 ? parse_unsigned(argv[2]) : std::nullopt;
  const auto backend = argc == 4 ? parse_unsigned(argv[3]) : std::nullopt;
  if (!fd || !backend) {
    std::fprintf(stderr, "reference_trainer: %s is for the program's own use\n", kTrialFlag);
    return 2;
  }
  try {
    SharedParameters store = SharedParameters::attach(store_device(static_cast<Backend>(*backend)),
                                                      static_cast<int>(*fd), 0);
    std::vector<float> values(store.store().shape().parameters);
    const bool whole = store.store().read_all(values);
    const bool same =
        std::all_of(values.begin(), values.end(), [](float value) { return value == kTrialValue; });
    if (whole && same) return 0;
    std::fprintf(stderr, "another process sees something else in the device's memory\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}

std::optional<std::string> sharing_problem(StoreDevice& device, Backend backend,
                                           const std::string& program) {
  try {
    const std::vector<float> values(kTrialParameters, kTrialValue);
    SharedParameters store =
        SharedParameters::of_store(device, {.parameters = kTrialParameters}, 1, values, true);
    const TemporaryDirectory place;
    const std::string notes = place.path() / "said";
    const UniqueFd output(::open(notes.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    SpawnOptions spawn;
    spawn.program = program;
    spawn.arguments = {kTrialFlag, std::to_string(store.fd()),
                       std::to_string(static_cast<int>(backend))};
    spawn.inherited_fds = {store.fd()};
    spawn.output_fd = output.get();
    spawn.death_signal = SIGKILL;
    ChildProcess child = ChildProcess::start(spawn);
    const auto status = child.wait(kTrialMs);
    if (status && *status == 0) return std::nullopt;
    if (!status)
      return fmt::format("the process that tried it did not end in {} s", kTrialMs / 1'000);
    std::string said;
    read_file(notes, said);
    said.erase(std::min(said.size(), said.find('\n')));  // the first line
    return said.empty() ? "the process that tried it ended with " + describe_exit(*status) : said;
  } catch (const SharingRefused& refused) {
    return refused.what();
  }
}

}  // namespace syncd::trainer
