// SPDX-License-Identifier: Apache-2.0
//
// What it is: the descriptors of a transport behind one: links, event channels of devices.
// Threads: the transport's. Owns the epoll descriptor, not what is watched.
#pragma once

#include <cstdint>
#include <vector>

#include "libmc/base/fd.h"

namespace mc::transport {

class Watched {
 public:
  virtual ~Watched() = default;
  // Something happened on its descriptor. It may forget itself and others.
  virtual void on_edge(std::uint64_t now_ns) = 0;
};

class Edges {
 public:
  explicit Edges(Fd epoll) : epoll_(std::move(epoll)) {}

  // Links are told of edges; what is read away by others is told as long as it is readable.
  enum class Kind { kLink, kReadable };
  Status watch(int fd, Watched* watched, Kind kind);
  // The object is no longer touched when this has returned.
  void forget(int fd, Watched* watched);
  // True: there was something.
  bool take(std::uint64_t now_ns);
  int fd() const { return epoll_.get(); }

 private:
  Fd epoll_;
  std::vector<Watched*> due_;
};

}  // namespace mc::transport
