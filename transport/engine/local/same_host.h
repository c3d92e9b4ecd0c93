// SPDX-License-Identifier: Apache-2.0
//
// What it is: the peer's memory, when the peer is a process of this host: copies without its help,
//   by memcpy where that memory is a file which both can map (shared_files.h), else by
//   process_vm_readv and process_vm_writev. That it is one is proved, not believed: boot id and
//   pid namespace are ours, and the nonce that its engine descriptor told stands where the engine descriptor said it does.
//   Around each copy the nonce is read again with the table's generation, so a process that died,
//   and another that got its number, are found out.
//
//   What holds: a write begins only while the peer has the range registered with the rights needed.
//   A range that was unregistered before the copy ended makes it an error; what was written until
//   then landed in memory of the process that had registered it, or nowhere.
// Threads: any, at once. Owns a descriptor of the process, and mappings of its files.
// Trusts: nothing it reads: it is a table that decode_directory checks, or the user's bytes.
#pragma once

#include <memory>

#include "libmc/base/fd.h"
#include "transport/engine/local/shared_files.h"
#include "transport/engine/wire/directory.h"
#include "transport/engine/wire/engine_descriptor.h"
#include "transport/outcome.h"

namespace mc::transfer {

// What this process tells others of itself.
void tell_host(EngineDescriptor* engine_descriptor);

class SameHost {
 public:
  // Null: it is elsewhere, or this kernel or a security policy forbids it.
  static std::unique_ptr<SameHost> prove(const EngineDescriptor& theirs,
                                         const EngineDescriptor& own);

  struct Range {
    DirectoryEntry entry;  // as it was found in the table of that generation
    std::uint64_t generation = 0;
    std::uint64_t address = 0;
    std::byte* local = nullptr;
    std::uint64_t size_bytes = 0;
    bool write = false;
    std::shared_ptr<const SharedFiles::Window> window;  // of the entry; null: the kernel copies
  };
  // Where the entry is mapped here; null: it cannot be. REQUIRES of copies through it: the local
  // memory stays what it is until they end. Of any other the kernel finds out that it is bad.
  std::shared_ptr<const SharedFiles::Window> window(const DirectoryEntry& entry,
                                                    std::uint64_t generation) {
    return files_.window(entry, generation);
  }
  // kStale: not registered any more, or again. kInvalid: no such memory, here or there.
  transport::Outcome copy(const Range& range) const;
  // Errors: MC_AGENT_UNAVAILABLE: the process is gone; MC_BUSY after many tries, MC_CORRUPT.
  Result<Directory> read_directory() const;
  // Lets go of memory that is not in this table.
  void keep_only(const Directory& directory) { files_.keep_only(directory); }

 private:
  SameHost(const EngineDescriptor& engine_descriptor, Fd process)
      : engine_descriptor_(engine_descriptor),
        process_(std::move(process)),
        files_(static_cast<pid_t>(engine_descriptor.pid)) {}
  transport::Outcome move(std::uint64_t address, std::byte* local, std::uint64_t size_bytes,
                          bool write) const;
  // kDone: generation's table, or a later one that still has the entry.
  transport::Outcome check(const Range& range) const;
  transport::Outcome check(const Range& range, const DirectoryHead& head) const;
  transport::Outcome read(const Range& range) const;
  transport::Outcome copy_mapped(const Range& range) const;

  const EngineDescriptor engine_descriptor_;
  const Fd process_;
  SharedFiles files_;
};

}  // namespace mc::transfer
