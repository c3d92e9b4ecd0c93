// SPDX-License-Identifier: Apache-2.0
//
// What it is: a master inside an agent's process, for clusters that want no process more: it
//   listens, campaigns and leads as mc-master does, and ends with the agent. The agent itself talks
//   to it over its socket, as to any other.
// Threads: start and destroy in one; the master has a loop thread of its own here, and its elector.
// Owns: the master.
#pragma once

#include <memory>
#include <thread>

#include "agent/options/options.h"
#include "metadata/master/master.h"

namespace mc::agent {

class InnerMaster {
 public:
  // What options.master_listen, cluster_id, cluster_store and cluster_key_file say. Errors: as
  // metadata::Master::create().
  static Result<std::unique_ptr<InnerMaster>> start(const Options& options);
  ~InnerMaster();

 private:
  explicit InnerMaster(std::unique_ptr<metadata::Master> master);

  std::unique_ptr<metadata::Master> master_;
  std::thread thread_;
};

}  // namespace mc::agent
