// SPDX-License-Identifier: Apache-2.0
//
// What it is: the interface through which an ObjectStore reports objects that come and go. The
//   cluster listens and informs the master. A store without a cluster has no listener.
// Threads: the agent's loop. The calls come from within the store's own calls, so a listener must
//   not call the store.
// Owns: nothing.
// Trusts: the store.
#pragma once

#include <cstdint>

namespace mc::agent {

struct PutOrder;

class StoreListener {
 public:
  virtual ~StoreListener() = default;
  // The entry is live and can be found.
  virtual void on_live(std::uint32_t entry, const PutOrder& order) = 0;
  // The same object moved to another entry; `from` leaves without an on_gone().
  virtual void on_moved(std::uint32_t from, std::uint32_t to) = 0;
  // The entry can no longer be found; its key and length are still readable.
  virtual void on_gone(std::uint32_t entry) = 0;
};

}  // namespace mc::agent
