// SPDX-License-Identifier: Apache-2.0
//
// Bytes of a stranger before the proof, and of a member after the proof: hellos, verdicts, heads of
// frames, and the body of every message. A decoded message is within its limits and encodes into a
// frame of its method.
#include "bytes.h"
#include "libmc/auth/cluster_hello.h"
#include "metadata/rpc/frame.h"
#include "metadata/wire/codec.h"

namespace {

namespace auth = mc::auth;
namespace rpc = mc::metadata::rpc;
namespace wire = mc::metadata::wire;
using mc::fuzz::require;

template <typename Message>
void check_body(std::string_view body, wire::Method method, bool answer) {
  Message message;
  if (!wire::decode(body, message).ok()) return;
  std::string bytes;
  wire::encode(message, bytes);
  const auto limits = wire::body_limits(static_cast<std::uint8_t>(method));
  require(bytes.size() <= (answer ? limits.answer_bytes : limits.request_bytes));
  Message again;
  require(wire::decode(bytes, again).ok());
}

void check_request(std::uint8_t method, std::string_view body) {
  using wire::Method;
  const auto which = static_cast<Method>(method);
  switch (which) {
    case Method::kAttend:
      return check_body<wire::Attend>(body, which, false);
    case Method::kJoin:
      return check_body<mc::metadata::Descriptor>(body, which, false);
    case Method::kHeartbeat:
      return check_body<wire::Heartbeat>(body, which, false);
    case Method::kReport:
      return check_body<wire::Report>(body, which, false);
    case Method::kPublish:
      return check_body<wire::Publish>(body, which, false);
    case Method::kLocate:
      return check_body<wire::Locate>(body, which, false);
    case Method::kChooseHolders:
      return check_body<wire::ChooseHolders>(body, which, false);
    case Method::kRemove:
      return check_body<wire::Remove>(body, which, false);
    case Method::kRemoveMatching:
    case Method::kDropMatching:
    case Method::kList:
    case Method::kListLocal:
      return check_body<wire::Match>(body, which, false);
    case Method::kDrain:
      return check_body<wire::Drain>(body, which, false);
    case Method::kRelocate:
      return check_body<wire::Relocate>(body, which, false);
    case Method::kRelocation:
      return check_body<wire::RelocationId>(body, which, false);
    case Method::kAwaitReplicas:
      return check_body<wire::AwaitReplicas>(body, which, false);
    case Method::kDrop:
      return check_body<wire::Drop>(body, which, false);
    case Method::kCopy:
      return check_body<wire::Copy>(body, which, false);
    case Method::kLeave:
    case Method::kMembers:
    case Method::kStats:
      return;
  }
}

void check_answer(std::uint8_t method, std::uint16_t status, std::string_view body) {
  using wire::Method;
  const auto which = static_cast<Method>(method);
  if (status != 0) return check_body<wire::Refusal>(body, Method::kJoin, true);
  switch (which) {
    case Method::kAttend:
      return check_body<wire::AttendAnswer>(body, which, true);
    case Method::kJoin:
      return check_body<wire::JoinAnswer>(body, which, true);
    case Method::kHeartbeat:
      return check_body<wire::HeartbeatReply>(body, which, true);
    case Method::kReport:
      return check_body<wire::ReportAnswer>(body, which, true);
    case Method::kPublish:
      return check_body<wire::PublishAnswer>(body, which, true);
    case Method::kLocate:
      return check_body<mc::metadata::LocateAnswer>(body, which, true);
    case Method::kChooseHolders:
      return check_body<wire::ChooseHoldersAnswer>(body, which, true);
    case Method::kRemove:
      return check_body<wire::RemoveReply>(body, which, true);
    case Method::kRemoveMatching:
    case Method::kDropMatching:
      return check_body<wire::RemoveMatchingAnswer>(body, which, true);
    case Method::kList:
    case Method::kListLocal:
      return check_body<wire::ListAnswer>(body, which, true);
    case Method::kMembers:
      return check_body<wire::MembersAnswer>(body, which, true);
    case Method::kStats:
      return check_body<wire::StatsAnswer>(body, which, true);
    case Method::kDrain:
      return check_body<wire::DrainAnswer>(body, which, true);
    case Method::kRelocate:
      return check_body<wire::RelocationId>(body, which, true);
    case Method::kRelocation:
      return check_body<wire::RelocationAnswer>(body, which, true);
    case Method::kAwaitReplicas:
      return check_body<wire::AwaitReplicasAnswer>(body, which, true);
    case Method::kDrop:
    case Method::kCopy:
    case Method::kLeave:
      return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string_view start = bytes.substr(0, auth::kHelloBytes);
  if (const auto hello = auth::decode_hello(start)) {
    const auto again = auth::encode_hello(*hello);
    require(std::string_view(again.data(), again.size()) == start);
    static_cast<void>(auth::check_hello({}, *hello).ok());
  }
  static_cast<void>(auth::decode_admission(bytes.substr(0, auth::kAdmissionBytes)));
  if (size < rpc::kFrameHeadBytes) return 0;
  const auto head = rpc::decode_frame(bytes, wire::body_limits);
  if (!head) return 0;
  const auto again = rpc::encode_frame(*head);
  require(bytes.starts_with(std::string_view(again.data(), again.size())));
  // The body may be shorter than the head says, so the fuzzer need not guess lengths.
  const std::string_view body = bytes.substr(rpc::kFrameHeadBytes);
  if (head->kind == rpc::FrameKind::kRequest) check_request(head->method, body);
  if (head->kind == rpc::FrameKind::kAnswer) check_answer(head->method, head->status, body);
  return 0;
}
