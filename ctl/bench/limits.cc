// SPDX-License-Identifier: Apache-2.0
#include "ctl/bench/limits.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "libmc/base/clock.h"

namespace mc::ctl {

// Each side writes one line and reads the other.
struct PingPage {
  alignas(128) std::atomic<std::uint64_t> ping{0};
  alignas(128) std::atomic<std::uint64_t> pong{0};
};

namespace {

constexpr std::uint64_t kStop = ~std::uint64_t{0};
// Yields, so that a host with a single processor makes progress.
constexpr unsigned kSpinsBeforeYield = 1u << 14;
constexpr std::uint64_t kEvent = 1;
constexpr std::uint64_t kSpin = 2;
constexpr std::size_t kMinRegionBytes = std::size_t{64} << 20;

std::uint64_t wait_for_change(const std::atomic<std::uint64_t>& line, std::uint64_t seen) {
  for (unsigned spins = 1;; ++spins) {
    const std::uint64_t value = line.load(std::memory_order_acquire);
    if (value != seen) return value;
    cpu_relax();
    if (spins % kSpinsBeforeYield == 0) sched_yield();
  }
}

bool read_event(int fd, std::uint64_t* value) {
  return ::read(fd, value, sizeof(*value)) == sizeof(*value);
}
bool write_event(int fd, std::uint64_t value) {
  return ::write(fd, &value, sizeof(value)) == sizeof(value);
}

void answer_spinning(PingPage* page) {
  std::uint64_t seen = 0;
  do {
    seen = wait_for_change(page->ping, seen);
    page->pong.store(seen, std::memory_order_release);
  } while (seen != kStop);
}

[[noreturn]] void peer_process(PingPage* page, int in, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    std::uint64_t order = 0;
    if (!read_event(in, &order)) _exit(1);
    if (order == kSpin) answer_spinning(page);
    if (!write_event(out, 1)) _exit(1);
  }
}

}  // namespace

Result<PingPeer> PingPeer::start() {
  PingPeer peer;
  peer.to_peer_ = Fd(eventfd(0, EFD_CLOEXEC));
  peer.from_peer_ = Fd(eventfd(0, EFD_CLOEXEC));
  if (!peer.to_peer_ || !peer.from_peer_) return fail(MC_NO_MEMORY, errno_text("eventfd", errno));
  void* memory =
      mmap(nullptr, sizeof(PingPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail(MC_NO_MEMORY, errno_text("mmap", errno));
  peer.page_ = new (memory) PingPage;
  peer.pid_ = fork();
  if (peer.pid_ < 0) return fail(MC_NO_MEMORY, errno_text("fork", errno));
  if (peer.pid_ == 0) peer_process(peer.page_, peer.to_peer_.get(), peer.from_peer_.get());
  return peer;
}

PingPeer::PingPeer(PingPeer&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      page_(std::exchange(other.page_, nullptr)),
      to_peer_(std::move(other.to_peer_)),
      from_peer_(std::move(other.from_peer_)),
      sequence_(other.sequence_) {}

PingPeer::~PingPeer() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (page_ != nullptr) munmap(page_, sizeof(PingPage));
}

void PingPeer::begin_spin() {
  sequence_ = 0;
  page_->ping.store(0, std::memory_order_relaxed);
  page_->pong.store(0, std::memory_order_release);
  write_event(to_peer_.get(), kSpin);
  spin_ping();
}

void PingPeer::spin_ping() {
  const std::uint64_t seen = sequence_++;
  page_->ping.store(sequence_, std::memory_order_release);
  wait_for_change(page_->pong, seen);
}

void PingPeer::end_spin() {
  page_->ping.store(kStop, std::memory_order_release);
  std::uint64_t answer = 0;
  read_event(from_peer_.get(), &answer);
}

void PingPeer::event_ping() {
  std::uint64_t answer = 0;
  write_event(to_peer_.get(), kEvent);
  read_event(from_peer_.get(), &answer);
}

Result<SharedRegion> SharedRegion::map(const Fd& file, std::size_t size) {
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0) {
    return fail(MC_NO_MEMORY, errno_text("ftruncate", errno));
  }
  // Reserve the memory: full memory is then an error here, not a SIGBUS at a touch.
  if (const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(size)); error != 0) {
    return fail(MC_NO_MEMORY, errno_text("reserving memory to copy into", error));
  }
  void* memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (memory == MAP_FAILED) return fail(MC_NO_MEMORY, errno_text("mmap", errno));
  return SharedRegion(static_cast<unsigned char*>(memory), size);
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedRegion::~SharedRegion() {
  if (data_ != nullptr) munmap(data_, size_);
}

unsigned char* SharedRegion::block(std::uint64_t number, std::size_t block_bytes) const {
  return data_ + (number % (size_ / block_bytes)) * block_bytes;
}

Result<Fd> make_region_file() {
  Fd file(memfd_create("mcctl-bench", MFD_CLOEXEC));
  if (!file) return fail(MC_NO_MEMORY, errno_text("memfd_create", errno));
  return file;
}

std::size_t region_bytes_for(std::uint64_t pool_bytes) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  std::string unit;
  while (file >> name >> kib >> unit && name != "MemAvailable:") {
  }
  const std::uint64_t available = name == "MemAvailable:" ? kib * 1024 : 0;
  return std::max<std::uint64_t>(std::min(pool_bytes, available / 2), kMinRegionBytes);
}

}  // namespace mc::ctl
