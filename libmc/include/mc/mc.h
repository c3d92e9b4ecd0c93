/* SPDX-License-Identifier: Apache-2.0 */
/* libmc: put and get KV-cache objects in the pool of this host's agent.
 *
 * The C ABI of libmc.
 *   - A struct that may grow starts with its size. Set struct_size to sizeof, or start from the
 *     MC_..._INIT macro. Handles are opaque.
 * Threads: any thread may make any call, unless the call's comment says otherwise.
 *   - Each thread gets a channel to the agent at the first call.
 *   - A handle must not be used after the close.
 *   - After fork() the child must open a new client. Every call on an inherited client returns
 *     MC_FORKED.
 * Owns: the caller owns keys and buffers. The library reads them only during the call.
 * Trusts: keys and values are the caller's. Everything that is read from shared memory is checked.
 *
 * Errors: every call returns an mc_status. mc_last_error() gives the cause and the remedy in words.
 */
#ifndef MC_MC_H_
#define MC_MC_H_

#include <stddef.h>
#include <stdint.h>

#include "mc/limits.h"

#if defined(__GNUC__)
#define MC_API __attribute__((visibility("default")))
#else
#define MC_API
#endif

/* No call throws. A call for which the process has no memory or no thread left returns MC_NO_MEMORY. */
#ifdef __cplusplus
#define MC_NOEXCEPT noexcept
#else
#define MC_NOEXCEPT
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define MC_ABI_VERSION 1u

/* ---- Status ---------------------------------------------------------------------------------- */
/* The codes are grouped by the largest thing that is permanently broken: 1-19 the call, 20-39 the
 * object, 40-59 the session (open a new client), 60-79 the agent or its host. */
typedef enum mc_status {
  MC_OK = 0,
  /* the call */
  MC_INVALID_ARGUMENT = 1, /* a null, empty, oversized or contradictory argument */
  MC_TOO_LARGE = 2,        /* larger than the pool, the quota or a limit; can never fit */
  MC_BUFFER_TOO_SMALL = 3, /* the object is longer than the buffer; the length was stored */
  MC_TIMEOUT = 4,          /* the deadline passed; the request may still take effect */
  MC_CANCELLED = 5,        /* mc_cancel() came first */
  MC_BUSY = 6,             /* back-pressure: too many requests, views or channels at once */
  MC_NO_SPACE = 7,         /* no room by the deadline: all objects are pinned or in use */
  MC_QUOTA_EXCEEDED = 8,   /* the session holds as many reservations as the quota allows */
  MC_UNSUPPORTED = 9,      /* not supported by this agent, namespace or build */
  /* the object */
  MC_NOT_FOUND = 20,     /* a miss */
  MC_CORRUPT = 21,       /* the bytes do not match the checksum and were not returned */
  MC_GROUP_ABORTED = 22, /* a member of the group failed, so no member was stored */
  MC_HOLDER_AWAY = 23,   /* a host that holds the object, or may hold it, cannot be reached */
  MC_DISK_AWAY = 24, /* a disk of this host that holds the object, or may hold it, cannot be read */
  /* the session */
  MC_FORKED = 40,            /* the client was opened before fork() */
  MC_CLOSED = 41,            /* the client was closed */
  MC_SESSION_LOST = 42,      /* the agent ended this session; the reason is in mc_last_error() */
  MC_PERMISSION_DENIED = 43, /* not on the allow list, or the namespace is not yours */
  MC_VERSION_MISMATCH = 44,  /* libmc and agent do not share a layout version */
  MC_NO_SUCH_NAMESPACE = 45,
  MC_DEVICE_FAILED = 46, /* a copy to or from GPU memory failed; nothing was stored */
  MC_WRONG_KEY = 47,     /* a master or peer has another cluster key, or just one side has a key */
  /* the agent */
  MC_AGENT_UNAVAILABLE = 60, /* no agent answers at the socket */
  MC_NO_MEMORY = 61,         /* this process or host is out of memory, descriptors or threads */
  MC_INTERNAL = 62,          /* a broken invariant; please report it */
  MC_NO_MASTER = 63,     /* no master tells where the key's object is; a change may take effect */
  MC_NOT_ADVERTISED = 64 /* the agent's address cannot be dialled by the cluster's other hosts */
} mc_status;

typedef enum mc_retry {
  MC_RETRY_NEVER = 0, /* the same call will fail again */
  MC_RETRY_LATER = 1, /* may succeed after a while */
  MC_RETRY_REOPEN = 2 /* open a new client first */
} mc_retry;

MC_API const char* mc_status_name(mc_status status) MC_NOEXCEPT; /* "MC_NOT_FOUND"; never null */
MC_API const char* mc_status_text(mc_status status) MC_NOEXCEPT; /* one sentence; never null */
MC_API mc_retry mc_status_retry(mc_status status) MC_NOEXCEPT;
/* Returns the cause and remedy of this thread's last failed call, or "". The text is valid until
 * this thread's next call. */
MC_API const char* mc_last_error(void) MC_NOEXCEPT;
MC_API const char* mc_version(void) MC_NOEXCEPT; /* "0.1.0" */

/* ---- Bytes ----------------------------------------------------------------------------------- */
typedef struct mc_slice { /* bytes to read */
  const void* data;
  size_t size;
} mc_slice;

typedef struct mc_span { /* bytes to write */
  void* data;
  size_t size;
} mc_span;

/* ---- Client ---------------------------------------------------------------------------------- */
typedef struct mc_client mc_client;

/* Which reads of this host's pool compare the bytes with the checksum of the put. A mismatch is a miss
 * with the status MC_CORRUPT; the agent examines the object, and removes the object if it is damaged. Objects
 * of other hosts are always compared. */
typedef enum mc_verify {
  MC_VERIFY_DEFAULT = 0, /* $MC_VERIFY: "never", "sampled" or "always"; else sampled */
  MC_VERIFY_NEVER = 1,
  MC_VERIFY_SAMPLED = 2, /* each thread: one in 64 reads that copy */
  MC_VERIFY_ALWAYS = 3   /* all reads that copy, and each view when it is opened */
} mc_verify;

typedef struct mc_open_options {
  size_t struct_size;
  const char* agent;           /* socket path, or "embedded" for a pool inside this process; null:
                             $MC_AGENT, else /run/mc/agent.sock, else /dev/shm/mc-UID/agent.sock */
  const char* name_space;      /* null: "default" */
  const char* label;           /* shown by mcctl status; null: the program's name */
  uint64_t timeout_ns;         /* default deadline of calls; also limits the wait in mc_open() */
  uint64_t staging_bytes;      /* memory for mc_alloc() and isolated puts; 0: 64 MiB on first use */
  const char* embedded_config; /* only with "embedded": agent options as "name=value" lines */
  uint32_t channel_count;      /* maximum number of threads that use the client at once; 0: 16 */
  mc_verify verify;
} mc_open_options;
#define MC_OPEN_OPTIONS_INIT \
  { sizeof(mc_open_options), NULL, NULL, NULL, 0, 0, NULL, 0, MC_VERIFY_DEFAULT }

/* Connects to the agent and maps the agent's memory. options may be null (all defaults). If the
 * agent is still starting, mc_open() waits up to the timeout. */
MC_API mc_status mc_open(const mc_open_options* options, mc_client** client) MC_NOEXCEPT;
/* Ends the session, after the copies that streams order. Views, reservations and mc_alloc() memory of
 * this client become invalid, so release them first. Calls of other threads must have returned. Null is
 * ignored. */
MC_API void mc_close(mc_client* client) MC_NOEXCEPT;

typedef struct mc_client_info {
  size_t struct_size;
  uint64_t session_id;
  uint64_t node_id;
  uint64_t agent_incarnation; /* changes when the agent restarts */
  uint64_t pool_bytes;        /* current size of the namespace's pool */
  uint32_t isolated;          /* 1: puts go through staging; 0: written in place */
  uint32_t reserved;
} mc_client_info;
MC_API mc_status mc_get_client_info(mc_client* client, mc_client_info* info) MC_NOEXCEPT;

/* ---- Put ------------------------------------------------------------------------------------- */
typedef enum mc_pin {
  MC_PIN_NONE = 0,
  MC_PIN_SOFT = 1, /* evicted only when nothing unpinned is left, until pin_ttl_ms has passed */
  MC_PIN_HARD = 2  /* never evicted */
} mc_pin;

/* The time at which a put returns. In a namespace of a single host both values mean the same. */
typedef enum mc_visibility {
  MC_VISIBLE_CLUSTER = 0, /* every host can find the object; without a master, like LOCAL */
  MC_VISIBLE_LOCAL = 1,   /* every client of this host can; other hosts soon after */
  /* Like CLUSTER, and as many hosts as `replicas` says hold the object. MC_NO_MASTER, MC_TIMEOUT: the
   * object is stored, and there may be too few copies. MC_NOT_FOUND: a removal came meanwhile. */
  MC_VISIBLE_REPLICATED = 2
} mc_visibility;

typedef struct mc_group mc_group;

/* A stream: a CUstream of the device's primary context (cudaStream_t is the same). Copies in the order of
 * a stream behave as if they were work of the stream: they begin after the stream's earlier work, the
 * stream's later work begins after the copies, and the call does not wait for them. All pieces of a call are
 * then memory of one device. A client may have 256 requests of streams under way per device; further calls
 * wait. Without a worker of the device, and for memory that is not registered, the call returns after the
 * copies. A stream that is being captured is MC_INVALID_ARGUMENT. */
typedef void* mc_stream;
#define MC_LEGACY_STREAM ((mc_stream)1) /* the default stream */

typedef struct mc_put_options {
  size_t struct_size;
  uint64_t timeout_ns; /* 0: the client's default */
  mc_slice parent;     /* key of the prefix that this object extends, or empty; the parent is never
                      evicted first */
  mc_pin pin;
  uint32_t upsert; /* 1: replace what is stored under the key; 0: an existing key is a success */
  uint64_t pin_ttl_ms; /* soft pins only; 0: one hour */
  mc_group* group;     /* null, or the group this put belongs to */
  /* In a cluster: number of replicas, 1 to 8 (0 means 1). For striped objects: replicas of each
   * part. The put writes the first replica; the other hosts copy the object after the put. */
  uint32_t replicas;
  mc_visibility visibility;
  /* In a cluster: node id (see mcctl nodes) of the host that shall hold the first replica; 0: this
   * host. The value takes one more copy, through the client's staging memory. A host that is full,
   * away or unknown is not waited for beyond half of the deadline: this host holds the object then.
   * Groups and reservations stay on this host: there, another host is MC_INVALID_ARGUMENT. */
  uint64_t host;
  /* Null, or the stream that orders the copies of the values. mc_put() and mc_put_batch() still return after
   * the put, so they wait for the stream; mc_put_async() waits for room only. MC_TIMEOUT: the stream did not
   * come to the copies by the deadline. A batch needs room for all its values at once. In an isolated
   * namespace, and for another host, all calls wait for the copies. Not with a group, not in mc_commit(). */
  mc_stream stream;
} mc_put_options;
#define MC_PUT_OPTIONS_INIT \
  { sizeof(mc_put_options), 0, {NULL, 0}, MC_PIN_NONE, 0, 0, NULL, 0, MC_VISIBLE_CLUSTER, 0, NULL }

/* Stores one copy of value under key. Returns when the object is visible as options->visibility
 * says. If the key exists, the put succeeds and leaves the stored object unchanged (but see
 * upsert). options may be null. MC_NO_SPACE: nothing could be evicted by the deadline.
 * MC_TOO_LARGE: the value is larger than the pool. MC_DISK_AWAY: the value is stored, but a disk that
 * failed may bring the replaced value back after a restart. No call takes a key with the prefix
 * "\0mc stripe ", which names parts of large objects. */
MC_API mc_status mc_put(mc_client* client, mc_slice key, mc_slice value,
                        const mc_put_options* options) MC_NOEXCEPT;

/* Values of puts and buffers of gets may lie in memory of a CUDA device. The library recognises
 * device memory by its address. Each piece must lie within one allocation, or in mapped chunks of
 * one reservation without a hole (expandable segments of torch). mc_open() loads the
 * driver (libcuda.so.1) if the host has one. Copies begin after the work of the default stream and are
 * complete when the call returns. Work on other streams that uses the memory must be complete before
 * the call. MC_DEVICE_FAILED: the driver refused a copy. */
typedef struct mc_put_item {
  mc_slice key;
  const mc_slice* pieces; /* the value is the concatenation of the pieces */
  size_t piece_count;
  mc_slice parent;  /* as in mc_put_options; overrides that parent unless empty */
  mc_status status; /* out */
} mc_put_item;
/* Puts count items (at most MC_MAX_BATCH_ITEMS). The options apply to all items. Returns MC_OK if
 * every item succeeded, else the first failure. items[i].status has the result of each item. The
 * items are put in order: an item that waits for room holds up the items behind it. */
MC_API mc_status mc_put_batch(mc_client* client, mc_put_item* items, size_t count,
                              const mc_put_options* options) MC_NOEXCEPT;

/* ---- Get ------------------------------------------------------------------------------------- */
/* A hit on the local host runs entirely in the calling process. MC_NOT_FOUND: no host has the object. The call
 * cannot tell whether another host has the object, or cannot read the object there: MC_NO_MASTER,
 * MC_HOLDER_AWAY, MC_DISK_AWAY, MC_WRONG_KEY, MC_NOT_ADVERTISED, MC_TIMEOUT. */

/* Copies the object into buffer and stores the object's length in *length (with
 * MC_BUFFER_TOO_SMALL, too). */
MC_API mc_status mc_get(mc_client* client, mc_slice key, void* buffer, size_t capacity,
                        size_t* length) MC_NOEXCEPT;

typedef struct mc_get_item {
  mc_slice key;
  const mc_span* pieces; /* destination pieces, filled in order */
  size_t piece_count;
  uint64_t offset;  /* offset of the first wanted byte in the object */
  uint64_t length;  /* in: bytes wanted, 0: to the end; out: bytes copied, or the object's length
                       with MC_BUFFER_TOO_SMALL */
  mc_status status; /* out */
} mc_get_item;
MC_API mc_status mc_get_batch(mc_client* client, mc_get_item* items, size_t count) MC_NOEXCEPT;

/* A view gives read-only access to the object's bytes in the pool. The bytes are neither evicted
 * nor reused until the view is released. data and size describe the first span; an object that was
 * cut into several extents has span_count > 1. Any thread may release the view. */
typedef struct mc_view {
  const void* data;
  size_t size;
  uint64_t length; /* length of the whole object */
  uint64_t version;
  uint64_t checksum; /* CRC-64/XZ of the object's bytes, seeded with the key's hash */
  uint32_t span_count;
  uint32_t fetched;  /* 1: this call fetched the object from another host or a disk */
  uint32_t entry;    /* internal */
  uint64_t pin;      /* internal */
  mc_client* client; /* internal */
} mc_view;
MC_API mc_status mc_get_view(mc_client* client, mc_slice key, mc_view* view) MC_NOEXCEPT;
/* views[i] is valid where statuses[i] is MC_OK. */
MC_API mc_status mc_get_view_batch(mc_client* client, const mc_slice* keys, size_t count,
                                   mc_view* views, mc_status* statuses) MC_NOEXCEPT;
/* Fills up to capacity spans and returns the number of spans of the view. */
MC_API size_t mc_view_spans(const mc_view* view, mc_slice* spans, size_t capacity) MC_NOEXCEPT;
/* Call after reading. MC_OK: the bytes were those of the object. MC_SESSION_LOST: the agent died, and the
 * next agent, which does not know the client's session, has given the memory to another object. */
MC_API mc_status mc_view_check(const mc_view* view) MC_NOEXCEPT;
/* Copies the view's bytes, view->length of them, to host memory. Compares the bytes with their checksum
 * where mc_get() would. Errors: MC_CORRUPT; MC_SESSION_LOST as mc_view_check(). */
MC_API mc_status mc_view_copy(const mc_view* view, void* to) MC_NOEXCEPT;
/* Returns MC_OK if the bytes match the checksum of the put, else MC_CORRUPT, or as mc_view_check. */
MC_API mc_status mc_view_verify(const mc_view* view, mc_slice key) MC_NOEXCEPT;
MC_API void mc_view_release(mc_view* view) MC_NOEXCEPT; /* a released or zeroed view is ignored */

/* ---- Ask and remove -------------------------------------------------------------------------- */
/* MC_OK; MC_NOT_FOUND; MC_NO_MASTER, MC_WRONG_KEY, MC_NOT_ADVERTISED or MC_TIMEOUT if the object is not on
 * this host and no master tells whether another host has the object. */
MC_API mc_status mc_exists(mc_client* client, mc_slice key) MC_NOEXCEPT;
/* statuses[i]: as those of mc_exists(). Returns MC_OK unless the call itself failed. */
MC_API mc_status mc_exists_batch(mc_client* client, const mc_slice* keys, size_t count,
                                 mc_status* statuses) MC_NOEXCEPT;

/* Metadata of an object. If only other hosts hold the object, the agent asks a master; then only
 * length is known, and all other fields (extent_count, too) are 0. */
typedef struct mc_stat_info {
  size_t struct_size;
  uint64_t length;
  uint64_t version;
  uint64_t checksum;
  uint32_t extent_count;
  mc_pin pin;
  uint64_t pin_left_ms; /* soft pins: time left */
  uint64_t group;       /* 0: none */
  uint64_t parent_hash; /* 0: none */
} mc_stat_info;
MC_API mc_status mc_stat(mc_client* client, mc_slice key, mc_stat_info* info) MC_NOEXCEPT;

MC_API mc_status mc_stat_batch(mc_client* client, const mc_slice* keys, size_t count,
                               mc_stat_info* infos, mc_status* statuses) MC_NOEXCEPT;

/* Views of a removed object stay valid until the release. timeout_ns 0: the default. MC_HOLDER_AWAY: no
 * host that is up has the object; a host that is down drops the object when the host returns. MC_DISK_AWAY:
 * a disk that failed may bring the object back after a restart. */
MC_API mc_status mc_remove(mc_client* client, mc_slice key, uint64_t timeout_ns) MC_NOEXCEPT;
MC_API mc_status mc_remove_batch(mc_client* client, const mc_slice* keys, size_t count,
                                 mc_status* statuses, uint64_t timeout_ns) MC_NOEXCEPT;
/* Changes the pin of an object of this host. pin_ttl_ms as in mc_put_options. An object on a disk is read into
 * the pool first. MC_NOT_FOUND: this host does not have the object. MC_DISK_AWAY, MC_CORRUPT: the disk cannot
 * read the object. */
MC_API mc_status mc_set_pin(mc_client* client, mc_slice key, mc_pin pin, uint64_t pin_ttl_ms,
                            uint64_t timeout_ns) MC_NOEXCEPT;

/* ---- Writing in place ------------------------------------------------------------------------ */
typedef struct mc_reservation mc_reservation;
/* Reserves size bytes of the pool (in isolated namespaces: of this session's staging memory). The
 * caller writes the bytes, then commits or abandons the reservation. */
MC_API mc_status mc_reserve(mc_client* client, uint64_t size, uint64_t timeout_ns,
                            mc_reservation** reservation) MC_NOEXCEPT;
MC_API size_t mc_reservation_spans(const mc_reservation* reservation, mc_span* spans,
                                   size_t capacity) MC_NOEXCEPT;
/* Publishes the first length bytes (1 to the reserved size) under key. Frees the handle in every
 * case. options.group must be null. */
MC_API mc_status mc_commit(mc_reservation* reservation, mc_slice key, uint64_t length,
                           const mc_put_options* options) MC_NOEXCEPT;
MC_API void mc_abandon(mc_reservation* reservation) MC_NOEXCEPT;

/* Allocates session memory, which the agent shares. In an isolated namespace, a put from session
 * memory costs one copy. When the put returns, also with MC_TIMEOUT, the caller may write there
 * again: the agent publishes no byte that was written later. */
MC_API mc_status mc_alloc(mc_client* client, size_t size, void** memory) MC_NOEXCEPT;
MC_API void mc_free(mc_client* client, void* memory) MC_NOEXCEPT;

/* ---- Devices --------------------------------------------------------------------------------- */
/* Registers device memory: the worker of the device (mc-gpu) then copies this memory from and to the
 * pool, and the calling thread only waits. The worker opens the whole allocation once, at the first copy.
 * Memory that is not registered goes through pinned buffers of the calling thread, as all memory does
 * where no worker can open it; mcctl doctor tells why. Host memory is left as it is. The same memory may
 * be registered several times. MC_INVALID_ARGUMENT: a part of the range has no memory. */
MC_API mc_status mc_register_memory(mc_client* client, const void* address,
                                    size_t size) MC_NOEXCEPT;
/* Ends one registration of the memory at the address. When the last one has ended, the worker has
 * closed the memory, which must not be freed earlier. No call may use the memory meanwhile. mc_close()
 * ends all registrations. */
MC_API mc_status mc_unregister_memory(mc_client* client, const void* address) MC_NOEXCEPT;

/* ---- In the order of a stream ------------------------------------------------------------------ */
/* Gets into memory of a device, in the order of the stream: as mc_get_batch(), but the call returns after
 * the look-ups, and the status of an item tells whether the object was found. The objects stay pinned until
 * their copies are done. MC_DEVICE_FAILED, MC_SESSION_LOST: as mc_read_views(). */
MC_API mc_status mc_get_batch_on_stream(mc_client* client, mc_get_item* items, size_t count,
                                        mc_stream stream) MC_NOEXCEPT;

/* For engines that compute layer by layer: mc_read_views() copies parts of pinned objects, and
 * mc_write_reservations() fills parts of reservations. stream may be null: the call then returns after the
 * copies, which begin after the work of the default stream, and pieces may be host memory. */
typedef struct mc_read_item {
  const mc_view* view; /* released after the stream has done the copy */
  uint64_t offset;     /* of the first byte in the object */
  const mc_span* pieces;
  size_t piece_count;
} mc_read_item;
/* MC_DEVICE_FAILED, MC_SESSION_LOST: this read, or an earlier one that a stream ordered, failed. */
MC_API mc_status mc_read_views(mc_client* client, const mc_read_item* items, size_t count,
                               mc_stream stream) MC_NOEXCEPT;

typedef struct mc_write_item {
  mc_reservation* reservation;
  uint64_t offset;
  const mc_slice* pieces;
  size_t piece_count;
} mc_write_item;
/* mc_commit() and mc_abandon() wait for the copies; mc_commit() returns their failure. */
MC_API mc_status mc_write_reservations(mc_client* client, const mc_write_item* items, size_t count,
                                       mc_stream stream) MC_NOEXCEPT;

/* ---- Groups ---------------------------------------------------------------------------------- */
/* A put whose options name the group is written at once. mc_group_commit() publishes all members of
 * the group together, or none. Members are also evicted together. Only one thread at a time may use
 * a group. */
MC_API mc_status mc_group_begin(mc_client* client, mc_group** group) MC_NOEXCEPT;
MC_API mc_status mc_group_commit(mc_group* group,
                                 uint64_t timeout_ns) MC_NOEXCEPT; /* frees the handle */
MC_API void mc_group_abort(mc_group* group) MC_NOEXCEPT;           /* frees the handle */

/* ---- Asynchronous forms ---------------------------------------------------------------------- */
/* Before a submission returns, it copies or pins its input. The caller may then reuse keys, values
 * and item arrays; with mc_put_options.stream, the later work of the stream may reuse the values. Get buffers and output arrays must stay until the completion. Every submission
 * that returned MC_OK produces exactly one completion by its deadline (plus 1 s). */
typedef struct mc_cq mc_cq;
typedef struct mc_completion {
  uint64_t user_data;
  uint64_t request; /* as returned by the submission */
  mc_status status; /* MC_OK, or the first failure */
  uint32_t item_count;
} mc_completion;

MC_API mc_status mc_cq_create(mc_client* client, mc_cq** cq) MC_NOEXCEPT;
/* Cancels outstanding submissions, waits for the completions, and frees the queue. */
MC_API void mc_cq_destroy(mc_cq* cq) MC_NOEXCEPT;
/* A descriptor that is readable while completions wait. The descriptor may stay readable briefly
 * after the last completion was taken. Use it with poll or epoll, then call mc_cq_poll() until the
 * call returns 0. */
MC_API int mc_cq_fd(mc_cq* cq) MC_NOEXCEPT;
MC_API size_t mc_cq_poll(mc_cq* cq, mc_completion* completions, size_t capacity) MC_NOEXCEPT;
/* Waits for at least one completion and stores the number of completions in *count. MC_TIMEOUT: no
 * completion came. */
MC_API mc_status mc_cq_wait(mc_cq* cq, mc_completion* completions, size_t capacity, size_t* count,
                            uint64_t timeout_ns) MC_NOEXCEPT;

/* The status fields of the items are not written; the completion has the first failure. request may
 * be null. */
MC_API mc_status mc_put_async(mc_client* client, mc_cq* cq, const mc_put_item* items, size_t count,
                              const mc_put_options* options, uint64_t user_data,
                              uint64_t* request) MC_NOEXCEPT;
/* Objects on this host are copied at once. The agent fetches the other objects from other hosts in
 * the background. items with their pieces, and statuses, must stay until the completion and hold
 * the results then. Keys may be reused at once. */
MC_API mc_status mc_get_async(mc_client* client, mc_cq* cq, mc_get_item* items, size_t count,
                              uint64_t user_data, uint64_t* request) MC_NOEXCEPT;
MC_API mc_status mc_exists_async(mc_client* client, mc_cq* cq, const mc_slice* keys, size_t count,
                                 mc_status* statuses, uint64_t user_data,
                                 uint64_t* request) MC_NOEXCEPT;
MC_API mc_status mc_remove_async(mc_client* client, mc_cq* cq, const mc_slice* keys, size_t count,
                                 uint64_t timeout_ns, uint64_t user_data,
                                 uint64_t* request) MC_NOEXCEPT;
/* Requests an early end. The completion has MC_CANCELLED, or the result if the request ended
 * before. A cancelled put leaves either the whole object or nothing. MC_NOT_FOUND: the request is
 * already complete. */
MC_API mc_status mc_cancel(mc_client* client, mc_cq* cq, uint64_t request) MC_NOEXCEPT;

/* ---- For tools ------------------------------------------------------------------------------- */
/* A round trip through the ring without any work in the agent. */
MC_API mc_status mc_ping(mc_client* client, uint64_t timeout_ns) MC_NOEXCEPT;
/* Sends the agent (embedded or not) a question of mcctl, as JSON. libmc/client/admin.h lists all
 * questions and answers. Examples:
 *   {"verb":"status"}
 *   {"verb":"ls","namespace":"default","prefix":"","cursor":0,"limit":0}
 *   {"verb":"resize","namespace":"default","pool_bytes":N}
 * On success the library calls answer once, before mc_ask() returns, with the JSON text of the
 * answer. A refusal is reported as a status. */
typedef void (*mc_answer_function)(void* context, const char* text, size_t size);
MC_API mc_status mc_ask(mc_client* client, mc_slice question, mc_answer_function answer,
                        void* context, uint64_t timeout_ns) MC_NOEXCEPT;
/* Returns 1 if this thread's next local read (get, view, exists, stat) sends no request and takes
 * no lock. Returns 0 if the read may wait: at a thread's first call, and after a restart of the
 * agent. Callers with a lock of their own (such as Python's) release the lock only when mc_ready()
 * is 0. */
MC_API int mc_ready(mc_client* client) MC_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MC_MC_H_ */
