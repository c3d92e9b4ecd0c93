// SPDX-License-Identifier: Apache-2.0
#include "agent/server/contributions.h"

#include <algorithm>
#include <utility>

namespace mc::agent {

void Contributions::add(const Held& held) {
  parts_.push_back(held);
  changed_ = true;
}

void Contributions::set(std::uint64_t session, const Part& part) {
  const auto old = std::find_if(parts_.begin(), parts_.end(),
                                [&](const Held& held) { return held.session == session; });
  const std::uint64_t before = old != parts_.end() ? old->part.bytes : 0;
  std::uint64_t wanted = part.bytes - std::min(part.bytes, before);
  end(session, 0);
  for (Held& held : parts_) {
    if (held.session != 0) continue;
    const std::uint64_t taken = std::min(wanted, held.part.bytes);
    held.part.bytes -= taken;
    wanted -= taken;
  }
  std::erase_if(parts_, [](const Held& held) { return held.session == 0 && held.part.bytes == 0; });
  if (part.bytes != 0 || part.buffer_bytes != 0) add({session, part, kNever});
}

void Contributions::end(std::uint64_t session, std::uint64_t until_ns) {
  for (auto at = parts_.begin(); at != parts_.end(); ++at) {
    if (at->session != session) continue;
    changed_ = true;
    *at = {0, {at->part.bytes, 0}, until_ns};
    if (until_ns == 0 || at->part.bytes == 0) parts_.erase(at);
    return;
  }
}

bool Contributions::changed(std::uint64_t now_ns) {
  changed_ |= std::erase_if(parts_, [&](const Held& held) { return held.until_ns <= now_ns; }) > 0;
  return std::exchange(changed_, false);
}

std::uint64_t Contributions::bytes() const {
  std::uint64_t sum = 0;
  for (const Held& held : parts_) sum += held.part.bytes;
  return sum;
}

std::uint64_t Contributions::largest_buffer_bytes() const {
  std::uint64_t most = 0;
  for (const Held& held : parts_) most = std::max(most, held.part.buffer_bytes);
  return most;
}

}  // namespace mc::agent
