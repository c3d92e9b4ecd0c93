// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/wire/introduction.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "libmc/base/fd.h"

namespace mc::transfer {

namespace {

using transport::DialRequest;
using transport::Link;
using transport::tcp::LaneHandshake;

// Each side sends its engine descriptor; the dialer sends first.
class Introduction final : public LaneHandshake {
 public:
  Introduction(const EngineDescriptor& own, const DialRequest* call,
               std::shared_ptr<EngineDescriptor> theirs)
      : own_(own), accepting_(call == nullptr), theirs_(std::move(theirs)) {
    if (call != nullptr) call_ = *call;
  }

  State advance(const transport::tcp::Wire& wire) override {
    if (!status_.ok()) return State::kFailed;
    if (!accepting_) {
      const State state = send_some(wire);
      if (state != State::kDone) return state;
    }
    while (received_ < kEngineDescriptorBytes) {
      const ssize_t got = wire.receive(in_.data() + received_, kEngineDescriptorBytes - received_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::kWantsRead;
      if (got <= 0) return failed({MC_AGENT_UNAVAILABLE, "the engine hung up"});
      received_ += static_cast<std::size_t>(got);
      if (received_ < kEngineDescriptorBytes) continue;
      auto engine_descriptor = decode_engine_descriptor(in_);
      if (!engine_descriptor) return failed(engine_descriptor.error());
      *theirs_ = *engine_descriptor;
    }
    return accepting_ ? send_some(wire) : State::kDone;
  }

  Link link() const override {
    Link link;
    link.accepted = accepting_;
    link.peer = call_.peer;
    link.lane = kIntroductionLane;
    link.node = theirs_->node;
    link.incarnation = theirs_->incarnation;
    return link;
  }
  Status status() const override { return status_; }

 private:
  State failed(Status status) {
    status_ = std::move(status);
    return State::kFailed;
  }
  State send_some(const transport::tcp::Wire& wire) {
    while (sent_ < kEngineDescriptorBytes) {
      const ssize_t put = wire.send(reinterpret_cast<const std::byte*>(&own_) + sent_,
                                    kEngineDescriptorBytes - sent_);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) {
        return State::kWantsWrite;
      }
      if (put < 0)
        return failed({MC_AGENT_UNAVAILABLE, errno_text("send of an engine descriptor", errno)});
      sent_ += static_cast<std::size_t>(put);
    }
    return State::kDone;
  }

  const EngineDescriptor own_;
  const bool accepting_;
  const std::shared_ptr<EngineDescriptor> theirs_;
  DialRequest call_;
  std::array<std::byte, kEngineDescriptorBytes> in_{};
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
  Status status_;
};

class Reception final : public LaneHandshake {
 public:
  Reception(const EngineDescriptor& own, std::uint32_t features) : own_(own), features_(features) {}

  State advance(const transport::tcp::Wire& wire) override {
    if (!status_.ok()) return State::kFailed;
    if (!inner_) {
      std::uint64_t magic = 0;
      const ssize_t got = ::recv(wire.socket, &magic, sizeof magic, MSG_PEEK | MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return State::kWantsRead;
      }
      if (got <= 0) {
        status_ = {MC_AGENT_UNAVAILABLE, "the peer hung up before its first message"};
        return State::kFailed;
      }
      if (static_cast<std::size_t>(got) < sizeof magic) return State::kWantsRead;
      if (magic == kEngineDescriptorMagic) {
        inner_ =
            std::make_unique<Introduction>(own_, nullptr, std::make_shared<EngineDescriptor>());
      } else {
        inner_ = transport::tcp::make_accepting_handshake({own_.node, own_.incarnation, features_});
      }
    }
    const State state = inner_->advance(wire);
    if (state == State::kFailed) status_ = inner_->status();
    return state;
  }

  Link link() const override { return inner_->link(); }
  Status status() const override { return status_; }

 private:
  const EngineDescriptor own_;
  const std::uint32_t features_;
  std::unique_ptr<LaneHandshake> inner_;
  Status status_;
};

}  // namespace

std::unique_ptr<LaneHandshake> make_introduction(const EngineDescriptor& own,
                                                 const DialRequest& call,
                                                 std::shared_ptr<EngineDescriptor> theirs) {
  return std::make_unique<Introduction>(own, &call, std::move(theirs));
}

std::unique_ptr<LaneHandshake> make_reception(const EngineDescriptor& own, std::uint32_t features) {
  return std::make_unique<Reception>(own, features);
}

}  // namespace mc::transfer
