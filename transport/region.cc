// SPDX-License-Identifier: Apache-2.0
#include "transport/region.h"

#include <cstring>

#include "libmc/base/hash.h"
#include "transport/limits.h"

namespace mc::transport {

namespace {
struct Descriptor {
  std::uint64_t region;
  std::uint64_t size_bytes;
  std::uint32_t rights;
  std::uint32_t reserved;
};
static_assert(sizeof(Descriptor) == 24);
}  // namespace

Result<RegionId> RegionTable::add(const RegionSpec& spec) {
  if (spec.data == nullptr || spec.size_bytes == 0 || (spec.rights & ~kKnownRights) != 0) {
    return fail(MC_INVALID_ARGUMENT, "a region needs memory, a size and known rights");
  }
  if (rows_.size() >= kMaxRegions) {
    return fail(MC_BUSY, "4096 regions are registered already; close some");
  }
  RegionId id = kNoRegion;
  do {
    const std::uint64_t words[2] = {salt_, next_++};
    id = hash_key(words, sizeof words, salt_);
  } while (rows_.contains(id));
  rows_.emplace(id, Row{spec});
  return id;
}

bool RegionTable::remove(RegionId id) {
  const auto at = rows_.find(id);
  if (at == rows_.end()) return true;
  at->second.closed = true;
  if (at->second.pins > 0) return false;
  rows_.erase(at);
  return true;
}

Outcome RegionTable::admit(const Access& access, Grant* grant) {
  const auto at = rows_.find(access.region);
  if (at == rows_.end() || at->second.closed) return Outcome::kStale;
  Row& row = at->second;
  const std::uint32_t needed = access.write ? kRemoteWrite : kRemoteRead;
  if ((row.spec.rights & needed) == 0) return Outcome::kRefused;
  if (access.size_bytes == 0 || access.size_bytes > row.spec.size_bytes ||
      access.offset_bytes > row.spec.size_bytes - access.size_bytes) {
    return Outcome::kInvalid;
  }
  std::uint64_t ticket = 0;
  if (row.spec.guard != nullptr) {
    const Outcome outcome = row.spec.guard->pin(access, &ticket);
    if (outcome != Outcome::kDone) return outcome;
  }
  ++row.pins;
  *grant = {row.spec.data + access.offset_bytes, access.region, ticket, access.size_bytes};
  return Outcome::kDone;
}

Outcome RegionTable::settle(const Grant& grant) {
  const auto at = rows_.find(grant.region);
  if (at == rows_.end() || at->second.spec.guard == nullptr) return Outcome::kDone;
  return at->second.spec.guard->settle(grant.ticket);
}

void RegionTable::release(const Grant& grant) {
  const auto at = rows_.find(grant.region);
  if (at == rows_.end()) return;
  --at->second.pins;
  if (at->second.spec.guard != nullptr) at->second.spec.guard->unpin(grant.ticket);
}

Result<std::vector<std::byte>> RegionTable::describe(RegionId id) const {
  const auto at = rows_.find(id);
  if (at == rows_.end() || at->second.closed) {
    return fail(MC_INVALID_ARGUMENT, "no such region is registered");
  }
  const Descriptor descriptor{id, at->second.spec.size_bytes, at->second.spec.rights, 0};
  const auto bytes = std::as_bytes(std::span(&descriptor, 1));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

std::optional<RegionId> RegionTable::decode_descriptor(std::span<const std::byte> bytes) {
  Descriptor descriptor{};
  if (bytes.size() != sizeof descriptor) return std::nullopt;
  std::memcpy(&descriptor, bytes.data(), sizeof descriptor);
  if (descriptor.region == kNoRegion || descriptor.reserved != 0 ||
      (descriptor.rights & ~kKnownRights) != 0) {
    return std::nullopt;
  }
  return descriptor.region;
}

}  // namespace mc::transport
