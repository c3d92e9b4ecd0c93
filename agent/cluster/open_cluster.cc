// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/open_cluster.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <fstream>

#include "agent/cluster/cluster_node.h"
#include "agent/cluster/master/master_link.h"
#include "agent/cluster/peer/peer_port.h"
#include "libmc/base/hash.h"
#include "transport/choice/choice_transport.h"
#include "transport/choice/direct_way.h"
#include "transport/tcp/tcp_transport.h"

namespace mc::agent {

namespace {

namespace rpc = metadata::rpc;

std::uint64_t hash_of(const std::string& text) { return hash_key(text.data(), text.size(), 0); }

// Agents of one machine fail together and therefore share a host id.
std::uint64_t host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return hash_of(boot.empty() ? name : boot);
}

// The cluster over TCP and a one-sided transport, with masters over the network.
class NetworkCluster final : public ClusterNode {
 public:
  using ClusterNode::ClusterNode;
  ~NetworkCluster() override {
    // The links call into this object: end the links before the users of the transport.
    links_.clear();
    stop();
  }

  Status open(const Options& options, std::uint64_t capacity_bytes) {
    auto key = auth::ClusterKey::find(options.cluster_key_file);
    if (!key) return key.error();
    auto address = parse_address(options.listen);
    if (!address) return {MC_INVALID_ARGUMENT, "listen: " + std::string(address.error().text())};
    PeerPortOptions peer_port;
    peer_port.host = address->host;
    peer_port.port = address->port;
    peer_port.key = *key;
    peer_port.insecure = options.insecure;
    peer_port.tls = {options.peer_tls_cert, options.peer_tls_key, options.peer_tls_ca,
                     options.peer_tls_name};
    peer_port.own.role = auth::Role::kAgent;
    peer_port.own.node = identity_.node;
    peer_port.own.incarnation = identity_.incarnation;
    peer_port.own.cluster = auth::cluster_tag(options.cluster_id);
    auto opened = PeerPort::open(
        peer_port, [this](transport::NodeId node) { return peers_.address_of(node); });
    if (!opened) return opened.error();
    peer_port_ = std::move(*opened);
    transport::tcp::TcpOptions tcp;
    tcp.node = identity_.node;
    tcp.incarnation = identity_.incarnation;
    auto transport = transport::tcp::TcpTransport::create(tcp, *peer_port_);
    if (!transport) return transport.error();
    transport_ = std::move(*transport);
    std::string advertised = options.advertise;
    if (advertised.empty()) {
      const bool v6 = address->host.find(':') != std::string::npos;
      advertised = (v6 ? "[" + address->host + "]" : address->host) + ":" +
                   std::to_string(peer_port_->port());
    }
    auto peers_dial = parse_address(advertised);
    if (!peers_dial) {
      return {MC_INVALID_ARGUMENT, "advertise: " + std::string(peers_dial.error().text())};
    }
    if (peers_dial->host == "0.0.0.0" || peers_dial->host == "::") {
      return {MC_INVALID_ARGUMENT, "peers cannot dial " + advertised +
                                       "; say in advertise which address of this host they reach"};
    }
    master_.masters = split_list(options.masters);
    for (const std::string& master : master_.masters) {
      const Status status = rpc::check_advertised(advertised, master);
      if (!status.ok()) return {MC_INVALID_ARGUMENT, std::string(status.text())};
    }
    if (Status status = open_one_sided(options, peers_dial->host); !status.ok()) return status;
    peer_port_->set_transport(transport::LinkProtocol::kTcp, *transport_);
    master_.store = options.cluster_store;
    master_.cluster_id = options.cluster_id;
    master_.key = *key;
    master_.tls.ca = options.master_tls_ca;
    master_.tls.server_name = options.master_tls_name;
    master_.tls.warn = [](const Status& status) {
      spdlog::warn(
          "event=certificates_refused cause=\"{}\" effect=\"masters are checked by those before\"",
          status.text());
    };
    master_.role = auth::Role::kAgent;
    master_.descriptor.node = identity_.node;
    master_.descriptor.incarnation = identity_.incarnation;
    master_.descriptor.address = advertised;
    master_.descriptor.host = identity_.place.host;
    master_.descriptor.zone = identity_.place.zone;
    master_.descriptor.capacity_bytes = capacity_bytes;

    epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) return {MC_NO_MEMORY, errno_text("epoll_create1", errno)};
    for (const int fd :
         {transport_->wait_fd(), peer_port_->listening_fd(), peer_port_->shaking_fd()}) {
      if (Status status = watch(fd); !status.ok()) return status;
    }
    // The master of partition 0 tells the number of partitions.
    if (Status status = open_links(0); !status.ok()) return status;
    connect(ports(), *transport_);
    spdlog::info("event=cluster_open node={} listen={} advertise={} cluster={}", identity_.node,
                 options.listen, advertised, options.cluster_id);
    return {};
  }

  int wait_fd() const override { return epoll_.get(); }

  bool poll_masters(std::uint64_t now_ns) override {
    if (now_ns >= next_peer_port_ns_ || peer_port_->shaking()) {
      peer_port_->poll(now_ns);
      next_peer_port_ns_ = now_ns + kPeerPortNs;
    }
    bool heard = false;
    // A poll may add links, so the loop goes by index.
    for (std::size_t partition = 0; partition < links_.size(); ++partition)
      heard |= links_[partition].port->poll();
    return heard;
  }

  std::uint64_t next_poll_ns() const override {
    std::uint64_t next_ns = ClusterNode::next_poll_ns();
    for (const MasterOf& link : links_) next_ns = std::min(next_ns, link.port->next_poll_ns());
    return next_ns;
  }

 protected:
  // Another number of partitions than before means that the cluster was created anew. Links that
  // are bound to the old number are refused; partition 0 tells the new number.
  void on_partitions(std::uint32_t partition, std::uint32_t partitions) override {
    if (partition != 0 || partitions == links_.size()) return;
    std::vector<MasterOf> old;
    while (links_.size() > 1) {
      old.push_back(std::move(links_.back()));
      links_.pop_back();
    }
    if (Status status = open_links(partitions); !status.ok()) {
      return set_fenced("no way to the masters: " + status.to_string());
    }
    spdlog::info("event=partitions count={}", partitions);
    set_masters(ports());
    // End the old links' open requests only now, when no user refers to these links any more.
    for (const MasterOf& link : old) link.port->end();
  }

 private:
  // Dials are rare, and a dial waits for the network anyway.
  static constexpr std::uint64_t kPeerPortNs = 1'000'000;

  // Opens a one-sided transport beside TCP, if host and options permit. address: the address that
  // peers dial.
  Status open_one_sided(const Options& options, const std::string& address) {
    transport::choice::DirectOptions direct;
    direct.node = identity_.node;
    direct.incarnation = identity_.incarnation;
    direct.transports = options.transports;
    direct.rdma_devices = split_list(options.rdma_devices);
    direct.rdma_ack_timeout = options.rdma_ack_timeout;
    direct.fabric_provider = options.fabric_provider;
    direct.address = address;
    direct.encrypted = !options.peer_tls_cert.empty();
    auto way = transport::choice::open_direct_way(direct, *peer_port_);
    if (!way) return way.error();
    without_ = way->why_not;
    if (way->transport == nullptr) {
      if (!without_.empty()) spdlog::info("event=tcp_alone cause=\"{}\"", without_);
      return {};
    }
    spdlog::info("event=with_{} devices=\"{}\"", way->transport->capabilities().name,
                 way->transport->describe_devices());
    one_sided_ = way->transport.get();
    peer_port_->set_transport(one_sided_->protocol(), *one_sided_);
    auto choice = transport::choice::ChoiceTransport::create(std::move(transport_),
                                                             std::move(way->transport));
    if (!choice) return choice.error();
    choice_ = choice->get();
    transport_ = std::move(*choice);
    return {};
  }

  OneSidedReport one_sided() const override {
    if (choice_ == nullptr) return {"", "", without_};
    return {one_sided_->capabilities().name, one_sided_->describe_devices(), choice_->obstacles()};
  }

  Status watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
    return {MC_NO_MEMORY, errno_text("epoll_ctl", errno)};
  }

  // Opens the missing links. partitions 0: only the first link, which asks for the number of
  // partitions.
  Status open_links(std::uint32_t partitions) {
    do {
      master_.partition = static_cast<std::uint32_t>(links_.size());
      master_.partitions = master_.partition == 0 ? 0 : partitions;
      MasterOf link{orders_of(master_.partition), nullptr};
      auto port = MasterLink::open(master_, *link.orders);
      if (!port) return port.error();
      link.port = std::move(*port);
      if (Status status = watch(link.port->wait_fd()); !status.ok()) return status;
      links_.push_back(std::move(link));
    } while (links_.size() < partitions);
    return {};
  }
  std::vector<MasterPort*> ports() const {
    std::vector<MasterPort*> all;
    for (const MasterOf& link : links_) all.push_back(link.port.get());
    return all;
  }

  struct MasterOf {  // the link of one partition
    std::unique_ptr<MasterOrders> orders;
    std::unique_ptr<MasterLink> port;
  };

  metadata::MasterClientOptions master_;
  Fd epoll_;
  std::uint64_t next_peer_port_ns_ = 0;
  std::unique_ptr<PeerPort> peer_port_;
  std::unique_ptr<transport::Transport> transport_;
  // transport_ when a one-sided transport is open, and that transport. Null: TCP alone; without_
  // says why.
  transport::choice::ChoiceTransport* choice_ = nullptr;
  transport::OneSidedTransport* one_sided_ = nullptr;
  std::string without_;
  std::vector<MasterOf> links_;
};

}  // namespace

Result<std::unique_ptr<Cluster>> open_cluster(const Options& options, std::uint64_t node_id,
                                              std::uint64_t incarnation,
                                              std::uint64_t capacity_bytes) {
  if (options.cluster_store.empty() && options.masters.empty()) {
    return std::unique_ptr<Cluster>();
  }
  ClusterIdentity identity;
  identity.node = node_id;
  identity.incarnation = incarnation;
  identity.place.host = host_id();
  identity.place.zone = options.zone.empty() ? 0 : hash_of(options.zone);
  identity.stripes.above_bytes = options.stripe_bytes;
  identity.stripes.grace_ns = options.stripe_grace_seconds * 1'000'000'000ull;
  const auto key = auth::ClusterKey::find(options.cluster_key_file);
  if (!key) return fail(key.error());
  identity.secret = metadata::key_hash_secret(options.cluster_id, key->secret());
  auto cluster = std::make_unique<NetworkCluster>(identity);
  if (Status status = cluster->open(options, capacity_bytes); !status.ok()) return fail(status);
  return std::unique_ptr<Cluster>(std::move(cluster));
}

}  // namespace mc::agent
