/* SPDX-License-Identifier: Apache-2.0 */
/* libmc-transfer: one-sided reads and writes between registered memory of two processes.
 *
 * The C ABI of the transfer engine. A process opens an engine and registers memory with
 *   the rights that peers get. The process opens the segment of another engine by name and submits
 *   batches of reads and writes. The other process takes no part in a transfer.
 *   - Between hosts, bytes go over RDMA, or over libfabric, between registered memory of both sides,
 *     if both hosts have such devices. Otherwise, and until the devices are ready, bytes go over
 *     TCP.
 *   - Within a host, bytes are copied once from process to process, if the engines can prove that
 *     both run on the host; otherwise over TCP, too.
 *   - The fastest target within a host is memory from mc_transfer_allocate().
 *
 *   engine A                                       engine B
 *   register ─► region table ◄── read by ────────  open_segment("host:port")
 *   its memory ◄───────── bytes ─────────────────  submit(reads, writes) ─► poll | wait ─► free
 *
 * Threads: any thread may make any call. mc_transfer_close() requires that no other call runs.
 *   After fork() the child's calls on an inherited engine return MC_FORKED.
 * Owns: engines, segments and batches are named by numbers. The number of an ended object is
 *   invalid. Memory stays the caller's. The caller must not free memory while the memory is
 *   registered, or while an unfinished batch names the memory as local.
 * Trusts: no peer. Messages of peers are checked. A peer reaches only registered ranges, with the
 *   registered rights. Over TCP this engine enforces that, over RDMA and libfabric the device. Within
 *   a host the peer's engine does (a
 *   process that may trace this process can write this memory anyway). Without a key, only loopback
 *   is reachable.
 *
 * Time: no call waits longer than its timeout. Every request ends by the deadline of its batch.
 * Requests to a peer that died end within a second. */
#ifndef MC_TRANSFER_H_
#define MC_TRANSFER_H_

#include "mc/mc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mc_transfer_engine mc_transfer_engine;
typedef uint64_t mc_transfer_segment; /* another engine; 0: none */
typedef uint64_t mc_transfer_batch;   /* requests submitted together; 0: none */

/* Returns the cause and remedy of this thread's last failed mc_transfer call, or "". */
MC_API const char* mc_transfer_last_error(void) MC_NOEXCEPT;

/* ---- Engine ---------------------------------------------------------------------------------- */
typedef struct mc_transfer_options {
  size_t struct_size;
  const char* listen;   /* "host:port"; port 0: any free port; null: "127.0.0.1:0" */
  const char* metadata; /* where names are kept; null or "p2p": a segment's name is its address;
                           else the URL of a cluster store: redis:// etcd:// http:// memory://
                           (memory: engines of this process only) */
  const char* name;     /* name of this engine's segment in the store; null: the address */
  const char* cluster;  /* engines of different clusters do not connect; null: "default" */
  const char* key_file; /* the cluster's key; required to listen on other than loopback addresses */
  uint64_t timeout_ns;  /* default deadline of calls and batches; 0: 5 s */
  uint32_t lanes;       /* TCP connections to each peer for large requests; 0: 4; at most 16 */
  uint32_t same_host;   /* 0: copy from process to process where possible; 1: always TCP */
  const char* congestion_control; /* of TCP: "reno", "cubic" …; null: the system's default */
  const char* transports; /* beside TCP: "auto": RDMA, else libfabric, if there are devices; "rdma";
                             "fabric"; "tcp": nothing. null: "auto" */
  const char* devices; /* RDMA devices, comma-separated: "mlx5_0,mlx5_1"; null: all with a link */
  const char* fabric_provider; /* of libfabric: "efa", "tcp;ofi_rxm"; null: "efa" */
  uint32_t
      rdma_ack_timeout; /* a packet is sent again after 4.096 us * 2^N; 0: N = 14; at most 31 */
  uint32_t reserved0;
} mc_transfer_options;
#define MC_TRANSFER_OPTIONS_INIT                                                                   \
  {                                                                                                \
    sizeof(mc_transfer_options), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, 0, \
        0                                                                                          \
  }

/* Opens an engine that listens and, with a store, publishes the name. Errors: MC_INVALID_ARGUMENT
 * (a wrong option, or an address that other hosts can reach without a key), MC_BUSY (the port or
 * name is taken), MC_AGENT_UNAVAILABLE (the store does not answer), MC_UNSUPPORTED (transports is
 * "rdma" or "fabric", and no device can be used; the text says why). */
MC_API mc_status mc_transfer_open(const mc_transfer_options* options,
                                  mc_transfer_engine** engine) MC_NOEXCEPT;
/* Ends all batches and closes the engine. Null is ignored. */
MC_API void mc_transfer_close(mc_transfer_engine* engine) MC_NOEXCEPT;

typedef struct mc_transfer_info {
  size_t struct_size;
  const char* name; /* peers open this engine's segment by this name; valid while the engine
                       lives */
  uint16_t port;
  uint16_t reserved0;
  uint32_t regions;
  uint64_t written_bytes; /* acknowledged writes of this engine's requests */
  uint64_t read_bytes;
  uint64_t same_host_bytes;       /* part of both that was copied from process to process */
  uint64_t refused_requests;      /* refused TCP requests of peers: stale, out of range, no
                                     rights */
  uint64_t notifications_dropped; /* arrived when MC_MAX_TRANSFER_NOTIFICATIONS waited */
  uint64_t device_bytes;          /* copied between devices and the host for these transfers */
  const char* transport;          /* the transport beside TCP: "rdma", "fabric", or "" */
  uint64_t direct_bytes; /* part of written_bytes and read_bytes that this transport moved */
} mc_transfer_info;
/* Fills as much of *info as struct_size says. */
MC_API mc_status mc_transfer_get_info(mc_transfer_engine* engine,
                                      mc_transfer_info* info) MC_NOEXCEPT;
/* Describes the ways to peers for people, in lines: the devices, each rail to each peer with its
 * state, and why devices, rails or memory are left out. *size: in: room in text; out: length of the
 * whole description, which may exceed the room. */
MC_API mc_status mc_transfer_describe(mc_transfer_engine* engine, char* text,
                                      size_t* size) MC_NOEXCEPT;

/* ---- Memory ---------------------------------------------------------------------------------- */
#define MC_TRANSFER_READ 1u  /* peers may read the range */
#define MC_TRANSFER_WRITE 2u /* peers may write the range */
/* Beside the rights: devices do not pin the range, and TCP carries its bytes between hosts. For large
 * ranges of which only parts will have pages. */
#define MC_TRANSFER_UNPINNED 4u

typedef struct mc_transfer_range {
  void* address;
  uint64_t size;
} mc_transfer_range;

/* Allocates zeroed memory that engines on the same host can map. The system provides the pages at
 * first touch. Once the memory is registered, engines of other processes on this host map the
 * memory. The engines copy between the mapping and other registered memory at memcpy speed. With
 * other memory, the kernel copies page by page, which is slower. Any memory file (memfd_create)
 * that is sealed with F_SEAL_SHRINK and stays open has the same advantage. size: 1 B to 1 TiB,
 * rounded up to pages. After fork() the child shares the memory. Errors: MC_INVALID_ARGUMENT,
 * MC_NO_MEMORY. */
MC_API mc_status mc_transfer_allocate(uint64_t size, void** memory) MC_NOEXCEPT;
/* REQUIRES: the memory is not registered. Errors: MC_INVALID_ARGUMENT (the memory is not from
 * mc_transfer_allocate()). */
MC_API mc_status mc_transfer_deallocate(void* memory) MC_NOEXCEPT;

/* Registers all ranges or none. Peers may reach the ranges when the call returns. rights:
 * MC_TRANSFER_READ | MC_TRANSFER_WRITE. Ranges, here and in requests, may lie in memory of a CUDA
 * device; each range must lie within one allocation, or in mapped chunks of one reservation without
 * a hole. Bytes of device memory are staged in host
 * memory and go over TCP, also within a host. Copies run on the default stream. Work on other
 * streams that uses the memory must be complete before the call. RDMA devices pin the memory; the
 * call waits for that, 2 s and 2 s for each GiB at most. Errors: MC_INVALID_ARGUMENT (null, empty,
 * unknown rights, overlap with a registered range), MC_BUSY (MC_MAX_TRANSFER_REGIONS are
 * registered), MC_NO_MEMORY (with transports "rdma" or "fabric": the limit of locked memory, with
 * the remedy; with "auto", TCP carries the bytes of such memory). */
MC_API mc_status mc_transfer_register(mc_transfer_engine* engine, const mc_transfer_range* ranges,
                                      size_t count, uint32_t rights) MC_NOEXCEPT;
/* The same with the place of the memory, "cpu:0" (a NUMA node) or "cuda:3": devices near to that
 * place are used first. Null, "" and "*": the NUMA node of each page, as with
 * mc_transfer_register(). A place that this host does not have: all devices are equally near. */
MC_API mc_status mc_transfer_register_at(mc_transfer_engine* engine,
                                         const mc_transfer_range* ranges, size_t count,
                                         uint32_t rights, const char* location) MC_NOEXCEPT;
/* Unregisters ranges by the addresses of their registration. New accesses are refused at once. This
 * engine's own requests that name the memory as local end with MC_CANCELLED. The call waits, at
 * most 6 s, for TCP accesses that had begun. Afterwards no request of this engine and no access
 * over TCP touches the memory. A write of a peer on the same host that was in progress may still
 * land; that write ends with an error at the peer. Errors: MC_NOT_FOUND (at least one range is not
 * registered; the other ranges are unregistered). */
MC_API mc_status mc_transfer_unregister(mc_transfer_engine* engine, void* const* addresses,
                                        size_t count) MC_NOEXCEPT;

/* ---- Segments -------------------------------------------------------------------------------- */
/* Opens the segment of another engine (or of this engine) by name. The same name gives the same
 * number. timeout_ns 0: the engine's default. Errors: MC_NOT_FOUND (the store has no such name),
 * MC_AGENT_UNAVAILABLE (no engine answers there), MC_WRONG_KEY, MC_TIMEOUT.
 */
MC_API mc_status mc_transfer_open_segment(mc_transfer_engine* engine, const char* name,
                                          uint64_t timeout_ns,
                                          mc_transfer_segment* segment) MC_NOEXCEPT;
/* Closes a segment. Unfinished requests to the segment end with MC_CANCELLED. */
MC_API mc_status mc_transfer_close_segment(mc_transfer_engine* engine,
                                           mc_transfer_segment segment) MC_NOEXCEPT;
/* Checks that an engine answers under that name now: a new connection, the proof of the key, an
 * answer. */
MC_API mc_status mc_transfer_probe(mc_transfer_engine* engine, const char* name,
                                   uint64_t timeout_ns) MC_NOEXCEPT;

typedef struct mc_transfer_region {
  uint64_t address; /* address in the peer's address space */
  uint64_t size;
  uint32_t rights;
  uint32_t reserved;
} mc_transfer_region;
/* Lists the peer's registered ranges, in the order of registration. *count: in: capacity of
 * regions; out: number of registered ranges. */
MC_API mc_status mc_transfer_list_regions(mc_transfer_engine* engine, mc_transfer_segment segment,
                                          uint64_t timeout_ns, mc_transfer_region* regions,
                                          size_t* count) MC_NOEXCEPT;
/* *is_local is 1 if bytes are copied from process to process, 0 if bytes go over TCP. */
MC_API mc_status mc_transfer_segment_is_local(mc_transfer_engine* engine,
                                              mc_transfer_segment segment,
                                              uint32_t* is_local) MC_NOEXCEPT;

/* ---- Batches --------------------------------------------------------------------------------- */
typedef enum mc_transfer_verb { MC_TRANSFER_GET = 0, MC_TRANSFER_PUT = 1 } mc_transfer_verb;

typedef struct mc_transfer_request {
  mc_transfer_verb verb; /* GET: from remote to local; PUT: from local to remote */
  uint32_t reserved;
  void* local; /* registration is optional; registered memory is looked up faster */
  mc_transfer_segment segment;
  uint64_t remote; /* address in the peer's address space, within one registered range */
  uint64_t size;   /* at least 1 */
} mc_transfer_request;

/* Large requests to the same peer take turns by bytes: 32 to 4 to 1. A class that waits alone gets
 * all. */
typedef enum mc_transfer_priority {
  MC_TRANSFER_FOREGROUND = 0, /* somebody waits */
  MC_TRANSFER_PREFETCH = 1,   /* somebody will want the bytes */
  MC_TRANSFER_MIGRATION = 2   /* copies, weights, repairs */
} mc_transfer_priority;

typedef struct mc_transfer_submit_options {
  size_t struct_size;
  uint64_t timeout_ns; /* deadline of all requests; 0: the engine's default */
  /* Notification for the peer, sent after all requests succeeded. Not sent if a request failed. */
  mc_transfer_segment notify; /* 0: none */
  mc_slice notify_name;
  mc_slice notify_message; /* at most MC_MAX_TRANSFER_NOTE_BYTES with the name */
  mc_transfer_priority priority;
  /* 1: after the writes, the peer's engine compares the checksums (CRC-64) of the arrived bytes, before the
   * notification. A difference is MC_CORRUPT. The peer's processor reads the bytes once more. MC_UNSUPPORTED: the
   * peer's engine is older. */
  uint32_t checksum;
} mc_transfer_submit_options;
#define MC_TRANSFER_SUBMIT_OPTIONS_INIT \
  { sizeof(mc_transfer_submit_options), 0, 0, {NULL, 0}, {NULL, 0}, MC_TRANSFER_FOREGROUND, 0 }

/* Starts count requests, in any order, and returns. The library does not keep the array requests.
 * If this call fails, no request was started. Errors of single requests are reported by their
 * status. options may be null. Errors: MC_INVALID_ARGUMENT, MC_BUSY (MC_MAX_TRANSFER_BATCHES are
 * open: free some; or MC_MAX_TRANSFER_DEVICE_BYTES of local device memory are in flight),
 * MC_INTERNAL (a device's driver failed). */
MC_API mc_status mc_transfer_submit(mc_transfer_engine* engine, const mc_transfer_request* requests,
                                    size_t count, const mc_transfer_submit_options* options,
                                    mc_transfer_batch* batch) MC_NOEXCEPT;
/* mc_transfer_submit(), mc_transfer_wait() and mc_transfer_free() in one call; the fastest way to
 * wait. */
MC_API mc_status mc_transfer_run(mc_transfer_engine* engine, const mc_transfer_request* requests,
                                 size_t count,
                                 const mc_transfer_submit_options* options) MC_NOEXCEPT;

typedef struct mc_transfer_status {
  mc_status status; /* of the request; MC_OK until the request has ended */
  uint32_t ended;   /* 1: the request no longer touches its local memory */
  uint64_t bytes;   /* bytes moved; equals the size if and only if status is MC_OK */
} mc_transfer_status;
/* Reports the state of the batch without waiting. *ended is 1 when all requests and the
 * notification have ended. statuses: null, or room for count (the count of the submission). The
 * return value is the status of this call alone. */
MC_API mc_status mc_transfer_poll(mc_transfer_engine* engine, mc_transfer_batch batch,
                                  uint32_t* ended, mc_transfer_status* statuses,
                                  size_t count) MC_NOEXCEPT;
/* Waits until the batch has ended. Returns MC_OK if every request and the notification succeeded,
 * else the first failure. MC_TIMEOUT: the batch has not ended within timeout_ns (0: until the
 * batch's deadline), or a request reached its deadline; mc_transfer_poll() tells the difference. */
MC_API mc_status mc_transfer_wait(mc_transfer_engine* engine, mc_transfer_batch batch,
                                  uint64_t timeout_ns) MC_NOEXCEPT;
/* Asks unfinished requests to end soon with MC_CANCELLED. The batch must still be waited for. */
MC_API mc_status mc_transfer_cancel(mc_transfer_engine* engine,
                                    mc_transfer_batch batch) MC_NOEXCEPT;
/* Frees the batch. MC_BUSY: the batch has not ended; cancel and wait first. */
MC_API mc_status mc_transfer_free(mc_transfer_engine* engine, mc_transfer_batch batch) MC_NOEXCEPT;

/* ---- Notifications --------------------------------------------------------------------------- */
/* Sends one notification without a batch. Returns when the peer's engine has the notification.
 * Delivery is at most once: after an error the notification may have arrived. */
MC_API mc_status mc_transfer_notify(mc_transfer_engine* engine, mc_transfer_segment segment,
                                    mc_slice name, mc_slice message,
                                    uint64_t timeout_ns) MC_NOEXCEPT;
/* Takes the oldest notification that arrived. Writes the name and then the message into buffer,
 * which has room for MC_MAX_TRANSFER_NOTE_BYTES. MC_NOT_FOUND: no notification waits. */
MC_API mc_status mc_transfer_take_notification(mc_transfer_engine* engine, void* buffer,
                                               size_t* name_size, size_t* message_size) MC_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* MC_TRANSFER_H_ */
