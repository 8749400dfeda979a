// What the daemon asks of glibc's allocator. Call before other threads run.
#pragma once

#include <malloc.h>

namespace syncd::server {

// Up to 32 MiB that are freed stay with the process, and only pieces above 16 MiB are mapped for
// themselves. What one barrier frees is what the next one asks for, and a virtual machine takes
// long to hand out a page again: a barrier of 10,000 workers took 14 ms there with glibc's own
// values, and takes 1.3 ms with these (tests/unit/limits/pieces_test.cpp, Pieces.Barriers).
inline void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 16 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
}

}  // namespace syncd::server
