"""The declarations of <syncd/client.h>, <syncd/update_queue.h> and <syncd/server.h> that this package binds:
the headers without their comments.

tests/test_declarations.py compares them with the headers, so that neither can change alone.
"""

CDEF = """
#define SYNCD_WAIT_FOREVER -1
#define SYNCD_TIMEOUT_DEFAULT -2
#define SYNCD_RANK_ANY -1

typedef int32_t syncd_status;

enum {
  SYNCD_OK = 0,
  SYNCD_E_INVALID = -1,
  SYNCD_E_NOMEM = -2,
  SYNCD_E_TIMEOUT = -3,
  SYNCD_E_UNREACHABLE = -4,
  SYNCD_E_PROTOCOL = -5,
  SYNCD_E_AUTH = -6,
  SYNCD_E_UNKNOWN_JOB = -7,
  SYNCD_E_POLICY_MISMATCH = -8,
  SYNCD_E_WRONG_ITERATION = -9,
  SYNCD_E_FENCED = -10,
  SYNCD_E_RANK_TAKEN = -11,
  SYNCD_E_LIMIT = -12,
  SYNCD_E_STORE = -13,
  SYNCD_E_CANCELLED = -14,
  SYNCD_E_CLOSED = -15,
  SYNCD_E_FORKED = -16,
  SYNCD_E_UNSUPPORTED = -17,
  SYNCD_E_STOPPED = -18,
  SYNCD_E_STATE = -19,
  SYNCD_E_INTERNAL = -20,
  SYNCD_E_SHUTDOWN = -21,
  SYNCD_E_UNKNOWN_WORKER = -22,
  SYNCD_E_JOB_EXISTS = -23,
  SYNCD_E_BUFFER = -24,
  SYNCD_E_LISTEN = -25,
  SYNCD_E_NO_UPDATE = -26,
  SYNCD_E_OVERWRITTEN = -27,
  SYNCD_E_TORN = -28,
  SYNCD_E_BROKEN = -29,
  SYNCD_E_CHECKPOINT = -30
};

const char *syncd_strerror(syncd_status status);

const char *syncd_version(void);
int32_t syncd_version_number(void);

typedef struct syncd_error syncd_error;

syncd_status syncd_error_code(const syncd_error *error);
const char *syncd_error_name(const syncd_error *error);
const char *syncd_error_message(const syncd_error *error);

int32_t syncd_error_is_retriable(const syncd_error *error);

int32_t syncd_error_is_fatal(const syncd_error *error);
void syncd_error_free(syncd_error *error);

typedef struct syncd_client syncd_client;

typedef struct syncd_client_options {
  size_t struct_size;
  const char *addresses;
  const char *client_name;
  const char *token_file;
  int64_t connect_timeout_ms;
  int64_t reconnect_timeout_ms;
  int64_t begin_timeout_ms;
  int64_t request_timeout_ms;
  const char *ca_file;
  const char *certificate_file;
  const char *key_file;
  const char *server_name;
} syncd_client_options;

syncd_status syncd_client_open(const syncd_client_options *options, syncd_client **client,
    syncd_error **error);

void syncd_client_close(syncd_client *client);

typedef struct syncd_worker syncd_worker;

enum {
  SYNCD_EVENT_RESYNC = 1,
  SYNCD_EVENT_MEMBERS = 2,
  SYNCD_EVENT_PLAN = 3,
  SYNCD_EVENT_STOP = 4,
  SYNCD_EVENT_ROUND = 5,
  SYNCD_EVENT_STRAGGLER = 6,
  SYNCD_EVENT_HANG = 7
};

typedef struct syncd_event {
  size_t struct_size;
  int32_t kind;
  uint32_t reserved;
  int64_t iteration;
  int64_t wait_us;
  uint64_t version;
  int32_t rank;
  int32_t recovered;
  double factor;
  int64_t since_us;
  const char *text;
} syncd_event;

typedef void (*syncd_event_callback)(const syncd_event *event, void *user_data);

typedef void (*syncd_wait_callback)(const char *text, int64_t waiting_us, void *user_data);

enum {
  SYNCD_RESUME_AUTO = 0,
  SYNCD_RESUME_NEW = 1,
  SYNCD_RESUME_CONTINUE = 2
};

#define SYNCD_EXIT_GRACE_NONE -1
#define SYNCD_HANG_AUTO -1
typedef size_t (*syncd_inspect_callback)(char *text, size_t capacity, void *user_data);

typedef struct syncd_join_options {
  size_t struct_size;
  const char *job;
  const char *policy;
  const char *name;
  const char *host;
  int32_t rank;
  uint32_t world_size;
  int64_t timeout_ms;
  uint32_t *resync_flag;
  const void *data;
  size_t data_size;
  syncd_event_callback on_event;
  void *user_data;
  uint32_t views;
  uint32_t reserved;

  const char *launch;
  uint64_t launch_number;
  uint32_t resume;
  uint32_t reserved2;
  int64_t resume_at;
  int64_t exit_grace_ms;
  int64_t join_timeout_ms;
  syncd_wait_callback on_wait;
  uint32_t checkpoints;
  uint32_t reserved_2;
  int64_t hang_after_ms;
  syncd_inspect_callback on_inspect;
  uint32_t heartbeat_timeout_ms;
  uint32_t reserved_3;
} syncd_join_options;

syncd_status syncd_join(syncd_client *client, const syncd_join_options *options,
    syncd_worker **worker, syncd_error **error);

enum {
  SYNCD_STEP_PULL = 1,
  SYNCD_STEP_BARRIER = 2,
  SYNCD_STEP_SKIP = 4,
  SYNCD_STEP_STOP = 8,
  SYNCD_STEP_RESUMED = 16,
  SYNCD_STEP_CHECKPOINT = 32
};

typedef struct syncd_step {
  size_t struct_size;
  int64_t iteration;
  int64_t staleness;
  uint32_t flags;
  uint32_t reserved;

  uint64_t view;
  uint32_t view_rank;
  uint32_t view_size;
  const void *view_data;
  size_t view_data_size;
  const char *reason;
} syncd_step;

syncd_status syncd_begin(syncd_worker *worker, int64_t timeout_ms, syncd_step *step,
    syncd_error **error);

syncd_status syncd_worker_arrive(syncd_worker *worker, syncd_error **error);

syncd_status syncd_worker_poll(syncd_worker *worker, int32_t *ready, syncd_step *step,
    syncd_error **error);

syncd_status syncd_worker_descriptor(syncd_worker *worker, int32_t *descriptor,
    syncd_error **error);

int32_t syncd_should_resync(const syncd_worker *worker);

const uint32_t *syncd_worker_resync_flag(const syncd_worker *worker);

syncd_status syncd_worker_restarted(syncd_worker *worker, int64_t iteration, int64_t timeout_ms,
    syncd_error **error);

enum {
  SYNCD_MARK_COMPUTED = 1
};

syncd_status syncd_worker_mark(syncd_worker *worker, int32_t mark, syncd_error **error);

syncd_status syncd_worker_phase(syncd_worker *worker, const char *name, int64_t lease_ms,
    int64_t timeout_ms, syncd_error **error);

typedef struct syncd_push_info {
  size_t struct_size;
  double loss;
  uint64_t samples;
  uint64_t bytes;
} syncd_push_info;

enum {
  SYNCD_PUSH_LATE = 1
};

syncd_status syncd_push(syncd_worker *worker, int64_t iteration, const syncd_push_info *info,
    int64_t timeout_ms, uint32_t *flags, syncd_error **error);

syncd_status syncd_worker_targets(syncd_worker *worker, int64_t iteration, int64_t timeout_ms,
    int32_t *ranks, size_t capacity, size_t *count, syncd_error **error);

typedef struct syncd_update {
  int32_t rank;
  uint32_t reserved;
  int64_t iteration;
  double weight;
} syncd_update;

syncd_status syncd_worker_collect(syncd_worker *worker, int64_t iteration, int64_t timeout_ms,
    syncd_update *updates, size_t capacity, size_t *count, syncd_error **error);

syncd_status syncd_worker_consumed(syncd_worker *worker, int64_t iteration, int64_t timeout_ms,
    syncd_error **error);

typedef struct syncd_explanation syncd_explanation;

typedef struct syncd_waited_for {
  int32_t rank;
  uint32_t reserved;
  int64_t clock;
  int64_t last_push_age_us;
  const char *name;
  const char *host;
  const char *state;
} syncd_waited_for;

syncd_status syncd_worker_explain(const syncd_worker *worker, int64_t timeout_ms,
    syncd_explanation **explanation, syncd_error **error);

const char *syncd_explanation_text(const syncd_explanation *explanation);
const char *syncd_explanation_rule(const syncd_explanation *explanation);
int64_t syncd_explanation_iteration(const syncd_explanation *explanation);
int64_t syncd_explanation_waiting_us(const syncd_explanation *explanation);
const char *syncd_explanation_ranks(const syncd_explanation *explanation);
uint32_t syncd_explanation_waited_for_count(const syncd_explanation *explanation);
size_t syncd_explanation_workers(const syncd_explanation *explanation,
    const syncd_waited_for **workers);
void syncd_explanation_free(syncd_explanation *explanation);

typedef struct syncd_members syncd_members;

enum {
  SYNCD_MEMBER_ACTIVE = 0,
  SYNCD_MEMBER_DISCONNECTED = 1,
  SYNCD_MEMBER_LEFT = 2,
  SYNCD_MEMBER_LOST = 3
};

typedef struct syncd_member {
  int32_t rank;
  int32_t state;
  int64_t clock;
  const char *name;
  const char *host;
  const void *data;
  size_t data_size;
} syncd_member;

syncd_status syncd_worker_members(const syncd_worker *worker, int64_t timeout_ms,
    syncd_members **members, syncd_error **error);

uint64_t syncd_members_version(const syncd_members *members);

size_t syncd_members_list(const syncd_members *members, const syncd_member **list);
void syncd_members_free(syncd_members *members);

syncd_status syncd_worker_set_data(syncd_worker *worker, const void *data, size_t data_size,
    syncd_error **error);

typedef struct syncd_view syncd_view;

typedef struct syncd_view_member {
  uint32_t rank;
  uint32_t reserved;
  const char *name;
  const char *host;
  const void *data;
  size_t data_size;
} syncd_view_member;

syncd_status syncd_worker_view(const syncd_worker *worker, uint64_t number, int64_t timeout_ms,
    syncd_view **view, syncd_error **error);

uint64_t syncd_view_number(const syncd_view *view);

const char *syncd_view_reason(const syncd_view *view);

size_t syncd_view_list(const syncd_view *view, const syncd_view_member **list);

void syncd_view_free(syncd_view *view);

typedef struct syncd_round {
  size_t struct_size;
  uint64_t number;
  uint32_t gone;
  uint32_t room;
} syncd_round;

syncd_status syncd_worker_round(const syncd_worker *worker, syncd_round *round,
    syncd_error **error);

enum {
  SYNCD_CHECKPOINT_LEAVING = 1
};

syncd_status syncd_worker_request_checkpoint(syncd_worker *worker, const char *reason,
    uint32_t flags, int64_t timeout_ms, uint64_t *number, syncd_error **error);

uint64_t syncd_worker_checkpoint(const syncd_worker *worker);

uint32_t syncd_worker_checkpoint_shard(const syncd_worker *worker, uint64_t number,
    uint32_t *shards);

syncd_status syncd_worker_checkpointed(syncd_worker *worker, uint64_t number, uint32_t shard,
    uint32_t shards, const char *location, int64_t timeout_ms, syncd_error **error);

typedef struct syncd_checkpoint syncd_checkpoint;

typedef struct syncd_checkpoint_shard {
  uint32_t shard;
  int32_t rank;
  int64_t iteration;
  const char *location;
} syncd_checkpoint_shard;

syncd_status syncd_latest_checkpoint(syncd_client *client, const char *job, int64_t timeout_ms,
    syncd_checkpoint **checkpoint, syncd_error **error);

syncd_status syncd_latest_checkpoint_part(syncd_client *client, const char *job,
    uint32_t first_shard, uint32_t shards_max, int64_t timeout_ms, syncd_checkpoint **checkpoint,
    syncd_error **error);

uint64_t syncd_checkpoint_number(const syncd_checkpoint *checkpoint);
uint64_t syncd_checkpoint_epoch(const syncd_checkpoint *checkpoint);
int64_t syncd_checkpoint_iteration(const syncd_checkpoint *checkpoint);
int64_t syncd_checkpoint_completed_us(const syncd_checkpoint *checkpoint);
uint32_t syncd_checkpoint_shards(const syncd_checkpoint *checkpoint);
size_t syncd_checkpoint_list(const syncd_checkpoint *checkpoint,
    const syncd_checkpoint_shard **list);
uint64_t syncd_checkpoint_open(const syncd_checkpoint *checkpoint);
uint64_t syncd_checkpoint_closed(const syncd_checkpoint *checkpoint);
const char *syncd_checkpoint_closed_reason(const syncd_checkpoint *checkpoint);
void syncd_checkpoint_free(syncd_checkpoint *checkpoint);

syncd_status syncd_leave(syncd_worker *worker, int64_t timeout_ms, syncd_error **error);

enum {
  SYNCD_LEAVE_LEFT = 0,
  SYNCD_LEAVE_FINISHED = 1,
  SYNCD_LEAVE_FAILED = 2,
  SYNCD_LEAVE_PREEMPTED = 3
};

syncd_status syncd_leave_as(syncd_worker *worker, int32_t kind, const char *reason,
    int64_t timeout_ms, syncd_error **error);

void syncd_worker_free(syncd_worker *worker);

int32_t syncd_worker_rank(const syncd_worker *worker);
uint32_t syncd_worker_world_size(const syncd_worker *worker);
const char *syncd_worker_job(const syncd_worker *worker);
const char *syncd_worker_policy(const syncd_worker *worker);

int32_t syncd_worker_resumed(const syncd_worker *worker);

int64_t syncd_worker_start_iteration(const syncd_worker *worker);
"""

# Likewise of <syncd/update_queue.h>.
CDEF_UPDATE_QUEUE = """
typedef struct syncd_update_queue syncd_update_queue;

typedef struct syncd_update_queue_options {
  size_t struct_size;
  uint32_t edges;
  uint32_t slots;
  uint64_t payload_bytes;
  void *memory;
  size_t memory_bytes;
} syncd_update_queue_options;

syncd_status syncd_update_queue_slots_needed(int64_t max_ig, int64_t staleness, int32_t skip,
    uint32_t *slots, syncd_error **error);

syncd_status syncd_update_queue_bytes_needed(const syncd_update_queue_options *options,
    size_t *bytes, syncd_error **error);

syncd_status syncd_update_queue_create(const syncd_update_queue_options *options,
    syncd_update_queue **queue, syncd_error **error);

syncd_status syncd_update_queue_attach(void *memory, size_t memory_bytes,
    syncd_update_queue **queue, syncd_error **error);

syncd_status syncd_update_queue_open(int32_t descriptor, syncd_update_queue **queue,
    syncd_error **error);

void syncd_update_queue_free(syncd_update_queue *queue);

int32_t syncd_update_queue_descriptor(const syncd_update_queue *queue);

uint32_t syncd_update_queue_edges(const syncd_update_queue *queue);
uint32_t syncd_update_queue_slots(const syncd_update_queue *queue);
uint64_t syncd_update_queue_payload_bytes(const syncd_update_queue *queue);

syncd_status syncd_update_queue_write(syncd_update_queue *queue, uint32_t edge, int64_t iteration,
    const void *payload, size_t bytes, syncd_error **error);

syncd_status syncd_update_queue_read(const syncd_update_queue *queue, uint32_t edge,
    int64_t iteration, void *payload, size_t bytes, syncd_error **error);

int64_t syncd_update_queue_newest(const syncd_update_queue *queue, uint32_t edge);

syncd_status syncd_update_queue_clear(syncd_update_queue *queue, uint32_t edge,
    syncd_error **error);
"""

CDEF_SERVER = """
typedef struct syncd_server syncd_server;

enum { SYNCD_LOG_DEBUG = 1, SYNCD_LOG_INFO = 2, SYNCD_LOG_WARN = 3, SYNCD_LOG_ERROR = 4 };

typedef void (*syncd_log_callback)(void *context, int32_t level, const char *line);

enum {
  SYNCD_SERVER_LOG_STDERR = 1
};

typedef struct syncd_server_options {
  size_t struct_size;
  const char *config;
  const char *tcp;
  const char *unix_path;
  const char *store;
  syncd_log_callback log;
  void *log_context;
  int32_t log_level;
  uint32_t flags;
} syncd_server_options;

syncd_status syncd_server_start(const syncd_server_options *options,
    syncd_server **server, syncd_error **error);

const char *syncd_server_address(const syncd_server *server, size_t index);

syncd_status syncd_server_stop(syncd_server *server, int64_t timeout_ms,
    syncd_error **error);
"""
