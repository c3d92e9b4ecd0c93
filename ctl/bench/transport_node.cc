// SPDX-License-Identifier: Apache-2.0
#include "ctl/bench/transport_node.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <utility>

#include "libmc/base/clock.h"
#include "transport/fabric/fabric_transport.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_transport.h"

namespace mc::ctl {

using namespace transport;  // NOLINT: this file is about nothing else

Result<BenchMemory> BenchMemory::map(std::uint64_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (data == MAP_FAILED) {
    return fail(MC_NO_MEMORY, errno_text("map " + std::to_string(bytes) + " bytes", errno));
  }
  return BenchMemory(std::span(static_cast<std::byte*>(data), bytes));
}

BenchMemory::BenchMemory(BenchMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

BenchMemory::~BenchMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

std::optional<HostPort> parse_host_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort at;
  at.host = text.substr(0, colon);
  if (at.host.front() == '[' && at.host.back() == ']') at.host = at.host.substr(1, colon - 2);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, at.port);
  if (error != std::errc() || stop != end || at.host.empty()) return std::nullopt;
  return at;
}

Result<std::unique_ptr<TransportNode>> TransportNode::create(const TransportPlan& plan, NodeId node,
                                                             std::optional<HostPort> target) {
  const tcp::Self self{node, (std::uint64_t(::getpid()) << 32) ^ now_ns()};
  std::unique_ptr<TransportNode> made(new TransportNode(self, std::move(target)));
  if (Status status = made->start(plan); !status.ok()) return fail(std::move(status));
  return made;
}

namespace {

template <typename T>
Status take(Result<std::unique_ptr<T>> made, std::unique_ptr<Transport>& transport) {
  if (!made) return made.error();
  transport = std::move(*made);
  return {};
}

}  // namespace

Status TransportNode::start(const TransportPlan& plan) {
  auto handshakes = tcp::Handshakes::create(*this);
  if (!handshakes) return handshakes.error();
  handshakes_.emplace(std::move(*handshakes));
  if (plan.transport == "rdma") {
    const auto verbs = rdma::load_verbs();
    if (!verbs) return verbs.error();
    rdma::RdmaOptions options;
    options.node = self_.node;
    options.incarnation = self_.incarnation;
    options.devices = plan.devices;
    self_.features = feature_of(LinkProtocol::kRdma);
    return take(rdma::RdmaTransport::create(options, *verbs, *this), transport_);
  }
  if (plan.transport == "fabric") {
    const auto library = fabric::load_libfabric();
    if (!library) return library.error();
    fabric::FabricOptions options;
    options.node = self_.node;
    options.incarnation = self_.incarnation;
    options.provider = plan.provider;
    options.domains = plan.devices;
    options.address = plan.address;
    self_.features = feature_of(LinkProtocol::kFabric);
    return take(fabric::FabricTransport::create(options, *library, *this), transport_);
  }
  tcp::TcpOptions options;
  options.node = self_.node;
  options.incarnation = self_.incarnation;
  // While the limit is measured, the lanes are idle. bbr would slow idle lanes down.
  options.congestion_control = "reno";
  return take(tcp::TcpTransport::create(options, *this), transport_);
}

void TransportNode::accept(Fd socket, std::uint64_t now_ns) {
  static_cast<void>(handshakes_->add(std::move(socket), tcp::make_accepting_handshake(self_),
                                     std::nullopt, now_ns));
}

void TransportNode::step(std::uint64_t now_ns, std::vector<Event>& events) {
  now_ns_ = now_ns;
  if (handshakes_->count() > 0) handshakes_->poll(now_ns);
  transport_->poll(now_ns, events);
}

void TransportNode::dial(const DialRequest& request) {
  auto socket = tcp::start_connect(target_->host, target_->port);
  if (!socket ||
      !handshakes_
           ->add(std::move(*socket), tcp::make_dialing_handshake(self_, request), request, now_ns_)
           .ok()) {
    transport_->dial_failed(request.peer, request.lane);
  }
}

void TransportNode::on_link(Link link) {
  const PeerId peer = link.peer;
  const std::uint32_t lane = link.lane;
  const bool dialed = !link.accepted;
  if (!transport_->attach(std::move(link)).ok() && dialed) transport_->dial_failed(peer, lane);
}

void TransportNode::on_failed(std::optional<DialRequest> dialed, const Status&) {
  if (dialed) transport_->dial_failed(dialed->peer, dialed->lane);
}

}  // namespace mc::ctl
