// SPDX-License-Identifier: Apache-2.0
#include "transport/keyed/keyed_handshake.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "libmc/auth/key_proof.h"
#include "libmc/base/fd.h"

namespace mc::transport {

namespace {

using tcp::LaneHandshake;

class KeyedHandshake final : public LaneHandshake {
 public:
  KeyedHandshake(const auth::ClusterHello& own, auth::ClusterKey key, bool dialer,
                 std::unique_ptr<LaneHandshake> inner)
      : proof_(own, std::move(key), dialer, false, true), inner_(std::move(inner)) {}

  State advance(const tcp::Wire& wire) override {
    if (wire.tls != nullptr && !bound_) {
      std::string binding = wire.tls->binding();
      bound_ = !binding.empty();
      proof_.bind(std::move(binding));
    }
    for (;;) {
      if (!status_.ok()) return State::kFailed;
      if (!proof_.output().empty()) {
        const State state = send_some(wire);
        if (state != State::kDone) return state;
      }
      if (!proof_.status().ok()) return failed(proof_.status());
      if (proof_.wanted() == 0) {
        const State state = inner_->advance(wire);
        if (state == State::kFailed) status_ = inner_->status();
        return state;
      }
      const State state = receive_some(wire);
      if (state != State::kDone) return state;
      take();
    }
  }

  Link link() const override { return inner_->link(); }
  Status status() const override { return status_; }

 private:
  State failed(Status status) {
    status_ = std::move(status);
    return State::kFailed;
  }

  State send_some(const tcp::Wire& wire) {
    const std::string& out = proof_.output();
    while (sent_ < out.size()) {
      const ssize_t put = wire.send(out.data() + sent_, out.size() - sent_);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) {
        return State::kWantsWrite;
      }
      if (put < 0) return failed({MC_AGENT_UNAVAILABLE, errno_text("send of a hello", errno)});
      sent_ += static_cast<std::size_t>(put);
    }
    proof_.output().clear();
    sent_ = 0;
    return State::kDone;
  }

  State receive_some(const tcp::Wire& wire) {
    const std::size_t wanted = proof_.wanted();
    while (received_ < wanted) {
      const ssize_t got = wire.receive(in_.data() + received_, wanted - received_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::kWantsRead;
      if (got <= 0 && wire.tls != nullptr && !wire.tls->status().ok()) {
        return failed({MC_PERMISSION_DENIED,
                       "the peer ended the TLS session before the proof, most likely because it "
                       "does not accept this agent's peer_tls_cert; its log says why (" +
                           std::string(wire.tls->status().text()) + ")"});
      }
      if (got <= 0 && received_ > 0 && in_[0] == kTlsAlert) {
        return failed({MC_PERMISSION_DENIED,
                       "the peer wants TLS: give this agent peer_tls_cert, peer_tls_key and "
                       "peer_tls_ca, or take them from the peer"});
      }
      if (got <= 0) {
        return failed({MC_AGENT_UNAVAILABLE,
                       "the peer hung up during the handshake; its log says why (wrong cluster "
                       "key or version)"});
      }
      received_ += static_cast<std::size_t>(got);
    }
    return State::kDone;
  }

  void take() {
    const bool speaks_tls = in_[0] == kTlsHandshake && in_[1] == kTlsMajor;
    const bool is_hello = received_ == auth::kHelloBytes;
    proof_.take({in_.data(), std::exchange(received_, 0)});
    if (is_hello && speaks_tls && !proof_.status().ok()) {
      failed({MC_PERMISSION_DENIED,
              "the peer speaks TLS and this agent does not: give this agent peer_tls_cert, "
              "peer_tls_key and peer_tls_ca, or take them from the peer"});
    }
  }

  // The first bytes of TLS records: a peer with TLS sends these bytes to a side without TLS.
  static constexpr char kTlsAlert = 21, kTlsHandshake = 22, kTlsMajor = 3;

  auth::KeyProof proof_;
  std::unique_ptr<LaneHandshake> inner_;
  bool bound_ = false;  // the proof is bound to the TLS session
  std::size_t sent_ = 0;
  std::array<char, auth::kHelloBytes> in_{};
  std::size_t received_ = 0;
  Status status_;
};

}  // namespace

std::unique_ptr<LaneHandshake> make_keyed_handshake(const auth::ClusterHello& own,
                                                    const auth::ClusterKey& key, bool dialer,
                                                    std::unique_ptr<LaneHandshake> inner) {
  return std::make_unique<KeyedHandshake>(own, key, dialer, std::move(inner));
}

}  // namespace mc::transport
