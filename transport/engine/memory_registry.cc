// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/memory_registry.h"

#include <cstring>

#include "transport/engine/local/local_memory.h"
#include "transport/topology/near_devices.h"

namespace mc::transfer {

Result<RegionText> register_own(transport::Transport& transport,
                                const transport::RegionSpec& spec) {
  const auto region = transport.register_region(spec);
  if (!region) return fail(region.error());
  const auto text = transport.describe(*region);
  if (!text) return fail(text.error());
  RegionText own;
  if (text->size() != own.size()) return fail(MC_INTERNAL, "a region's description has 24 bytes");
  std::memcpy(own.data(), text->data(), own.size());
  return own;
}

Status MemoryRegistry::start(transport::Transport& transport, EngineDescriptor* own) {
  transport_ = &transport;
  directory_ = std::make_unique<DirectoryWriter>(own->nonce);
  transport::RegionSpec spec;
  spec.data = directory_->data();
  spec.size_bytes = kMaxDirectoryBytes;
  spec.rights = transport::kRemoteRead;
  const auto text = register_own(transport, spec);
  if (!text) return text.error();
  own->directory = *text;
  own->directory_bytes = kMaxDirectoryBytes;
  own->directory_address = reinterpret_cast<std::uint64_t>(directory_->data());
  return {};
}

void MemoryRegistry::publish() {
  std::vector<DirectoryEntry> entries;
  entries.reserve(by_address_.size());
  for (const auto& [address, row] : by_address_) {
    entries.push_back({address, row.size_bytes, row.rights,
                       row.order | (row.staged ? kByOwnerOnly : 0), row.descriptor});
  }
  directory_->publish(entries);
}

const MemoryRegistry::Registration* MemoryRegistry::find(std::uint64_t address,
                                                         std::uint64_t size_bytes) const {
  const auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return nullptr;
  const Registration& row = std::prev(after)->second;
  const bool inside =
      size_bytes <= row.size_bytes && address - row.address <= row.size_bytes - size_bytes;
  return inside ? &row : nullptr;
}

std::string MemoryRegistry::place_of(const std::byte* data) const {
  const Registration* const row = find(data, 1);
  return row != nullptr && !row->location.empty() ? row->location : transport::place_of_page(data);
}

Result<MemoryRegistry::Registration> MemoryRegistry::make(const mc_transfer_range& range,
                                                          std::uint32_t rights,
                                                          const std::string& location) {
  const auto address = reinterpret_cast<std::uint64_t>(range.address);
  if (address == 0 || range.size == 0 || range.size > MC_MAX_OBJECT_BYTES ||
      range.size > ~std::uint64_t{0} - address) {
    return fail(MC_INVALID_ARGUMENT, "a range has an address and 1 B to 1 TiB");
  }
  const auto next = by_address_.lower_bound(address);
  const bool overlaps = (next != by_address_.end() && next->first < address + range.size) ||
                        (next != by_address_.begin() &&
                         std::prev(next)->first + std::prev(next)->second.size_bytes > address);
  if (overlaps) return fail(MC_INVALID_ARGUMENT, "the range overlaps a registered range");
  auto staged = devices_.stand_in(range);
  if (!staged) return fail(staged.error());
  transport::RegionSpec spec;
  spec.data = *staged ? (*staged)->data() : static_cast<std::byte*>(range.address);
  spec.size_bytes = range.size;
  spec.rights = rights & transport::kKnownRights;
  spec.guard = staged->get();
  spec.two_sided_only = *staged != nullptr || (rights & MC_TRANSFER_UNPINNED) != 0;
  // Devices register a sparse region beside the loop.
  spec.sparse = !spec.two_sided_only;
  const auto region = transport_->register_region(spec);
  if (!region) return fail(region.error());
  if (const transport::MemoryRange all{0, range.size}; spec.sparse) {
    transport_->set_backed(*region, {&all, 1});
  }
  const bool writable = !*staged && is_memory(range.address, range.size, true);
  const bool readable = writable || (!*staged && is_memory(range.address, range.size, false));
  Registration row{address,  range.size, spec.rights, next_order_++,      *region,
                   readable, writable,   {},          std::move(*staged), location};
  const auto text = transport_->describe(*region);
  if (text && text->size() == kRegionTextBytes) {
    std::memcpy(row.descriptor.data(), text->data(), kRegionTextBytes);
  }
  return row;
}

Status MemoryRegistry::add(std::span<const mc_transfer_range> ranges, std::uint32_t rights,
                           const std::string& location) {
  constexpr std::uint32_t kKnown = transport::kKnownRights | MC_TRANSFER_UNPINNED;
  if (ranges.empty() || (rights & transport::kKnownRights) == 0 || (rights & ~kKnown) != 0) {
    return {MC_INVALID_ARGUMENT,
            "registering memory needs ranges and rights: MC_TRANSFER_READ, MC_TRANSFER_WRITE or "
            "both"};
  }
  if (ranges.size() > MC_MAX_TRANSFER_REGIONS - by_address_.size()) {
    return {MC_BUSY,
            "an engine has at most 4094 regions (MC_MAX_TRANSFER_REGIONS); register few large "
            "ranges"};
  }
  std::vector<std::uint64_t> added;
  for (const mc_transfer_range& range : ranges) {
    auto row = make(range, rights, location);
    if (!row) {
      // No peer knows the earlier ranges of this call yet.
      for (const std::uint64_t address : added) {
        static_cast<void>(close(by_address_.at(address)));
        by_address_.erase(address);
      }
      return row.error();
    }
    added.push_back(row->address);
    by_address_.emplace(row->address, std::move(*row));
  }
  publish();
  return {};
}

std::vector<MemoryRegistry::Registration> MemoryRegistry::remove(std::span<void* const> addresses) {
  std::vector<Registration> removed;
  for (void* const address : addresses) {
    auto row = by_address_.extract(reinterpret_cast<std::uint64_t>(address));
    if (!row.empty()) removed.push_back(std::move(row.mapped()));
  }
  if (!removed.empty()) publish();
  return removed;
}

bool MemoryRegistry::close(const Registration& registration) {
  return transport_->close_region(registration.id);
}

}  // namespace mc::transfer
