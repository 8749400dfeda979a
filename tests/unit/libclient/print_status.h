// Lets a failed expectation show a status by its name.
#pragma once

#include <ostream>

#include "proto/base/status.h"

namespace syncd {
inline void PrintTo(Status status, std::ostream* out) {
  *out << status_name(status);
}
}  // namespace syncd
