// A configuration file. What is wrong with it is said in sentences; what is accepted is shown as a
// file that is accepted in turn, and shown as the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/edge/config/config.h"
#include "tests/fuzz/check.h"

namespace {

using namespace syncd;

bool load(std::string_view toml, config::Loaded& loaded, std::vector<std::string>& errors) {
  config::Embedded sources;
  sources.toml = toml;
  sources.toml_name = "syncd.toml";
  sources.defaults.store_path = "memory";
  sources.defaults.unix_path = "/tmp/fuzz.sock";
  return config::load_embedded(sources, loaded, errors);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of({data, size});
  // Files that it names are read: those of this machine are none of a fuzzer's business.
  if (text.find('/') != std::string_view::npos) return 0;
  config::Loaded loaded;
  std::vector<std::string> errors;
  if (!load(text, loaded, errors)) {
    fuzz::require(!errors.empty(), "a configuration is refused without a word");
    for (const std::string& error : errors) fuzz::require(!error.empty(), "an empty sentence");
    return 0;
  }
  fuzz::require(errors.empty(), "accepted with an error", errors.empty() ? "" : errors.front());
  config::Loaded shown;
  fuzz::require(load(loaded.effective, shown, errors), "what is shown is refused",
                errors.empty() ? "" : errors.front() + "\n" + loaded.effective);
  config::Loaded again;
  fuzz::require(load(shown.effective, again, errors), "what is shown is refused the second time");
  fuzz::require(again.effective == shown.effective, "the configuration changes when it is shown",
                shown.effective + again.effective);
  fuzz::require(shown.config.jobs == loaded.config.jobs, "jobs change when they are shown",
                loaded.effective);
  return 0;
}
