// SPDX-License-Identifier: Apache-2.0
#include "metadata/rpc/rpc_handshake.h"

#include <utility>

namespace mc::metadata::rpc {

RpcHandshake::RpcHandshake(boost::asio::any_io_executor executor,
                           std::shared_ptr<ByteStream> transport, const auth::ClusterHello& own,
                           auth::ClusterKey key, bool dialer, bool full, Done done)
    : timer_(executor),
      transport_(std::move(transport)),
      proof_(own, std::move(key), dialer, full),
      dialer_(dialer),
      done_(std::move(done)) {}

void RpcHandshake::start(std::uint64_t timeout_ns) {
  timer_.expires_after(std::chrono::nanoseconds(timeout_ns));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error) return;
    self->finish(fail(MC_TIMEOUT, "the handshake did not finish in time"));
  });
  transport_->start([self = shared_from_this()](const Status& status) {
    if (!status.ok()) {
      self->finish(fail(status.code(),
                        std::string(status.text()) +
                            (self->dialer_ ? "; does that master have a tls_cert for its address, "
                                             "signed by master_tls_ca?"
                                           : "")));
    } else {
      self->proof_.bind(self->transport_->channel_binding());
      self->advance();
    }
  });
}

void RpcHandshake::advance() {
  if (done_ == nullptr) return;
  if (!proof_.output().empty()) return send();
  if (proof_.wanted() != 0) return receive();
  if (proof_.status().ok()) {
    finish(proof_.peer());
  } else {
    finish(fail(proof_.status()));
  }
}

void RpcHandshake::send() {
  transport_->write(
      {boost::asio::buffer(proof_.output())},
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
        self->proof_.output().clear();
        if (error && self->proof_.status().ok()) {
          self->finish(
              fail(MC_AGENT_UNAVAILABLE, "the peer closed the connection during the handshake"));
          return;
        }
        self->advance();
      });
}

// Reads only the bytes that are due, so no byte of a later frame is taken.
void RpcHandshake::receive() {
  transport_->read_some(
      boost::asio::buffer(in_.data() + filled_, proof_.wanted() - filled_),
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t count) {
        if (error) {
          self->finish(fail(MC_AGENT_UNAVAILABLE,
                            "the peer closed the connection during the handshake; its log says "
                            "why (wrong cluster key or version, too many connections, or it wants "
                            "TLS: set master_tls_ca)"));
          return;
        }
        self->filled_ += count;
        if (self->filled_ == self->proof_.wanted()) {
          self->proof_.take({self->in_.data(), std::exchange(self->filled_, 0)});
        }
        self->advance();
      });
}

void RpcHandshake::finish(Result<auth::ClusterHello> result) {
  if (done_ == nullptr) return;
  const Done done = std::move(done_);
  done_ = nullptr;
  timer_.cancel();
  if (!result) transport_->close();
  done(std::move(result));
}

}  // namespace mc::metadata::rpc
