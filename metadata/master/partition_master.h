// SPDX-License-Identifier: Apache-2.0
//
// A master's part in a partition: its election, and a LeaderState while it leads.
// Threads: the master's loop. The elector has a separate thread.
// Owns: the Elector and the LeaderState.
// Trusts: links that have proven the cluster key, as far as leader_state.h says.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "metadata/master/elector.h"
#include "metadata/master/leader_state.h"
#include "metadata/master/master_options.h"

namespace mc::metadata {

class PartitionMaster {
 public:
  struct Outside {
    // This master has stopped leading. Closes the partition's links, since the open calls were
    // asked of a leader.
    std::function<void()> ended;
    std::function<void(const Status&)> store_trouble;  // from the elector's thread
    std::function<std::uint32_t()> link_count;
    std::function<std::uint64_t()> refused_links;
    MasterCounters* counters;
  };

  // Begins to campaign. address: how other processes reach this master. io, options and the
  // partition's roster outlive this object.
  PartitionMaster(boost::asio::io_context& io, const MasterOptions& options,
                  const std::string& address, Elector::Partition partition,
                  std::unique_ptr<ClusterStore> store, const StartStoreThread& start_thread,
                  Outside outside);
  ~PartitionMaster() { stop(); }
  // Resigns.
  void stop();

  [[nodiscard]] bool leads() const;
  // 0: this master does not lead.
  [[nodiscard]] std::uint64_t epoch() const {
    return leader_state_ == nullptr ? 0 : leader_state_->epoch();
  }
  // This master leads with the promises of the agents, because the cluster store does not answer.
  [[nodiscard]] bool without_store() const { return without_store_; }
  // Another master's address, if known.
  [[nodiscard]] const std::string& leader() const { return leader_; }
  // Null: this master does not lead.
  [[nodiscard]] const LeaderState* leader_state() const { return leader_state_.get(); }

  // As LeaderState::attended(). This master leads.
  void attended(const rpc::RpcLink& link, std::uint64_t heard);
  void on_request(rpc::RpcLink& link, const rpc::Request& request);
  void on_cancel(rpc::RpcLink& link, std::uint32_t id);
  void on_closed(rpc::RpcLink& link);
  void tick();

 private:
  Elector::Callbacks callbacks();
  void begin(const Term& term);
  void end();

  boost::asio::io_context& io_;
  const MasterOptions& options_;
  const std::uint32_t partition_;
  const Outside outside_;
  std::string leader_;
  std::unique_ptr<LeaderState> leader_state_;
  bool without_store_ = false;
  std::unique_ptr<Elector> elector_;
};

}  // namespace mc::metadata
