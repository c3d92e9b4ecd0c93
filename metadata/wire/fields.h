// SPDX-License-Identifier: Apache-2.0
//
// The messages that are plain copies of a message of master.proto. One list of fields
//   for each struct gives both directions: fill() for the encoder, take() for the decoder.
//   MC_FIELDS(struct, message, list), where a list has an X(member, field) for each field.
// Threads: any; pure functions. Only encode.cc and decode.cc include this file.
// Trusts: nothing; decode.cc checks ranges before take().
#pragma once

#include <string>
#include <type_traits>

#include "master.pb.h"
#include "metadata/wire/messages.h"

namespace mc::metadata::wire {

namespace pb = mc::wire;

template <typename Value>
decltype(auto) to_field(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return static_cast<std::uint32_t>(value);
  } else {
    return (value);
  }
}

template <typename Field, typename Value>
void from_field(const Field& field, Value& value) {
  if constexpr (std::is_same_v<Value, std::string>) {
    value = field;
  } else {
    value = static_cast<Value>(field);
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): types and names cannot stand in parentheses.
#define MC_FILL_FIELD(member, field) message.set_##field(to_field(value.member));
#define MC_TAKE_FIELD(member, field) from_field(message.field(), value.member);
#define MC_FIELDS(Struct, Message, List)                                              \
  inline void fill(const Struct& value, pb::Message& message) { List(MC_FILL_FIELD) } \
  inline void take(const pb::Message& message, Struct& value) { List(MC_TAKE_FIELD) }
// NOLINTEND(bugprone-macro-parentheses)

// clang-format off
#define MC_ATTEND(X) X(partition, partition) X(partitions, partitions)
#define MC_ATTEND_ANSWER(X) X(partitions, partitions) X(cluster, cluster) \
  X(address, address)
#define MC_JOIN(X) X(node, node) X(incarnation, incarnation) X(address, address) X(host, host) \
  X(zone, zone) X(capacity_bytes, capacity_bytes)
#define MC_JOIN_ANSWER(X) X(removal, removal) X(heartbeat_ms, heartbeat_ms) \
  X(promise_ms, promise_ms)
#define MC_LOAD(X) X(used_bytes, used_bytes) X(busy_permille, busy_permille) X(draining, draining) \
  X(wall_ns, wall_ns)
#define MC_HEARTBEAT_ANSWER(X) X(answer, answer) X(removal, removal) \
  X(lease_ms, lease_ms) X(list_version, list_version) X(whole, whole) \
  X(latest_version, latest_version) X(promise_ms, promise_ms) X(asked_ns, asked_ns)
#define MC_REPORT(X) X(sequence, sequence) X(end, end)
#define MC_REPORT_ANSWER(X) X(stream, stream)
#define MC_MATCH(X) X(name_space, name_space) X(pattern, pattern) X(kind, kind) X(after, after) \
  X(limit, limit)
#define MC_REMOVED(X) X(removed, removed) X(unconfirmed, unconfirmed) X(away, away)
#define MC_STATS(X) X(entries, entries) X(tombstones, tombstones) X(members, members) \
  X(reports_missing, reports_missing) X(memory_bytes, memory_bytes) X(published, published) \
  X(located, located) X(repairs_queued, repairs_queued) X(repairs_running, repairs_running) \
  X(links, links) X(refused_links, refused_links) X(recovering, recovering)
#define MC_DRAIN_ANSWER(X) X(copied, copied) X(failed, failed) X(unplaced, unplaced) \
  X(seen, seen) X(done, done) X(copied_bytes, copied_bytes)
#define MC_RELOCATION_ID(X) X(epoch, epoch) X(number, number)
#define MC_RELOCATION_ANSWER(X) X(moves, moves) X(state, state) X(age_ms, age_ms) \
  X(changed_ms, changed_ms) X(node, node) X(message, message)
#define MC_COPY(X) X(key.hi, hash_hi) X(key.lo, hash_lo) X(version, version) \
  X(bytes, object_bytes) X(source, source) X(source_address, source_address) X(parts, parts) \
  X(part, part)
#define MC_REFUSAL(X) X(text, text) X(leader, leader)
// clang-format on

MC_FIELDS(Attend, Attend, MC_ATTEND)
MC_FIELDS(AttendAnswer, AttendAnswer, MC_ATTEND_ANSWER)
MC_FIELDS(Descriptor, Join, MC_JOIN)
MC_FIELDS(JoinAnswer, JoinAnswer, MC_JOIN_ANSWER)
MC_FIELDS(Load, Heartbeat, MC_LOAD)
MC_FIELDS(HeartbeatReply, HeartbeatAnswer, MC_HEARTBEAT_ANSWER)
MC_FIELDS(Report, Report, MC_REPORT)
MC_FIELDS(ReportAnswer, ReportAnswer, MC_REPORT_ANSWER)
MC_FIELDS(Match, Match, MC_MATCH)
MC_FIELDS(RemoveMatchingAnswer, RemoveMatchingAnswer, MC_REMOVED)
MC_FIELDS(StatsAnswer, StatsAnswer, MC_STATS)
MC_FIELDS(DrainAnswer, DrainAnswer, MC_DRAIN_ANSWER)
MC_FIELDS(RelocationId, RelocationId, MC_RELOCATION_ID)
MC_FIELDS(RelocationAnswer, RelocationAnswer, MC_RELOCATION_ANSWER)
MC_FIELDS(Copy, Copy, MC_COPY)
MC_FIELDS(Refusal, Refusal, MC_REFUSAL)

}  // namespace mc::metadata::wire
