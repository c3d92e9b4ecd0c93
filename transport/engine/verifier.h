// SPDX-License-Identifier: Apache-2.0
//
// Answers peers' questions whether the bytes of a range have a checksum (wire/check.h).
//
//     TCP: write of a question ─► pin() ─► settle(): sum the range ─► kDone or kCorrupt ─► unpin()
//
// Threads: under the engine's lock.
// Owns: the places for questions.
// Trusts: no question. Only ranges that peers may write, and that this process can read, are summed.
#pragma once

#include <array>

#include "transport/engine/memory_registry.h"
#include "transport/engine/wire/check.h"

namespace mc::transfer {

class Verifier final : public transport::RegionGuard {
 public:
  explicit Verifier(const MemoryRegistry& memory) : memory_(memory) {}
  // Registers the region for questions and enters the region into `own`.
  Status start(transport::Transport& transport, EngineDescriptor* own);

  transport::Outcome pin(const transport::Access& access, std::uint64_t* ticket) override;
  transport::Outcome settle(std::uint64_t ticket) override;
  void unpin(std::uint64_t ticket) override { busy_[ticket] = false; }
  // The place of a pinned question.
  std::byte* place(std::uint64_t ticket) {
    return reinterpret_cast<std::byte*>(&questions_[ticket]);
  }

 private:
  const MemoryRegistry& memory_;
  std::array<CheckQuestion, kCheckPlaces> questions_{};
  std::array<bool, kCheckPlaces> busy_{};
};

}  // namespace mc::transfer
