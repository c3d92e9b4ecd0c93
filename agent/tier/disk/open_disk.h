// SPDX-License-Identifier: Apache-2.0
//
// Opens the place of a tier: a block device or a file, for one agent at a time.
// Threads: any. The Disk has a thread of its own choice afterwards (disk.h).
// Owns: the Disk has the descriptor, and with the descriptor the lock of the place.
// Trusts: nothing. The path comes from the operator, and the file may hold anything.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "agent/tier/disk/disk.h"
#include "mc/status.h"

namespace mc::tier {

inline constexpr std::uint64_t kLeastDiskBytes = 64u << 20;

// The file or device that the path names: mc.tier in a directory. Reads the filesystem.
std::string path_of_disk(const std::string& path);

struct DiskPlace {
  // A block device, a regular file, a file that does not exist yet, or an existing directory. In a
  // directory the file is called mc.tier.
  std::string path;
  // Rounded down to blocks. 0: the present size of the file or device.
  std::uint64_t bytes = 0;
};

struct OpenedDisk {
  std::unique_ptr<Disk> disk;
  bool direct = false;   // false: the filesystem refuses O_DIRECT, so that the page cache is used
  bool created = false;  // the file was empty or absent; never true for a block device
  bool uring = false;    // false: a ThreadedDisk
  std::string path;      // of the file or device
};

// Opens and locks the place. A new file has mode 0600. A file that is shorter than `bytes` grows to
// `bytes`, with reserved room. A longer file keeps its length and its content, and the disk has the
// first `bytes`. The call writes no byte of content and never cuts off any.
// The last part of the path may be a symbolic link to a block device or a directory (as in
// /dev/disk/by-id), but not to a file.
// Errors: MC_BUSY if another agent has the disk, or a block device is in use; MC_NO_SPACE if the
// filesystem has too little room; MC_PERMISSION_DENIED; MC_INVALID_ARGUMENT for any other place that
// cannot be a disk; MC_NO_MEMORY if the process gets no more threads.
Result<OpenedDisk> open_disk(const DiskPlace& place);

}  // namespace mc::tier
