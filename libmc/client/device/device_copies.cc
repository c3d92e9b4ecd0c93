// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/device/device_copies.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "libmc/client/client.h"

namespace mc::client {

using device::Calls;
using device::DevicePiece;
using device::Direction;
using device::Driver;
using shm::OwnCopies;

namespace {

// The worker's answer takes longer than a smaller copy through a buffer.
constexpr std::uint64_t kWorkerBytes = 64 * 1024;
constexpr std::uint64_t kNoLaneNs = 1'000'000'000;  // until the next try

// Then the memory was looked up for the piece before.
bool is_in_only_chunk(const RegisteredMemory& memory, const DevicePiece& piece) {
  return memory.chunks.size() == 1 && memory.base <= piece.device &&
         piece.device + piece.bytes <= memory.base + memory.bytes;
}

// Why a worker did not copy.
OwnCopies reason_of(const Status& status) {
  switch (status.code()) {
    case MC_UNSUPPORTED:
      return OwnCopies::kNone;
    case MC_BUSY:
      return OwnCopies::kNotPinned;
    case MC_AGENT_UNAVAILABLE:
      return OwnCopies::kNoWorker;
    case MC_NOT_FOUND:
      return OwnCopies::kNotRegistered;
    default:
      return OwnCopies::kNotShared;
  }
}

}  // namespace

Status DeviceCopies::copy(int device, Direction direction, std::span<const DevicePiece> pieces) {
  const std::uint64_t bytes = device::bytes_of(pieces);
  Status refusal(MC_UNSUPPORTED);
  if (bytes >= kWorkerBytes) {
    refusal = copy_by_worker(device, direction, pieces);
    if (refusal.ok()) {
      channel_.count_worker_copy(bytes);
      return {};
    }
  }
  Status status = copy_here(device, direction, pieces, nullptr);
  if (status.ok()) count_refusal(bytes, refusal);
  return status;
}

void DeviceCopies::count_refusal(std::uint64_t bytes, const Status& why) {
  channel_.count_own_copy(bytes, reason_of(why));
}

void DeviceCopies::close(const RegisteredMemory& memory) {
  WorkerLane* const lane = lane_of(devices_[memory.device], memory.device);
  // A worker that has ended has closed everything.
  if (lane != nullptr) static_cast<void>(lane->close(memory));
}

// ---- By the worker ------------------------------------------------------------------------------

WorkerLane* DeviceCopies::lane_of(Device& at, int device) {
  const std::uint64_t session = channel_.memory().serial;
  if (at.lane && at.lane->session() == session && !at.lane->has_ended()) return at.lane.get();
  at.lane.reset();
  const std::uint64_t now = now_ns();
  if (now < at.try_again_ns) return nullptr;
  at.try_again_ns = now + kNoLaneNs;
  if (!Driver::found()->call<&Calls::get_device_uuid>(&at.uuid, device).ok()) return nullptr;
  auto lane = client_.open_lane(at.uuid);
  if (!lane) return nullptr;
  at.lane = std::make_unique<WorkerLane>(std::move(*lane));
  at.try_again_ns = 0;
  return at.lane.get();
}

bool DeviceCopies::place(const std::byte* host, std::uint64_t bytes, shm::LaneCopy& copy) const {
  const Memory& memory = channel_.memory();
  copy.memory = static_cast<std::uint32_t>(shm::LaneMemory::kPool);
  for (const Mapping* pool : {&memory.pool_map, &memory.pool_write_map}) {
    if (pool->data() == nullptr || host < pool->data()) continue;
    copy.host_offset = static_cast<std::uint64_t>(host - pool->data());
    if (copy.host_offset < pool->size_bytes()) return true;
  }
  const auto staging = client_.staging_if_any();
  const auto offset = staging ? staging->offset_of(host, bytes) : std::nullopt;
  copy.memory = static_cast<std::uint32_t>(shm::LaneMemory::kStaging);
  copy.host_offset = offset.value_or(0);
  return offset.has_value();
}

Status DeviceCopies::prepare(int device, Direction direction, std::span<const DevicePiece> pieces,
                             std::vector<shm::LaneCopy>& copies) {
  const Driver& driver = *Driver::found();
  std::vector<Registrations::Memory> memories;
  for (const DevicePiece& piece : pieces) {
    shm::LaneCopy copy{};
    if (!place(piece.host, piece.bytes, copy)) return MC_UNSUPPORTED;
    if (memories.empty() || !is_in_only_chunk(*memories.back(), piece)) {
      auto memory = client_.registrations().find(driver, piece.device, piece.bytes);
      if (memory == nullptr) return MC_NOT_FOUND;
      memories.push_back(std::move(memory));
    }
    copy.allocation = memories.back()->number;
    copy.device_offset = piece.device - memories.back()->base;
    copy.to_device = direction == Direction::kToDevice ? 1 : 0;
    for (std::uint64_t left = piece.bytes; left > 0; left -= copy.bytes) {
      copy.bytes = std::min(left, shm::kMaxLaneBytes);
      copies.push_back(copy);
      copy.device_offset += copy.bytes;
      copy.host_offset += copy.bytes;
    }
  }
  WorkerLane* const lane = lane_of(devices_[device], device);
  if (lane == nullptr) return MC_AGENT_UNAVAILABLE;
  for (const Registrations::Memory& memory : memories) {
    if (Status status = lane->share(driver, *memory); !status.ok()) return status;
  }
  return {};
}

Status DeviceCopies::copy_by_worker(int device, Direction direction,
                                    std::span<const DevicePiece> pieces) {
  std::vector<shm::LaneCopy> copies;
  if (Status status = prepare(device, direction, pieces, copies); !status.ok()) return status;
  {
    const Driver& driver = *Driver::found();
    const device::Current current(driver, device);
    if (!current.status().ok()) return current.status();
    if (Status status = driver.call<&Calls::stream_synchronize>(nullptr); !status.ok()) {
      return status;
    }
  }
  return devices_[device].lane->copy(copies);
}

// ---- By this thread -----------------------------------------------------------------------------

Status DeviceCopies::copy_here(int device, Direction direction, std::span<const DevicePiece> pieces,
                               void* stream) {
  const Driver& driver = *Driver::found();
  Device& at = devices_[device];
  if (!at.buffers && !at.has_no_buffers) {
    auto buffers = device::PinnedBuffers::create(driver, device);
    at.has_no_buffers = !buffers;
    if (buffers) at.buffers = std::move(*buffers);
  }
  if (at.buffers) return at.buffers->copy(direction, pieces, stream);
  {
    const device::Current current(driver, device);
    if (!current.status().ok()) return current.status();
    if (Status status = driver.call<&Calls::stream_synchronize>(stream); !status.ok())
      return status;
  }
  for (const DevicePiece& piece : pieces) {
    auto* const address = reinterpret_cast<std::byte*>(piece.device);
    Status status = direction == Direction::kToDevice
                        ? device::copy_to_device(driver, device, address, piece.host, piece.bytes)
                        : device::copy_to_host(driver, device, piece.host, address, piece.bytes);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace mc::client
