/* Compiles only if <syncd/server.h> is C99 without a warning, on its own, as the first include. */
#include <syncd/server.h>

static const syncd_server_options options = SYNCD_SERVER_OPTIONS_INIT;

int server_header_is_usable(void);
int server_header_is_usable(void) {
  syncd_server_options changed = SYNCD_SERVER_OPTIONS_INIT;
  syncd_log_callback callback = changed.log;
  changed.flags = SYNCD_SERVER_LOG_STDERR;
  changed.log_level = SYNCD_LOG_WARN;
  /* With all of <syncd/client.h>. */
  return changed.struct_size == options.struct_size && callback == NULL &&
         SYNCD_E_LISTEN < SYNCD_OK;
}
