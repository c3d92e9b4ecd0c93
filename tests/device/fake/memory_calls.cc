// SPDX-License-Identifier: Apache-2.0
//
// Memory of devices and of the host, and the sharing of memory between processes: functions of the driver.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "device/fake/exports.h"
#include "device/fake/memory.h"
#include "device/fake/misuse.h"
#include "device/fake/streams.h"

namespace mc::fake {

namespace {

int physical() { return Machine::get().physical_device(current_device()); }

// Freeing and unmapping wait for the device, however long.
void drain() { Streams::get().drain(physical()); }

// ---- Handles of physical memory ---------------------------------------------------------------

std::mutex handles_mutex;
std::map<CUphysical, int> handles;  // to places of blocks; each holds a reference
CUphysical next_handle = 1;

CUphysical make_handle(int block) {
  const std::lock_guard lock(handles_mutex);
  handles[next_handle] = block;
  return next_handle++;
}

int find_handle(const char* call, CUphysical handle) {
  const std::lock_guard lock(handles_mutex);
  const auto at = handles.find(handle);
  if (at == handles.end()) misuse(call, "no such handle of physical memory");
  return at->second;
}

void reference(int block) {
  const Machine::Locked tables(Machine::get());
  ++tables->blocks[static_cast<std::size_t>(block)]
        .references[static_cast<std::size_t>(Machine::get().self())];
}

// ---- Handles for other processes --------------------------------------------------------------

struct MemoryName {
  char magic[8];
  std::int32_t block;
  std::int32_t owner;
  std::uint64_t offset;
};
constexpr char kMemoryMagic[8] = "mcblock";

int open_name(const CUipcHandle& handle, CUdeviceptr* address) {
  MemoryName name{};
  std::memcpy(&name, handle.bytes, sizeof name);
  if (std::memcmp(name.magic, kMemoryMagic, sizeof name.magic) != 0 || name.block < 0 ||
      name.block >= kMaxBlocks || name.owner < 0 || name.owner >= kMaxProcesses) {
    return kInvalidValue;
  }
  Machine& machine = Machine::get();
  {
    const Machine::Locked tables(machine);
    const auto& pids = tables->pids;
    // The driver takes processes with equal PIDs, in two namespaces, for the same process.
    if (name.owner == machine.self() || pids[static_cast<std::size_t>(name.owner)] ==
                                            pids[static_cast<std::size_t>(machine.self())]) {
      return kInvalidContext;
    }
  }
  if (!machine.is_alive(name.owner)) return kInvalidHandle;
  *address = Memory::get().open(name.block, name.offset);
  return *address == 0 ? kInvalidValue : kSuccess;
}

int attribute_of(const Chunk& chunk, int attribute, void* data) {
  switch (attribute) {
    case kAttributeMemoryType:
      *static_cast<unsigned*>(data) = 2;
      return kSuccess;
    case kAttributeSyncMemops:
      *static_cast<unsigned*>(data) = chunk.sync_memops ? 1 : 0;
      return kSuccess;
    case kAttributeBufferId:
      *static_cast<std::uint64_t*>(data) = chunk.buffer_id;
      return kSuccess;
    case kAttributeIsManaged:
      *static_cast<unsigned*>(data) = chunk.kind == Chunk::Kind::kManaged ? 1 : 0;
      return kSuccess;
    case kAttributeOrdinal:
      *static_cast<int*>(data) = Machine::get().ordinal_of(chunk.device);
      return kSuccess;
    case kAttributeLegacyIpc:
      *static_cast<unsigned*>(data) = chunk.kind == Chunk::Kind::kAllocated ? 1 : 0;
      return kSuccess;
    case kAttributeRangeStart:
      *static_cast<std::uint64_t*>(data) = chunk.reserved_at;
      return kSuccess;
    case kAttributeRangeSize:
      *static_cast<std::size_t*>(data) = chunk.reserved_bytes;
      return kSuccess;
    case kAttributeBlockId:
    case kAttributeHandleTypes: {
      const Machine::Locked tables(Machine::get());
      const Block& block = tables->blocks[static_cast<std::size_t>(chunk.block)];
      *static_cast<std::uint64_t*>(data) = attribute == kAttributeBlockId
                                               ? block.id
                                               : static_cast<std::uint64_t>(block.handle_types);
      return kSuccess;
    }
    default:
      return kInvalidValue;
  }
}

bool is_whole(std::uint64_t value) { return value != 0 && value % kGranularity == 0; }

}  // namespace

std::size_t count_handles() {
  const std::lock_guard lock(handles_mutex);
  return handles.size();
}

}  // namespace mc::fake

using namespace mc::fake;  // NOLINT(google-build-using-namespace): the functions below are C

extern "C" {

int cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  const Entry entry("cuMemAlloc_v2");
  if (entry.error() != kSuccess) return entry.error();
  if (bytes == 0) return kInvalidValue;
  *address = Memory::get().allocate(bytes, physical(), false);
  return *address == 0 ? kOutOfMemory : kSuccess;
}

int cuMemFree_v2(CUdeviceptr address) {
  const Entry entry("cuMemFree_v2");
  if (entry.error() != kSuccess) return entry.error();
  Memory::get().check_idle(entry.call(), address);
  drain();
  Memory::get().free(entry.call(), address);
  return kSuccess;
}

int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  const Entry entry("cuMemGetInfo_v2");
  if (entry.error() != kSuccess) return entry.error();
  wait_for_pinning();
  *total = kDeviceBytes;
  *free = kDeviceBytes - Machine::get().used(physical());
  return kSuccess;
}

int cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr pointer) {
  const Entry entry("cuMemGetAddressRange_v2", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  const bool found = Memory::get().with_chunk(pointer, [&](CUdeviceptr at, const Chunk& chunk) {
    *base = at;
    *bytes = chunk.bytes;
  });
  return found ? kSuccess : kInvalidValue;
}

int cuPointerGetAttribute(void* data, int attribute, CUdeviceptr pointer) {
  const Entry entry("cuPointerGetAttribute", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  int error = kInvalidValue;
  Memory::get().with_chunk(pointer, [&](CUdeviceptr, const Chunk& chunk) {
    error = attribute_of(chunk, attribute, data);
  });
  return error;
}

int cuPointerSetAttribute(const void* value, int attribute, CUdeviceptr pointer) {
  const Entry entry("cuPointerSetAttribute", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  if (attribute != kAttributeSyncMemops) return kInvalidValue;
  const bool found = Memory::get().with_chunk(pointer, [&](CUdeviceptr, Chunk& chunk) {
    chunk.sync_memops = *static_cast<const unsigned*>(value) != 0;
  });
  return found ? kSuccess : kInvalidValue;
}

int cuMemHostRegister_v2(void* host, std::size_t bytes, unsigned flags) {
  const Entry entry("cuMemHostRegister_v2");
  if (entry.error() != kSuccess) return entry.error();
  return bytes == 0 ? int{kInvalidValue} : Memory::get().pin(host, bytes, flags);
}

int cuMemHostUnregister(void* host) {
  const Entry entry("cuMemHostUnregister");
  if (entry.error() != kSuccess) return entry.error();
  return Memory::get().unpin(entry.call(), host);
}

int cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* host, unsigned flags) {
  const Entry entry("cuMemHostGetDevicePointer_v2");
  if (entry.error() != kSuccess) return entry.error();
  return flags != 0 ? int{kInvalidValue} : Memory::get().alias_of(host, address);
}

int cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* prop, int) {
  const Entry entry("cuMemGetAllocationGranularity", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  if (prop->type != 1 || prop->location.type != 1) return kInvalidValue;
  *bytes = kGranularity;
  return kSuccess;
}

int cuMemCreate(CUphysical* handle, std::size_t bytes, const CUmemAllocationProp* prop,
                unsigned long long flags) {
  const Entry entry("cuMemCreate", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  if (flags != 0 || prop->type != 1 || prop->location.type != 1 || prop->location.id < 0 ||
      prop->location.id >= kDevices || !is_whole(bytes)) {
    return kInvalidValue;
  }
  Machine& machine = Machine::get();
  const int block =
      machine.make_block(BlockKind::kPhysical, machine.physical_device(prop->location.id), bytes);
  if (block < 0) return kOutOfMemory;
  {
    const Machine::Locked tables(machine);
    tables->blocks[static_cast<std::size_t>(block)].handle_types = prop->requestedHandleTypes;
  }
  *handle = make_handle(block);
  return kSuccess;
}

int cuMemRelease(CUphysical handle) {
  const Entry entry("cuMemRelease", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  const int block = find_handle(entry.call(), handle);
  {
    const std::lock_guard lock(handles_mutex);
    handles.erase(handle);
  }
  Machine::get().release(block);
  return kSuccess;
}

int cuMemRetainAllocationHandle(CUphysical* handle, void* address) {
  const Entry entry("cuMemRetainAllocationHandle", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  int block = -1;
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  Memory::get().with_chunk(at, [&](CUdeviceptr, const Chunk& chunk) {
    if (chunk.kind == Chunk::Kind::kMapped) block = chunk.block;
  });
  if (block < 0) return kInvalidValue;
  reference(block);
  *handle = make_handle(block);
  return kSuccess;
}

int cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                        unsigned long long flags) {
  const Entry entry("cuMemAddressReserve", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  if (flags != 0 || !is_whole(bytes) || alignment > kGranularity) return kInvalidValue;
  *address = Memory::get().reserve(bytes);
  return kSuccess;
}

int cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  const Entry entry("cuMemAddressFree", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  Memory::get().unreserve(entry.call(), address, bytes);
  return kSuccess;
}

int cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUphysical handle,
             unsigned long long flags) {
  const Entry entry("cuMemMap", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  if (offset != 0 || flags != 0 || !is_whole(bytes) || address % kGranularity != 0) {
    return kInvalidValue;
  }
  return Memory::get().map(entry.call(), address, bytes, find_handle(entry.call(), handle));
}

int cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  const Entry entry("cuMemUnmap");
  if (entry.error() != kSuccess) return entry.error();
  Memory::get().check_idle(entry.call(), address);
  drain();
  Memory::get().unmap(entry.call(), address, bytes);
  return kSuccess;
}

int cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* descriptions,
                   std::size_t count) {
  const Entry entry("cuMemSetAccess", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  for (std::size_t i = 0; i < count; ++i) {
    if (descriptions[i].location.type != 1) return kInvalidValue;
  }
  return Memory::get().set_access(address, bytes);
}

int cuMemExportToShareableHandle(void* shareable, CUphysical handle, int type,
                                 unsigned long long flags) {
  const Entry entry("cuMemExportToShareableHandle", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  const int place = find_handle(entry.call(), handle);
  const Machine::Locked tables(Machine::get());
  Block& block = tables->blocks[static_cast<std::size_t>(place)];
  if (flags != 0 || (block.handle_types & type) == 0) return kInvalidValue;
  if (type == kFabricHandle) return kNotPermitted;  // there is no channel of the fabric here
  if (type != kPosixHandle) return kInvalidValue;
  *static_cast<int*>(shareable) = Machine::get().open_block(block);
  return kSuccess;
}

int cuMemImportFromShareableHandle(CUphysical* handle, void* shareable, int type) {
  const Entry entry("cuMemImportFromShareableHandle", Entry::Needs::kDriver);
  if (entry.error() != kSuccess) return entry.error();
  struct stat state {};
  const auto fd = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
  if (type != kPosixHandle || ::fstat(fd, &state) != 0) return kInvalidValue;
  int found = -1;
  {
    const Machine::Locked tables(Machine::get());
    for (int place = 0; place < kMaxBlocks && found < 0; ++place) {
      const Block& block = tables->blocks[static_cast<std::size_t>(place)];
      if (block.kind == BlockKind::kPhysical && block.inode == state.st_ino) found = place;
    }
  }
  if (found < 0) return kInvalidValue;
  reference(found);
  *handle = make_handle(found);
  return kSuccess;
}

int cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, std::size_t bytes, int type,
                                  unsigned long long flags) {
  const Entry entry("cuMemGetHandleForAddressRange");
  if (entry.error() != kSuccess) return entry.error();
  if (type != 1 || bytes == 0 || address % 4096 != 0 || bytes % 4096 != 0) return kInvalidValue;
  if (flags != 0) return kNotSupported;
  Place place;
  if (Memory::get().find_place(address, bytes, Side::kDevice, &place) != kSuccess ||
      place.host == nullptr) {
    return kInvalidValue;
  }
  int fd = -1;
  Memory::get().with_chunk(address, [&](CUdeviceptr, const Chunk& chunk) {
    const Machine::Locked tables(Machine::get());
    fd = Machine::get().open_block(tables->blocks[static_cast<std::size_t>(chunk.block)]);
  });
  *static_cast<int*>(handle) = fd;
  return kSuccess;
}

int cuIpcGetMemHandle(CUipcHandle* handle, CUdeviceptr address) {
  const Entry entry("cuIpcGetMemHandle");
  if (entry.error() != kSuccess) return entry.error();
  Machine& machine = Machine::get();
  if (!machine.is_shared()) return kNotSupported;
  MemoryName name{};
  std::memcpy(name.magic, kMemoryMagic, sizeof name.magic);
  name.block = -1;
  name.owner = machine.self();
  Memory::get().with_chunk(address, [&](CUdeviceptr at, const Chunk& chunk) {
    if (chunk.kind != Chunk::Kind::kAllocated) return;
    name.block = chunk.block;
    name.offset = chunk.offset + (address - at);
  });
  if (name.block < 0) return kInvalidValue;
  *handle = {};
  std::memcpy(handle->bytes, &name, sizeof name);
  return kSuccess;
}

int cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcHandle handle, unsigned flags) {
  const Entry entry("cuIpcOpenMemHandle_v2");
  if (entry.error() != kSuccess) return entry.error();
  return flags != 1 ? int{kInvalidValue} : open_name(handle, address);
}

int cuIpcCloseMemHandle(CUdeviceptr address) {
  const Entry entry("cuIpcCloseMemHandle");
  if (entry.error() != kSuccess) return entry.error();
  Memory::get().check_idle(entry.call(), address);
  drain();
  return Memory::get().close(address) ? int{kSuccess} : int{kInvalidValue};
}

int cuIpcGetEventHandle(CUipcHandle* handle, CUevent event) {
  const Entry entry("cuIpcGetEventHandle");
  if (entry.error() != kSuccess) return entry.error();
  return Events::get().share(entry.call(), event, handle);
}

int cuIpcOpenEventHandle(CUevent* event, CUipcHandle handle) {
  const Entry entry("cuIpcOpenEventHandle");
  return entry.error() != kSuccess ? entry.error() : Events::get().open(event, handle);
}

}  // extern "C"
