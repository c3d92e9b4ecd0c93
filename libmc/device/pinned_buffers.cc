// SPDX-License-Identifier: Apache-2.0
#include "libmc/device/pinned_buffers.h"

#include <algorithm>
#include <cstring>

namespace mc::device {

namespace {
constexpr std::size_t kPageBytes = 4096;
}  // namespace

class PinnedBuffers::Cutter {
 public:
  explicit Cutter(std::span<const DevicePiece> pieces) : pieces_(pieces) {}

  // False: no piece is left.
  bool fill(std::vector<DevicePiece>& parts) {
    std::uint64_t room = kBufferBytes;
    while (room > 0 && !pieces_.empty()) {
      const DevicePiece& piece = pieces_.front();
      const std::uint64_t bytes = std::min(room, piece.bytes - done_);
      if (bytes > 0) parts.push_back({piece.device + done_, piece.host + done_, bytes});
      room -= bytes;
      done_ += bytes;
      if (done_ < piece.bytes) break;
      pieces_ = pieces_.subspan(1);
      done_ = 0;
    }
    return !parts.empty();
  }

 private:
  std::span<const DevicePiece> pieces_;
  std::uint64_t done_ = 0;  // bytes of the first piece
};

Result<std::unique_ptr<PinnedBuffers>> PinnedBuffers::create(const Driver& driver, int device) {
  Pages memory(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, 2 * kBufferBytes)));
  if (memory == nullptr) return fail(MC_NO_MEMORY);
  const Current current(driver, device);
  if (!current.status().ok()) return fail(current.status());
  std::unique_ptr<PinnedBuffers> made(new PinnedBuffers(driver, device, std::move(memory)));
  Status status = driver.call<&Calls::host_register>(static_cast<void*>(made->memory_.get()),
                                                     2 * kBufferBytes, kPortable);
  if (!status.ok()) return fail(status);
  std::byte* at = made->memory_.get();
  for (Buffer& buffer : made->buffers_) {
    buffer.memory = at;
    at += kBufferBytes;
    status = driver.call<&Calls::event_create>(&buffer.event, kWithoutTiming);
    if (!status.ok()) return fail(status);
  }
  return made;
}

PinnedBuffers::~PinnedBuffers() {
  const Current current(driver_, device_);
  if (!current.status().ok()) return;
  for (const Buffer& buffer : buffers_) {
    if (buffer.event != nullptr) static_cast<void>(driver_.calls().event_destroy(buffer.event));
  }
  if (buffers_[0].memory != nullptr) {
    static_cast<void>(driver_.calls().host_unregister(memory_.get()));
  }
}

Status PinnedBuffers::copy(Direction direction, std::span<const DevicePiece> pieces, void* stream) {
  const Current current(driver_, device_);
  if (!current.status().ok()) return current.status();
  const Status status = copy_in_turns(direction, pieces, stream);
  if (status.ok()) return {};
  // No copy may be under way in the buffers.
  static_cast<void>(driver_.calls().stream_synchronize(stream));
  for (Buffer& buffer : buffers_) buffer.parts.clear();
  return status;
}

Status PinnedBuffers::copy_in_turns(Direction direction, std::span<const DevicePiece> pieces,
                                    void* stream) {
  Cutter cutter(pieces);
  for (std::size_t turn = 0;; turn ^= 1) {
    Buffer& buffer = buffers_[turn];
    if (Status status = finish(buffer, direction); !status.ok()) return status;
    if (!cutter.fill(buffer.parts)) return finish(buffers_[turn ^ 1], direction);
    if (Status status = begin(buffer, direction, stream); !status.ok()) return status;
  }
}

Status PinnedBuffers::begin(Buffer& buffer, Direction direction, void* stream) {
  std::byte* at = buffer.memory;
  for (const DevicePiece& part : buffer.parts) {
    if (direction == Direction::kToDevice) std::memcpy(at, part.host, part.bytes);
    const Status status = direction == Direction::kToDevice
                              ? driver_.call<&Calls::copy_to_device_async>(
                                    part.device, static_cast<const void*>(at), part.bytes, stream)
                              : driver_.call<&Calls::copy_to_host_async>(
                                    static_cast<void*>(at), part.device, part.bytes, stream);
    if (!status.ok()) return status;
    at += part.bytes;
  }
  return driver_.call<&Calls::event_record>(buffer.event, stream);
}

Status PinnedBuffers::finish(Buffer& buffer, Direction direction) {
  if (buffer.parts.empty()) return {};
  if (Status status = driver_.call<&Calls::event_synchronize>(buffer.event); !status.ok()) {
    return status;
  }
  const std::byte* at = buffer.memory;
  for (const DevicePiece& part : buffer.parts) {
    if (direction == Direction::kFromDevice) std::memcpy(part.host, at, part.bytes);
    at += part.bytes;
  }
  buffer.parts.clear();
  return {};
}

}  // namespace mc::device
