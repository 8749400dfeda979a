// Writes a store as a later version of syncd might, and ends:
//   later_store DIRECTORY
// Job "later" has a policy that this version does not know; that of job "known" is asp.
#include <cstdio>
#include <string>

#include "daemon/edge/store/store.h"
#include "tests/unit/store/samples.h"

int main(int argc, char** argv) {
  using namespace syncd;
  using namespace syncd::store;
  if (argc != 2) return 2;
  Options options;
  options.path = argv[1];
  std::string error;
  const auto store = open_rocks_store(options, error);
  if (store != nullptr) {
    store->start([](const CommitReport&) {});
    Record later = creation(1, "later");
    later.policy = "of_a_later_version";
    Record known = creation(2, "known");
    known.policy = "asp";
    known.expected_workers = 1;
    constexpr std::int64_t kPatienceUs = 60'000'000;
    if (store->submit(1, {{later, known}, {}}) && store->close(kPatienceUs, error)) return 0;
  }
  std::fprintf(stderr, "later_store: %s\n", error.c_str());
  return 1;
}
