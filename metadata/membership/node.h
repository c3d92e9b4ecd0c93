// SPDX-License-Identifier: Apache-2.0
//
// An agent's name: the node id, which outlives restarts, and the incarnation, which
//   does not. A later incarnation of a node is a larger number.
// Threads: values.
#pragma once

#include <cstdint>

namespace mc::metadata {

using NodeId = std::uint64_t;       // 0: no node
using Incarnation = std::uint64_t;  // 0: none yet

constexpr NodeId kNoNode = 0;

}  // namespace mc::metadata
