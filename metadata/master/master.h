// SPDX-License-Identifier: Apache-2.0
//
// One mc-master. It has one port, and a PartitionMaster for each partition of the keys,
//   which leads or stands by. A link belongs to the partition that the first call
//   names (Attend), else partition 0.
//
//     links ──► PartitionMaster 0, 1 … ──► Elector, LeaderState      Roster ──► which partitions to lead
//
// Threads: run() is the loop's thread. Electors and roster have their own threads. stop() from any
//   thread.
// Owns: everything, built and torn down in one order.
// Trusts: links that have proven the cluster key, as far as leader_state.h says.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libmc/base/mutex.h"
#include "metadata/master/master_options.h"
#include "metadata/master/partition_master.h"
#include "metadata/master/roster.h"
#include "metadata/rpc/listener.h"

namespace mc::metadata {

class Master final : public rpc::ListenerHandler {
 public:
  // Listens, and begins to campaign. Errors: with the remedy, for the operator.
  static Result<std::unique_ptr<Master>> create(const MasterOptions& options);
  ~Master() override;

  void run();
  void stop();
  [[nodiscard]] const std::string& address() const { return address_; }

  void on_link(const std::shared_ptr<rpc::Link>& link) override;
  void on_refused(const Status& why, const std::string& address) override;
  void on_request(rpc::Link& link, const rpc::Request& request) override;
  void on_cancel(rpc::Link& link, std::uint32_t id) override;
  void on_closed(rpc::Link& link, const Status& why) override;

 private:
  struct Attending {
    std::shared_ptr<rpc::Link> link;
    std::uint32_t partition = 0;
    bool said = false;  // an Attend call named this partition
  };

  explicit Master(const MasterOptions& options) : options_(options), tick_(io_) {}
  // Creates all partition masters.
  Status sit_down();
  Result<std::unique_ptr<ClusterStore>> open_store() const;
  void attend(rpc::Link& link, const rpc::Request& request);
  void close_links(std::uint32_t partition);
  PartitionMaster& partition_master_of(const rpc::Link& link) const;
  void refuse(rpc::Link& link, std::uint32_t id, mc_status status, std::string text);
  void tick();
  // Limits each kind to a line a second.
  bool may_log(std::uint64_t& last_ns);

  const MasterOptions options_;
  std::string address_;
  boost::asio::io_context io_;
  boost::asio::steady_timer tick_;
  std::unique_ptr<rpc::Listener> listener_;
  std::map<const rpc::Link*, Attending> links_;
  std::unique_ptr<Roster> roster_;  // null: there is a single partition
  std::vector<std::unique_ptr<PartitionMaster>> partition_masters_;
  std::uint64_t refused_logged_ns_ = 0;
  Mutex trouble_mutex_;
  std::uint64_t trouble_logged_ns_ MC_GUARDED_BY(trouble_mutex_) = 0;
};

}  // namespace mc::metadata
