// SPDX-License-Identifier: Apache-2.0
//
// One mc-master. It has one port, and a PartitionMaster for each partition of the keys,
//   which leads or stands by. A link belongs to the partition that the first call
//   names (Attend), else partition 0.
//
//     links ──► PartitionMaster 0, 1 … ──► Elector, LeaderState      Roster ──► which partitions to lead
//
// Threads: run() is the loop's thread. Electors and roster have their own threads. stop() from any
//   thread. With an outside of its own, a master has no threads, and all happens in poll().
// Owns: everything, built and torn down in one order.
// Trusts: links that have proven the cluster key, as far as leader_state.h says.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
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
  using OpenStore = std::function<Result<std::unique_ptr<ClusterStore>>()>;

  // Listens, and begins to campaign. Errors: with the remedy, for the operator.
  static Result<std::unique_ptr<Master>> create(const MasterOptions& options);
  // For a simulator, which opens the store, runs the steps of start_thread(), hands over links by
  // on_link(), and calls poll().
  static Result<std::unique_ptr<Master>> create_simulated(const MasterOptions& options,
                                                          OpenStore open_store,
                                                          StartStoreThread start_thread);
  ~Master() override;

  void run();
  void stop();
  // Does all work that is due.
  void poll();
  [[nodiscard]] boost::asio::any_io_executor executor() { return io_.get_executor(); }
  // 0: this master does not lead the partition.
  [[nodiscard]] std::uint64_t epoch(std::uint32_t partition) const {
    return partition_masters_[partition]->epoch();
  }
  [[nodiscard]] const std::string& address() const { return address_; }
  // From any thread. done runs in the loop, and must not block.
  void report(std::function<void(std::shared_ptr<const MasterReport>)> done);

  void on_link(const std::shared_ptr<rpc::RpcLink>& link) override;
  void on_refused(const Status& why, const std::string& address) override;
  void on_request(rpc::RpcLink& link, const rpc::Request& request) override;
  void on_cancel(rpc::RpcLink& link, std::uint32_t id) override;
  void on_closed(rpc::RpcLink& link, const Status& why) override;

 private:
  struct Attending {
    std::shared_ptr<rpc::RpcLink> link;
    std::uint64_t number = 0;  // in order of arrival
    std::uint32_t partition = 0;
    bool said = false;  // an Attend call named this partition
  };

  Master(const MasterOptions& options, OpenStore open_store, StartStoreThread start_thread)
      : options_(options),
        open_store_(std::move(open_store)),
        start_thread_(std::move(start_thread)),
        tick_(io_) {}
  static Result<std::unique_ptr<ClusterStore>> open_store(const MasterOptions& options);
  // Creates all partition masters.
  Status sit_down();
  void attend(rpc::RpcLink& link, const rpc::Request& request);
  void close_links(std::uint32_t partition);
  PartitionMaster& partition_master_of(const rpc::RpcLink& link) const;
  void refuse(rpc::RpcLink& link, std::uint32_t id, mc_status status, std::string text);
  void tick();
  [[nodiscard]] std::uint32_t link_count() const;
  [[nodiscard]] std::uint64_t refused_links() const;
  [[nodiscard]] MasterReport make_report() const;
  // Limits each kind to a line a second.
  bool may_log(std::uint64_t& last_ns);

  const MasterOptions options_;
  const OpenStore open_store_;
  const StartStoreThread start_thread_;
  std::string address_;
  boost::asio::io_context io_;
  boost::asio::steady_timer tick_;
  std::unique_ptr<rpc::Listener> listener_;  // null: create_simulated()
  std::map<const rpc::RpcLink*, Attending> links_;
  std::uint64_t next_link_ = 0;
  std::unique_ptr<Roster> roster_;  // null: there is a single partition
  MasterCounters counters_;
  std::vector<std::unique_ptr<PartitionMaster>> partition_masters_;
  std::shared_ptr<const MasterReport> report_;
  std::uint64_t reported_ns_ = 0;
  std::uint64_t refused_logged_ns_ = 0;
  Mutex trouble_mutex_;
  std::uint64_t trouble_logged_ns_ MC_GUARDED_BY(trouble_mutex_) = 0;
};

}  // namespace mc::metadata
