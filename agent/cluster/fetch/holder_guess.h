// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "metadata/directory/directory_types.h"

namespace mc::agent {

// The host that probably holds the next object: the host that the master has named first for the
// last objects. Engines read the blocks of a prompt one after the other, and one host has computed
// the blocks.
class HolderGuess {
 public:
  // kNoNode: no guess.
  metadata::NodeId node() const { return row_ >= kEnough ? node_ : metadata::kNoNode; }
  // holders: the master's answer about an object, in reading order.
  void learn(std::span<const metadata::NodeId> holders) {
    const metadata::NodeId first = holders.empty() ? metadata::kNoNode : holders.front();
    row_ = first == node_ ? row_ + 1 : 1;
    node_ = first;
  }

 private:
  static constexpr unsigned kEnough = 4;  // objects in a row

  metadata::NodeId node_ = metadata::kNoNode;
  unsigned row_ = 0;
};

}  // namespace mc::agent
