// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/verifier.h"

#include "libmc/base/checksum.h"

namespace mc::transfer {

using transport::Outcome;

Status Verifier::start(transport::Transport& transport, EngineDescriptor* own) {
  transport::RegionSpec spec;
  spec.data = place(0);
  spec.size_bytes = sizeof questions_;
  spec.rights = transport::kRemoteWrite;
  spec.guard = this;
  spec.two_sided_only = true;
  const auto text = register_own(transport, spec);
  if (!text) return text.error();
  own->checks = *text;
  return {};
}

Outcome Verifier::pin(const transport::Access& access, std::uint64_t* ticket) {
  if (access.size_bytes != kCheckQuestionBytes || access.offset_bytes % kCheckQuestionBytes != 0) {
    return Outcome::kInvalid;
  }
  *ticket = access.offset_bytes / kCheckQuestionBytes;
  if (busy_[*ticket]) return Outcome::kBusy;
  busy_[*ticket] = true;
  return Outcome::kDone;
}

Outcome Verifier::settle(std::uint64_t ticket) {
  const CheckQuestion question = questions_[ticket];
  if (question.size_bytes == 0 || question.size_bytes > kMaxCheckBytes) return Outcome::kInvalid;
  const auto* const row = memory_.find(question.address, question.size_bytes);
  if (row == nullptr) return Outcome::kStale;
  if ((row->rights & MC_TRANSFER_WRITE) == 0) return Outcome::kRefused;
  if (!row->staged && !row->readable) return Outcome::kInvalid;
  const std::uint64_t offset = question.address - row->address;
  std::uint64_t sum = 0;
  if (row->staged) {
    std::uint64_t pinned = 0;
    const Outcome outcome =
        row->staged->pin({.offset_bytes = offset, .size_bytes = question.size_bytes}, &pinned);
    if (outcome != Outcome::kDone) return outcome;
    sum = checksum(0, row->staged->data() + offset, question.size_bytes);
    row->staged->unpin(pinned);
  } else {
    sum = checksum(0, reinterpret_cast<const void*>(question.address), question.size_bytes);
  }
  return sum == question.checksum ? Outcome::kDone : Outcome::kCorrupt;
}

}  // namespace mc::transfer
