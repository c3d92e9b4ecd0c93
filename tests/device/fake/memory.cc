// SPDX-License-Identifier: Apache-2.0
#include "device/fake/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "device/fake/misuse.h"

namespace mc::fake {

namespace {

constexpr std::uint64_t kCutBytes = 512;

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

std::byte* take_addresses(std::uint64_t bytes) {
  void* const at =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) misuse("mmap", std::strerror(errno));
  return static_cast<std::byte*>(at);
}

void place_at(void* at, std::uint64_t bytes, int protection, int flags, int fd) {
  if (::mmap(at, bytes, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
    misuse("mmap", std::strerror(errno));
  }
}

// Whether the host memory is mapped, by the kernel's list.
bool is_mapped(std::uint64_t address, std::uint64_t bytes, bool writable) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  std::uint64_t at = address;
  while (at < address + bytes && std::getline(maps, line)) {
    char* rest = nullptr;
    const std::uint64_t first = std::strtoull(line.c_str(), &rest, 16);
    const std::uint64_t end = std::strtoull(rest + 1, &rest, 16);
    if (end <= at) continue;
    if (first > at || (writable && rest[2] != 'w')) return false;
    at = end;
  }
  return at >= address + bytes;
}

// Pinning holds a lock of the driver that other processes' calls need, too: 0.1 s for a GiB.
class PinLock {
 public:
  explicit PinLock(std::uint64_t bytes) {
    if (::pthread_mutex_lock(&Machine::get().tables().pin_lock) == EOWNERDEAD) {
      ::pthread_mutex_consistent(&Machine::get().tables().pin_lock);
    }
    ::usleep(static_cast<useconds_t>((bytes * 100'000) >> 30));
  }
  PinLock(const PinLock&) = delete;
  PinLock& operator=(const PinLock&) = delete;
  ~PinLock() { ::pthread_mutex_unlock(&Machine::get().tables().pin_lock); }
};

}  // namespace

void wait_for_pinning() { const PinLock lock(0); }

Memory& Memory::get() {
  static auto* const memory = new Memory();
  return *memory;
}

Memory::Chunks::iterator Memory::find(CUdeviceptr address) {
  const auto after = chunks_.upper_bound(address);
  if (after == chunks_.begin()) return chunks_.end();
  const auto at = std::prev(after);
  return address - at->first < at->second.bytes ? at : chunks_.end();
}

// ---- Addresses --------------------------------------------------------------------------------

CUdeviceptr Memory::reserve_locked(std::uint64_t bytes) {
  // Aligned, as the driver's reservations are.
  std::byte* const taken = take_addresses(bytes + kGranularity);
  const auto start = reinterpret_cast<std::uint64_t>(taken);
  const std::uint64_t address = rounded(start, kGranularity);
  if (address > start) ::munmap(taken, address - start);
  ::munmap(pointer(address + bytes), start + kGranularity - address);
  reservations_[address] = {bytes, take_addresses(bytes)};
  return address;
}

void Memory::unreserve_locked(CUdeviceptr address) {
  const auto at = reservations_.find(address);
  ::munmap(pointer(address), at->second.bytes);
  ::munmap(at->second.behind, at->second.bytes);
  reservations_.erase(at);
}

std::byte* Memory::behind(CUdeviceptr address) {
  const auto at = std::prev(reservations_.upper_bound(address));
  return at->second.behind + (address - at->first);
}

void Memory::map_bytes(CUdeviceptr address, std::uint64_t bytes, int fd, bool managed) {
  place_at(pointer(address), bytes, managed ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED, fd);
  place_at(behind(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
  ::close(fd);
}

void Memory::unmap_bytes(CUdeviceptr address, std::uint64_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  place_at(pointer(address), bytes, PROT_NONE, flags, -1);
  place_at(behind(address), bytes, PROT_NONE, flags, -1);
}

CUdeviceptr Memory::reserve(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return reserve_locked(bytes);
}

void Memory::unreserve(const char* call, CUdeviceptr address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto at = reservations_.find(address);
  if (at == reservations_.end() || at->second.bytes != bytes) misuse(call, "no such reservation");
  const auto chunk = chunks_.lower_bound(address);
  if (chunk != chunks_.end() && chunk->first < address + bytes) {
    misuse(call, "memory is still mapped in the reservation");
  }
  unreserve_locked(address);
}

void Memory::check_idle(const char* call, CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto at = find(address);
  if (at != chunks_.end() && at->second.busy > 0) misuse(call, "a copy still uses the memory");
}

std::byte* Memory::host_address(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  return find(address) == chunks_.end() ? nullptr : behind(address);
}

// ---- Allocations ------------------------------------------------------------------------------

Memory::Cut Memory::cut(std::uint64_t bytes, int device, bool managed) {
  const std::uint64_t size = rounded(bytes, kCutBytes);
  CUdeviceptr& cutting = cutting_[static_cast<std::size_t>(device)];
  const bool is_small = !managed && size < kGranularity;
  if (is_small && cutting != 0 && shared_[cutting].used + size <= kGranularity) {
    SharedBlock& shared = shared_[cutting];
    const std::uint64_t offset = shared.used;
    shared.used += size;
    ++shared.allocations;
    return {cutting, shared.block, offset};
  }
  const std::uint64_t whole = rounded(size, kGranularity);
  const int block =
      Machine::get().make_block(managed ? BlockKind::kManaged : BlockKind::kLegacy, device, whole);
  if (block < 0) return {};
  int fd = -1;
  {
    const Machine::Locked tables(Machine::get());
    fd = Machine::get().open_block(tables->blocks[static_cast<std::size_t>(block)]);
  }
  const CUdeviceptr address = reserve_locked(whole);
  map_bytes(address, whole, fd, managed);
  shared_[address] = {block, is_small ? size : whole, 1};
  if (is_small) cutting = address;
  return {address, block, 0};
}

CUdeviceptr Memory::allocate(std::uint64_t bytes, int device, bool managed) {
  const std::lock_guard lock(mutex_);
  const Cut made = cut(bytes, device, managed);
  if (made.reserved_at == 0) return 0;
  Chunk chunk;
  chunk.kind = managed ? Chunk::Kind::kManaged : Chunk::Kind::kAllocated;
  chunk.bytes = bytes;
  chunk.device = device;
  chunk.block = made.block;
  chunk.offset = made.offset;
  chunk.reserved_at = made.reserved_at + made.offset;
  chunk.reserved_bytes = bytes;
  chunk.buffer_id = next_buffer_++;
  chunks_[chunk.reserved_at] = chunk;
  return chunk.reserved_at;
}

void Memory::free(const char* call, CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto at = chunks_.find(address);
  if (at == chunks_.end() ||
      (at->second.kind != Chunk::Kind::kAllocated && at->second.kind != Chunk::Kind::kManaged)) {
    misuse(call, "not the start of an allocation");
  }
  const int block = at->second.block;
  const CUdeviceptr whole = address - at->second.offset;
  {
    const Machine::Locked tables(Machine::get());
    const auto& references = tables->blocks[static_cast<std::size_t>(block)].references;
    for (int process = 0; process < kMaxProcesses; ++process) {
      if (process != Machine::get().self() && references[static_cast<std::size_t>(process)] != 0 &&
          Machine::get().is_alive(process)) {
        misuse(call, "another process still has the memory open");
      }
    }
  }
  chunks_.erase(at);
  SharedBlock& shared = shared_[whole];
  if (--shared.allocations > 0) return;
  for (CUdeviceptr& cutting : cutting_) {
    if (cutting == whole) cutting = 0;
  }
  shared_.erase(whole);
  unreserve_locked(whole);
  Machine::get().release(block);
}

// ---- Chunks of reservations, and blocks of other processes -------------------------------------

int Memory::map(const char* call, CUdeviceptr address, std::uint64_t bytes, int block) {
  const std::lock_guard lock(mutex_);
  const auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return kInvalidValue;
  const auto reserved = std::prev(after);
  if (address - reserved->first + bytes > reserved->second.bytes) return kInvalidValue;
  const auto next = chunks_.lower_bound(address);
  if (find(address) != chunks_.end() || (next != chunks_.end() && next->first < address + bytes)) {
    misuse(call, "the addresses are mapped already");
  }
  Chunk chunk;
  chunk.kind = Chunk::Kind::kMapped;
  chunk.bytes = bytes;
  chunk.block = block;
  chunk.reserved_at = reserved->first;
  chunk.reserved_bytes = reserved->second.bytes;
  chunk.buffer_id = next_buffer_++;
  chunk.accessible = false;
  int fd = -1;
  {
    const Machine::Locked tables(Machine::get());
    Block& own = tables->blocks[static_cast<std::size_t>(block)];
    if (own.bytes != bytes) return kInvalidValue;
    ++own.references[static_cast<std::size_t>(Machine::get().self())];
    chunk.device = own.device;
    fd = Machine::get().open_block(own);
  }
  map_bytes(address, bytes, fd, false);
  chunks_[address] = chunk;
  return kSuccess;
}

void Memory::unmap(const char* call, CUdeviceptr address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const CUdeviceptr end = address + bytes;
  while (address < end) {
    const auto at = chunks_.find(address);
    if (at == chunks_.end() || at->second.kind != Chunk::Kind::kMapped ||
        at->second.bytes > end - address) {
      misuse(call, "not a range of whole mappings");
    }
    unmap_bytes(address, at->second.bytes);
    address += at->second.bytes;
    Machine::get().release(at->second.block);
    chunks_.erase(at);
  }
}

int Memory::set_access(CUdeviceptr address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const CUdeviceptr end = address + bytes;
  for (CUdeviceptr at = address; at < end;) {
    const auto chunk = chunks_.find(at);
    if (chunk == chunks_.end() || chunk->second.kind != Chunk::Kind::kMapped) return kInvalidValue;
    chunk->second.accessible = true;
    at += chunk->second.bytes;
  }
  return kSuccess;
}

CUdeviceptr Memory::open(int block, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  for (auto& [address, chunk] : chunks_) {
    if (chunk.kind != Chunk::Kind::kOpened || chunk.block != block) continue;
    ++chunk.opens;
    return address + offset;
  }
  Chunk chunk;
  chunk.kind = Chunk::Kind::kOpened;
  chunk.block = block;
  int fd = -1;
  {
    const Machine::Locked tables(Machine::get());
    Block& theirs = tables->blocks[static_cast<std::size_t>(block)];
    if (theirs.kind != BlockKind::kLegacy || offset >= theirs.bytes) return 0;
    ++theirs.references[static_cast<std::size_t>(Machine::get().self())];
    chunk.device = theirs.device;
    chunk.bytes = theirs.bytes;
    fd = Machine::get().open_block(theirs);
  }
  const CUdeviceptr address = reserve_locked(chunk.bytes);
  chunk.reserved_at = address;
  chunk.reserved_bytes = chunk.bytes;
  chunk.buffer_id = next_buffer_++;
  map_bytes(address, chunk.bytes, fd, false);
  chunks_[address] = chunk;
  return address + offset;
}

bool Memory::close(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto at = find(address);
  if (at == chunks_.end() || at->second.kind != Chunk::Kind::kOpened) return false;
  if (--at->second.opens > 0) return true;
  const int block = at->second.block;
  unreserve_locked(at->first);
  chunks_.erase(at);
  Machine::get().release(block);
  return true;
}

// ---- Host memory ------------------------------------------------------------------------------

int Memory::pin(void* host, std::uint64_t bytes, unsigned flags) {
  if (!is_mapped(reinterpret_cast<std::uint64_t>(host), bytes, (flags & kPinReadOnly) == 0)) {
    return kInvalidValue;
  }
  const PinLock one_at_a_time(bytes);
  const std::lock_guard lock(mutex_);
  const auto start = reinterpret_cast<std::uint64_t>(host);
  const auto next = pins_.lower_bound(start);
  if (next != pins_.end() && next->first < start + bytes) return kAlreadyRegistered;
  if (next != pins_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes > start) return kAlreadyRegistered;
  }
  if (pinned_ + bytes > pin_limit_) return kOutOfMemory;
  pinned_ += bytes;
  // Memory that processes share gets other device addresses. A second mapping of other memory is impossible.
  void* const alias = ::mremap(host, 0, bytes, MREMAP_MAYMOVE);
  pins_[start] = {bytes, flags,
                  alias == MAP_FAILED ? start : reinterpret_cast<std::uint64_t>(alias), 0};
  return kSuccess;
}

int Memory::unpin(const char* call, void* host) {
  const std::lock_guard lock(mutex_);
  const auto at = pins_.find(reinterpret_cast<std::uint64_t>(host));
  if (at == pins_.end()) return kNotRegistered;
  if (at->second.busy > 0) misuse(call, "a copy still uses the memory");
  if (at->second.alias != at->first) ::munmap(pointer(at->second.alias), at->second.bytes);
  pinned_ -= at->second.bytes;
  pins_.erase(at);
  return kSuccess;
}

int Memory::alias_of(void* host, CUdeviceptr* alias) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<std::uint64_t>(host);
  const auto after = pins_.upper_bound(address);
  if (after == pins_.begin()) return kInvalidValue;
  const auto at = std::prev(after);
  const std::uint64_t offset = address - at->first;
  if (offset >= at->second.bytes || (at->second.flags & kPinDeviceMap) == 0) return kInvalidValue;
  *alias = at->second.alias + offset;
  return kSuccess;
}

void Memory::set_pin_limit(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  pin_limit_ = bytes;
}

// ---- Copies and kernels -------------------------------------------------------------------------

int Memory::find_place(CUdeviceptr address, std::uint64_t bytes, Side side, Place* place) {
  const std::lock_guard lock(mutex_);
  *place = {};
  if (const auto first = find(address); first != chunks_.end()) {
    if (side == Side::kHost && first->second.kind != Chunk::Kind::kManaged) return kInvalidValue;
    place->chunk = first->first;
    place->host = behind(address);
    for (auto at = first;;) {
      if (!at->second.accessible) place->host = nullptr;
      const CUdeviceptr end = at->first + at->second.bytes;
      if (address + bytes <= end) return kSuccess;
      at = std::next(at);
      if (at == chunks_.end() || at->first != end ||
          at->second.reserved_at != first->second.reserved_at) {
        place->host = nullptr;
        return kSuccess;
      }
    }
  }
  if (side == Side::kDevice) return kInvalidValue;
  place->host = static_cast<std::byte*>(pointer(address));
  for (const auto& [start, pin] : pins_) {
    for (const std::uint64_t base : {start, pin.alias}) {
      if (address >= base + pin.bytes || address + bytes <= base) continue;
      if (address < base || address + bytes > base + pin.bytes) return kInvalidValue;
      place->pin = start;
      place->is_alias = base == pin.alias && (pin.flags & kPinDeviceMap) != 0;
    }
  }
  return kSuccess;
}

void Memory::use(const Place& place, int change) {
  const std::lock_guard lock(mutex_);
  if (place.chunk != 0) chunks_[place.chunk].busy += change;
  if (place.pin != 0) pins_[place.pin].busy += change;
}

void Memory::protect(const Chunks::value_type& chunk, bool on) {
  if (chunk.second.kind == Chunk::Kind::kManaged || !chunk.second.accessible) return;
  const std::uint64_t page = 4096;
  const std::uint64_t first = chunk.first / page * page;
  const std::uint64_t end = rounded(chunk.first + chunk.second.bytes, page);
  ::mprotect(pointer(first), end - first, on ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void Memory::show(bool on) {
  const std::lock_guard lock(mutex_);
  showing_ += on ? 1 : -1;
  if (showing_ != (on ? 1 : 0)) return;
  for (const auto& chunk : chunks_) protect(chunk, on);
}

std::string Memory::leaks() {
  const std::lock_guard lock(mutex_);
  int counts[4] = {};
  for (const auto& [address, chunk] : chunks_) ++counts[static_cast<int>(chunk.kind)];
  const auto line = [](std::size_t count, const char* kind) {
    return count == 0 ? std::string() : std::to_string(count) + " " + kind + "\n";
  };
  const auto of = [&](Chunk::Kind kind) {
    return static_cast<std::size_t>(counts[static_cast<int>(kind)]);
  };
  std::size_t reserved = 0;
  for (const auto& [address, reservation] : reservations_) {
    const auto at = chunks_.lower_bound(address);
    const bool is_own = shared_.contains(address) || (at != chunks_.end() && at->first == address &&
                                                      at->second.kind == Chunk::Kind::kOpened);
    if (!is_own) ++reserved;
  }
  return line(of(Chunk::Kind::kAllocated) + of(Chunk::Kind::kManaged), "allocations") +
         line(of(Chunk::Kind::kOpened), "opened allocations") +
         line(of(Chunk::Kind::kMapped), "mappings") + line(reserved, "reservations") +
         line(pins_.size(), "pins");
}

}  // namespace mc::fake
