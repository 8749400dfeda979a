// The range of times that planners take.
#pragma once

#include "daemon/core/engine/types.h"

namespace syncd::planners {

// Times lie within +-kTimeMax (about 36,000 years in microseconds), so that differences never
// overflow.
inline constexpr Micros kTimeMax = Micros{1} << 60;

}  // namespace syncd::planners
