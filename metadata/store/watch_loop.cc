// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/watch_loop.h"

#include <system_error>

namespace mc::metadata {

Result<std::unique_ptr<Watch>> WatchLoop::start(std::function<void(const StopSignal&)> body) {
  auto stop = make_eventfd();
  if (!stop) return fail(stop.error());
  std::unique_ptr<WatchLoop> loop(new WatchLoop(std::move(*stop)));
  const StopSignal signal(loop->stop_.get());
  try {
    loop->thread_ = std::thread([body = std::move(body), signal] { body(signal); });
  } catch (const std::system_error& error) {
    return fail(MC_NO_MEMORY, std::string("cannot start the thread of a watch: ") + error.what());
  }
  return std::unique_ptr<Watch>(std::move(loop));
}

WatchLoop::~WatchLoop() {
  if (!thread_.joinable()) return;
  signal_eventfd(stop_.get());
  thread_.join();
}

}  // namespace mc::metadata
