// SPDX-License-Identifier: Apache-2.0
#include "conformance/rdma_pair.h"

#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "transport/tcp/socket.h"

namespace mc::transport::testing {

namespace {

std::unique_ptr<rdma::RdmaTransport> make(const rdma::RdmaOptions& options,
                                          const rdma::Verbs& verbs, Dialer& dialer) {
  auto made = rdma::RdmaTransport::create(options, verbs, dialer);
  if (!made) throw std::runtime_error(made.error().to_string());
  return std::move(*made);
}

std::pair<Fd, Fd> connected_sockets() {
  Fd listener = tcp::listen_tcp("127.0.0.1", 0).value();
  Fd dialed = tcp::start_connect("127.0.0.1", tcp::local_port(listener.get()).value()).value();
  static_cast<void>(wait_readable(listener.get(), 5'000'000'000));
  Fd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  return {std::move(dialed), std::move(accepted)};
}

}  // namespace

rdma::RdmaOptions RdmaPair::options(NodeId node, std::vector<std::string> devices) {
  rdma::RdmaOptions result;
  result.node = node;
  result.incarnation = 1;
  result.devices = std::move(devices);
  return result;
}

RdmaPair::RdmaPair(const rdma::Verbs& verbs, const rdma::RdmaOptions& a, const rdma::RdmaOptions& b)
    : verbs_(verbs), a_(make(a, verbs, *this)), b_(make(b, verbs, *this)) {}

void RdmaPair::start_b(const rdma::RdmaOptions& options) {
  b_incarnation_ = options.incarnation;
  b_ = make(options, verbs_, *this);
}

void RdmaPair::break_link() {
  if (second_) ::shutdown(second_.get(), SHUT_RDWR);
}

void RdmaPair::step(std::uint64_t now_ns, std::vector<Event>& at_a, std::vector<Event>& at_b) {
  for (const DialRequest& request : std::exchange(dialed_, {})) {
    if (b_ == nullptr || refuses_) {
      a_->dial_failed(request.peer, request.lane);
      continue;
    }
    auto [dialed, accepted] = connected_sockets();
    second_ = Fd(::dup(dialed.get()));
    Link ours;
    ours.socket = std::move(dialed);
    ours.peer = request.peer;
    ours.lane = request.lane;
    ours.role = request.role;
    ours.node = request.node;
    ours.incarnation = b_incarnation_;
    Link theirs;
    theirs.socket = std::move(accepted);
    theirs.accepted = true;
    theirs.lane = request.lane;
    theirs.role = request.role;
    theirs.node = kNodeA;
    theirs.incarnation = 1;
    static_cast<void>(b_->attach(std::move(theirs)));
    static_cast<void>(a_->attach(std::move(ours)));
  }
  a_->poll(now_ns, at_a);
  if (b_) b_->poll(now_ns, at_b);
}

}  // namespace mc::transport::testing
