// How often this program has asked for memory: allocation_count.cpp replaces the global operator
// new of the test program it is linked into.
#pragma once

#include <cstddef>

namespace syncd {

std::size_t allocation_count();

}  // namespace syncd
