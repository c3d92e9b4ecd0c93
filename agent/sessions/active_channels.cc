// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/active_channels.h"

#include <algorithm>

#include "libmc/base/clock.h"
#include "shm/doorbell.h"

namespace mc::agent {

[[gnu::hot]] void ActiveChannels::activate(Session& session, std::uint32_t number) {
  ChannelState& channel = session.channels[number];
  if (!channel.open || channel.active) return;
  channel.active = true;
  channel.last_work_ns = now_ns();
  shm::announce_agent_awake(channel.shared->header);
  active_.push_back({&session, number});
}

void ActiveChannels::deactivate_all(Session& session) {
  std::erase_if(active_, [&](const Active& active) { return active.session == &session; });
  for (ChannelState& channel : session.channels) channel.active = false;
}

[[gnu::hot]] bool ActiveChannels::serve(Server& server, std::uint64_t now) {
  bool worked = false;
  for (const Active& active : active_) {
    if (!server.serve(*active.session, active.number)) continue;
    active.channel().last_work_ns = now;
    worked = true;
  }
  return worked;
}

void ActiveChannels::put_idle_to_sleep(std::uint64_t now) {
  const auto idle = [&](const Active& active) {
    return now - active.channel().last_work_ns > kIdleNs;
  };
  if (std::none_of(active_.begin(), active_.end(), idle)) return;
  for (const Active& active : active_) {
    if (idle(active)) shm::announce_agent_sleep(active.header());
  }
  shm::full_fence();
  std::erase_if(active_, [&](const Active& active) {
    if (!idle(active)) return false;
    if (!active.channel().requests.has_record()) {
      active.channel().active = false;
      return true;
    }
    shm::announce_agent_awake(active.header());
    return false;
  });
}

bool ActiveChannels::put_all_to_sleep() {
  if (active_.empty()) return true;
  for (const Active& active : active_) shm::announce_agent_sleep(active.header());
  shm::full_fence();
  bool work = false;
  for (const Active& active : active_) work |= active.channel().requests.has_record();
  if (!work) {
    for (const Active& active : active_) active.channel().active = false;
    active_.clear();
    return true;
  }
  for (const Active& active : active_) shm::announce_agent_awake(active.header());
  return false;
}

}  // namespace mc::agent
