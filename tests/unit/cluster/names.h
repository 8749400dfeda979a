// What the tests of this folder share.
#pragma once

#include "daemon/core/cluster/format.h"

namespace syncd::cluster {

inline constexpr Micros kSecond = 1'000'000;
inline const ShardKeys kKeys("lab", 0);

}  // namespace syncd::cluster
