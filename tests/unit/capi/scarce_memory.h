// An operator new that fails when a test wants it to. For programs of one test file each.
#pragma once

#include <atomic>

namespace syncd::test {

// After so many more allocations by this thread, the next one and all that follow fail; -1: none.
extern thread_local long allocations_left;

// The same for the threads of clients, all together.
extern std::atomic<long> allocations_left_in_clients;

}  // namespace syncd::test
