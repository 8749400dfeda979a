// The input of `syncctl plan`: [planner and options, JSON]. The answer is JSON, or a sentence.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/tools/ctl/plan.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace syncd;
  if (size < 2) return 0;
  constexpr ctl::PlanKind kKinds[] = {ctl::PlanKind::kZipline, ctl::PlanKind::kSpecsync,
                                      ctl::PlanKind::kDssp};
  constexpr const char* kAlgorithms[] = {"auto",         "grid_scan",     "full_grid_scan",
                                         "zipline",      "zipline_opt",   "zipline_opt_bs",
                                         "zipline_gaps", "zipline_linked"};
  const ctl::PlanKind kind = kKinds[data[0] % 3];
  ctl::PlanOptions options;
  if (kind == ctl::PlanKind::kZipline) {
    if ((data[0] & 4) != 0) options.algorithm = kAlgorithms[data[1] % 8];
    if ((data[0] & 8) != 0) options.objective = (data[1] & 8) != 0 ? "rate" : "max";
    if ((data[0] & 16) != 0) options.r = data[1];
    if ((data[0] & 32) != 0) options.beta = data[1];
  } else if (kind == ctl::PlanKind::kSpecsync) {
    if ((data[0] & 4) != 0) options.scope = (data[1] & 1) != 0 ? "worker" : "job";
    if ((data[0] & 8) != 0) {
      options.cap = (data[1] & 1) != 0 ? "authors" : (data[1] & 2) != 0 ? "span" : "12.5";
    }
  }
  const std::string text(fuzz::text_of({data + 2, size - 2}));
  std::string error;
  const auto answer = ctl::plan_text(kind, text, options, error);
  if (!answer) {
    fuzz::require(!error.empty(), "an input is refused without a word");
    return 0;
  }
  fuzz::require(answer->find('\n') == std::string::npos, "an answer of several lines");
  fuzz::require(nlohmann::json::parse(*answer, nullptr, false).is_object(), "the answer is no JSON",
                *answer);
  // The same question has the same answer, but for the time that it took.
  auto first = nlohmann::json::parse(*answer);
  auto second = nlohmann::json::parse(ctl::plan_text(kind, text, options, error).value_or("{}"));
  first.erase("elapsed_us");
  second.erase("elapsed_us");
  fuzz::require(first == second, "another answer the second time", *answer);
  return 0;
}
