// SPDX-License-Identifier: Apache-2.0
#include "device/fake/machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "device/fake/misuse.h"

namespace mc::fake {

namespace {

constexpr const char* kSetUp = "the machine of the fake driver";

// A living process holds the lock of its byte. A dead process holds none, however it died.
struct flock byte_lock(int process) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(sizeof(Tables)) + process;
  lock.l_len = 1;
  return lock;
}

struct flock first_byte(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return lock;
}

void make_lock(pthread_mutex_t* lock) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(lock, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}

// Blocks of a machine without a folder: their descriptors, by block id.
std::map<std::uint64_t, int>& own_descriptors() {
  static std::map<std::uint64_t, int> descriptors;
  return descriptors;
}

}  // namespace

Machine& Machine::get() {
  static auto* const machine = new Machine();
  return *machine;
}

Machine::Machine() {
  const char* const folder = std::getenv("MC_FAKE_DRIVER");
  folder_ = folder == nullptr ? "" : folder;
  fd_ = folder_.empty()
            ? ::memfd_create("machine", MFD_CLOEXEC)
            : ::open((folder_ + "/machine").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  struct flock whole = byte_lock(kMaxProcesses);  // beyond the bytes of the processes
  if (fd_ < 0 || ::fcntl(fd_, F_OFD_SETLKW, &whole) != 0) misuse(kSetUp, std::strerror(errno));
  struct stat state {};
  const bool is_new = ::fstat(fd_, &state) == 0 && state.st_size == 0;
  if (is_new && ::ftruncate(fd_, sizeof(Tables)) != 0) misuse(kSetUp, std::strerror(errno));
  void* const at = ::mmap(nullptr, sizeof(Tables), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (at == MAP_FAILED) misuse(kSetUp, std::strerror(errno));
  tables_ = static_cast<Tables*>(at);
  if (is_new) {
    new (tables_) Tables{};
    make_lock(&tables_->lock);
    make_lock(&tables_->pin_lock);
    tables_->next_id = 1;
  }
  {
    const Locked tables(*this);
    forget_the_dead(*tables);
    for (int process = 0; process < kMaxProcesses && self_ == kNobody; ++process) {
      int& pid = tables->pids[static_cast<std::size_t>(process)];
      if (pid != 0) continue;
      struct flock own = byte_lock(process);
      if (::fcntl(fd_, F_OFD_SETLK, &own) != 0) continue;
      pid = ::getpid();
      self_ = process;
    }
  }
  if (self_ == kNobody) misuse(kSetUp, "more processes than the fake driver has places for");
  whole.l_type = F_UNLCK;
  ::fcntl(fd_, F_OFD_SETLK, &whole);
}

Machine::Locked::Locked(Machine& machine) : machine_(machine) {
  if (::pthread_mutex_lock(&machine_.tables_->lock) == EOWNERDEAD) {
    ::pthread_mutex_consistent(&machine_.tables_->lock);
  }
}

Machine::Locked::~Locked() { ::pthread_mutex_unlock(&machine_.tables_->lock); }

int Machine::ordinal_of(int device) const {
  for (int ordinal = 0; ordinal < kDevices; ++ordinal) {
    if (physical_device(ordinal) == device) return ordinal;
  }
  return -1;
}

bool Machine::is_alive(int process) const {
  if (process == self_) return true;
  struct flock lock = byte_lock(process);
  return ::fcntl(fd_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::string Machine::path_of(const Block& block) const {
  return folder_ + "/block-" + std::to_string(block.id);
}

void Machine::free_if_unused(Block& block) const {
  if (block.kind == BlockKind::kFree) return;
  for (const std::uint32_t count : block.references) {
    if (count != 0) return;
  }
  if (block.exported && has_descriptors(block)) return;
  if (is_shared()) {
    ::unlink(path_of(block).c_str());
  } else {
    ::close(own_descriptors()[block.id]);
    own_descriptors().erase(block.id);
  }
  block = Block{};
}

void Machine::forget_the_dead(Tables& tables) const {
  std::array<bool, kMaxProcesses> dead{};
  bool any = false;
  for (int process = 0; process < kMaxProcesses; ++process) {
    const auto place = static_cast<std::size_t>(process);
    dead[place] = tables.pids[place] != 0 && process != self_ && !is_alive(process);
    if (!dead[place]) continue;
    tables.pids[place] = 0;
    any = true;
  }
  for (Block& block : tables.blocks) {
    if (block.kind == BlockKind::kFree || (!any && !block.exported)) continue;
    for (std::size_t process = 0; process < kMaxProcesses; ++process) {
      if (dead[process]) block.references[process] = 0;
    }
    if (block.owner != kNobody && dead[static_cast<std::size_t>(block.owner)])
      block.owner = kNobody;
    free_if_unused(block);
  }
  for (SharedEvent& event : tables.events) {
    if (!event.used || !any) continue;
    bool imported = false;
    for (std::size_t process = 0; process < kMaxProcesses; ++process) {
      if (dead[process]) event.imports[process] = 0;
      imported = imported || event.imports[process] != 0;
    }
    if (event.owner != kNobody && dead[static_cast<std::size_t>(event.owner)])
      event.owner = kNobody;
    if (event.owner == kNobody && !imported) event.used = false;
  }
}

int Machine::open_block(Block& block) const {
  // The lock belongs to the open file, which copies of the descriptor share.
  const std::string path =
      is_shared() ? path_of(block) : "/proc/self/fd/" + std::to_string(own_descriptors()[block.id]);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct flock lock = first_byte(F_RDLCK);
  if (fd < 0 || ::fcntl(fd, F_OFD_SETLK, &lock) != 0) misuse(kSetUp, std::strerror(errno));
  block.exported = true;
  return fd;
}

bool Machine::has_descriptors(const Block& block) const {
  const int fd = is_shared() ? ::open(path_of(block).c_str(), O_RDWR | O_CLOEXEC)
                             : ::fcntl(own_descriptors()[block.id], F_DUPFD_CLOEXEC, 0);
  struct flock lock = first_byte(F_WRLCK);
  const bool locked = ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  ::close(fd);
  return locked;
}

int Machine::make_block(BlockKind kind, int device, std::uint64_t bytes) {
  if (used(device) + bytes > kDeviceBytes) return -1;
  const Locked tables(*this);
  for (std::size_t place = 0; place < kMaxBlocks; ++place) {
    Block& block = tables->blocks[place];
    if (block.kind != BlockKind::kFree) continue;
    block.id = tables->next_id++;
    const int fd = is_shared()
                       ? ::open(path_of(block).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
                       : ::memfd_create("block", MFD_CLOEXEC);
    struct stat state {};
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || ::fstat(fd, &state) != 0) {
      misuse(kSetUp, std::strerror(errno));
    }
    if (is_shared()) {
      ::close(fd);
    } else {
      own_descriptors()[block.id] = fd;
    }
    block.kind = kind;
    block.device = device;
    block.bytes = bytes;
    block.inode = state.st_ino;
    block.owner = self_;
    block.references[static_cast<std::size_t>(self_)] = 1;
    return static_cast<int>(place);
  }
  return -1;
}

void Machine::release(int block) {
  const Locked tables(*this);
  Block& own = tables->blocks[static_cast<std::size_t>(block)];
  --own.references[static_cast<std::size_t>(self_)];
  free_if_unused(own);
}

std::uint64_t Machine::charged(int process) {
  const Locked tables(*this);
  forget_the_dead(*tables);
  std::uint64_t sum = 0;
  for (const Block& block : tables->blocks) {
    if (block.kind == BlockKind::kFree) continue;
    int payer = block.owner;
    for (int other = 0; other < kMaxProcesses && payer == kNobody; ++other) {
      if (block.references[static_cast<std::size_t>(other)] != 0) payer = other;
    }
    if (payer == process) sum += block.bytes;
  }
  return sum;
}

std::uint64_t Machine::used(int device) {
  const Locked tables(*this);
  forget_the_dead(*tables);
  std::uint64_t sum = 0;
  for (const Block& block : tables->blocks) {
    if (block.kind != BlockKind::kFree && block.device == device) sum += block.bytes;
  }
  return sum;
}

}  // namespace mc::fake
