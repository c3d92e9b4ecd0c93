// SPDX-License-Identifier: Apache-2.0
//
// The one encoder and decoder of messages. Bytes become a protobuf message; then every
//   count and range is checked; then the message becomes a value. A decoded value is within
//   wire_limits.h and the ranges of its types.
// Threads: any; pure functions.
// Trusts: nothing in decode()'s bytes. encode() trusts its caller to keep the limits.
#pragma once

#include <string>
#include <string_view>

#include "mc/status.h"
#include "metadata/wire/messages.h"

namespace mc::metadata::wire {

// Each function replaces `bytes` and reuses the memory.
void encode(const Attend& value, std::string& bytes);
void encode(const AttendAnswer& value, std::string& bytes);
void encode(const Descriptor& value, std::string& bytes);
void encode(const JoinAnswer& value, std::string& bytes);
void encode(const Heartbeat& value, std::string& bytes);
void encode(const HeartbeatReply& value, std::string& bytes);
void encode(const Publish& value, std::string& bytes);
void encode(const PublishAnswer& value, std::string& bytes);
void encode(const Report& value, std::string& bytes);
void encode(const ReportAnswer& value, std::string& bytes);
void encode(const Locate& value, std::string& bytes);
void encode(const LocateAnswer& value, std::string& bytes);
void encode(const ChooseHolders& value, std::string& bytes);
void encode(const ChooseHoldersAnswer& value, std::string& bytes);
void encode(const Remove& value, std::string& bytes);
void encode(const RemovalNotes& value, std::string& bytes);
void encode(const RemoveReply& value, std::string& bytes);
void encode(const Match& value, std::string& bytes);
void encode(const RemoveMatchingAnswer& value, std::string& bytes);
void encode(const ListAnswer& value, std::string& bytes);
void encode(const MembersAnswer& value, std::string& bytes);
void encode(const StatsAnswer& value, std::string& bytes);
void encode(const Drain& value, std::string& bytes);
void encode(const DrainAnswer& value, std::string& bytes);
void encode(const Relocate& value, std::string& bytes);
void encode(const RelocationId& value, std::string& bytes);
void encode(const RelocationAnswer& value, std::string& bytes);
void encode(const AwaitReplicas& value, std::string& bytes);
void encode(const AwaitReplicasAnswer& value, std::string& bytes);
void encode(const Drop& value, std::string& bytes);
void encode(const Copy& value, std::string& bytes);
void encode(const Refusal& value, std::string& bytes);

template <typename Message>
std::string encoded(const Message& message) {
  std::string bytes;
  encode(message, bytes);
  return bytes;
}

// Errors: MC_INVALID_ARGUMENT names the message and the fault; `value` is then unspecified. The
// memory of vectors is reused.
Status decode(std::string_view bytes, Attend& value);
Status decode(std::string_view bytes, AttendAnswer& value);
Status decode(std::string_view bytes, Descriptor& value);
Status decode(std::string_view bytes, JoinAnswer& value);
Status decode(std::string_view bytes, Heartbeat& value);
Status decode(std::string_view bytes, HeartbeatReply& value);
Status decode(std::string_view bytes, Publish& value);
Status decode(std::string_view bytes, PublishAnswer& value);
Status decode(std::string_view bytes, Report& value);
Status decode(std::string_view bytes, ReportAnswer& value);
Status decode(std::string_view bytes, Locate& value);
Status decode(std::string_view bytes, LocateAnswer& value);
Status decode(std::string_view bytes, ChooseHolders& value);
Status decode(std::string_view bytes, ChooseHoldersAnswer& value);
Status decode(std::string_view bytes, Remove& value);
Status decode(std::string_view bytes, RemovalNotes& value);
Status decode(std::string_view bytes, RemoveReply& value);
Status decode(std::string_view bytes, Match& value);
Status decode(std::string_view bytes, RemoveMatchingAnswer& value);
Status decode(std::string_view bytes, ListAnswer& value);
Status decode(std::string_view bytes, MembersAnswer& value);
Status decode(std::string_view bytes, StatsAnswer& value);
Status decode(std::string_view bytes, Drain& value);
Status decode(std::string_view bytes, DrainAnswer& value);
Status decode(std::string_view bytes, Relocate& value);
Status decode(std::string_view bytes, RelocationId& value);
Status decode(std::string_view bytes, RelocationAnswer& value);
Status decode(std::string_view bytes, AwaitReplicas& value);
Status decode(std::string_view bytes, AwaitReplicasAnswer& value);
Status decode(std::string_view bytes, Drop& value);
Status decode(std::string_view bytes, Copy& value);
Status decode(std::string_view bytes, Refusal& value);

}  // namespace mc::metadata::wire
