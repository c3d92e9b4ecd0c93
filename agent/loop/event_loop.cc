// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/event_loop.h"

#include <sys/epoll.h>

#include <cerrno>

#include "libmc/base/clock.h"

namespace mc::agent {

Status EventLoop::open() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return {MC_NO_MEMORY, errno_text("create an epoll", errno)};
  return {};
}

Status EventLoop::watch(int fd, Handler handler, Trigger trigger) {
  epoll_event event{};
  event.events = EPOLLIN | (trigger == Trigger::kEdge ? EPOLLET : 0u);
  const std::uint32_t turn = ++next_turn_;
  event.data.u64 = (std::uint64_t{turn} << 32) | static_cast<std::uint32_t>(fd);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = errno;
    const char* const remedy = error == ENOSPC ? "; raise fs.epoll.max_user_watches" : "";
    return {MC_NO_MEMORY, errno_text("watch a descriptor", error) + remedy};
  }
  if (auto old = watched_.extract(fd)) ended_.push_back(std::move(old));
  watched_.emplace(fd, Watched{turn, std::move(handler)});
  return {};
}

void EventLoop::unwatch(int fd) {
  auto found = watched_.extract(fd);
  if (!found) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  ended_.push_back(std::move(found));
}

[[gnu::hot]] std::uint64_t EventLoop::handle(int timeout_ms) {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, timeout_ms);
  if (count <= 0) return 0;
  const std::uint64_t begun_ns = now_ns();
  for (int i = 0; i < count; ++i) {
    const auto fd = static_cast<int>(events[i].data.u64 & 0xffffffffu);
    const auto found = watched_.find(fd);
    // An earlier event of this batch may have closed the descriptor, and the number may be in use
    // again.
    if (found == watched_.end() || found->second.turn != events[i].data.u64 >> 32) continue;
    found->second.handler();
  }
  if (!ended_.empty()) ended_.clear();
  return now_ns() - begun_ns;
}

}  // namespace mc::agent
