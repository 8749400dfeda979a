/* <syncd/update_queue.h>: how workers of a decentralized job hand updates to each other on one
 * machine, without any copy going through syncd.
 *
 * Every worker has a queue, in memory that the workers' processes share, and every neighbour that
 * may send to it an edge of that queue. An edge has slots; the update of iteration k goes into slot
 * k mod slots (Hop, section 6.1: rotating queues) and is kept until the same slot is written again.
 * What is read is one whole update of the very iteration that was asked for, or an answer that says
 * why there is none: a slot carries its iteration, a sequence number and a checksum, so that no
 * mixture of two updates is ever handed out, whenever a writer dies or is overtaken.
 *
 *     syncd_update_queue_options options = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;
 *     options.edges = workers;                                   the sender's rank is its edge
 *     options.payload_bytes = parameters * sizeof(float);
 *     syncd_update_queue_slots_needed(max_ig, staleness, skips, &options.slots, NULL);
 *     syncd_update_queue_create(&options, &mine, NULL);          others open its descriptor
 *
 * and in the loop of <syncd/client.h>, for each rank that syncd_worker_targets() names and each
 * update that syncd_worker_collect() names:
 *
 *     syncd_update_queue_write(queues[rank], my_rank, k, parameters, bytes, NULL);
 *     syncd_update_queue_read(mine, update.rank, update.iteration, received, bytes, NULL);
 *
 * A queue needs no daemon and no client: it is memory and arithmetic. The conventions at the top of
 * <syncd/client.h> hold here, too, with these additions:
 *  - No function blocks, makes a thread, or takes a lock. Every function may be called from any
 *    thread; a handle may be used by any number of threads and by children of fork() at once (it is
 *    never SYNCD_E_FORKED). An edge has one writer at a time; readers are any number and do not
 *    disturb it.
 *  - A writer that died in the middle of a slot spoils that slot alone, until it is written again.
 *    Whoever takes its place goes on writing on the edge; if it begins with lower iterations than
 *    its predecessor ended with, it calls syncd_update_queue_clear() first.
 *  - The memory is understood by programs of one version of this library's queue format on one
 *    machine; attaching to another answers SYNCD_E_UNSUPPORTED.
 *
 * Since-version of everything in this file: 0.1.0.
 */
#ifndef SYNCD_UPDATE_QUEUE_H
#define SYNCD_UPDATE_QUEUE_H

#include <syncd/client.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct syncd_update_queue syncd_update_queue;

typedef struct syncd_update_queue_options {
  size_t struct_size;     /* set by SYNCD_UPDATE_QUEUE_OPTIONS_INIT */
  uint32_t edges;         /* how many may send: edges are numbered from 0; 0 is allowed */
  uint32_t slots;         /* updates of one sender that are kept, at least 1; see
                             syncd_update_queue_slots_needed() */
  uint64_t payload_bytes; /* of one update: a multiple of 4, at least 4 */
  void *memory;           /* where the queue is to be, aligned to SYNCD_UPDATE_QUEUE_ALIGNMENT, such
                             as a shared mapping; NULL: the library makes shared memory */
  size_t memory_bytes;    /* its size; 0 if memory is NULL */
} syncd_update_queue_options;

#define SYNCD_UPDATE_QUEUE_OPTIONS_INIT \
  { sizeof(syncd_update_queue_options), 0, 0, 0, NULL, 0 }

/* Of the memory that a caller provides; mmap() gives more. */
#define SYNCD_UPDATE_QUEUE_ALIGNMENT 64

/* How many slots an edge needs under hop:GRAPH,max_ig=...[,staleness=...][,skip=...]: max_ig + 1,
 * staleness more (0 if there is none), and one more if skip is not 0, since a set that was collected
 * stays readable until its reader's next syncd_begin(). With fewer, reads may answer
 * SYNCD_E_OVERWRITTEN. NOTIFY-ACK needs 1, for which nobody has to ask.
 * Errors: SYNCD_E_INVALID (max_ig below 1, staleness below 0, or more slots than 32 bits hold). */
SYNCD_API syncd_status syncd_update_queue_slots_needed(int64_t max_ig, int64_t staleness,
                                                       int32_t skip, uint32_t *slots,
                                                       syncd_error **error);

/* How much memory a queue needs, for a caller that provides it. Only edges, slots and payload_bytes
 * of the options count.
 * Errors: SYNCD_E_INVALID (a shape that is not allowed, or larger than memory can be; a wrong
 * struct_size). */
SYNCD_API syncd_status syncd_update_queue_bytes_needed(const syncd_update_queue_options *options,
                                                       size_t *bytes, syncd_error **error);

/* Makes an empty queue. In memory of the caller's, whatever was there is lost; nobody may use that
 * memory as a queue meanwhile, but others may already try to attach to it. O(edges * slots). Pages
 * of memory of the library's are taken as they are first written to, whoever writes.
 *
 * Ownership: *queue is freed with syncd_update_queue_free(). Memory that the caller provides stays
 * the caller's and must outlive the queue.
 * Errors: SYNCD_E_INVALID (a shape that is not allowed, too little memory, its alignment; each is
 * named with what is needed), SYNCD_E_NOMEM (more than the machine has). */
SYNCD_API syncd_status syncd_update_queue_create(const syncd_update_queue_options *options,
                                                 syncd_update_queue **queue, syncd_error **error);

/* Uses a queue that another process, or another part of this one, has made in this memory, which
 * may be mapped at different addresses. Compare the accessors below with what you expect. Ownership
 * as with syncd_update_queue_create().
 * Errors: SYNCD_E_INVALID (the memory is too small for what it holds, or misaligned),
 * SYNCD_E_NO_UPDATE (retriable: it holds no queue, or one that is not ready yet),
 * SYNCD_E_UNSUPPORTED (a queue of another version). */
SYNCD_API syncd_status syncd_update_queue_attach(void *memory, size_t memory_bytes,
                                                 syncd_update_queue **queue, syncd_error **error);

/* The same for the memory behind a descriptor: one of syncd_update_queue_descriptor(), inherited or
 * received from another process (SCM_RIGHTS), or one of shm_open(). The library maps all of it
 * through a duplicate; `descriptor` stays the caller's and may be closed afterwards.
 * Errors: as syncd_update_queue_attach(), and SYNCD_E_INVALID (the descriptor cannot be mapped). */
SYNCD_API syncd_status syncd_update_queue_open(int32_t descriptor, syncd_update_queue **queue,
                                               syncd_error **error);

/* Frees the handle, and unmaps the memory unless it is the caller's; the queue itself lives as long
 * as somebody has it mapped. No other call on this handle may be under way. Takes NULL. */
SYNCD_API void syncd_update_queue_free(syncd_update_queue *queue);

/* The descriptor of memory that the library made or mapped, -1 if it is the caller's. It belongs to
 * the handle and is closed on exec: clear FD_CLOEXEC in the child, or duplicate it, to hand it on. */
SYNCD_API int32_t syncd_update_queue_descriptor(const syncd_update_queue *queue);

/* The shape; it never changes. 0 for NULL. */
SYNCD_API uint32_t syncd_update_queue_edges(const syncd_update_queue *queue);
SYNCD_API uint32_t syncd_update_queue_slots(const syncd_update_queue *queue);
SYNCD_API uint64_t syncd_update_queue_payload_bytes(const syncd_update_queue *queue);

/* Puts the update of an iteration into its slot of the edge, for readers whole or not at all. What
 * the slot held before is gone; writing an iteration again replaces it. O(bytes).
 *
 * payload: payload_bytes of the queue, no more, no less; not used after the call.
 * Errors: SYNCD_E_INVALID (no such edge, a negative iteration, another size), SYNCD_E_OVERWRITTEN
 * (the slot holds a later iteration, which stays: nobody needs this one any more). */
SYNCD_API syncd_status syncd_update_queue_write(syncd_update_queue *queue, uint32_t edge,
                                                int64_t iteration, const void *payload,
                                                size_t bytes, syncd_error **error);

/* Copies an update out. If a writer is at the slot it tries again for a moment, giving up the
 * processor in between, but does not wait for it. O(bytes).
 *
 * payload: room for payload_bytes of the queue, no more, no less; on failure what is in it is
 * unspecified (the one exception to the rule that out-parameters stay untouched).
 * Errors: SYNCD_E_INVALID (as with write), SYNCD_E_NO_UPDATE (not written, or not yet: retriable),
 * SYNCD_E_OVERWRITTEN (its slot holds a later iteration: the queue has too few slots for the policy,
 * or the update was not named by the last syncd_worker_collect()), SYNCD_E_TORN (half-written, and
 * it stays so: its writer died, is stopped, or two wrote at once; retriable, since the next write
 * mends it). */
SYNCD_API syncd_status syncd_update_queue_read(const syncd_update_queue *queue, uint32_t edge,
                                               int64_t iteration, void *payload, size_t bytes,
                                               syncd_error **error);

/* The highest iteration written on the edge since it was cleared; -1 if there is none, no such edge,
 * or no queue. By the time that it is read it may have been overwritten, unless the job's policy
 * keeps its writer back. */
SYNCD_API int64_t syncd_update_queue_newest(const syncd_update_queue *queue, uint32_t edge);

/* Forgets all that was written on the edge. For its writer alone, when it begins a new life (it was
 * given up and joined again): what it wrote in the last one must not be taken for new, nor keep new
 * updates out. O(slots).
 * Errors: SYNCD_E_INVALID (no such edge). */
SYNCD_API syncd_status syncd_update_queue_clear(syncd_update_queue *queue, uint32_t edge,
                                                syncd_error **error);

#ifdef __cplusplus
}
#endif

#endif /* SYNCD_UPDATE_QUEUE_H */
