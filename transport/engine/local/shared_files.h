// SPDX-License-Identifier: Apache-2.0
//
// Memory files (memfd) of another process of this host, mapped into this process.
//   Copies to and from these mappings run at memcpy speed; process_vm_* looks up and pins every
//   page. The peer's /proc/PID/maps names the file below a range, and /proc/PID/fd opens the file.
//   Only files with F_SEAL_SHRINK are mapped: if a peer truncated a file, access would raise SIGBUS
//   here. Files of reserved huge pages are not mapped, for the same reason.
// Threads: any thread, concurrently.
// Owns: the mappings, each until the registration is known to be over.
// Trusts: only the kernel's entries in /proc. Ranges and sizes are checked.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "libmc/base/memory_file.h"
#include "libmc/base/mutex.h"
#include "transport/engine/wire/directory.h"

namespace mc::transfer {

class SharedFiles {
 public:
  // The caller proves the identity of the process, also after each window(): a pid may be reused.
  explicit SharedFiles(pid_t pid) : pid_(pid) {}

  struct Window {
    RegionText descriptor{};  // of the registration
    Mapping mapping;          // empty: no mappable file has that memory
    std::byte* data = nullptr;
    bool writable = false;

    // Call before a copy. The first use of a 2 MiB part faults in the whole part with one call,
    // which costs a tenth of 512 separate faults.
    void prepare(std::uint64_t offset, std::uint64_t size_bytes) const;
    std::unique_ptr<std::atomic<bool>[]> touched;  // parts of the mapping, from its start
  };
  // The entry's whole memory as mapped here; null: not mappable. The first call for a generation of
  // the table reads the peer's mappings, which takes one or two milliseconds.
  std::shared_ptr<const Window> window(const DirectoryEntry& entry, std::uint64_t generation);
  // Unmaps memory that is not registered any more.
  void keep_only(const Directory& directory);

 private:
  // A mapping of a memory file in the peer.
  struct Part {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t offset = 0;  // in the file
    unsigned major = 0;
    unsigned minor = 0;
    std::uint64_t inode = 0;
    bool same_file(const Part& other) const {
      return major == other.major && minor == other.minor && inode == other.inode;
    }
  };
  void read_parts() MC_REQUIRES(mutex_);
  std::optional<Part> part_under(const DirectoryEntry& entry) const MC_REQUIRES(mutex_);
  Fd open_file(const Part& file, int flags) const;
  Mapping map(const DirectoryEntry& entry, std::uint64_t* offset) const MC_REQUIRES(mutex_);

  const pid_t pid_;
  Mutex mutex_;
  std::vector<Part> parts_ MC_GUARDED_BY(mutex_);  // sorted by address
  // Generation of the table when parts_ was read.
  std::uint64_t parts_of_ MC_GUARDED_BY(mutex_) = 0;
  // At most one per region in use.
  std::vector<std::shared_ptr<const Window>> windows_ MC_GUARDED_BY(mutex_);
};

}  // namespace mc::transfer
