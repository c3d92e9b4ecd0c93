// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer/member_refresh.h"

#include <utility>

namespace mc::agent {

void MemberRefresh::poll(std::uint64_t now_ns) {
  missed_ |= peers_.take_missed();
  if (missed_ && now_ns >= last_ns_ + kSoonNs) {
    missed_ = false;
    last_ns_ = now_ns;
    masters_.refresh_members();
  }
  if (masters_.members_changed(seen_)) peers_.update(masters_.known_members());
}

}  // namespace mc::agent
