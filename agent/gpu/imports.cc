// SPDX-License-Identifier: Apache-2.0
#include "agent/gpu/imports.h"

#include <cstring>
#include <iterator>
#include <string>

#include "libmc/base/failpoint.h"

namespace mc::gpu {

using device::Calls;

namespace {
constexpr unsigned kLazyPeerAccess = 1;  // the only flag that cuIpcOpenMemHandle takes
}

Imports::~Imports() {
  for (auto at = imports_.begin(); at != imports_.end();) {
    at->second.uses = 0;
    close_if_unused(at++);
  }
}

Status Imports::open(const Name& name, const device::IpcHandle& handle, std::uint64_t bytes) {
  const auto known = imports_.find(name);
  if (known != imports_.end()) {
    const Import& import = known->second;
    if (!import.closing && import.chunks == nullptr && import.bytes == bytes &&
        std::memcmp(&import.handle, &handle, sizeof handle) == 0) {
      return {};
    }
    return {MC_INVALID_ARGUMENT, "the allocation's number stands for another allocation"};
  }
  if (Status status = has_room_for(name.client); !status.ok()) return status;
  const device::Current current(driver_, device_);
  if (!current.status().ok()) return current.status();
  Import import;
  import.handle = handle;
  import.bytes = bytes;
  Status status = driver_.call<&Calls::open_memory>(&import.address, handle, kLazyPeerAccess);
  if (!status.ok()) return status;
  ++counters_.opened;
  MC_FAILPOINT("gpu.memory_opened");
  // The handle opens a whole block. The client may not reach beyond that.
  std::uint64_t base = 0;
  std::size_t mapped = 0;
  status = driver_.call<&Calls::get_address_range>(&base, &mapped, import.address);
  const auto at = imports_.emplace(name, std::move(import)).first;
  const std::uint64_t address = at->second.address;
  if (status.ok() && bytes <= mapped && address - base <= mapped - bytes) return {};
  at->second.closing = true;
  close_if_unused(at);
  return status.ok() ? Status{MC_INVALID_ARGUMENT, "the allocation is smaller than its client says"}
                     : status;
}

Status Imports::has_room_for(std::uint64_t client) const {
  const auto first = imports_.lower_bound({client, 0});
  const auto end = imports_.upper_bound({client, ~std::uint64_t{0}});
  if (static_cast<std::size_t>(std::distance(first, end)) < kMaxPerClient) return {};
  return {MC_QUOTA_EXCEEDED, "a client may share " + std::to_string(kMaxPerClient) +
                                 " allocations of a device; unregister some"};
}

Status Imports::add_chunks(const Name& name, std::uint64_t whole_bytes, std::span<const Fd> chunks,
                           std::span<const std::uint64_t> bytes) {
  auto at = imports_.find(name);
  if (at == imports_.end()) {
    if (Status status = has_room_for(name.client); !status.ok()) return status;
    auto reserved = MappedChunks::reserve(driver_, device_, whole_bytes);
    if (!reserved) return reserved.error();
    Import import;
    import.address = (*reserved)->address();
    import.chunks = std::move(*reserved);
    at = imports_.emplace(name, std::move(import)).first;
    ++counters_.opened;
    MC_FAILPOINT("gpu.range_reserved");
  }
  Import& import = at->second;
  if (import.closing || import.chunks == nullptr ||
      import.chunks->reserved_bytes() != whole_bytes) {
    return {MC_INVALID_ARGUMENT, "the allocation's number stands for another allocation"};
  }
  Status status = import.chunks->append(chunks, bytes);
  import.bytes = import.chunks->mapped_bytes();
  if (import.bytes == 0) close(name);
  return status;
}

Result<std::uint64_t> Imports::use(const Name& name, std::uint64_t offset, std::uint64_t bytes) {
  const auto at = imports_.find(name);
  if (at == imports_.end() || at->second.closing) {
    return fail(MC_NOT_FOUND, "the worker does not have this allocation");
  }
  Import& import = at->second;
  if (bytes > import.bytes || offset > import.bytes - bytes) {
    return fail(MC_INVALID_ARGUMENT, "the range ends beyond its allocation");
  }
  ++import.uses;
  return import.address + offset;
}

void Imports::done(const Name& name) {
  const auto at = imports_.find(name);
  if (at == imports_.end()) return;
  --at->second.uses;
  if (at->second.closing) close_if_unused(at);
}

void Imports::close(const Name& name) {
  const auto at = imports_.find(name);
  if (at == imports_.end()) return;
  at->second.closing = true;
  close_if_unused(at);
}

void Imports::close_all(std::uint64_t client) {
  for (auto at = imports_.lower_bound({client, 0});
       at != imports_.end() && at->first.client == client;) {
    at->second.closing = true;
    close_if_unused(at++);
  }
}

void Imports::close_if_unused(Table::iterator at) {
  if (at->second.uses > 0) return;
  const device::Current current(driver_, device_);
  if (current.status().ok() && at->second.chunks == nullptr) {
    static_cast<void>(driver_.calls().close_memory(at->second.address));
  }
  ++counters_.closed;
  imports_.erase(at);
}

}  // namespace mc::gpu
