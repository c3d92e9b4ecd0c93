// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/lane_hello.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "transport/limits.h"

namespace mc::transport::tcp {

LaneHello make_hello(const Self& self, NodeId to_node, std::uint32_t lane, LaneRole role,
                     LinkProtocol protocol) {
  LaneHello hello{};
  hello.magic = kHelloMagic;
  hello.version = kDataVersion;
  hello.size_bytes = sizeof hello;
  hello.features = self.features;
  hello.node = self.node;
  hello.to_node = to_node;
  hello.incarnation = self.incarnation;
  hello.lane = lane;
  hello.role = static_cast<std::uint8_t>(role);
  hello.protocol = static_cast<std::uint8_t>(protocol);
  return hello;
}

Result<LaneHello> decode_hello(std::span<const std::byte> bytes) {
  LaneHello hello;
  if (bytes.size() != sizeof hello) return fail(MC_INVALID_ARGUMENT, "a hello has 64 bytes");
  std::memcpy(&hello, bytes.data(), sizeof hello);
  if (hello.magic != kHelloMagic) {
    return fail(MC_INVALID_ARGUMENT,
                "the process that connected to the data port is not an mc agent");
  }
  if (hello.version != kDataVersion || hello.size_bytes != sizeof hello) {
    return fail(MC_VERSION_MISMATCH, "the peer speaks version " + std::to_string(hello.version) +
                                         " of the data contract, this agent " +
                                         std::to_string(kDataVersion) + "; upgrade the older one");
  }
  bool zeros = true;
  for (const std::uint8_t byte : hello.reserved0) zeros = zeros && byte == 0;
  for (const std::uint64_t word : hello.reserved1) zeros = zeros && word == 0;
  if (!zeros || hello.node == 0 || hello.lane >= kMaxLanes || hello.role > kLastLaneRole ||
      hello.protocol > kLastLinkProtocol) {
    return fail(MC_INVALID_ARGUMENT, "the peer's hello has a field out of range");
  }
  return hello;
}

namespace {

class HelloExchange : public LaneHandshake {
 public:
  HelloExchange(const Self& self, const DialRequest* request)
      : self_(self), accepting_(request == nullptr) {
    if (request != nullptr) {
      request_ = *request;
      out_ = make_hello(self, request->node, request->lane, request->role, request->protocol);
    }
  }

  State advance(const Wire& wire) override {
    if (!status_.ok()) return State::kFailed;
    if (!accepting_ && sent_ < kHelloBytes) {
      const State state = send_some(wire);
      if (state != State::kDone) return state;
    }
    while (received_ < kHelloBytes) {
      const ssize_t got = wire.receive(in_.data() + received_, kHelloBytes - received_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::kWantsRead;
      if (got <= 0) return failed({MC_AGENT_UNAVAILABLE, "the peer hung up during the hello"});
      received_ += static_cast<std::size_t>(got);
      if (received_ == kHelloBytes) {
        Status status = take();
        if (!status.ok()) return failed(std::move(status));
      }
    }
    return accepting_ ? send_some(wire) : State::kDone;
  }

  Link link() const override {
    Link link;
    link.accepted = accepting_;
    link.peer = request_.peer;
    link.lane = accepting_ ? theirs_.lane : request_.lane;
    link.role = accepting_ ? static_cast<LaneRole>(theirs_.role) : request_.role;
    link.protocol = static_cast<LinkProtocol>(theirs_.protocol);
    link.node = theirs_.node;
    link.incarnation = theirs_.incarnation;
    link.features = theirs_.features & self_.features;
    return link;
  }
  Status status() const override { return status_; }

 private:
  State failed(Status status) {
    status_ = std::move(status);
    return State::kFailed;
  }

  State send_some(const Wire& wire) {
    while (sent_ < kHelloBytes) {
      const ssize_t put =
          wire.send(reinterpret_cast<const std::byte*>(&out_) + sent_, kHelloBytes - sent_);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) {
        return State::kWantsWrite;
      }
      if (put < 0) return failed({MC_AGENT_UNAVAILABLE, errno_text("send of a hello", errno)});
      sent_ += static_cast<std::size_t>(put);
    }
    return State::kDone;
  }

  Status take() {
    auto hello = decode_hello(in_);
    if (!hello) return hello.error();
    theirs_ = *hello;
    if (accepting_) {
      if (theirs_.to_node != self_.node) {
        return {MC_INVALID_ARGUMENT, "the peer looks for another node at this address"};
      }
      const auto protocol = static_cast<LinkProtocol>(theirs_.protocol);
      if ((feature_of(protocol) & ~self_.features) != 0) {
        return {MC_UNSUPPORTED,
                "the peer wants a link for a transport that this agent does not "
                "use"};
      }
      out_ = make_hello(self_, 0, theirs_.lane, static_cast<LaneRole>(theirs_.role), protocol);
    } else if (theirs_.protocol != static_cast<std::uint8_t>(request_.protocol)) {
      return {MC_INVALID_ARGUMENT, "the peer answers for another transport than was asked"};
    } else if (theirs_.node != request_.node) {
      return {MC_INVALID_ARGUMENT, "another node answers at the peer's address"};
    }
    return {};
  }

  const Self self_;
  const bool accepting_;
  DialRequest request_{};
  LaneHello out_{};
  LaneHello theirs_{};
  std::array<std::byte, kHelloBytes> in_{};
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
  Status status_;
};

}  // namespace

std::unique_ptr<LaneHandshake> make_dialing_handshake(const Self& self,
                                                      const DialRequest& request) {
  return std::make_unique<HelloExchange>(self, &request);
}

std::unique_ptr<LaneHandshake> make_accepting_handshake(const Self& self) {
  return std::make_unique<HelloExchange>(self, nullptr);
}

}  // namespace mc::transport::tcp
