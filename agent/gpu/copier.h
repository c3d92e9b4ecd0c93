// SPDX-License-Identifier: Apache-2.0
//
// Copies between a device and pinned host memory, many at once, on streams of its own:
//
//   copies ──► a stream for each direction and size ──► an event behind each group ──► done
//
//   No stream waits for anything outside, so every copy ends. No kernel and no fill runs here, and no
//   linear copy to the device of less than 32 KiB, but for a single byte: the driver would do these on
//   the compute engine, which the kernels of another process hold for milliseconds
//   (.github/DEVICE_MEMORY.md).
// Threads: one.
// Owns: streams and events.
// Trusts: the caller checks the ranges.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "libmc/device/driver.h"

namespace mc::gpu {

struct Copy {
  bool to_device = false;
  std::uint64_t device = 0;  // the address in this process
  std::byte* host = nullptr;
  std::uint64_t bytes = 0;
  bool apart = false;  // the next copy is of another registration or allocation
};

class Copier {
 public:
  // Errors: MC_DEVICE_FAILED.
  static Result<std::unique_ptr<Copier>> create(const device::Driver& driver, int device);
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;
  // Waits for the copies that are under way.
  ~Copier();

  // Begins the copies; poll() returns the tag when all have ended. Neighbours on both sides become
  // one copy, unless they are apart: no copy may cross the end of a registration of host memory
  // (PinnedMemory), or of an allocation.
  // Errors: MC_DEVICE_FAILED; copies that had begun then end before the tag of a later group.
  Status submit(std::span<const Copy> copies, std::uint64_t tag);
  // Adds the tags of groups that have ended. Errors: MC_DEVICE_FAILED: the device is lost to this
  // process, which must end.
  Status poll(std::vector<std::uint64_t>& done);
  bool is_idle() const;

 private:
  // Small copies do not wait behind large ones.
  static constexpr std::uint64_t kSmallBytes = 256 * 1024;

  struct Mark {
    void* event = nullptr;
    std::uint64_t tag = 0;
  };
  struct Lane {
    void* stream = nullptr;
    std::deque<Mark> marks;
    bool used = false;  // by the group that is being submitted
  };
  struct Group {
    std::uint64_t tag = 0;
    unsigned lanes = 0;  // that have not ended
  };

  Copier(const device::Driver& driver, int device) : driver_(driver), device_(device) {}
  Lane& lane_of(const Copy& copy) {
    return lanes_[(copy.to_device ? 2U : 0U) + (copy.bytes > kSmallBytes ? 1U : 0U)];
  }
  Status begin(const Copy& copy, Lane& lane);
  Status mark(Lane& lane, std::uint64_t tag);
  Result<void*> take_event();

  const device::Driver& driver_;
  const int device_;
  std::array<Lane, 4> lanes_;
  std::vector<Group> groups_;
  std::vector<void*> idle_events_;
};

}  // namespace mc::gpu
