// Compiles only if <syncd/server.h> is C++ without a warning, on its own, as the first include.
#include <syncd/server.h>
// A second time, to see its guard.
#include <syncd/server.h>

namespace {
const syncd_server_options kServerOptions = SYNCD_SERVER_OPTIONS_INIT;
}  // namespace

bool server_header_is_usable_in_cxx();
bool server_header_is_usable_in_cxx() {
  return kServerOptions.config == nullptr && kServerOptions.flags == 0;
}
