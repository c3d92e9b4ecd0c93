// SPDX-License-Identifier: Apache-2.0
//
// A host with a master: the real Master, elector, roster and leader states, on simulated links and a
//   simulated store. The master comes up, stands by or leads, and ends like a killed process.
// Threads: The simulator's.
// Owns: The master.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "libmc/base/clock.h"
#include "metadata/master/client/master_client.h"
#include "metadata/master/master.h"
#include "sim/sim_links.h"
#include "sim/sim_store.h"

namespace mc::sim {

// The address of a master's host, and back.
std::string master_address(HostId host);
HostId host_of(const std::string& address);

class SimMaster {
 public:
  using All = std::vector<std::unique_ptr<SimMaster>>;
  struct Options {
    HostId host = kMasterHost;
    std::uint32_t partitions = 1;
    std::uint64_t max_entries = 4096;
    std::uint64_t max_nodes = 16;
  };

  SimMaster(LinkWorld& links, StoreWorld& store, const Options& options);
  ~SimMaster() { stop(); }

  void start();
  // kill -9: the master neither resigns nor says farewell.
  void stop();
  bool up() const { return master_ != nullptr; }
  HostId host() const { return options_.host; }
  // 0: this master does not lead the partition.
  std::uint64_t epoch(std::uint32_t partition) const {
    return up() ? master_->epoch(partition) : 0;
  }
  // Opens a link from that place. REQUIRES: up().
  std::shared_ptr<metadata::rpc::RpcLink> dial(const LinkWorld::Place& from,
                                               const metadata::rpc::DialOptions& options,
                                               metadata::rpc::RpcLinkHandler& handler);
  void poll();
  // The process stands still: it neither answers nor learns that its lease has ended.
  void stand_until(std::uint64_t ns) { stands_until_ns_ = ns; }

 private:
  LinkWorld& links_;
  StoreWorld& store_;
  const Options options_;
  std::unique_ptr<metadata::Master> master_;
  std::uint64_t stands_until_ns_ = 0;
};

// The ways of an agent's host to the masters and to the store, which must outlive the agent.
metadata::MasterClient::Outside outside_of(HostId host, LinkWorld& links, StoreWorld& store,
                                           const SimMaster::All& masters);

}  // namespace mc::sim
