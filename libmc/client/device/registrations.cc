// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/device/registrations.h"

#include <algorithm>
#include <iterator>

namespace mc::client {

using device::Calls;
using device::Driver;

namespace {

constexpr int kBufferId = 7;  // CU_POINTER_ATTRIBUTE_BUFFER_ID

std::uint64_t id_at(const Driver& driver, std::uint64_t address) {
  std::uint64_t id = 0;
  return driver.calls().pointer_get_attribute(&id, kBufferId, address) == 0 ? id : 0;
}

// The chunks from that of the first byte on. REQUIRES: memory is mapped in the whole range.
Result<std::vector<RegisteredMemory::Chunk>> chunks_of(const Driver& driver, std::uint64_t address,
                                                       std::uint64_t bytes) {
  std::vector<RegisteredMemory::Chunk> chunks;
  for (std::uint64_t at = address; at < address + bytes;) {
    RegisteredMemory::Chunk chunk;
    std::size_t chunk_bytes = 0;
    const Status status = driver.call<&Calls::get_address_range>(&chunk.base, &chunk_bytes, at);
    if (!status.ok()) return fail(status);
    chunk.bytes = chunk_bytes;
    chunk.id = id_at(driver, chunk.base);
    chunks.push_back(chunk);
    at = chunk.base + chunk.bytes;
  }
  return chunks;
}

bool is_unchanged(const Driver& driver, const RegisteredMemory& memory, std::uint64_t address,
                  std::uint64_t bytes) {
  auto chunk = std::upper_bound(
      memory.chunks.begin(), memory.chunks.end(), address,
      [](std::uint64_t at, const RegisteredMemory::Chunk& each) { return at < each.base; });
  for (--chunk; chunk != memory.chunks.end() && chunk->base < address + bytes; ++chunk) {
    if (id_at(driver, chunk->base) != chunk->id) return false;
  }
  return true;
}

// The allocation that has the address.
template <typename Table>
auto holder_of(Table& table, std::uint64_t address) {
  const auto after = table.upper_bound(address);
  if (after == table.begin()) return table.end();
  const auto at = std::prev(after);
  return address - at->first < at->second.memory->bytes ? at : table.end();
}

}  // namespace

Result<Registrations::Memory> Registrations::add(const Driver& driver, const void* address,
                                                 std::uint64_t bytes, Memory* replaced) {
  replaced->reset();
  const auto device = device::device_of(driver, address, bytes);
  if (!device) return fail(device.error());
  if (*device == device::kHost || bytes == 0) return Memory();
  const auto first = reinterpret_cast<std::uint64_t>(address);
  const MutexLock lock(mutex_);
  unsigned times = 1;
  if (const auto known = holder_of(table_, first); known != table_.end()) {
    const RegisteredMemory& memory = *known->second.memory;
    const std::uint64_t here = std::min(bytes, memory.base + memory.bytes - first);
    const bool unchanged = is_unchanged(driver, memory, first, here);
    if (unchanged) times = ++known->second.times;
    if (unchanged && here == bytes) return known->second.memory;
    *replaced = known->second.memory;
    table_.erase(known);
  }
  auto chunks = chunks_of(driver, first, bytes);
  if (!chunks) return fail(chunks.error());
  auto memory = std::make_shared<RegisteredMemory>();
  memory->number = next_number_++;
  memory->device = *device;
  memory->chunks = std::move(*chunks);
  memory->base = memory->chunks.front().base;
  memory->bytes = memory->chunks.back().base + memory->chunks.back().bytes - memory->base;
  const device::Current current(driver, *device);
  memory->handle_error = current.status();
  if (current.status().ok()) {
    memory->handle_error = memory->chunks.size() == 1 ? driver.call<&Calls::get_memory_handle>(
                                                            &memory->handle, memory->base)
                                                      : Status(MC_UNSUPPORTED);
  }
  table_[memory->base] = {memory, times};
  return memory;
}

Registrations::Memory Registrations::remove(const void* address) {
  const MutexLock lock(mutex_);
  const auto at = holder_of(table_, reinterpret_cast<std::uint64_t>(address));
  if (at == table_.end() || --at->second.times > 0) return nullptr;
  Memory memory = std::move(at->second.memory);
  table_.erase(at);
  return memory;
}

std::vector<Registrations::Memory> Registrations::remove_all() {
  const MutexLock lock(mutex_);
  std::vector<Memory> memories;
  for (const auto& [base, entry] : table_) memories.push_back(entry.memory);
  table_.clear();
  return memories;
}

Registrations::Memory Registrations::find(const Driver& driver, std::uint64_t address,
                                          std::uint64_t bytes) const {
  Memory memory;
  {
    const MutexLock lock(mutex_);
    const auto at = holder_of(table_, address);
    if (at == table_.end()) return nullptr;
    memory = at->second.memory;
  }
  const bool inside = address + bytes <= memory->base + memory->bytes;
  return inside && is_unchanged(driver, *memory, address, bytes) ? memory : nullptr;
}

}  // namespace mc::client
