// SPDX-License-Identifier: Apache-2.0
//
// What it is: a run of the handshake that hello.h draws, over a connected transport.
// Threads: the io_context's thread.
// Owns: itself until the call of `done`, which happens exactly once.
// Trusts: no peer. The handshake reads at most 104 bytes (plus TLS records) and ends at its
//   deadline.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>

#include "metadata/rpc/byte_stream.h"
#include "libmc/auth/hello.h"

namespace mc::metadata::rpc {

class Handshake : public std::enable_shared_from_this<Handshake> {
 public:
  using Done = std::function<void(Result<Hello>)>;  // the peer's hello

  // own: without a nonce. full: this listener has no free link, and says so to a peer that has the
  // key.
  Handshake(boost::asio::any_io_executor executor, std::shared_ptr<ByteStream> transport, Hello own,
            ClusterKey key, bool dialer, bool full, Done done);

  void start(std::uint64_t timeout_ns);
  // Ends the handshake with MC_CANCELLED.
  void abort() { finish(fail(MC_CANCELLED, "the handshake was given up for a newer connection")); }

 private:
  using Next = void (Handshake::*)();
  void read(std::size_t bytes, Next next);
  void write(std::string_view bytes, Next next);
  void greet();
  void take_hello();
  void answer_hello();
  void take_proof();
  void prove();
  void await_admission();
  void take_admission();
  void welcome();
  void finish(Result<Hello> result);
  [[nodiscard]] std::string text(bool of_dialer) const;

  boost::asio::steady_timer timer_;
  std::shared_ptr<ByteStream> transport_;
  Hello own_;
  Hello peer_;
  ClusterKey key_;
  const bool dialer_;
  const bool full_;
  Done done_;
  std::string out_;
  std::array<char, kHelloBytes> in_{};
  std::size_t filled_ = 0;
};

}  // namespace mc::metadata::rpc
