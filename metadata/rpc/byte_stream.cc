// SPDX-License-Identifier: Apache-2.0
#include "metadata/rpc/byte_stream.h"

#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

namespace mc::metadata::rpc {

namespace {

using boost::asio::ip::tcp;
namespace ssl = boost::asio::ssl;

void prepare(tcp::socket& socket) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
}

class PlainTransport final : public ByteStream {
 public:
  explicit PlainTransport(tcp::socket socket) : socket_(std::move(socket)) { prepare(socket_); }

  void start(Ready ready) override { ready({}); }
  void read_some(boost::asio::mutable_buffer buffer, Done done) override {
    socket_.async_read_some(buffer, std::move(done));
  }
  void write(const std::vector<boost::asio::const_buffer>& buffers, Done done) override {
    boost::asio::async_write(socket_, buffers, std::move(done));
  }
  void close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  int socket() override { return socket_.native_handle(); }
  std::string channel_binding() override { return {}; }

 private:
  tcp::socket socket_;
};

class TlsStream final : public ByteStream, public std::enable_shared_from_this<TlsStream> {
 public:
  TlsStream(tcp::socket socket, auth::TlsContexts& tls, bool dialer, const std::string& name)
      : context_(tls.current().release()), stream_(std::move(socket), context_), dialer_(dialer) {
    prepare(stream_.next_layer());
    if (dialer) {
      SSL_set_tlsext_host_name(stream_.native_handle(), name.c_str());
      boost::system::error_code ignored;
      stream_.set_verify_callback(ssl::host_name_verification(name), ignored);
    }
  }

  void start(Ready ready) override {
    stream_.async_handshake(
        dialer_ ? ssl::stream_base::client : ssl::stream_base::server,
        [self = shared_from_this(),
         ready = std::move(ready)](const boost::system::error_code& error) {
          if (!error) return ready({});
          const std::string trouble = auth::certificate_trouble(self->stream_.native_handle());
          ready({MC_PERMISSION_DENIED,
                 "TLS: " + (trouble.empty() ? error.message()
                                            : "the peer's certificate is refused: " + trouble)});
        });
  }
  void read_some(boost::asio::mutable_buffer buffer, Done done) override {
    stream_.async_read_some(buffer, std::move(done));
  }
  void write(const std::vector<boost::asio::const_buffer>& buffers, Done done) override {
    boost::asio::async_write(stream_, buffers, std::move(done));
  }
  // Closes without a TLS farewell. Frames carry the length, so truncation is always noticed.
  void close() override {
    boost::system::error_code ignored;
    stream_.next_layer().close(ignored);
  }
  int socket() override { return stream_.next_layer().native_handle(); }
  std::string channel_binding() override {
    std::string binding(32, '\0');
    constexpr std::string_view kLabel = "EXPERIMENTAL-mc-rpc";
    if (SSL_export_keying_material(stream_.native_handle(),
                                   reinterpret_cast<unsigned char*>(binding.data()), binding.size(),
                                   kLabel.data(), kLabel.size(), nullptr, 0, 0) != 1) {
      binding.clear();
    }
    return binding;
  }

 private:
  ssl::context context_;  // owns its reference to the OpenSSL context
  ssl::stream<tcp::socket> stream_;
  const bool dialer_;
};

}  // namespace

std::shared_ptr<ByteStream> make_transport(tcp::socket socket, const TlsContext& tls, bool dialer,
                                           const std::string& name) {
  if (tls == nullptr) return std::make_shared<PlainTransport>(std::move(socket));
  return std::make_shared<TlsStream>(std::move(socket), *tls, dialer, name);
}

}  // namespace mc::metadata::rpc
