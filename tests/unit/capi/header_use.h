/* What a program does with the public headers, in C99 and in C++. CMakeLists.txt makes a file for
 * each header and language that includes that header first, alone and twice, and then this one. */
static const syncd_step step = SYNCD_STEP_INIT;

int header_is_usable(void);
int header_is_usable(void) {
  syncd_client_options client = SYNCD_CLIENT_OPTIONS_INIT;
  const syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
  const syncd_push_info push = SYNCD_PUSH_INFO_INIT;
#ifdef SYNCD_SERVER_OPTIONS_INIT
  syncd_server_options server = SYNCD_SERVER_OPTIONS_INIT;
  const syncd_log_callback callback = server.log;
  server.flags = SYNCD_SERVER_LOG_STDERR;
  server.log_level = SYNCD_LOG_WARN;
  if (server.struct_size != sizeof(syncd_server_options) || callback || SYNCD_E_LISTEN >= SYNCD_OK)
    return 0;
#endif
#ifdef SYNCD_UPDATE_QUEUE_OPTIONS_INIT
  syncd_update_queue_options queue = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;
  queue.slots = 5;
  if (queue.struct_size != sizeof(syncd_update_queue_options) || queue.memory ||
      SYNCD_E_TORN >= SYNCD_OK || SYNCD_UPDATE_QUEUE_ALIGNMENT <= 0)
    return 0;
#endif
  client.addresses = "unix:/run/syncd/syncd.sock";
  return client.struct_size == sizeof(syncd_client_options) && join.rank == SYNCD_RANK_ANY &&
         push.loss != push.loss && step.struct_size == sizeof(syncd_step);
}
