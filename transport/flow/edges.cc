// SPDX-License-Identifier: Apache-2.0
#include "transport/flow/edges.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

namespace mc::transport {

Status Edges::watch(int fd, Watched* watched, Kind kind) {
  epoll_event event{};
  event.events = kind == Kind::kLink
                     ? static_cast<std::uint32_t>(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
                     : static_cast<std::uint32_t>(EPOLLIN);
  event.data.ptr = watched;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return {MC_NO_MEMORY, errno_text("epoll_ctl", errno)};
}

void Edges::forget(int fd, Watched* watched) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  std::ranges::replace(due_, watched, nullptr);
}

bool Edges::take(std::uint64_t now_ns) {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr != nullptr) due_.push_back(static_cast<Watched*>(events[i].data.ptr));
  }
  const bool any = !due_.empty();
  for (std::size_t i = 0; i < due_.size(); ++i) {
    if (due_[i] != nullptr) due_[i]->on_edge(now_ns);
  }
  due_.clear();
  return any;
}

}  // namespace mc::transport
