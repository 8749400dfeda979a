#include "proto/base/check.h"

#include <string>
#include <string_view>

namespace syncd {

void check_failed(const char* condition, const char* file, int line) {
  const std::string_view path = file;
  throw InternalError("internal error: a check has failed: " + std::string(condition) + " (" +
                      std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(line) +
                      ")");
}

}  // namespace syncd
