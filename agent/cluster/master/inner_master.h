// SPDX-License-Identifier: Apache-2.0
//
// A master inside an agent's process, for clusters without separate master processes.
//   The master listens, campaigns and leads as mc-master does, and ends with the agent. The agent
//   connects to the master's socket, as to any other master.
// Threads: Start and destroy on one thread. The master has a loop thread of its own here, and the
//   elector another.
// Owns: The master.
#pragma once

#include <memory>
#include <thread>

#include "agent/options/options.h"
#include "metadata/master/master.h"

namespace mc::agent {

class InnerMaster {
 public:
  // Reads options.master_listen, cluster_id, cluster_store and cluster_key_file. Errors: as
  // metadata::Master::create().
  static Result<std::unique_ptr<InnerMaster>> start(const Options& options);
  ~InnerMaster();

 private:
  explicit InnerMaster(std::unique_ptr<metadata::Master> master);

  std::unique_ptr<metadata::Master> master_;
  std::thread thread_;
};

}  // namespace mc::agent
