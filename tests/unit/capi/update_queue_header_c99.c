/* Compiles only if <syncd/update_queue.h> is C99 without a warning, on its own, as the first include. */
#include <syncd/update_queue.h>

static const syncd_update_queue_options options = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;

int update_queue_header_is_usable(void);
int update_queue_header_is_usable(void) {
  syncd_update_queue_options changed = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;
  changed.slots = 5;
  /* With all of <syncd/client.h>. */
  return changed.struct_size == options.struct_size && options.memory == NULL &&
         SYNCD_E_TORN < SYNCD_OK && SYNCD_UPDATE_QUEUE_ALIGNMENT > 0;
}
