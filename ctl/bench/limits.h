// SPDX-License-Identifier: Apache-2.0
//
// What it is: the machine's own limits: a bare round trip between two processes through shared
// cache lines or through eventfds, and shared memory to copy into. Threads: one. A peer must be
// made before the process opens a client or starts a thread. Owns: the peer process and the memory.
// Trusts: the peer, which runs this file.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "libmc/base/fd.h"
#include "mc/status.h"

namespace mc::ctl {

struct PingPage;

// A second process that answers pings. It sleeps unless a spinning ping-pong is under way.
class PingPeer {
 public:
  static Result<PingPeer> start();
  PingPeer(PingPeer&& other) noexcept;
  PingPeer& operator=(PingPeer&&) = delete;
  PingPeer(const PingPeer&) = delete;
  PingPeer& operator=(const PingPeer&) = delete;
  ~PingPeer();

  // Between begin and end the peer spins; spin_ping() is a round trip of two cache lines.
  void begin_spin();
  void spin_ping();
  void end_spin();
  // A round trip with both sides blocked in read(): never while spinning.
  void event_ping();

 private:
  PingPeer() = default;

  pid_t pid_ = 0;
  PingPage* page_ = nullptr;
  Fd to_peer_;
  Fd from_peer_;
  std::uint64_t sequence_ = 0;
};

// Shared memory of a memory file, every page touched.
class SharedRegion {
 public:
  // The file may be shared with a process forked before the memory was sized.
  static Result<SharedRegion> map(const Fd& file, std::size_t size);
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&&) = delete;
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;
  ~SharedRegion();

  unsigned char* data() const { return data_; }
  std::size_t size() const { return size_; }
  // The start of a block chosen by number, blocks of this size laid end to end.
  unsigned char* block(std::uint64_t number, std::size_t block_bytes) const;

 private:
  SharedRegion(unsigned char* data, std::size_t size) : data_(data), size_(size) {}

  unsigned char* data_;
  std::size_t size_;
};

Result<Fd> make_region_file();
// As large as the pool, unless that is more than half of the memory that is free.
std::size_t region_bytes_for(std::uint64_t pool_bytes);

}  // namespace mc::ctl
