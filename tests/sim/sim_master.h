// SPDX-License-Identifier: Apache-2.0
//
// The host of a partition's master: the real LeaderState on simulated links, and the
//   content of the cluster store. The master comes up, leads, and ends like a killed process. The
//   next master leads with a higher epoch, with the store's content or with an empty store.
// Threads: The simulator's.
// Owns: The links of the leader state.
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
  // max_entries, max_nodes: options of the master.
  SimMaster(boost::asio::io_context& io, LinkWorld& links, HostId host,
            std::uint64_t max_entries = 4096, std::uint64_t max_nodes = 16);
  ~SimMaster() override { stop(); }

  // keeps_store: the cluster store has kept the content of the last leader.
  void start(bool keeps_store, std::uint64_t now_ns);
  void stop();
  bool leads() const { return leader_state_ != nullptr; }
  // Counts the leaders so far.
  std::uint64_t leader_state() const { return leaders_; }
  // Counts the leaders that began without the previous leader's content of the store.
  std::uint64_t memory() const { return memories_; }

  // Content of the cluster store.
  std::map<std::string, std::string>& store() { return store_; }

  // Connects from that host; null while no master is there.
  std::shared_ptr<metadata::rpc::Link> dial(HostId from, metadata::rpc::LinkHandler& handler);
  void tick(std::uint64_t now_ns);

  // A deliberate bug: a new leader does not read the list of absent members.
  bool forgets_who_was_away = false;

 private:
  void on_request(metadata::rpc::Link& link, const metadata::rpc::Request& request) override;
  void on_cancel(metadata::rpc::Link& link, std::uint32_t id) override;
  void on_closed(metadata::rpc::Link& link, const Status& why) override;

  boost::asio::io_context& io_;
  LinkWorld& links_world_;
  const HostId host_;
  const metadata::MasterOptions options_;
  std::vector<std::shared_ptr<metadata::rpc::Link>> links_;  // in order of arrival
  std::map<std::string, std::string> store_;
  std::uint64_t epoch_ = 0;
  std::uint64_t leaders_ = 0;
  std::uint64_t memories_ = 0;
  std::uint64_t now_ns_ = 0;
  std::uint64_t next_tick_ns_ = 0;
  std::unique_ptr<metadata::LeaderState> leader_state_;
};

}  // namespace mc::sim
