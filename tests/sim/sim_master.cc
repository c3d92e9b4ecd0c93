// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_master.h"

#include <algorithm>

#include "sim/sim_clock.h"

namespace mc::sim {

namespace rpc = metadata::rpc;

namespace {

constexpr std::uint64_t kMasterTickNs = 20 * kMs;

metadata::MasterOptions master_options(std::uint64_t max_entries, std::uint64_t max_nodes) {
  metadata::MasterOptions options;
  options.recover_ms = 500;
  options.heartbeat_ms = 100;
  options.suspect_ms = 300;
  options.gone_ms = 500;
  options.max_entries = max_entries;
  options.max_nodes = max_nodes;
  return options;
}

rpc::Hello hello_of(HostId host) {
  rpc::Hello hello;
  hello.role = is_master_host(host) ? rpc::Role::kMaster : rpc::Role::kAgent;
  hello.node = host;
  return hello;
}

}  // namespace

SimMaster::SimMaster(boost::asio::io_context& io, LinkWorld& links, HostId host,
                     std::uint64_t max_entries, std::uint64_t max_nodes)
    : io_(io), links_world_(links), host_(host), options_(master_options(max_entries, max_nodes)) {}

void SimMaster::start(bool keeps_store, std::uint64_t now_ns) {
  if (leads()) return;
  if (!keeps_store || leaders_ == 0) {
    store_.clear();
    ++memories_;
  }
  // A store without a count takes the epoch from the clock.
  epoch_ = keeps_store && epoch_ != 0 ? epoch_ + 1 : std::max(epoch_ + 1, 1000 + now_ns / 1000);
  metadata::Term term;
  term.epoch = epoch_;
  for (const auto& [key, value] : store_) {
    if (key == metadata::kRemovalsKey) {
      term.removals = std::stoull(value);
    } else {
      metadata::Entry entry;
      entry.key = key;
      entry.value = value;
      (key.starts_with(metadata::kAwayPrefix)      ? term.away
       : key.starts_with(metadata::kRemovedPrefix) ? term.removed
                                                   : term.members)
          .push_back(entry);
    }
  }
  if (forgets_who_was_away) {
    term.away.clear();
    term.removed.clear();
  }
  now_ns_ = now_ns;
  next_tick_ns_ = now_ns;
  ++leaders_;
  leader_state_ = std::make_unique<metadata::LeaderState>(
      options_, term,
      metadata::LeaderState::Outside{
          .save =
              [this](std::string key, std::optional<std::string> value,
                     const std::function<void()>& done) {
                if (value) {
                  store_[std::move(key)] = std::move(*value);
                } else {
                  store_.erase(key);
                }
                if (done) done();
              },
          .link_count = [this] { return static_cast<std::uint32_t>(links_.size()); },
          .refused_links = [] { return std::uint64_t{0}; }},
      now_ns);
}

void SimMaster::stop() {
  while (!links_.empty()) {
    const auto link = links_.front();
    link->close({MC_CLOSED, "the master is gone"});
    std::erase(links_, link);
  }
  leader_state_.reset();
}

std::shared_ptr<rpc::Link> SimMaster::dial(HostId from, rpc::LinkHandler& handler) {
  if (!leads()) return nullptr;
  const LinkWorld::Pair pair = links_world_.make(from, host_);
  const auto near = std::make_shared<rpc::Link>(io_.get_executor(), pair.near, hello_of(host_),
                                                true, rpc::LinkOptions(), handler);
  rpc::LinkHandler& own = *this;
  const auto far = std::make_shared<rpc::Link>(io_.get_executor(), pair.far, hello_of(from), false,
                                               rpc::LinkOptions(), own);
  links_.push_back(far);
  far->start();
  near->start();
  return near;
}

void SimMaster::tick(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (leader_state_ == nullptr || now_ns < next_tick_ns_) return;
  next_tick_ns_ = now_ns + kMasterTickNs;
  leader_state_->tick(now_ns);
}

void SimMaster::on_request(rpc::Link& link, const rpc::Request& request) {
  if (leader_state_ != nullptr) leader_state_->on_request(link, request, now_ns_);
}
void SimMaster::on_cancel(rpc::Link& link, std::uint32_t id) {
  if (leader_state_ != nullptr) leader_state_->on_cancel(link, id);
}
void SimMaster::on_closed(rpc::Link& link, const Status&) {
  if (leader_state_ != nullptr) leader_state_->on_closed(link);
  std::erase(links_, link.shared_from_this());
}

}  // namespace mc::sim
