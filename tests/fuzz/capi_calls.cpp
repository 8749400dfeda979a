// The C interface, called in whatever order the input says: each byte is a decision of
// tests/support/capi_calls.h. Aborts at an answer that must not be.
#include "tests/support/capi_calls.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/files.h"

namespace {

// An input is short, and so is the time that it takes.
constexpr int kCallsMax = 100;

void complain(const std::string& what) {
  std::fprintf(stderr, "capi_calls: %s\n", what.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const syncd::test::TempDir directory;
  syncd::test::ByteChoices choices({data, size});
  syncd::test::CapiCalls calls(directory.file("socket"), choices, complain);
  calls.with_servers();
  for (int i = 0; i < kCallsMax && !choices.used_up(); ++i) calls.call();
  return 0;
}
