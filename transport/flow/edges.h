// SPDX-License-Identifier: Apache-2.0
//
// The descriptors of a transport behind a single descriptor: links, event channels of
//   devices.
// Threads: the transport's.
// Owns: the epoll descriptor, not the watched descriptors.
#pragma once

#include <cstdint>
#include <vector>

#include "libmc/base/fd.h"

namespace mc::transport {

class Watched {
 public:
  virtual ~Watched() = default;
  // The descriptor is ready. The object may forget itself and other objects within the call.
  virtual void on_edge(std::uint64_t now_ns) = 0;
};

class Edges {
 public:
  explicit Edges(Fd epoll) : epoll_(std::move(epoll)) {}

  // kLink reports each edge once. kReadable reports as long as the descriptor is readable.
  enum class Kind { kLink, kReadable };
  // watched: null if another object reads the descriptor; then fd() only becomes readable with it.
  Status watch(int fd, Watched* watched, Kind kind);
  // Does not touch the object after the call.
  void forget(int fd, Watched* watched);
  // True: an object was told.
  bool take(std::uint64_t now_ns);
  int fd() const { return epoll_.get(); }

 private:
  Fd epoll_;
  std::vector<Watched*> due_;
};

}  // namespace mc::transport
