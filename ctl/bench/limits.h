// SPDX-License-Identifier: Apache-2.0
//
// The limits of the machine: a bare round trip between two processes through shared
//   cache lines or through eventfds, and shared memory to copy into.
// Threads: a single thread. A peer must be created before the process opens a client or starts a
// thread.
// Owns: the peer process and the memory.
// Trusts: the peer, which runs this code.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "libmc/base/fd.h"
#include "mc/status.h"

namespace mc::ctl {

struct PingPage;

// A second process that answers pings. The process sleeps unless a spinning ping-pong runs.
class PingPeer {
 public:
  static Result<PingPeer> start();
  PingPeer(PingPeer&& other) noexcept;
  PingPeer& operator=(PingPeer&&) = delete;
  PingPeer(const PingPeer&) = delete;
  PingPeer& operator=(const PingPeer&) = delete;
  ~PingPeer();

  // Between begin and end the peer spins. spin_ping() is a round trip of two cache lines.
  void begin_spin();
  void spin_ping();
  void end_spin();
  // A round trip with both sides blocked in read(). REQUIRES: the peer does not spin.
  void event_ping();

 private:
  PingPeer() = default;

  pid_t pid_ = 0;
  PingPage* page_ = nullptr;
  Fd to_peer_;
  Fd from_peer_;
  std::uint64_t sequence_ = 0;
};

// Shared memory of a memory file; every page is touched.
class SharedRegion {
 public:
  // A process that was forked before the call may share the file.
  static Result<SharedRegion> map(const Fd& file, std::size_t size);
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&&) = delete;
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;
  ~SharedRegion();

  unsigned char* data() const { return data_; }
  std::size_t size() const { return size_; }
  // The start of block number i; blocks of this size lie end to end.
  unsigned char* block(std::uint64_t number, std::size_t block_bytes) const;

 private:
  SharedRegion(unsigned char* data, std::size_t size) : data_(data), size_(size) {}

  unsigned char* data_;
  std::size_t size_;
};

Result<Fd> make_region_file();
// The size of the pool, but at most half of the free memory.
std::size_t region_bytes_for(std::uint64_t pool_bytes);

}  // namespace mc::ctl
