// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/partition_master.h"

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "libmc/base/clock.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {

PartitionMaster::PartitionMaster(boost::asio::io_context& io, const MasterOptions& options,
                                 const std::string& address, Elector::Partition partition,
                                 std::unique_ptr<ClusterStore> store,
                                 const StartStoreThread& start_thread, Outside outside)
    : io_(io),
      options_(options),
      partition_(partition.number),
      outside_(std::move(outside)),
      elector_(std::make_unique<Elector>(std::move(store), address,
                                         static_cast<std::uint32_t>(options.leader_ttl_ms),
                                         partition, callbacks(), start_thread)) {}

void PartitionMaster::stop() {
  elector_.reset();
  end();
}

// Callbacks come from the elector's thread and act in the loop.
Elector::Callbacks PartitionMaster::callbacks() {
  return {.leading =
              [this](Term term) {
                boost::asio::post(io_, [this, term = std::move(term)] { begin(term); });
              },
          .lost = [this] { boost::asio::post(io_, [this] { end(); }); },
          .leader =
              [this](std::string leader) {
                boost::asio::post(io_, [this, leader = std::move(leader)] {
                  leader_ = leader;
                  spdlog::info("event=standby partition={} leader={}", partition_, leader);
                });
              },
          .trouble = outside_.store_trouble};
}

bool PartitionMaster::leads() const {
  return leader_state_ != nullptr && elector_->leads(leader_state_->epoch());
}

void PartitionMaster::attended(const rpc::RpcLink& link, std::uint64_t heard) {
  leader_state_->attended(link, heard);
  if (heard <= epoch()) return;
  elector_->outbid(heard);
}

void PartitionMaster::begin(const Term& term) {
  spdlog::info("event=leading partition={} epoch={} members_known={}", partition_, term.epoch,
               term.members.size());
  ++outside_.counters->leaderships;
  leader_state_ = std::make_unique<LeaderState>(
      options_, term,
      LeaderState::Outside{.save =
                               [this](std::string key, std::optional<std::string> value,
                                      std::function<void()> done) {
                                 if (done) {
                                   done = [this, act = std::move(done)] {
                                     boost::asio::post(io_, act);
                                   };
                                 }
                                 elector_->save(std::move(key), std::move(value), std::move(done));
                               },
                           .link_count = outside_.link_count,
                           .refused_links = outside_.refused_links,
                           .counters = outside_.counters},
      now_ns());
}

void PartitionMaster::end() {
  if (leader_state_ != nullptr) {
    ++outside_.counters->ended_leaderships;
    spdlog::warn("event=not_leading partition={} epoch={}", partition_, leader_state_->epoch());
  }
  outside_.ended();
  leader_state_.reset();
  without_store_ = false;
}

void PartitionMaster::tick() {
  if (leader_state_ == nullptr) return;
  leader_state_->ask_for_promises(elector_->renewal_is_late());
  elector_->go_on(leader_state_->epoch(), leader_state_->promised_until_ns());
  if (!leads()) return;
  const bool without_store = !elector_->holds_lease();
  if (std::exchange(without_store_, without_store) != without_store) {
    spdlog::warn("event={} partition={} epoch={}",
                 without_store ? "without_store" : "store_is_back", partition_,
                 leader_state_->epoch());
  }
  leader_state_->tick(now_ns());
}

void PartitionMaster::on_request(rpc::RpcLink& link, const rpc::Request& request) {
  if (leads()) {
    leader_state_->on_request(link, request, now_ns());
    return;
  }
  std::string body;
  wire::encode(wire::Refusal{"this master does not lead; ask the leader", leader_}, body);
  link.answer(request.id, rpc::kNotLeader, std::move(body), 0);
}

void PartitionMaster::on_cancel(rpc::RpcLink& link, std::uint32_t id) {
  if (leader_state_ != nullptr) leader_state_->on_cancel(link, id);
}

void PartitionMaster::on_closed(rpc::RpcLink& link) {
  if (leader_state_ != nullptr) leader_state_->on_closed(link);
}

}  // namespace mc::metadata
