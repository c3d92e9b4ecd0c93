// SPDX-License-Identifier: Apache-2.0
//
// A run of the proof of libmc/auth/key_proof.h over a connected stream.
// Threads: the io_context's thread.
// Owns: itself until the call of `done`, which happens exactly once.
// Trusts: no peer. The handshake reads at most 104 bytes (plus TLS records) and ends at its
//   deadline.
#pragma once

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>

#include "libmc/auth/key_proof.h"
#include "metadata/rpc/byte_stream.h"

namespace mc::metadata::rpc {

class RpcHandshake : public std::enable_shared_from_this<RpcHandshake> {
 public:
  using Done = std::function<void(Result<auth::ClusterHello>)>;  // the peer's hello

  // own: without a nonce. full: this listener has no free link, and says so to a peer that has the
  // key.
  RpcHandshake(boost::asio::any_io_executor executor, std::shared_ptr<ByteStream> transport,
               const auth::ClusterHello& own, auth::ClusterKey key, bool dialer, bool full,
               Done done);

  void start(std::uint64_t timeout_ns);
  // Ends the handshake with MC_CANCELLED.
  void abort() { finish(fail(MC_CANCELLED, "the handshake was given up for a newer connection")); }

 private:
  // Sends the proof's output, reads its input, and so on until the proof ends.
  void advance();
  void send();
  void receive();
  void finish(Result<auth::ClusterHello> result);

  boost::asio::steady_timer timer_;
  std::shared_ptr<ByteStream> transport_;
  auth::KeyProof proof_;
  const bool dialer_;
  Done done_;
  std::array<char, auth::kHelloBytes> in_{};
  std::size_t filled_ = 0;
};

}  // namespace mc::metadata::rpc
