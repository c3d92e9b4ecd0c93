// SPDX-License-Identifier: Apache-2.0
//
// Questions and orders to an agent over its socket, in JSON, as mcctl sends them.
// Threads: any thread. Each call opens a new connection.
// Trusts: the agent sends JSON. Missing fields read as null.
//
// Requests are objects with a "verb". Answers:
//   {"verb":"status"}    -> {"version","pid","uptime_s","node_id","incarnation","ready",
//                            "cluster":{"id","master_ready",…} if the agent is in a cluster,
//                            "namespaces":[{"name","mode","configured","policy","pool_bytes","reserved_bytes",
//                              "used_bytes","capacity_bytes","objects","limbo_bytes","reservations",
//                              "index_bytes","puts","put_bytes","put_existing","evictions",
//                              "evicted_bytes","removes","no_space","touches","recovered",
//                              "set_aside","corrupt","reported","verified"}],
//                            "sessions":[{"id","pid","uid","label","namespace","channels",
//                              "reserved_bytes","pinned_objects","suspected","age_s","requests"}]}
//   {"verb":"ls","namespace","prefix","cursor","limit","local"}
//                        -> {"objects":[{"key","length","version","pin","extents","group","tier"}],
//                            "cursor": 0 or "" at the end, else the next call's cursor}
//                        of this host. If a cluster shares the namespace, and without "local": of
//                        all hosts, by key; an object has "key" and "length", and the answer
//                        "unconfirmed", the number of hosts that have not answered within
//                        "timeout_ms"
//   {"verb":"segments"}  -> {"segments":[{"namespace","pool_bytes","target_bytes","reserved_bytes",
//                              "used_bytes","max_bytes","own_bytes","contributed_bytes","arenas",
//                              "huge_pages"}]}
//   {"verb":"resize","namespace","pool_bytes"} -> the segment, as above, when the work has begun
//   {"verb":"contribute","session","bytes","buffer_bytes"} -> the segment. The session's process adds
//                        this memory to the pool of the session's namespace. The next call replaces
//                        the memory, and mc_close() withdraws it; see the option pool_bytes
//   {"verb":"create_namespace","name","pool_bytes","capacity_bytes","policy","mode","clustered",
//    "drop_unused_s": the agent drops the namespace after so long without a session; 0: never}
//                        -> the segment; {"verb":"drop_namespace","name"} -> {"sessions_ended"}
//   {"verb":"set_capacity","namespace","capacity_bytes"} -> the namespace, as in "status". 0: no limit
//   {"verb":"evict","namespace","free_bytes"} -> {"evicted","evicted_bytes","free_bytes",
//                            "waiting_for_readers_bytes","done","exhausted"} after a bounded number
//                        of objects; exhausted: no other object can be evicted
//   {"verb":"trace","namespace","key"} -> {"here","departure":{"reason","ago_ms"} if the key's object
//                            left this host lately,"departures_known_for_ms"}
//   {"verb":"events","after","limit"} -> {"incarnation","latest","events":[{"number","time_ms" since
//                            1970,"level","line"}]}: the agent's log from number after + 1 on, at most 64
//   {"verb":"config"}    -> {"options":[{"name","value","default","source","help"}]}
// An agent in a cluster also answers these, after a master or a peer has answered:
//   {"verb":"cluster"}   -> {"agent":{"node","master_ready","epoch","members","locations",
//                              "counters","misses"},
//                            "master":{"entries","members",…} or "master_error"}
//   {"verb":"nodes"}     -> {"nodes":[{"node","incarnation","address","state","self","reachable",
//                              "capacity_bytes","used_bytes","objects","clock_ahead_ms"}],
//                            "down":[{"node","incarnation","address","down_ms"}]}
//   {"verb":"where","namespace","key"}
//                        -> {"found","recovering","version","bytes","replicas_wanted","parts",
//                            "missing_parts","holders":[{"node","tier":"pool" or "disk","address","self"}]}
//   {"verb":"where","namespace","keys"} -> {"holders":[[node,…],…],"on_disk":[[node,…],…]} for each of at
//                        most 256 keys; on_disk: the holders with the object on a disk only
//   {"verb":"replicate","namespace","key","replicas"} -> {} if this host holds the object
//   {"verb":"copy","namespace","key","targets"} -> {"task":[epoch, number]}. targets: node ids or
//                        addresses of at most 8 hosts. The master then has the object copied to each
//   {"verb":"move","namespace","key","source","target"} -> {"task"}; the source drops the object
//   {"verb":"task","task"} -> {"task","type":"copy" or "move","state":"pending", "running",
//                        "failed" or "done","begun_ms" and "changed_ms" since 1970,"node" and
//                        "address" of the latest host that was to copy,"message" of a failure}
//   {"verb":"drain","node","stop"} -> {"copied","copied_bytes","failed","unplaced",
//                        "seen","done"}
//   {"verb":"rails"}     -> {"read_bytes","written_bytes","served_bytes",
//                            "peers":[{"node","address","reachable","rails":[{"name","health",
//                              "bandwidth_bytes_per_s","latency_ns","outstanding_bytes",
//                              "window_bytes","done_bytes","done_slices","failures",
//                              "taken_back_slices"}]}]}
//   {"verb":"ping","node"} -> {"round_trip_ns"}
//   {"verb":"rm","namespace","prefix" or "regex","local","timeout_ms"} -> {"removed","unconfirmed",
//                            "away"}, the number of hosts that are down and remove later
// Node ids, incarnations and versions have 64 bits. Answers have them as decimal strings, because many
// readers of JSON keep only 53 bits of a number.
// Keys, prefixes and expressions are JSON strings; bytes outside printable ASCII, and '%', are
// written %XX (libmc/base/key_text.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <json/value.h>

#include "libmc/base/fd.h"
#include "mc/status.h"

namespace mc::client {

// The socket path of mc_open() with agent = null: $MC_AGENT, else the first existing path of
// /run/mc/agent.sock and /dev/shm/mc-UID/agent.sock. If neither exists: the former if this user has no
// right to look into /run/mc, else the latter.
std::string default_agent_socket();

// absent: whether the call waits for an agent that does not run yet, within the same timeout.
enum class Absent { kFail, kWait };
Result<Json::Value> admin_call(const std::string& socket_path, const Json::Value& request,
                               std::uint64_t timeout_ns = MC_DEFAULT_TIMEOUT_NS,
                               Absent absent = Absent::kFail);
// The same with texts, on a connection without other traffic. Errors: also those in the agent's
// answer.
Result<std::string> admin_exchange(const Fd& connection, std::string_view request,
                                   std::uint64_t timeout_ns);

}  // namespace mc::client
