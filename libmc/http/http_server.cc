// SPDX-License-Identifier: Apache-2.0
#include "libmc/http/http_server.h"

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <list>
#include <optional>

#include "libmc/http/http_access.h"

namespace mc::http {

namespace {

namespace beast = boost::beast;
using boost::asio::ip::tcp;
using Error = boost::system::error_code;

constexpr auto kAcceptPause = std::chrono::milliseconds(50);
// How long a refused client may go on sending.
constexpr auto kLinger = std::chrono::seconds(2);

// The bytes are no request. End of the stream: the client left, which is no mistake.
bool is_malformed(const Error& error) {
  using beast::http::error::end_of_stream;
  using beast::http::error::partial_message;
  return error.category() == beast::http::make_error_code(end_of_stream).category() &&
         error != end_of_stream && error != partial_message;
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Owner {
    const HttpOptions* options;
    const HttpHandler* handler;
    std::function<void(const Connection*)> ended;  // empty: the connection has ended
  };

  Connection(tcp::socket socket, Owner owner) : stream_(std::move(socket)), owner_(owner) {}

  // Whether the connection waits for a request, and so may make room.
  [[nodiscard]] bool waits() const { return waits_; }

  void read_head() {
    waits_ = true;
    parser_.emplace();
    parser_->header_limit(kMaxHeadBytes);
    parser_->body_limit(kMaxBodyBytes);
    be_patient();
    beast::http::async_read_header(
        stream_, in_, *parser_,
        [self = shared_from_this()](const Error& error, std::size_t) { self->on_head(error); });
  }

  void end() {
    Error ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
    if (const auto ended = std::exchange(owner_.ended, nullptr)) ended(this);
  }

  // The owner is gone. No handler runs after this call.
  void abandon() {
    owner_.ended = nullptr;
    stream_.close();
  }

 private:
  void be_patient() {
    stream_.expires_after(std::chrono::nanoseconds(owner_.options->patience_ns));
  }

  std::string_view field(std::string_view name) const {
    const auto found = parser_->get().find({name.data(), name.size()});
    if (found == parser_->get().end()) return {};
    return {found->value().data(), found->value().size()};
  }

  void on_head(const Error& error) {
    if (owner_.ended == nullptr) return;
    waits_ = false;
    if (error == beast::http::error::header_limit) {
      return refuse(431, "the head of the request is longer than 64 KiB\n");
    }
    if (error == beast::http::error::body_limit) return refuse_body();
    if (is_malformed(error)) {
      return refuse(400, "not a request of HTTP/1.1: " + error.message() + "\n");
    }
    if (error) return end();
    const auto& head = parser_->get();
    const std::string_view target(head.target().data(), head.target().size());
    const std::size_t mark = target.find('?');
    request_ = {std::string(head.method_string()), std::string(target.substr(0, mark)), {}, {}};
    if (mark != std::string_view::npos) request_.query = url_query(target.substr(mark + 1));
    if (!may_pass(owner_.options->token, request_.path, field("Authorization"),
                  field("X-API-Key"))) {
      return refuse(401, "a bearer token, or X-API-Key, is missing or wrong\n");
    }
    // A browser on this host sends requests for any page that the user looks at.
    const bool changes = request_.method != "GET" && request_.method != "HEAD";
    if (changes && owner_.options->token.empty() && !field("Origin").empty()) {
      return refuse(403, "a web page may change nothing here without a token\n");
    }
    be_patient();
    beast::http::async_read(
        stream_, in_, *parser_,
        [self = shared_from_this()](const Error& failed, std::size_t) { self->on_body(failed); });
  }

  void on_body(const Error& error) {
    if (owner_.ended == nullptr) return;
    if (error == beast::http::error::body_limit) return refuse_body();
    if (error) return end();
    request_.body = std::move(parser_->get().body());
    stream_.expires_never();
    (*owner_.handler)(
        request_, [weak = weak_from_this(), executor = stream_.get_executor()](HttpAnswer answer) {
          const auto self = weak.lock();  // none: the server is gone, or the client
          if (!self) return;
          boost::asio::dispatch(executor, [self, answer = std::move(answer)]() mutable {
            self->write(std::move(answer), self->parser_->keep_alive());
          });
        });
  }

  // The rest of the request is read and forgotten, so the connection ends.
  void refuse(unsigned status, std::string text) {
    refused_ = true;
    write({.status = status, .body = std::move(text)}, false);
  }

  void refuse_body() { refuse(413, "the body of the request is longer than 1 MiB\n"); }

  void write(HttpAnswer answer, bool keep) {
    if (owner_.ended == nullptr) return;
    keep_ = keep;
    chunked_ = answer.more && parser_->get().version() >= 11;
    if (answer.more && !chunked_)
      keep_ = false;  // HTTP/1.0: the end of the connection ends the body
    more_ = std::move(answer.more);
    out_ = {};
    out_.version(11);
    out_.result(answer.status);
    out_.set(beast::http::field::server, "mc");
    out_.set(beast::http::field::content_type, answer.type);
    for (const auto& [name, value] : answer.fields) out_.set(name, value);
    out_.keep_alive(keep_);
    piece_ = std::move(answer.body);
    if (!more_) {
      out_.content_length(piece_.size());
    } else if (chunked_) {
      out_.chunked(true);
    }
    if (parser_->get().method() == beast::http::verb::head) {
      piece_.clear();
      more_ = nullptr;
    }
    serializer_.emplace(out_);
    be_patient();
    beast::http::async_write_header(stream_, *serializer_,
                                    [self = shared_from_this()](const Error& error, std::size_t) {
                                      if (error) return self->end();
                                      self->write_piece();
                                    });
  }

  void write_piece() {
    if (owner_.ended == nullptr) return;
    be_patient();
    const auto written = [self = shared_from_this()](const Error& error, std::size_t) {
      if (error) return self->end();
      self->next_piece();
    };
    if (piece_.empty()) return next_piece();
    if (chunked_) {
      boost::asio::async_write(stream_, beast::http::make_chunk(boost::asio::buffer(piece_)),
                               written);
    } else {
      boost::asio::async_write(stream_, boost::asio::buffer(piece_), written);
    }
  }

  void next_piece() {
    if (owner_.ended == nullptr) return;
    if (!more_) return finish();
    stream_.expires_never();
    more_([weak = weak_from_this(), executor = stream_.get_executor()](Result<std::string> piece) {
      const auto self = weak.lock();
      if (!self) return;
      boost::asio::dispatch(executor, [self, piece = std::move(piece)]() mutable {
        if (!piece) return self->end();
        self->piece_ = std::move(*piece);
        if (!self->piece_.empty()) return self->write_piece();
        self->more_ = nullptr;
        self->finish_pieces();
      });
    });
  }

  void finish_pieces() {
    if (owner_.ended == nullptr) return;
    if (!chunked_) return finish();
    be_patient();
    boost::asio::async_write(stream_, beast::http::make_chunk_last(),
                             [self = shared_from_this()](const Error& error, std::size_t) {
                               if (error) return self->end();
                               self->finish();
                             });
  }

  void finish() {
    if (owner_.ended == nullptr) return;
    if (keep_) return read_head();
    if (!refused_) return end();
    Error ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kLinger);
    in_.clear();
    forget_rest();
  }

  // An end with unread bytes would reset the connection, and the client might lose the answer.
  void forget_rest() {
    stream_.async_read_some(in_.prepare(kMaxHeadBytes),
                            [self = shared_from_this()](const Error& error, std::size_t) {
                              if (error) return self->end();
                              self->forget_rest();
                            });
  }

  beast::tcp_stream stream_;
  Owner owner_;
  beast::flat_buffer in_;
  std::optional<beast::http::request_parser<beast::http::string_body>> parser_;
  HttpRequest request_;
  beast::http::response<beast::http::empty_body> out_;
  std::optional<beast::http::response_serializer<beast::http::empty_body>> serializer_;
  std::string piece_;
  std::function<void(HttpGive)> more_;
  bool waits_ = false;
  bool keep_ = false;
  bool chunked_ = false;
  bool refused_ = false;  // a part of the request may be unread
};

}  // namespace

class HttpServer::Listening : public std::enable_shared_from_this<Listening> {
 public:
  Listening(boost::asio::io_context& io, HttpOptions options, HttpHandler handler)
      : options_(std::move(options)), handler_(std::move(handler)), acceptor_(io), pause_(io) {}

  Status listen() {
    Error error;
    const auto address = boost::asio::ip::make_address(options_.host, error);
    if (error) {
      return {MC_INVALID_ARGUMENT, "'" + options_.host +
                                       "' is not an IP address to listen on; use 127.0.0.1 or "
                                       "0.0.0.0"};
    }
    const tcp::endpoint endpoint(address, options_.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(boost::asio::socket_base::max_listen_connections, error);
    if (!error) return {};
    return {MC_AGENT_UNAVAILABLE, "cannot listen on " + options_.host + " port " +
                                      std::to_string(options_.port) + ": " + error.message()};
  }

  void accept() {
    acceptor_.async_accept([self = shared_from_this()](const Error& error, tcp::socket socket) {
      if (!self->acceptor_.is_open()) return;
      if (!error) {
        self->welcome(std::move(socket));
        return self->accept();
      }
      // Most likely the process has no free descriptors.
      self->pause_.expires_after(kAcceptPause);
      self->pause_.async_wait([self](const Error& cancelled) {
        if (!cancelled) self->accept();
      });
    });
  }

  void stop() {
    Error ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    for (const auto& connection : connections_) connection->abandon();
    connections_.clear();
  }

  [[nodiscard]] std::uint16_t port() const {
    Error error;
    return acceptor_.local_endpoint(error).port();
  }

 private:
  void welcome(tcp::socket socket) {
    if (connections_.size() >= options_.max_connections) {
      const auto idle = std::ranges::find_if(connections_, &Connection::waits,
                                             [](const auto& one) -> Connection& { return *one; });
      if (idle == connections_.end()) return;  // closes the socket
      std::shared_ptr(*idle)->end();
    }
    Error ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const auto connection = std::make_shared<Connection>(
        std::move(socket), Connection::Owner{&options_, &handler_, [this](const Connection* gone) {
                                               std::erase_if(connections_, [gone](const auto& one) {
                                                 return one.get() == gone;
                                               });
                                             }});
    connections_.push_back(connection);
    connection->read_head();
  }

  const HttpOptions options_;
  const HttpHandler handler_;
  tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::list<std::shared_ptr<Connection>> connections_;  // the oldest first
};

Result<std::unique_ptr<HttpServer>> HttpServer::create(boost::asio::io_context& io,
                                                       const HttpOptions& options,
                                                       HttpHandler handler) {
  const auto listening = std::make_shared<Listening>(io, options, std::move(handler));
  if (const Status status = listening->listen(); !status.ok()) return fail(status);
  listening->accept();
  return std::unique_ptr<HttpServer>(new HttpServer(listening));
}

HttpServer::~HttpServer() { listening_->stop(); }

std::uint16_t HttpServer::port() const { return listening_->port(); }

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const int letter = c | 0x20;
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

}  // namespace

std::string url_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size();
    if (escape && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i] == '+' ? ' ' : text[i]);
    }
  }
  return out;
}

std::map<std::string, std::string> url_query(std::string_view text) {
  std::map<std::string, std::string> query;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1);
    query.emplace(url_decoded(pair.substr(0, equals)), url_decoded(value));
  }
  return query;
}

}  // namespace mc::http
