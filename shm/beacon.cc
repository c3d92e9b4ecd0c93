// SPDX-License-Identifier: Apache-2.0
#include "shm/beacon.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

namespace mc::shm {

namespace {

static_assert(sizeof(pthread_mutex_t) <= kBeaconBytes);

pthread_mutex_t* mutex_of(SessionHeader& header) {
  return reinterpret_cast<pthread_mutex_t*>(header.beacon);
}

// The futex word is the first int of glibc's mutex: the owner's thread id and the kernel's flags.
Word32& word_of(SessionHeader& header) { return *reinterpret_cast<Word32*>(header.beacon); }

bool owner_died(std::uint32_t word) { return (word & FUTEX_OWNER_DIED) != 0; }

// struct futex_waitv of Linux 5.16, which Debian 12's libc headers do not wrap.
struct WaitEntry {
  std::uint64_t value;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};
constexpr std::uint32_t kFutex32 = 2;
constexpr std::size_t kMaxWaits = 128;
// A correct client takes the beacon once and drops the beacon once. A client that changes the word
// more often would keep the watching thread busy, so the watch drops that beacon.
constexpr int kMaxChanges = 64;

}  // namespace

void init_beacon(SessionHeader& header) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(mutex_of(header), &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}

bool beacon_is_lost(SessionHeader& header) { return owner_died(word_of(header).load_relaxed()); }

BeaconHold::BeaconHold(SessionHeader* header) : header_(header) {
  if (::pthread_mutex_lock(mutex_of(*header_)) == EOWNERDEAD) {
    ::pthread_mutex_consistent(mutex_of(*header_));
  }
}

BeaconHold::~BeaconHold() { ::pthread_mutex_unlock(mutex_of(*header_)); }

struct BeaconWatch::Watched {
  SessionHeader* header = nullptr;
  std::uint32_t seen = 0;
  int changes = 0;
};

BeaconWatch::BeaconWatch(Died died) : died_(std::move(died)), thread_([this] { run(); }) {}

BeaconWatch::~BeaconWatch() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  poke();
  thread_.join();
}

void BeaconWatch::add(std::uint64_t session_id, SessionHeader* header) {
  {
    const MutexLock lock(mutex_);
    if (watched_.size() + 2 > kMaxWaits) return;
    auto watched = std::make_unique<Watched>();
    watched->header = header;
    watched_[session_id] = std::move(watched);
  }
  poke();
}

void BeaconWatch::remove(std::uint64_t session_id) {
  {
    const MutexLock lock(mutex_);
    watched_.erase(session_id);
  }
  poke();
}

void BeaconWatch::poke() {
  changes_.exchange(changes_.load_relaxed() + 1);
  ::syscall(SYS_futex, changes_.address(), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void BeaconWatch::run() {
  for (;;) {
    // Read before stop_: a poke after this read makes the wait return at once.
    const std::uint32_t changes = changes_.load_acquire();
    {
      const MutexLock lock(mutex_);
      if (stop_) return;
    }
    wait_once(changes);
  }
}

// Sleeps until one of the words changes. The kernel wakes a waiter only if the word has the bit
// FUTEX_WAITERS, so the watch sets the bit first.
void BeaconWatch::wait_once(std::uint32_t changes) {
  std::vector<WaitEntry> waits;
  std::vector<std::uint64_t> dead;
  waits.push_back({changes, reinterpret_cast<std::uint64_t>(changes_.address()), kFutex32, 0});
  {
    const MutexLock lock(mutex_);
    for (auto it = watched_.begin(); it != watched_.end();) {
      Word32& word = word_of(*it->second->header);
      std::uint32_t value = word.load_acquire();
      if (value != 0 && !owner_died(value)) value = word.fetch_or(FUTEX_WAITERS) | FUTEX_WAITERS;
      if (owner_died(value)) {
        dead.push_back(it->first);
        it = watched_.erase(it);
        continue;
      }
      if (value != std::exchange(it->second->seen, value) && ++it->second->changes > kMaxChanges) {
        it = watched_.erase(it);
        continue;
      }
      waits.push_back({value, reinterpret_cast<std::uint64_t>(word.address()), kFutex32, 0});
      ++it;
    }
  }
  for (const std::uint64_t session : dead) died_(session);
  if (!dead.empty()) return;
  if (::syscall(SYS_futex_waitv, waits.data(), waits.size(), 0, nullptr, 0) < 0 &&
      errno == ENOSYS) {
    ::syscall(SYS_futex, changes_.address(), FUTEX_WAIT, changes, nullptr, nullptr, 0);
  }
}

}  // namespace mc::shm
