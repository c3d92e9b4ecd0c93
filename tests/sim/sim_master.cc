// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_master.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <stdexcept>

#include "libmc/base/clock.h"

namespace mc::sim {

namespace rpc = metadata::rpc;

namespace {

constexpr const char* kMasterNet = "10.0.1.";

metadata::MasterOptions master_options(const SimMaster::Options& given) {
  metadata::MasterOptions options;
  options.listen = master_address(given.host);
  options.partitions = given.partitions;
  options.leader_ttl_ms = 500;
  options.recover_ms = 500;
  options.heartbeat_ms = 100;
  options.suspect_ms = 300;
  options.gone_ms = 500;
  options.max_entries = given.max_entries;
  options.max_nodes = given.max_nodes;
  return options;
}

}  // namespace

std::string master_address(HostId host) { return kMasterNet + std::to_string(host) + ":7400"; }

HostId host_of(const std::string& address) {
  return std::stoull(address.substr(std::string(kMasterNet).size()));
}

SimMaster::SimMaster(LinkWorld& links, StoreWorld& store, const Options& options)
    : links_(links), store_(store), options_(options) {}

void SimMaster::start() {
  if (up()) return;
  store_.set_reachable(options_.host, true);
  stands_until_ns_ = 0;
  auto made = metadata::Master::create_simulated(
      master_options(options_),
      [this]() -> Result<std::unique_ptr<metadata::ClusterStore>> {
        return store_.client(options_.host);
      },
      store_.start_thread(options_.host));
  if (!made) throw std::runtime_error(made.error().to_string());
  master_ = std::move(*made);
}

void SimMaster::stop() {
  if (!up()) return;
  store_.set_reachable(options_.host, false);  // nothing is resigned
  master_.reset();
  links_.cut(options_.host);
}

void SimMaster::poll() {
  if (!up() || now_ns() < stands_until_ns_) return;
  store_.run_threads(options_.host);
  master_->poll();
}

std::shared_ptr<rpc::RpcLink> SimMaster::dial(const LinkWorld::Place& from,
                                              const rpc::DialOptions& options,
                                              rpc::RpcLinkHandler& handler) {
  const LinkWorld::Place here{options_.host, master_->executor()};
  const LinkWorld::Pair pair = links_.make(from, here);
  auth::ClusterHello own;
  own.role = auth::Role::kMaster;
  const auto near =
      std::make_shared<rpc::RpcLink>(from.executor, pair.near, own, true, options.link, handler);
  const auto far = std::make_shared<rpc::RpcLink>(here.executor, pair.far, options.own, false,
                                                  rpc::RpcLinkOptions(), *master_);
  master_->on_link(far);
  far->start();
  near->start();
  return near;
}

// A connection to a dead process is refused at once. A host that is cut off never answers.
metadata::MasterClient::Outside outside_of(HostId host, LinkWorld& links, StoreWorld& store,
                                           const SimMaster::All& masters) {
  const auto dial = [host, &links, &masters](
                        const boost::asio::any_io_executor& executor,
                        const rpc::DialOptions& options, std::uint64_t deadline_ns,
                        rpc::RpcLinkHandler& handler, const rpc::Dialled& done) {
    const HostId to = host_of(options.address);
    if (!links.passes(host, to) || !links.passes(to, host)) {
      const std::uint64_t now = now_ns();
      const auto timer = std::make_shared<boost::asio::steady_timer>(
          executor, std::chrono::nanoseconds(deadline_ns > now ? deadline_ns - now : 0));
      timer->async_wait([timer, done](const boost::system::error_code&) {
        done(fail(MC_TIMEOUT, "no connection by the deadline"));
      });
      return;
    }
    const auto at = std::ranges::find_if(
        masters, [&](const auto& master) { return master->up() && master->host() == to; });
    if (at == masters.end()) {
      boost::asio::post(executor, [done] { done(fail(MC_AGENT_UNAVAILABLE, "no master there")); });
      return;
    }
    boost::asio::post(
        executor, [done, link = (*at)->dial({host, executor}, options, handler)] { done(link); });
  };
  return {dial, store.client(host), store.start_thread(host)};
}

}  // namespace mc::sim
