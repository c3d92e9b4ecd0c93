// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/place/session_memory.h"

#include <new>
#include <utility>

#include "libmc/base/clock.h"

namespace mc::agent {

namespace {

// How long an agent that ends waits for peers that still read session memory.
constexpr std::uint64_t kLastTransfersNs = 500 * kMs;

}  // namespace

SessionMemory::~SessionMemory() {
  for (auto& [session, memory] : memory_) closing_.push_back(std::move(memory));
  // Transfers from the regions end, or the peers' lanes are cut.
  std::vector<transport::Event> unheard;
  const std::uint64_t deadline_ns = mc::now_ns() + kLastTransfersNs;
  for (poll(); !closing_.empty() && mc::now_ns() < deadline_ns; poll()) {
    transport_.poll(mc::now_ns(), unheard);
  }
  if (closing_.empty()) return;
  // A peer still reads: the memory stays until this process ends.
  static_cast<void>(new (std::nothrow) std::vector<Memory>(std::move(closing_)));
}

Result<transport::RegionId> SessionMemory::region_of(const RemoteRequest::Source& source) {
  if (const auto known = memory_.find(source.session); known != memory_.end()) {
    return known->second.region;
  }
  // A mapping of the agent's own: the session may end while a peer still reads.
  auto mapping =
      Mapping::map(source.memory->fd(), source.memory->size_bytes(), Mapping::Access::kRead);
  if (!mapping) return fail(mapping.error());
  transport::RegionSpec spec;
  spec.data = mapping->data();
  spec.size_bytes = mapping->size_bytes();
  spec.rights = transport::kRemoteRead;
  spec.guard = &guard_;
  auto region = transport_.register_region(spec);
  if (!region) return region;
  memory_.emplace(source.session, Memory{std::move(*mapping), *region});
  return region;
}

const std::byte* SessionMemory::bytes_of(const RemoteRequest::Source& source) const {
  return memory_.at(source.session).mapping.data() + source.offset;
}

void SessionMemory::forget(std::uint64_t session) {
  const auto known = memory_.find(session);
  if (known == memory_.end()) return;
  closing_.push_back(std::move(known->second));
  memory_.erase(known);
}

void SessionMemory::poll() {
  std::erase_if(closing_,
                [&](const Memory& memory) { return transport_.close_region(memory.region); });
}

}  // namespace mc::agent
