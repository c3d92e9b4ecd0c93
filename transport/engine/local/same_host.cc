// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/local/same_host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>

namespace mc::transfer {

namespace {

using transport::Outcome;

constexpr int kMappedTornReads = 1000;  // torn reads of a table; each read takes microseconds

// "8d4c…-…": 32 digits. All zeros: unknown.
std::array<std::byte, 16> boot_id() {
  std::array<std::byte, 16> id{};
  char text[64] = {};
  const Fd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!file || ::read(file.get(), text, sizeof text - 1) <= 0) return id;
  std::size_t digits = 0;
  for (const char* at = text; *at != '\0' && digits < 32; ++at) {
    if (std::isxdigit(static_cast<unsigned char>(*at)) == 0) continue;
    const int value = *at <= '9' ? *at - '0' : (*at | 32) - 'a' + 10;
    id[digits / 2] |= static_cast<std::byte>(value << (digits % 2 == 0 ? 4 : 0));
    ++digits;
  }
  return id;
}

}  // namespace

void tell_host(EngineDescriptor* engine_descriptor) {
  engine_descriptor->boot_id = boot_id();
  struct stat space {};
  if (::stat("/proc/self/ns/pid", &space) == 0) engine_descriptor->pid_namespace = space.st_ino;
  engine_descriptor->pid = static_cast<std::uint32_t>(::getpid());
}

std::unique_ptr<SameHost> SameHost::prove(const EngineDescriptor& theirs,
                                          const EngineDescriptor& own) {
  const bool told =
      theirs.boot_id != std::array<std::byte, 16>{} && theirs.pid_namespace != 0 && theirs.pid != 0;
  if (!told || theirs.boot_id != own.boot_id || theirs.pid_namespace != own.pid_namespace) {
    return nullptr;
  }
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, theirs.pid, 0)));
  if (!process) return nullptr;
  auto peer = std::unique_ptr<SameHost>(new SameHost(theirs, std::move(process)));
  return peer->read_directory() ? std::move(peer) : nullptr;
}

Outcome SameHost::move(std::uint64_t address, std::byte* local, std::uint64_t size_bytes,
                       bool write) const {
  const auto pid = static_cast<pid_t>(engine_descriptor_.pid);
  while (size_bytes > 0) {
    const iovec here{local, size_bytes};
    const iovec there{reinterpret_cast<void*>(address), size_bytes};
    const ssize_t moved = write ? ::process_vm_writev(pid, &here, 1, &there, 1, 0)
                                : ::process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) {
      return moved < 0 && errno == ESRCH                         ? Outcome::kPeerLost
             : moved < 0 && (errno == EFAULT || errno == EINVAL) ? Outcome::kInvalid
                                                                 : Outcome::kUnsupported;
    }
    const auto done = static_cast<std::uint64_t>(moved);
    local += done;
    address += done;
    size_bytes -= done;
  }
  return Outcome::kDone;
}

Result<Directory> SameHost::read_directory() const {
  std::vector<std::byte> bytes(kDirectoryHeadBytes + 16 * kDirectoryEntryBytes);
  for (int i = 0; i < kMappedTornReads; ++i) {
    const Outcome outcome =
        move(engine_descriptor_.directory_address, bytes.data(), bytes.size(), false);
    if (outcome == Outcome::kPeerLost) return fail(transport::to_status(outcome));
    if (outcome != Outcome::kDone) {
      return fail(MC_PERMISSION_DENIED, "the peer's memory cannot be read from this process");
    }
    DirectoryHead head;
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.nonce != engine_descriptor_.nonce) {
      return fail(MC_AGENT_UNAVAILABLE, "the process that was the peer is gone");
    }
    const auto size = directory_size(bytes);
    if (!size) return fail(size.error());
    if (*size > bytes.size()) {
      bytes.resize(*size);
      continue;
    }
    auto directory = decode_directory(bytes);
    if (directory || directory.error().code() != MC_BUSY) return directory;
  }
  return fail(MC_BUSY, "the peer's region table changes all the time; try again");
}

Outcome SameHost::check(const Range& range) const {
  DirectoryHead head;
  const Outcome outcome = move(engine_descriptor_.directory_address,
                               reinterpret_cast<std::byte*>(&head), sizeof head, false);
  return outcome == Outcome::kDone ? check(range, head) : outcome;
}

Outcome SameHost::check(const Range& range, const DirectoryHead& head) const {
  if (head.nonce != engine_descriptor_.nonce) return Outcome::kPeerLost;
  if (head.generation == range.generation) return Outcome::kDone;
  const auto directory = read_directory();
  if (!directory) {
    return directory.error().code() == MC_AGENT_UNAVAILABLE ? Outcome::kPeerLost : Outcome::kStale;
  }
  // A region that was registered again has another descriptor, even at the same address.
  const DirectoryEntry* entry = directory->find(range.address, range.size_bytes);
  return entry != nullptr && entry->descriptor == range.entry.descriptor ? Outcome::kDone
                                                                         : Outcome::kStale;
}

// Reads the bytes and then the head in one call, so a read needs no check before.
Outcome SameHost::read(const Range& range) const {
  DirectoryHead head;
  const iovec here[2] = {{range.local, range.size_bytes}, {&head, sizeof head}};
  const iovec there[2] = {
      {reinterpret_cast<void*>(range.address), range.size_bytes},
      {reinterpret_cast<void*>(engine_descriptor_.directory_address), sizeof head}};
  const ssize_t moved =
      ::process_vm_readv(static_cast<pid_t>(engine_descriptor_.pid), here, 2, there, 2, 0);
  if (moved >= 0 && static_cast<std::uint64_t>(moved) == range.size_bytes + sizeof head) {
    return check(range, head);
  }
  const Outcome outcome = move(range.address, range.local, range.size_bytes, false);
  return outcome == Outcome::kDone ? check(range) : outcome;
}

// Checks the peer at the same points as a copy by the kernel does.
Outcome SameHost::copy_mapped(const Range& range) const {
  const std::uint64_t offset = range.address - range.entry.address;
  std::byte* const theirs = range.window->data + offset;
  range.window->prepare(offset, range.size_bytes);
  if (range.write) {
    if (const Outcome outcome = check(range); outcome != Outcome::kDone) return outcome;
    std::memcpy(theirs, range.local, range.size_bytes);
  } else {
    std::memcpy(range.local, theirs, range.size_bytes);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return check(range);
}

Outcome SameHost::copy(const Range& range) const {
  if (range.window) return copy_mapped(range);
  if (!range.write) return read(range);
  Outcome outcome = check(range);
  if (outcome == Outcome::kDone) {
    outcome = move(range.address, range.local, range.size_bytes, true);
  }
  return outcome == Outcome::kDone ? check(range) : outcome;
}

}  // namespace mc::transfer
