// SPDX-License-Identifier: Apache-2.0
//
// The devices of a machine as all of its processes see them: blocks of device memory and events.
//
//   folder ─┬─ machine     the tables below, and a lock for each living process
//           └─ block-N     the bytes of a block
//
// Threads: any. A lock that a killed process held is taken over.
// Owns: the tables. A process that is dead holds nothing any more.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "device/fake/abi.h"

namespace mc::fake {

inline constexpr int kDevices = 2;
inline constexpr int kMaxProcesses = 32;
inline constexpr int kMaxBlocks = 2048;
inline constexpr int kMaxEvents = 1024;
inline constexpr std::uint64_t kDeviceBytes = std::uint64_t{8} << 30;
inline constexpr int kNobody = -1;

enum class BlockKind : std::uint32_t { kFree, kLegacy, kPhysical, kManaged };

// Physical memory: of cuMemAlloc, which may cut small allocations from a block, or of cuMemCreate.
struct Block {
  BlockKind kind = BlockKind::kFree;
  int device = 0;
  std::uint64_t bytes = 0;
  std::uint64_t id = 0;  // never reused
  std::uint64_t inode = 0;
  int owner = kNobody;
  int handle_types = 0;
  bool exported = false;  // descriptors of open_block() may hold the block
  // Of each process: allocations in the owner; mappings and handles elsewhere.
  std::array<std::uint32_t, kMaxProcesses> references{};
};

struct SharedEvent {
  bool used = false;
  int owner = kNobody;
  unsigned flags = 0;
  std::uint64_t id = 0;
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<std::uint64_t> completed{0};
  std::array<std::uint32_t, kMaxProcesses> imports{};
};

struct Tables {
  pthread_mutex_t lock;
  pthread_mutex_t pin_lock;  // held while any process pins
  std::uint64_t next_id;
  std::array<int, kMaxProcesses> pids;  // 0: a free place
  std::array<Block, kMaxBlocks> blocks;
  std::array<SharedEvent, kMaxEvents> events;
};

class Machine {
 public:
  // The machine that the environment names, or a machine of this process alone. Aborts if the folder cannot be used.
  static Machine& get();

  // The tables, locked while the object lives.
  class Locked {
   public:
    explicit Locked(Machine& machine);
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    ~Locked();
    Tables* operator->() const { return machine_.tables_; }
    Tables& operator*() const { return *machine_.tables_; }

   private:
    Machine& machine_;
  };

  int self() const { return self_; }
  bool is_shared() const { return !folder_.empty(); }
  // Without the lock: for the atomic values.
  Tables& tables() { return *tables_; }
  // Device numbers differ between processes, and UUIDs tell which devices are the same. With
  // MC_FAKE_DRIVER_SAME_NUMBERS in the environment the numbers are the same.
  int physical_device(int ordinal) const {
    static const bool same = std::getenv("MC_FAKE_DRIVER_SAME_NUMBERS") != nullptr;
    return (ordinal + (is_shared() && !same ? self_ : 0)) % kDevices;
  }
  int ordinal_of(int device) const;

  // A new block with a reference of this process. -1: the device or the tables are full.
  int make_block(BlockKind kind, int device, std::uint64_t bytes);
  // A new descriptor of the block's bytes. The block lives until the last of these descriptors is closed,
  // in all processes.
  int open_block(Block& block) const;
  // The block is freed with the last reference of a living process.
  void release(int block);
  bool is_alive(int process) const;
  // The bytes that the process pays for: blocks of the process, and imported blocks of the dead.
  std::uint64_t charged(int process);
  std::uint64_t used(int device);

 private:
  Machine();
  void forget_the_dead(Tables& tables) const;
  void free_if_unused(Block& block) const;
  bool has_descriptors(const Block& block) const;
  std::string path_of(const Block& block) const;

  std::string folder_;  // empty: the machine of this process alone
  int fd_ = -1;
  Tables* tables_ = nullptr;
  int self_ = kNobody;
};

}  // namespace mc::fake
