// SPDX-License-Identifier: Apache-2.0
#include "transport/keyed/keyed_handshake.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "libmc/base/fd.h"

namespace mc::transport {

namespace {

namespace rpc = metadata::rpc;
using tcp::Handshake;

class KeyedHandshake final : public Handshake {
 public:
  KeyedHandshake(rpc::Hello own, rpc::ClusterKey key, bool dialer, std::unique_ptr<Handshake> inner)
      : own_(own), key_(std::move(key)), dialer_(dialer), inner_(std::move(inner)) {
    own_.nonce = rpc::make_nonce();
    own_.keyed = key_.given();
    if (dialer_) {
      send_hello();
    } else {
      expect(rpc::kHelloBytes);
    }
  }

  State advance(const tcp::Wire& wire) override {
    if (wire.tls != nullptr && binding_.empty()) binding_ = wire.tls->binding();
    for (;;) {
      if (!status_.ok()) return State::kFailed;
      if (sent_ < out_.size()) {
        const State state = send_some(wire);
        if (state != State::kDone) return state;
      }
      if (refuse_.code() != MC_OK) return failed(refuse_);
      if (step_ == Step::kInner) {
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
  enum class Step : std::uint8_t { kHello, kProof, kAdmission, kInner };

  State failed(Status status) {
    status_ = std::move(status);
    return State::kFailed;
  }
  void expect(std::size_t bytes) {
    wanted_ = bytes;
    received_ = 0;
  }
  void send_hello() {
    const auto hello = rpc::encode_hello(own_);
    out_.append(hello.data(), hello.size());
    if (dialer_) expect(rpc::kHelloBytes);
  }
  std::string text(bool of_dialer) const {
    return dialer_ ? rpc::proof_text(of_dialer, own_, peer_, binding_)
                   : rpc::proof_text(of_dialer, peer_, own_, binding_);
  }

  State send_some(const tcp::Wire& wire) {
    while (sent_ < out_.size()) {
      const ssize_t put = wire.send(out_.data() + sent_, out_.size() - sent_);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) {
        return State::kWantsWrite;
      }
      if (put < 0) return failed({MC_AGENT_UNAVAILABLE, errno_text("send of a hello", errno)});
      sent_ += static_cast<std::size_t>(put);
    }
    return State::kDone;
  }

  State receive_some(const tcp::Wire& wire) {
    while (received_ < wanted_) {
      const ssize_t got = wire.receive(in_.data() + received_, wanted_ - received_);
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

  // All expected bytes have arrived.
  void take() {
    switch (step_) {
      case Step::kHello: {
        auto peer = rpc::decode_hello({in_.data(), rpc::kHelloBytes});
        if (!peer) {
          status_ = peer.error();
          if (in_[0] == kTlsHandshake && in_[1] == kTlsMajor) {
            status_ = {MC_PERMISSION_DENIED,
                       "the peer speaks TLS and this agent does not: give this agent "
                       "peer_tls_cert, peer_tls_key and peer_tls_ca, or take them from the peer"};
          }
          return;
        }
        peer_ = *peer;
        if (!dialer_) {
          send_hello();
          step_ = Step::kProof;
          expect(rpc::kProofBytes);
          return;
        }
        status_ = rpc::check_hello(own_, peer_);
        const rpc::Proof proof = key_.given() ? key_.prove(text(true)) : rpc::Proof{};
        out_.append(proof.data(), proof.size());
        step_ = Step::kAdmission;
        expect(rpc::kAdmissionBytes);
        return;
      }
      case Step::kProof:
        welcome();
        return;
      case Step::kAdmission:
        take_admission();
        return;
      case Step::kInner:
        return;
    }
  }

  void welcome() {
    rpc::Proof proof;
    std::memcpy(proof.data(), in_.data(), rpc::kProofBytes);
    refuse_ = rpc::check_hello(own_, peer_);
    if (refuse_.ok() && peer_.role != own_.role) {
      refuse_ = {MC_PERMISSION_DENIED,
                 "a lane joins two agents or two transfer engines; is the address right?"};
    }
    if (refuse_.ok() && key_.given() && !key_.proven(text(true), proof)) {
      refuse_ = {MC_PERMISSION_DENIED, "the peer has another cluster key"};
    }
    const bool welcome = refuse_.ok();
    // A peer without the key receives no proof, which could help to guess the key.
    const rpc::Proof own = key_.given() && welcome ? key_.prove(text(false)) : rpc::Proof{};
    const auto bytes =
        rpc::encode_admission(welcome ? rpc::Admission::kWelcome : rpc::Admission::kRefused, own);
    out_.append(bytes.data(), bytes.size());
    step_ = Step::kInner;
  }

  void take_admission() {
    const rpc::AdmissionText answer = rpc::decode_admission({in_.data(), rpc::kAdmissionBytes});
    if (answer.admission != rpc::Admission::kWelcome) {
      status_ = {MC_PERMISSION_DENIED,
                 "the peer refused this side's proof; do both have the same cluster key?"};
      return;
    }
    if (key_.given() && !key_.proven(text(false), answer.proof)) {
      status_ = {MC_PERMISSION_DENIED,
                 "the peer did not prove the cluster key; is the address right?"};
      return;
    }
    step_ = Step::kInner;
  }

  // The first bytes of TLS records: a peer with TLS sends these bytes to a side without TLS.
  static constexpr char kTlsAlert = 21, kTlsHandshake = 22, kTlsMajor = 3;

  rpc::Hello own_;
  rpc::Hello peer_;
  std::string binding_;  // to the TLS session, if any
  const rpc::ClusterKey key_;
  const bool dialer_;
  std::unique_ptr<Handshake> inner_;
  Step step_ = Step::kHello;
  std::string out_;
  std::size_t sent_ = 0;
  std::array<char, rpc::kHelloBytes> in_{};
  std::size_t wanted_ = 0;
  std::size_t received_ = 0;
  Status refuse_;  // reported after the answer that carries the refusal
  Status status_;
};

}  // namespace

std::unique_ptr<Handshake> make_keyed_handshake(const rpc::Hello& own, const rpc::ClusterKey& key,
                                                bool dialer, std::unique_ptr<Handshake> inner) {
  return std::make_unique<KeyedHandshake>(own, key, dialer, std::move(inner));
}

}  // namespace mc::transport
