// 128-bit integers, which g++ and clang have on every 64-bit machine but ISO C++ does not name.
#pragma once

namespace syncd::planners {

__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 WideUnsigned;

}  // namespace syncd::planners
