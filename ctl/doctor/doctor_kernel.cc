// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ctl/doctor/doctor_facts.h"
#include "libmc/base/fd.h"

// Constants that the headers of Debian 12 or of some C libraries do not have.
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace mc::ctl {
namespace {

bool has_sealed_memfd() {
  const Fd fd(::memfd_create("mc-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  return fd && ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

bool has_pidfd_open() {
  const Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  return static_cast<bool>(fd);
}

bool has_peer_pidfd() {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  const Fd first(ends[0]);
  const Fd second(ends[1]);
  int peer = -1;
  socklen_t size = sizeof peer;
  if (::getsockopt(first.get(), SOL_SOCKET, SO_PEERPIDFD, &peer, &size) != 0) return false;
  const Fd closes(peer);
  return true;
}

bool has_populate_write() {
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* page =
      ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const bool works = ::madvise(page, page_bytes, MADV_POPULATE_WRITE) == 0;
  ::munmap(page, page_bytes);
  return works;
}

// Makes each call with invalid arguments. ENOSYS and EPERM mean that the call does not exist or is
// forbidden; any other error means that the call exists.
bool refuses_arguments(long result) { return result < 0 && errno != ENOSYS && errno != EPERM; }

}  // namespace

KernelFeatures probe_kernel() {
  KernelFeatures out;
  out.sealed_memfd = has_sealed_memfd();
  out.pidfd_open = has_pidfd_open();
  out.peer_pidfd = has_peer_pidfd();
  out.futex_waitv = refuses_arguments(::syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, 0));
  out.populate_write = has_populate_write();
  out.io_uring = refuses_arguments(::syscall(SYS_io_uring_setup, 0, nullptr));
  return out;
}

}  // namespace mc::ctl
