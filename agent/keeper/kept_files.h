// SPDX-License-Identifier: Apache-2.0
//
// The agent's access to its descriptor store. A failure to keep or drop a descriptor is
//   logged, since the agent can serve without a store. Names:
//
//   node   {index,pool,versions}PART.NS   session.ID.UID.PID.{file,pidfd,staging}.NS
//
// Threads: the agent's loop.
// Owns: the descriptor store.
// Trusts: its caller.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "agent/keeper/descriptor_store.h"

namespace mc::agent {

using KeptDescriptors = std::map<std::string, Fd>;

class KeptFiles {
 public:
  explicit KeptFiles(std::unique_ptr<DescriptorStore> store) : store_(std::move(store)) {}

  // The descriptors of the previous agent; empty after a failure, which is logged.
  KeptDescriptors take_all();
  void keep(const std::string& name, int fd) { static_cast<void>(try_keep(name, fd)); }
  // For a caller who cannot serve without the store.
  Status try_keep(const std::string& name, int fd);
  void forget(const std::string& name);
  // The previous agent may have died in the middle of a creation or a drop. Without this cleanup
  // the store would keep the leftover descriptors for ever.
  void forget_all_but(const std::set<std::string>& wanted, const KeptDescriptors& kept);
  // Lets go of everything at a final stop.
  void drop_all();
  // Readable when the store has died, else -1.
  int death_fd() const { return store_->death_fd(); }
  // Returns false if the store cannot be restarted. Otherwise everything must be kept again.
  bool restart();

 private:
  std::unique_ptr<DescriptorStore> store_;
};

}  // namespace mc::agent
