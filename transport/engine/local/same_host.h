// SPDX-License-Identifier: Apache-2.0
//
// Copies to and from the memory of a peer that is a process of this host, without the
//   peer's help. If both processes can map the memory's file (shared_files.h), memcpy copies.
//   Otherwise process_vm_readv() and process_vm_writev() copy.
//
// prove() does not believe the peer's descriptor. Boot id and pid namespace must equal those of
// this process, and the nonce of the descriptor must stand in the peer's memory at the announced
// address. Each copy reads the nonce and the table's generation again. So a dead process is
// detected, and also another process with the same number.
//
// Guarantee: a write begins only while the peer has registered the range with the needed rights. If
// the range was unregistered before the copy ended, the copy fails. The bytes written until then
// landed in memory of the process that had registered the range, or nowhere.
// Threads: any thread, concurrently.
// Owns: a descriptor of the process, and mappings of the process's files.
// Trusts: nothing. decode_directory() checks the table; all other bytes are the user's data.
#pragma once

#include <memory>

#include "libmc/base/fd.h"
#include "transport/engine/local/shared_files.h"
#include "transport/engine/wire/directory.h"
#include "transport/engine/wire/engine_descriptor.h"
#include "transport/outcome.h"

namespace mc::transfer {

// Enters this host and process into the descriptor.
void tell_host(EngineDescriptor* engine_descriptor);

class SameHost {
 public:
  // Null: the peer is on another host, or the kernel or a security policy forbids access.
  static std::unique_ptr<SameHost> prove(const EngineDescriptor& theirs,
                                         const EngineDescriptor& own);

  struct Range {
    DirectoryEntry entry;  // from the table of that generation
    std::uint64_t generation = 0;
    std::uint64_t address = 0;
    std::byte* local = nullptr;
    std::uint64_t size_bytes = 0;
    bool write = false;
    std::shared_ptr<const SharedFiles::Window> window;  // maps the entry; null: the kernel copies
  };
  // The entry's memory, mapped into this process; null: not possible. REQUIRES: the local memory of
  // a copy through the window stays valid until the copy ends. Without a window, the kernel detects
  // bad local memory.
  std::shared_ptr<const SharedFiles::Window> window(const DirectoryEntry& entry,
                                                    std::uint64_t generation) {
    return files_.window(entry, generation);
  }
  // kStale: the range was unregistered, or registered again. kInvalid: no such memory, here or
  // there.
  transport::Outcome copy(const Range& range) const;
  // Errors: MC_AGENT_UNAVAILABLE (the process is gone), MC_BUSY (after many tries), MC_CORRUPT.
  Result<Directory> read_directory() const;
  // Unmaps memory that is not in this table.
  void keep_only(const Directory& directory) { files_.keep_only(directory); }

 private:
  SameHost(const EngineDescriptor& engine_descriptor, Fd process)
      : engine_descriptor_(engine_descriptor),
        process_(std::move(process)),
        files_(static_cast<pid_t>(engine_descriptor.pid)) {}
  transport::Outcome move(std::uint64_t address, std::byte* local, std::uint64_t size_bytes,
                          bool write) const;
  // kDone: the table has range.generation, or is newer and still has the entry.
  transport::Outcome check(const Range& range) const;
  transport::Outcome check(const Range& range, const DirectoryHead& head) const;
  transport::Outcome read(const Range& range) const;
  transport::Outcome copy_mapped(const Range& range) const;

  const EngineDescriptor engine_descriptor_;
  const Fd process_;
  SharedFiles files_;
};

}  // namespace mc::transfer
