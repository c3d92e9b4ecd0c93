// SPDX-License-Identifier: Apache-2.0
#include "metadata/rpc/handshake.h"

#include <cstring>

namespace mc::metadata::rpc {

Handshake::Handshake(boost::asio::any_io_executor executor, std::shared_ptr<ByteStream> transport,
                     Hello own, ClusterKey key, bool dialer, bool full, Done done)
    : timer_(executor),
      transport_(std::move(transport)),
      own_(own),
      key_(std::move(key)),
      dialer_(dialer),
      full_(full),
      done_(std::move(done)) {
  own_.keyed = key_.given();
  own_.nonce = make_nonce();
}

void Handshake::start(std::uint64_t timeout_ns) {
  timer_.expires_after(std::chrono::nanoseconds(timeout_ns));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error) return;
    self->finish(fail(MC_TIMEOUT, "the handshake did not finish in time"));
  });
  transport_->start([self = shared_from_this()](const boost::system::error_code& error) {
    if (error) {
      self->finish(fail(MC_PERMISSION_DENIED,
                        "TLS: " + error.message() +
                            (self->dialer_ ? "; does that master have a tls_cert for its address, "
                                             "signed by master_tls_ca?"
                                           : "")));
    } else if (self->dialer_) {
      self->greet();
    } else {
      self->read(kHelloBytes, &Handshake::take_hello);
    }
  });
}

// Reads only the bytes that are due, so no byte of a later frame is taken.
void Handshake::read(std::size_t bytes, Next next) {
  if (done_ == nullptr) return;
  transport_->read_some(
      boost::asio::buffer(in_.data() + filled_, bytes - filled_),
      [self = shared_from_this(), bytes, next](const boost::system::error_code& error,
                                               std::size_t count) {
        if (error) {
          self->finish(fail(MC_AGENT_UNAVAILABLE,
                            "the peer closed the connection during the handshake; its log says "
                            "why (wrong cluster key or version, too many connections, or it wants "
                            "TLS: set master_tls_ca)"));
          return;
        }
        self->filled_ += count;
        if (self->filled_ < bytes) {
          self->read(bytes, next);
          return;
        }
        self->filled_ = 0;
        ((*self).*next)();
      });
}

void Handshake::write(std::string_view bytes, Next next) {
  if (done_ == nullptr) return;
  out_ = bytes;
  transport_->write(
      {boost::asio::buffer(out_)},
      [self = shared_from_this(), next](const boost::system::error_code& error, std::size_t) {
        if (error) {
          self->finish(fail(MC_AGENT_UNAVAILABLE,
                            "the peer closed the connection "
                            "during the handshake"));
          return;
        }
        ((*self).*next)();
      });
}

std::string Handshake::text(bool of_dialer) const {
  return dialer_ ? proof_text(of_dialer, own_, peer_, transport_->channel_binding())
                 : proof_text(of_dialer, peer_, own_, transport_->channel_binding());
}

void Handshake::greet() {
  const auto hello = encode_hello(own_);
  write({hello.data(), hello.size()}, &Handshake::answer_hello);
}

// The dialer has sent its hello; the listener's hello follows.
void Handshake::answer_hello() { read(kHelloBytes, &Handshake::take_hello); }

void Handshake::take_hello() {
  auto peer = decode_hello({in_.data(), kHelloBytes});
  if (!peer) {
    finish(fail(peer.error()));
    return;
  }
  peer_ = *peer;
  if (dialer_) {
    const Status status = check_hello(own_, peer_);
    if (!status.ok()) {
      finish(fail(status));
      return;
    }
    prove();
    return;
  }
  const auto hello = encode_hello(own_);
  write({hello.data(), hello.size()}, &Handshake::take_proof);
}

void Handshake::prove() {
  const Proof proof = key_.given() ? key_.prove(text(true)) : Proof{};
  write({proof.data(), proof.size()}, &Handshake::await_admission);
}

void Handshake::take_proof() { read(kProofBytes, &Handshake::welcome); }

void Handshake::welcome() {
  Proof proof;
  std::memcpy(proof.data(), in_.data(), kProofBytes);
  Status status = check_hello(own_, peer_);
  if (status.ok() && key_.given() && !key_.proven(text(true), proof)) {
    status = {MC_PERMISSION_DENIED, "the peer has another cluster key"};
  }
  if (status.ok() && full_) status = {MC_BUSY, "this master has no free link (max_links)"};
  Admission admission = Admission::kWelcome;
  Proof own_proof{};
  if (!status.ok()) admission = status.code() == MC_BUSY ? Admission::kFull : Admission::kRefused;
  // A dialer without the key receives no proof, which could help to guess the key.
  if (key_.given() && admission != Admission::kRefused) own_proof = key_.prove(text(false));
  const auto bytes = encode_admission(admission, own_proof);
  out_.assign(bytes.data(), bytes.size());
  transport_->write(
      {boost::asio::buffer(out_)},
      [self = shared_from_this(), status](const boost::system::error_code& error, std::size_t) {
        if (!status.ok()) {
          self->finish(fail(status));
        } else if (error) {
          self->finish(fail(MC_AGENT_UNAVAILABLE, "the peer went away"));
        } else {
          self->finish(self->peer_);
        }
      });
}

void Handshake::await_admission() { read(kAdmissionBytes, &Handshake::take_admission); }

void Handshake::take_admission() {
  const AdmissionText answer = decode_admission({in_.data(), kAdmissionBytes});
  if (answer.admission == Admission::kRefused) {
    finish(fail(MC_PERMISSION_DENIED,
                "the peer refused this side's proof; do both have the same cluster key?"));
    return;
  }
  if (key_.given() && !key_.proven(text(false), answer.proof)) {
    finish(fail(MC_PERMISSION_DENIED,
                "the peer did not prove the cluster key; is the address right?"));
    return;
  }
  if (answer.admission == Admission::kFull) {
    finish(fail(MC_BUSY, "the peer has no free link; try again later"));
    return;
  }
  finish(peer_);
}

void Handshake::finish(Result<Hello> result) {
  if (done_ == nullptr) return;
  const Done done = std::move(done_);
  done_ = nullptr;
  timer_.cancel();
  if (!result) transport_->close();
  done(std::move(result));
}

}  // namespace mc::metadata::rpc
