// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/promises.h"

#include <algorithm>

namespace mc::metadata {

void Promises::heard(NodeId node, std::uint64_t promised_ns, std::uint64_t now_ns) {
  const auto found = promised_.find(node);
  if (found != promised_.end() && promised_ns <= now_ns) {
    found->second = std::max(found->second, promised_ns);
  }
}

std::uint64_t Promises::until_ns() const {
  const auto first =
      std::ranges::min_element(promised_, {}, [](const auto& one) { return one.second; });
  if (first == promised_.end() || first->second == 0) return 0;
  return first->second + promise_ns_ - lease_ns_;
}

}  // namespace mc::metadata
