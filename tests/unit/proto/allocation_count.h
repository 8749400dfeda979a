// How often, and for how much, this program has asked for memory: allocation_count.cpp replaces the
// global operator new of the test program it is linked into.
#pragma once

#include <cstddef>

namespace syncd {

std::size_t allocation_count();
std::size_t allocated_bytes();  // in all, whatever was given back since

}  // namespace syncd
