// SPDX-License-Identifier: Apache-2.0
//
// What it is: a connected byte stream, plain or with TLS, as handshake and link see it.
// Threads: the io_context's one thread. Owns: the socket. After close() every operation that is
//   under way completes with an error; nothing is called twice.
// Trusts: nothing that arrives; it only moves bytes.
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
  using Ready = std::function<void(const boost::system::error_code&)>;

  virtual ~ByteStream() = default;
  // TLS: shakes hands; else it is ready at once.
  virtual void start(Ready ready) = 0;
  virtual void read_some(boost::asio::mutable_buffer buffer, Done done) = 0;
  // All of them. The bytes stay valid until done.
  virtual void write(const std::vector<boost::asio::const_buffer>& buffers, Done done) = 0;
  virtual void close() = 0;
  virtual int socket() = 0;
  // Unique to this TLS session and known to both its ends only; empty without TLS.
  virtual std::string channel_binding() = 0;
};

// A connected socket. tls: null for none. name: what the peer's certificate must say (dialers).
std::shared_ptr<ByteStream> make_transport(boost::asio::ip::tcp::socket socket,
                                           const TlsContext& tls, bool dialer,
                                           const std::string& name);

}  // namespace mc::metadata::rpc
