/* Compiles only if <syncd/client.h> is C99 without a warning, on its own, as the first include. */
#include <syncd/client.h>

static const syncd_client_options client_options = SYNCD_CLIENT_OPTIONS_INIT;
static const syncd_join_options join_options = SYNCD_JOIN_OPTIONS_INIT;
static const syncd_push_info push_info = SYNCD_PUSH_INFO_INIT;
static const syncd_step step = SYNCD_STEP_INIT;

int header_is_usable(void);
int header_is_usable(void) {
  syncd_client_options changed = SYNCD_CLIENT_OPTIONS_INIT;
  changed.addresses = "unix:/run/syncd/syncd.sock";
  return changed.struct_size == client_options.struct_size && join_options.rank == SYNCD_RANK_ANY &&
         push_info.loss != push_info.loss && step.flags == 0;
}
