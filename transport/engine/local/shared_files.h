// SPDX-License-Identifier: Apache-2.0
//
// What it is: memory files (memfd) of another process of this host, mapped here. What the peer has
//   registered of such a file is copied to and from like memory of our own: at memcpy's speed,
//   where process_vm_* pins and looks up every page. The file is found where the kernel shows it:
//   the peer's mappings say which file lies under a range, its descriptors open it. Only files that
//   cannot shrink (F_SEAL_SHRINK) are mapped: else a peer that truncates one would end us with
//   SIGBUS. For the same reason none of reserved huge pages.
// Threads: any, at once. Owns: the mappings, each until its registration is known to be over.
// Trusts: nothing it reads in /proc but what the kernel writes: ranges and sizes are checked.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "libmc/base/memory_file.h"
#include "transport/engine/wire/directory.h"

namespace mc::transfer {

class SharedFiles {
 public:
  // The process is proved by whoever asks, after each window() as well: a number may be reused.
  explicit SharedFiles(pid_t pid) : pid_(pid) {}

  struct Window {
    RegionText descriptor{};  // of the registration
    Mapping mapping;          // none: that memory is in no file that can be mapped
    std::byte* data = nullptr;
    bool writable = false;

    // Before a copy: takes the faults of whole 2 MiB at once, the first time some of them is used.
    // One call for 512 pages costs a tenth of 512 faults.
    void prepare(std::uint64_t offset, std::uint64_t size_bytes) const;
    std::unique_ptr<std::atomic<bool>[]> touched;  // of the mapping, from its start
  };
  // The entry's memory as it is mapped here, all of it; null: it is not. The first call for an
  // entry of a generation of the table reads the peer's mappings, which takes a millisecond or two.
  std::shared_ptr<const Window> window(const DirectoryEntry& entry, std::uint64_t generation);
  // Unmaps what is not registered any more.
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
  void read_parts();
  std::optional<Part> part_under(const DirectoryEntry& entry) const;
  Fd open_file(const Part& file, int flags) const;
  Mapping map(const DirectoryEntry& entry, std::uint64_t* offset) const;

  const pid_t pid_;
  std::mutex mutex_;
  std::vector<Part> parts_;     // by address
  std::uint64_t parts_of_ = 0;  // generation of the table that was current when they were read
  std::vector<std::shared_ptr<const Window>> windows_;  // few: as many as regions are in use
};

}  // namespace mc::transfer
