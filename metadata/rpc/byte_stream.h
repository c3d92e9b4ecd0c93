// SPDX-License-Identifier: Apache-2.0
//
// A connected byte stream, plain or TLS, for the handshake and the link.
// Threads: the io_context's thread.
// Owns: the socket. After close(), every open operation completes with an error. No callback runs
//   twice.
// Trusts: nothing; the stream only moves bytes.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "metadata/rpc/tls.h"

namespace mc::metadata::rpc {

class ByteStream {
 public:
  using Done = std::function<void(const boost::system::error_code&, std::size_t)>;
  using Ready = std::function<void(const Status&)>;

  virtual ~ByteStream() = default;
  // TLS: runs the TLS handshake. Plain: ready at once. Errors: MC_PERMISSION_DENIED.
  virtual void start(Ready ready) = 0;
  virtual void read_some(boost::asio::mutable_buffer buffer, Done done) = 0;
  // Writes all buffers. The bytes must stay valid until done.
  virtual void write(const std::vector<boost::asio::const_buffer>& buffers, Done done) = 0;
  virtual void close() = 0;
  virtual int socket() = 0;
  // Unique to this TLS session and known only to both ends. Empty without TLS.
  virtual std::string channel_binding() = 0;
};

// socket: connected. tls: null for a plain stream. name: the name in the peer's certificate
// (dialers).
std::shared_ptr<ByteStream> make_transport(boost::asio::ip::tcp::socket socket,
                                           const TlsContext& tls, bool dialer,
                                           const std::string& name);

}  // namespace mc::metadata::rpc
