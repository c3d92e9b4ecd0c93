// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/master.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>

#include "libmc/base/clock.h"
#include "libmc/base/host_port.h"
#include "metadata/directory/key_hash.h"
#include "metadata/master/elector.h"
#include "metadata/store/cluster_store.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {

namespace {

constexpr auto kTick = std::chrono::milliseconds(50);
constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kLookNs = kSecondNs / 2;
// A report walks the members. Many questions in this time share a report.
constexpr std::uint64_t kReportNs = 50 * kMs;

Result<rpc::ListenerOptions> listener_options(const MasterOptions& options) {
  rpc::ListenerOptions listening;
  const auto address = split_address(options.listen);
  if (!address) return fail(address.error());
  listening.host = address->host;
  listening.port = static_cast<std::uint16_t>(std::stoul(address->port));
  listening.own.role = auth::Role::kMaster;
  listening.own.cluster = auth::cluster_tag(options.cluster_id);
  listening.max_links = static_cast<std::uint32_t>(options.max_links);
  listening.tls.cert = options.tls_cert;
  listening.tls.key = options.tls_key;
  listening.tls.warn = [](const Status& status) {
    spdlog::warn("event=certificates_refused cause=\"{}\" effect=\"agents see those before\"",
                 status.text());
  };
  auto key = auth::ClusterKey::find(options.cluster_key_file);
  if (!key) return fail(key.error());
  listening.key = std::move(*key);
  listening.insecure = options.insecure;
  return listening;
}

}  // namespace

Result<std::unique_ptr<Master>> Master::create(const MasterOptions& options) {
  if (const Status status = check_master_options(options); !status.ok()) return fail(status);
  const auto listening = listener_options(options);
  if (!listening) return fail(listening.error());
  if (options.insecure && !listening->key.given()) {
    spdlog::warn("event=insecure listen={} effect=\"every process that connects is admitted\"",
                 options.listen);
  }
  std::unique_ptr<Master> master(new Master(
      options, [options] { return open_store(options); }, start_store_thread));
  auto listener = rpc::Listener::create(master->io_, *listening, *master);
  if (!listener) return fail(listener.error());
  master->listener_ = std::move(*listener);
  if (const Status status = master->sit_down(); !status.ok()) return fail(status);
  return master;
}

Result<std::unique_ptr<Master>> Master::create_simulated(const MasterOptions& options,
                                                         OpenStore open_store,
                                                         StartStoreThread start_thread) {
  std::unique_ptr<Master> master(
      new Master(options, std::move(open_store), std::move(start_thread)));
  if (const Status status = master->sit_down(); !status.ok()) return fail(status);
  return master;
}

// Closing links call their partition masters, so the partition masters are destroyed last.
Master::~Master() {
  for (const auto& partition_master : partition_masters_) partition_master->stop();
  listener_.reset();
}

Result<std::unique_ptr<ClusterStore>> Master::open_store(const MasterOptions& options) {
  auto store = open_cluster_store(options.cluster_store, options.cluster_id);
  if (store && !(*store)->capabilities().elects()) {
    return fail(MC_UNSUPPORTED, (*store)->name() +
                                    " cannot elect a leader; use memory:// for one "
                                    "master, redis:// or etcd:// for several");
  }
  return store;
}

Status Master::sit_down() {
  const auto partitions = static_cast<std::uint32_t>(options_.partitions);
  address_ = options_.advertise.empty() ? options_.listen : options_.advertise;
  auto first = open_store_();
  if (!first) return first.error();
  // If the store is away now, the first leader repeats these checks.
  const Status count = check_partition_count(**first, partitions, now_ns() + kLookNs);
  if (count.code() == MC_INVALID_ARGUMENT) return count;
  if (count.ok()) {
    const auto risk = (*first)->risk_of_loss(now_ns() + kLookNs);
    if (!risk && risk.error().code() == MC_INVALID_ARGUMENT) return risk.error();
    if (risk && !risk->empty()) spdlog::warn("event=cluster_store_at_risk cause=\"{}\"", *risk);
  }
  if (partitions > 1) {
    roster_ =
        std::make_unique<Roster>(std::move(*first), address_, partitions,
                                 static_cast<std::uint32_t>(options_.leader_ttl_ms), start_thread_);
  }
  for (std::uint32_t partition = 0; partition < partitions; ++partition) {
    auto store = open_store_();
    if (!store) return store.error();
    partition_masters_.push_back(std::make_unique<PartitionMaster>(
        io_, options_, address_, Elector::Partition{partition, partitions, roster_.get()},
        std::move(*store), start_thread_,
        PartitionMaster::Outside{.ended = [this, partition] { close_links(partition); },
                                 .store_trouble =
                                     [this](const Status& status) {
                                       const MutexLock lock(trouble_mutex_);
                                       if (!may_log(trouble_logged_ns_)) return;
                                       spdlog::warn("event=cluster_store error=\"{}\"",
                                                    status.to_string());
                                     },
                                 .link_count = [this] { return link_count(); },
                                 .refused_links = [this] { return refused_links(); },
                                 .counters = &counters_}));
  }
  tick();
  return {};
}

std::uint32_t Master::link_count() const {
  return listener_ ? listener_->link_count() : static_cast<std::uint32_t>(links_.size());
}
std::uint64_t Master::refused_links() const { return listener_ ? listener_->refused_count() : 0; }

bool Master::may_log(std::uint64_t& last_ns) {
  const std::uint64_t now = now_ns();
  if (last_ns != 0 && now - last_ns < kSecondNs) return false;
  last_ns = now;
  return true;
}

void Master::run() { io_.run(); }
void Master::poll() {
  io_.restart();
  io_.poll();
}
void Master::stop() { io_.stop(); }

void Master::close_links(std::uint32_t partition) {
  std::vector<Attending> about;
  for (const auto& [link, attending] : links_) {
    if (attending.partition == partition) about.push_back(attending);
  }
  // Addresses of memory must not decide about the order, which a simulator repeats.
  std::ranges::sort(about, {}, &Attending::number);
  for (const Attending& each : about) each.link->close({MC_CLOSED, "this master no longer leads"});
}

void Master::tick() {
  tick_.expires_after(kTick);
  tick_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    for (const auto& partition_master : partition_masters_) partition_master->tick();
    tick();
  });
}

void Master::report(std::function<void(std::shared_ptr<const MasterReport>)> done) {
  boost::asio::post(io_, [this, done = std::move(done)] {
    if (report_ == nullptr || now_ns() - reported_ns_ >= kReportNs) {
      report_ = std::make_shared<const MasterReport>(make_report());
      reported_ns_ = now_ns();
    }
    done(report_);
  });
}

MasterReport Master::make_report() const {
  MasterReport report;
  report.counters = counters_;
  const PartitionMaster& first = *partition_masters_.front();
  report.leads = first.leads();
  report.leader = report.leads ? address_ : first.leader();
  report.epoch = report.leads ? first.epoch() : 0;
  if (report.leads) report.members = first.leader_state()->members();
  wire::StatsAnswer& sum = report.stats;
  for (const auto& partition_master : partition_masters_) {
    if (!partition_master->leads()) continue;
    const wire::StatsAnswer one = partition_master->leader_state()->stats();
    ++report.partitions_led;
    report.partitions_without_store += partition_master->without_store() ? 1 : 0;
    sum.recovering = sum.recovering || one.recovering;
    sum.entries += one.entries;
    sum.tombstones += one.tombstones;
    sum.memory_bytes += one.memory_bytes;
    sum.repairs_queued += one.repairs_queued;
    sum.repairs_running += one.repairs_running;
    sum.members = std::max(sum.members, one.members);
    sum.reports_missing = std::max(sum.reports_missing, one.reports_missing);
  }
  sum.links = link_count();
  sum.refused_links = refused_links();
  return report;
}

void Master::on_link(const std::shared_ptr<rpc::RpcLink>& link) {
  links_[link.get()] = {link, next_link_++};
}

void Master::on_refused(const Status& why, const std::string& address) {
  if (may_log(refused_logged_ns_)) {
    spdlog::warn("event=refused peer={} error=\"{}\" refused_in_all={}", address, why.to_string(),
                 listener_->refused_count());
  }
}

PartitionMaster& Master::partition_master_of(const rpc::RpcLink& link) const {
  if (partition_masters_.size() == 1) return *partition_masters_.front();
  const auto attending = links_.find(&link);
  return *partition_masters_[attending == links_.end() ? 0 : attending->second.partition];
}

void Master::refuse(rpc::RpcLink& link, std::uint32_t id, mc_status status, std::string text) {
  std::string body;
  wire::encode(wire::Refusal{std::move(text), {}}, body);
  link.answer(id, static_cast<std::uint16_t>(status), std::move(body), 0);
}

void Master::attend(rpc::RpcLink& link, const rpc::Request& request) {
  const std::size_t partitions = partition_masters_.size();
  wire::Attend wanted;
  const Status status = wire::decode(request.body, wanted);
  if (!status.ok()) return refuse(link, request.id, status.code(), std::string(status.text()));
  if (wanted.partitions != 0 && wanted.partitions != partitions) {
    return refuse(link, request.id, MC_INVALID_ARGUMENT,
                  "this cluster has " + std::to_string(partitions) +
                      " partitions; ask partition 0 for their number");
  }
  PartitionMaster& partition_master = *partition_masters_[wanted.partition];
  if (!partition_master.leads()) return partition_master.on_request(link, request);
  partition_master.attended(link, request.epoch);
  Attending& attending = links_[&link];
  attending.partition = wanted.partition;
  attending.said = true;
  std::string body;
  wire::encode(
      wire::AttendAnswer{static_cast<std::uint32_t>(partitions), options_.cluster_id, address_},
      body);
  link.answer(request.id, 0, std::move(body), partition_master.epoch());
}

void Master::on_request(rpc::RpcLink& link, const rpc::Request& request) {
  const auto method = static_cast<wire::Method>(request.method);
  if (method == wire::Method::kAttend) return attend(link, request);
  if (method == wire::Method::kJoin && partition_masters_.size() > 1 && !links_[&link].said) {
    return refuse(link, request.id, MC_VERSION_MISMATCH,
                  "this cluster has several partitions, which this agent does not support; upgrade "
                  "the agent");
  }
  partition_master_of(link).on_request(link, request);
}

void Master::on_cancel(rpc::RpcLink& link, std::uint32_t id) {
  partition_master_of(link).on_cancel(link, id);
}

void Master::on_closed(rpc::RpcLink& link, const Status& why) {
  spdlog::debug("event=link_closed node={} error=\"{}\"", link.peer().node, why.to_string());
  partition_master_of(link).on_closed(link);
  links_.erase(&link);
}

}  // namespace mc::metadata
