/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of the C ABI. Sizes are bytes unless the name says otherwise. A call beyond a limit
 * is refused with MC_INVALID_ARGUMENT (or MC_TOO_LARGE) before anything is allocated. */
#ifndef MC_LIMITS_H_
#define MC_LIMITS_H_

#define MC_MAX_KEY_BYTES 1024u                       /* bytes of a key; at least 1 */
#define MC_MAX_OBJECT_BYTES (1ull << 40)             /* bytes of an object; at least 1 */
#define MC_MAX_NAMESPACE_BYTES 64u                   /* bytes of a namespace's name */
#define MC_MAX_BATCH_ITEMS 1024u                     /* items of one batch call */
#define MC_MAX_EXTENTS 16u                           /* extents of one object in a pool */
#define MC_MAX_PIECES 1024u                          /* gather or scatter pieces of one value */
#define MC_MAX_GROUP_ITEMS 1024u                     /* objects of one group */
#define MC_MAX_REPLICAS 8u                           /* replicas of one object in a cluster */
#define MC_MAX_CHANNELS 64u                          /* channels (threads at once) of one client */
#define MC_MAX_VIEWS_PER_CHANNEL 1023u               /* views held at once, per thread */
#define MC_MAX_SESSIONS 1024u                        /* clients of one agent */
#define MC_DEFAULT_SESSIONS_PER_USER 768u            /* part for one user (max_sessions_per_user) */
#define MC_MAX_NAMESPACES 64u                        /* namespaces of one agent */
#define MC_MAX_STAGING_BYTES (4ull << 30)            /* staging and mc_alloc memory of one client */
#define MC_MAX_QUESTION_BYTES 16384u                 /* a question of mc_ask() */
#define MC_MAX_OUTSTANDING 256u                      /* requests in flight per channel */
#define MC_MAX_TIMEOUT_NS (3600ull * 1000000000ull)  /* longest deadline: one hour */
#define MC_DEFAULT_TIMEOUT_NS (5ull * 1000000000ull) /* a timeout of 0 means 5 s */

/* The transfer engine (transfer.h) */
#define MC_MAX_TRANSFER_REGIONS 4094u            /* registered regions of one engine */
#define MC_MAX_TRANSFER_SEGMENTS 4096u           /* open segments of one engine */
#define MC_MAX_TRANSFER_BATCHES 65536u           /* open batches of one engine */
#define MC_MAX_TRANSFER_REQUESTS 1048576u        /* requests of one batch */
#define MC_MAX_TRANSFER_DEVICE_BYTES 1073741824u /* local, in an engine's open requests */
#define MC_MAX_TRANSFER_NOTE_BYTES 4088u         /* name and message of a notification */
#define MC_MAX_TRANSFER_NOTIFICATIONS 65536u     /* arrived, but not yet taken */

#endif /* MC_LIMITS_H_ */
