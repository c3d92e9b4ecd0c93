/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmc-transfer: one-sided reads and writes between registered memory of two processes.
 *
 * What it is: the C ABI of the transfer engine. A process opens an engine, registers memory with
 * the rights that others get, opens the segment of another engine by its name, and submits batches
 * of reads and writes. The other process takes no part. Between hosts, and where nothing better is
 * proven, bytes go over TCP; within a host they are copied once, process to process.
 *
 *   engine A                                       engine B
 *   register ─► region table ◄── read by ────────  open_segment("host:port")
 *   its memory ◄───────── bytes ─────────────────  submit(reads, writes) ─► poll | wait ─► free
 * Fastest within a host is memory from mc_transfer_allocate() on the side that is reached.
 *
 * Threads: every call may come from any thread; mc_transfer_close() only when no other call runs.
 *   After fork() the child's calls on an inherited engine answer MC_FORKED.
 * Owns: engines, segments and batches by number; a number of something that ended names nothing.
 *   Memory stays the caller's. It must not be freed while it is registered, or while a batch that
 *   names it as local memory has not ended.
 * Trust: what peers say is checked. A peer reaches registered ranges only, with the rights given;
 *   over TCP this side checks that, within a host the peer's engine does (who may trace this
 * process can write its memory anyway). Nothing but loopback is reachable without a key. Time: no
 * call waits longer than its timeout. Every request ends by the deadline of its batch; what
 * concerns a peer that died ends within a second.
 */
#ifndef MC_TRANSFER_H_
#define MC_TRANSFER_H_

#include "mc/mc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mc_transfer_engine mc_transfer_engine;
typedef uint64_t mc_transfer_segment; /* another engine; 0: none */
typedef uint64_t mc_transfer_batch;   /* requests submitted together; 0: none */

/* Cause and remedy of the last mc_transfer call of this thread that failed; "" if none did. */
MC_API const char* mc_transfer_last_error(void);

/* ---- Engine ------------------------------------------------------------------------------------
 */
typedef struct mc_transfer_options {
  size_t struct_size;
  const char* listen;   /* "host:port", port 0: any free one; null: "127.0.0.1:0" */
  const char* metadata; /* where names are kept: null or "p2p": nowhere, a segment's name is its
                           address; else a cluster store: redis:// etcd:// http:// memory://
                           (memory: engines of this process only) */
  const char* name;     /* of this engine's segment in the store; null: its address */
  const char* cluster;  /* engines of other clusters are strangers; null: "default" */
  const char* key_file; /* the cluster's key; needed to listen anywhere but on loopback */
  uint64_t timeout_ns;  /* default deadline of calls and batches; 0: 5 s */
  uint32_t lanes;       /* TCP connections to each peer for large requests; 0: 4; at most 16 */
  uint32_t same_host;   /* 0: copy process to process where that is proven; 1: always TCP */
  const char* congestion_control; /* of TCP: "reno", "cubic" …; null: the system's */
} mc_transfer_options;
#define MC_TRANSFER_OPTIONS_INIT \
  { sizeof(mc_transfer_options), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL }

/* Listens and, with a store, makes its name known. Errors: MC_INVALID_ARGUMENT (an address that
 * others can reach and no key; what is wrong with an option), MC_BUSY (the port or name is taken),
 * MC_AGENT_UNAVAILABLE (the store). */
MC_API mc_status mc_transfer_open(const mc_transfer_options* options, mc_transfer_engine** engine);
/* Ends what is in flight. Null is ignored. */
MC_API void mc_transfer_close(mc_transfer_engine* engine);

typedef struct mc_transfer_info {
  size_t struct_size;
  const char* name; /* by which peers open this engine's segment; valid while the engine lives */
  uint16_t port;
  uint16_t reserved0;
  uint32_t regions;
  uint64_t written_bytes; /* by requests of this engine, acknowledged */
  uint64_t read_bytes;
  uint64_t same_host_bytes;       /* of both, those that went process to process */
  uint64_t refused_requests;      /* of peers over TCP: stale, out of range, no rights */
  uint64_t notifications_dropped; /* arrived while MC_MAX_TRANSFER_NOTIFICATIONS waited */
  uint64_t device_bytes;          /* copied between devices and the host for all these */
} mc_transfer_info;
MC_API mc_status mc_transfer_get_info(mc_transfer_engine* engine, mc_transfer_info* info);

/* ---- Memory ------------------------------------------------------------------------------------
 */
#define MC_TRANSFER_READ 1u  /* peers may read it */
#define MC_TRANSFER_WRITE 2u /* peers may write it */

typedef struct mc_transfer_range {
  void* address;
  uint64_t size;
} mc_transfer_range;

/* Memory like any other of this process, zeros at first, taken from the system page by page as it
 * is touched. What is special: once it is registered, engines of other processes of this host map
 * it and copy from and to memory that they have registered themselves as fast as memcpy does; with
 * other memory the kernel does that page by page. The same holds for any memory file (memfd_create)
 * that is sealed with F_SEAL_SHRINK and stays open. size: 1 B to 1 TiB, rounded up to pages. After
 * fork() the child shares it. Errors: MC_INVALID_ARGUMENT, MC_NO_MEMORY. */
MC_API mc_status mc_transfer_allocate(uint64_t size, void** memory);
/* REQUIRES: it is not registered any more. Errors: MC_INVALID_ARGUMENT (not from there). */
MC_API mc_status mc_transfer_deallocate(void* memory);

/* Peers may reach the ranges when it returns; all or none. rights: MC_TRANSFER_READ | _WRITE.
 * Memory of a CUDA device is named by its address like any other, here and in requests; a range
 * lies within one allocation. Its bytes pass memory of the host, over TCP within a host, too, and
 * are copied on the default stream: wait for other streams before.
 * Errors: MC_INVALID_ARGUMENT (null, empty, unknown rights, overlap with what is registered),
 * MC_BUSY (MC_MAX_TRANSFER_REGIONS are registered). */
MC_API mc_status mc_transfer_register(mc_transfer_engine* engine, const mc_transfer_range* ranges,
                                      size_t count, uint32_t rights);
/* By the addresses they were registered with. New accesses are refused at once; this engine's own
 * requests that name the memory as local end with MC_CANCELLED; accesses over TCP that had begun
 * are waited for, at most 6 s. Afterwards no request of this engine and no access over TCP touches
 * the memory; a write of a peer on the same host that was being copied then may still land, and
 * ends with an error there. Errors: MC_NOT_FOUND (one of them is not registered; the others are
 * ended). */
MC_API mc_status mc_transfer_unregister(mc_transfer_engine* engine, void* const* addresses,
                                        size_t count);

/* ---- Segments ----------------------------------------------------------------------------------
 */
/* The segment of another engine (or this one) by name; the same name gives the same number.
 * Errors: MC_NOT_FOUND (the store has no such name), MC_AGENT_UNAVAILABLE (nobody answers there),
 * MC_PERMISSION_DENIED (another key), MC_TIMEOUT. timeout_ns 0: the engine's default. */
MC_API mc_status mc_transfer_open_segment(mc_transfer_engine* engine, const char* name,
                                          uint64_t timeout_ns, mc_transfer_segment* segment);
/* Requests to it that have not ended do so with MC_CANCELLED. */
MC_API mc_status mc_transfer_close_segment(mc_transfer_engine* engine, mc_transfer_segment segment);
/* Whether an engine answers under that name now: a new connection, the key's proof, an answer. */
MC_API mc_status mc_transfer_probe(mc_transfer_engine* engine, const char* name,
                                   uint64_t timeout_ns);

typedef struct mc_transfer_region {
  uint64_t address; /* in the peer's address space */
  uint64_t size;
  uint32_t rights;
  uint32_t reserved;
} mc_transfer_region;
/* What is registered there now, in the order of registration. *count: in: room in regions; out: how
 * many there are.
 */
MC_API mc_status mc_transfer_list_regions(mc_transfer_engine* engine, mc_transfer_segment segment,
                                          uint64_t timeout_ns, mc_transfer_region* regions,
                                          size_t* count);
/* 1: bytes go process to process; 0: over TCP. */
MC_API mc_status mc_transfer_segment_is_local(mc_transfer_engine* engine,
                                              mc_transfer_segment segment, uint32_t* is_local);

/* ---- Batches -----------------------------------------------------------------------------------
 */
typedef enum mc_transfer_verb { MC_TRANSFER_GET = 0, MC_TRANSFER_PUT = 1 } mc_transfer_verb;

typedef struct mc_transfer_request {
  mc_transfer_verb verb; /* GET: from remote to local; PUT: from local to remote */
  uint32_t reserved;
  void* local; /* need not be registered; registered memory is looked up faster */
  mc_transfer_segment segment;
  uint64_t remote; /* an address in the peer's address space, within one registered range */
  uint64_t size;   /* at least 1 */
} mc_transfer_request;

typedef struct mc_transfer_submit_options {
  size_t struct_size;
  uint64_t timeout_ns; /* by when all requests have ended; 0: the engine's default */
  /* A notification for the peer, sent when all requests are done, and not if one failed. */
  mc_transfer_segment notify; /* 0: none */
  mc_slice notify_name;
  mc_slice notify_message; /* name and message: MC_MAX_TRANSFER_NOTE_BYTES together */
} mc_transfer_submit_options;
#define MC_TRANSFER_SUBMIT_OPTIONS_INIT                              \
  {                                                                  \
    sizeof(mc_transfer_submit_options), 0, 0, {NULL, 0}, { NULL, 0 } \
  }

/* Starts count requests, in no order among themselves, and returns; requests is not kept. An error
 * of this call started nothing; what is wrong with one request is told by its status. options may
 * be null. Errors: MC_INVALID_ARGUMENT, MC_BUSY (MC_MAX_TRANSFER_BATCHES are open: free some; or
 * MC_MAX_TRANSFER_DEVICE_BYTES of local memory on devices are on their way), MC_INTERNAL (a
 * device's driver). */
MC_API mc_status mc_transfer_submit(mc_transfer_engine* engine, const mc_transfer_request* requests,
                                    size_t count, const mc_transfer_submit_options* options,
                                    mc_transfer_batch* batch);
/* mc_transfer_submit(), mc_transfer_wait(), mc_transfer_free() in one; the fastest way to wait. */
MC_API mc_status mc_transfer_run(mc_transfer_engine* engine, const mc_transfer_request* requests,
                                 size_t count, const mc_transfer_submit_options* options);

typedef struct mc_transfer_status {
  mc_status status; /* of the request; MC_OK while it has not ended */
  uint32_t ended;   /* 1: nothing touches its local memory any more */
  uint64_t bytes;   /* moved; all of them exactly if status is MC_OK */
} mc_transfer_status;
/* Where the batch is, without waiting. *ended: 1 when all requests and the notification have.
 * statuses: null, or room for count (that of submit). The return is about the call alone. */
MC_API mc_status mc_transfer_poll(mc_transfer_engine* engine, mc_transfer_batch batch,
                                  uint32_t* ended, mc_transfer_status* statuses, size_t count);
/* Waits until the batch has ended: MC_OK if every request and the notification succeeded, else the
 * first failure. MC_TIMEOUT: it has not ended within timeout_ns (0: until its deadline), or a
 * request met the deadline; mc_transfer_poll() tells which. */
MC_API mc_status mc_transfer_wait(mc_transfer_engine* engine, mc_transfer_batch batch,
                                  uint64_t timeout_ns);
/* Asks what has not ended to end with MC_CANCELLED, soon; it still ends. */
MC_API mc_status mc_transfer_cancel(mc_transfer_engine* engine, mc_transfer_batch batch);
/* Forgets the batch. MC_BUSY: it has not ended; cancel and wait first. */
MC_API mc_status mc_transfer_free(mc_transfer_engine* engine, mc_transfer_batch batch);

/* ---- Notifications -----------------------------------------------------------------------------
 */
/* One by itself; returns when the peer's engine has it. At most once: after an error it may have
 * arrived. */
MC_API mc_status mc_transfer_notify(mc_transfer_engine* engine, mc_transfer_segment segment,
                                    mc_slice name, mc_slice message, uint64_t timeout_ns);
/* The oldest that arrived: name and message, one after the other, into buffer of
 * MC_MAX_TRANSFER_NOTE_BYTES. MC_NOT_FOUND: none. */
MC_API mc_status mc_transfer_take_notification(mc_transfer_engine* engine, void* buffer,
                                               size_t* name_size, size_t* message_size);

#ifdef __cplusplus
}
#endif

#endif /* MC_TRANSFER_H_ */
