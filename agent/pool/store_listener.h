// SPDX-License-Identifier: Apache-2.0
//
// What it is: who hears of objects that come to a ObjectStore and leave it: the cluster, which tells the
//   master. A store of a host alone has none.
// Threads: the agent's loop; called from within the store's own calls, so it must not call back.
#pragma once

#include <cstdint>

namespace mc::agent {

struct PutOrder;

class StoreListener {
 public:
  virtual ~StoreListener() = default;
  // entry is live and can be found.
  virtual void on_live(std::uint32_t entry, const PutOrder& order) = 0;
  // The same object under another entry; from leaves without an on_gone().
  virtual void on_moved(std::uint32_t from, std::uint32_t to) = 0;
  // entry can no longer be found; its key and length can still be read.
  virtual void on_gone(std::uint32_t entry) = 0;
};

}  // namespace mc::agent
