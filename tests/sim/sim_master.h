// SPDX-License-Identifier: Apache-2.0
//
// What it is: the host of a partition's master: the real LeaderState, on links of the simulated network, and
// the cluster
//   store's content. It comes up, leads, and ends like a process that is killed; the next one
//   leads with a higher epoch, with what the store has, or with nothing.
// Threads: the simulator's. Owns: links of the leader state.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "metadata/master/leader_state.h"
#include "sim/sim_links.h"

namespace mc::sim {

class SimMaster : private metadata::rpc::LinkHandler {
 public:
  // max_entries, max_nodes: of the master's options.
  SimMaster(boost::asio::io_context& io, LinkWorld& links, HostId host,
            std::uint64_t max_entries = 4096, std::uint64_t max_nodes = 16);
  ~SimMaster() override { stop(); }

  // keeps_store: the cluster store has kept what the last leader wrote.
  void start(bool keeps_store, std::uint64_t now_ns);
  void stop();
  bool leads() const { return leader_state_ != nullptr; }
  // Counts the reigns.
  std::uint64_t leader_state() const { return reigns_; }
  // Counts those that began without what the one before had in the store.
  std::uint64_t memory() const { return memories_; }

  // What the cluster store has.
  std::map<std::string, std::string>& store() { return store_; }

  // A connection from that host, or null while no master is there.
  std::shared_ptr<metadata::rpc::Link> dial(HostId from, metadata::rpc::LinkHandler& handler);
  void tick(std::uint64_t now_ns);

  // A deliberate bug: a new leader does not read who was away.
  bool forgets_who_was_away = false;

 private:
  void on_request(metadata::rpc::Link& link, const metadata::rpc::Request& request) override;
  void on_cancel(metadata::rpc::Link& link, std::uint32_t id) override;
  void on_closed(metadata::rpc::Link& link, const Status& why) override;

  boost::asio::io_context& io_;
  LinkWorld& links_world_;
  const HostId host_;
  const metadata::MasterOptions options_;
  std::vector<std::shared_ptr<metadata::rpc::Link>> links_;  // in the order in which they came
  std::map<std::string, std::string> store_;
  std::uint64_t epoch_ = 0;
  std::uint64_t reigns_ = 0;
  std::uint64_t memories_ = 0;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_tick_ns_ = 0;
  std::unique_ptr<metadata::LeaderState> leader_state_;
};

}  // namespace mc::sim
