// SPDX-License-Identifier: Apache-2.0
#include "agent/gpu/mapped_chunks.h"

#include <string>

namespace mc::gpu {

using device::Calls;

namespace {
constexpr int kPosixDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
constexpr int kOnDevice = 1;         // CU_MEM_LOCATION_TYPE_DEVICE
constexpr int kReadWrite = 3;        // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
}  // namespace

Result<std::unique_ptr<MappedChunks>> MappedChunks::reserve(const device::Driver& driver,
                                                            int device, std::uint64_t bytes) {
  if (bytes == 0 || bytes > kMaxBytes) {
    return fail(MC_INVALID_ARGUMENT, "a range of chunks has 1 byte to 16 TiB");
  }
  const device::Current current(driver, device);
  if (!current.status().ok()) return fail(current.status());
  std::unique_ptr<MappedChunks> made(new MappedChunks(driver, device, bytes));
  const Status status = driver.call<&Calls::reserve_addresses>(
      &made->address_, bytes, std::size_t{0}, std::uint64_t{0}, 0ULL);
  if (!status.ok()) return fail(status);
  return made;
}

MappedChunks::~MappedChunks() {
  const device::Current current(driver_, device_);
  if (!current.status().ok()) return;
  while (!chunks_.empty()) unmap_last();
  if (address_ != 0) {
    static_cast<void>(driver_.calls().free_addresses(address_, reserved_bytes_));
  }
}

Status MappedChunks::append(std::span<const Fd> chunks, std::span<const std::uint64_t> bytes) {
  if (chunks.size() > kMaxChunks - chunks_.size()) {
    return {MC_QUOTA_EXCEEDED,
            "an allocation may have " + std::to_string(kMaxChunks) + " chunks; use larger ones"};
  }
  const device::Current current(driver_, device_);
  if (!current.status().ok()) return current.status();
  const std::size_t before = chunks_.size();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (Status status = map(chunks[i], bytes[i]); !status.ok()) {
      while (chunks_.size() > before) unmap_last();
      return status;
    }
  }
  return {};
}

Status MappedChunks::map(const Fd& chunk, std::uint64_t bytes) {
  if (bytes == 0 || bytes > reserved_bytes_ - mapped_bytes_) {
    return {MC_INVALID_ARGUMENT, "the chunks are larger than their allocation"};
  }
  unsigned long long handle = 0;
  void* const descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(chunk.get()));
  Status status = driver_.call<&Calls::import_chunk>(&handle, descriptor, kPosixDescriptor);
  if (!status.ok()) return status;
  const std::uint64_t at = address_ + mapped_bytes_;
  status = driver_.call<&Calls::map_chunk>(at, bytes, std::size_t{0}, handle, 0ULL);
  // The mapping keeps the memory.
  static_cast<void>(driver_.calls().release_chunk(handle));
  if (!status.ok()) return status;
  chunks_.push_back(bytes);
  mapped_bytes_ += bytes;
  const device::Access access{kOnDevice, device_, kReadWrite};
  status = driver_.call<&Calls::set_access>(at, bytes, &access, std::size_t{1});
  if (!status.ok()) unmap_last();
  return status;
}

void MappedChunks::unmap_last() {
  mapped_bytes_ -= chunks_.back();
  static_cast<void>(driver_.calls().unmap_chunk(address_ + mapped_bytes_, chunks_.back()));
  chunks_.pop_back();
}

}  // namespace mc::gpu
