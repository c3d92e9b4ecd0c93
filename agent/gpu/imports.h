// SPDX-License-Identifier: Apache-2.0
//
// Allocations of clients, opened in this process: once each, however many copies there are, and until
//   the client frees the memory or is gone. A handle is no identity, because the next allocation may
//   have an equal handle: a client numbers allocations.
//
//   client 7, allocation 3 ──handle────► address here, bytes, copies that use it
//             allocation 4 ──chunks──►
//
// Threads: one.
// Owns: the opened allocations.
// Trusts: nothing. The driver checks handles; the table checks ranges.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "agent/gpu/mapped_chunks.h"
#include "libmc/base/fd.h"
#include "libmc/device/driver.h"

namespace mc::gpu {

class Imports {
 public:
  struct Name {
    std::uint64_t client = 0;
    std::uint64_t allocation = 0;
    auto operator<=>(const Name&) const = default;
  };
  struct Counters {
    std::uint64_t opened = 0;
    std::uint64_t closed = 0;
  };

  Imports(const device::Driver& driver, int device) : driver_(driver), device_(device) {}
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;
  ~Imports();

  // Opens the allocation if that name is new. Errors: MC_DEVICE_FAILED (the driver refuses the
  // handle), MC_INVALID_ARGUMENT (the name stands for another handle), MC_QUOTA_EXCEEDED.
  Status open(const Name& name, const device::IpcHandle& handle, std::uint64_t bytes);
  // Adds chunks to an allocation (MappedChunks), which has these bytes in the end; the first
  // request reserves addresses. Errors: MC_INVALID_ARGUMENT (the name stands for another allocation,
  // or has no room), MC_DEVICE_FAILED, MC_QUOTA_EXCEEDED.
  Status add_chunks(const Name& name, std::uint64_t whole_bytes, std::span<const Fd> chunks,
                    std::span<const std::uint64_t> bytes);
  // The address of a range, which counts as used until done(). Errors: MC_NOT_FOUND (no open
  // allocation), MC_INVALID_ARGUMENT (beyond the end).
  Result<std::uint64_t> use(const Name& name, std::uint64_t offset, std::uint64_t bytes);
  void done(const Name& name);
  // Closes the allocation, or all of a client, after the last copy.
  void close(const Name& name);
  void close_all(std::uint64_t client);

  std::size_t size() const { return imports_.size(); }
  const Counters& counters() const { return counters_; }

 private:
  static constexpr std::size_t kMaxPerClient = 4096;

  struct Import {
    device::IpcHandle handle{};
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::unique_ptr<MappedChunks> chunks;  // null: opened by the handle
    std::uint32_t uses = 0;
    bool closing = false;
  };
  using Table = std::map<Name, Import>;
  Status has_room_for(std::uint64_t client) const;
  void close_if_unused(Table::iterator at);

  const device::Driver& driver_;
  const int device_;
  Table imports_;
  Counters counters_;
};

}  // namespace mc::gpu
