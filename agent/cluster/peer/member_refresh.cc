// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer/member_refresh.h"

#include <algorithm>

namespace mc::agent {

namespace {

constexpr std::uint64_t kPeriodNs = 1'000'000'000;

}  // namespace

void MemberRefresh::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (peers_.take_missed()) next_ns_ = std::min(next_ns_, last_ns_ + kSoonNs);
  if (now_ns < next_ns_ || asked_) return;
  asked_ = true;
  last_ns_ = now_ns;
  next_ns_ = now_ns + kPeriodNs;
  masters_.members(now_ns + kPeriodNs, [this](const Result<metadata::wire::MembersAnswer>& answer) {
    asked_ = false;
    if (answer) {
      peers_.update(*answer);
    } else {
      next_ns_ = now_ns_ + kSoonNs;
    }
  });
}

}  // namespace mc::agent
