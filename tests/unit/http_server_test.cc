// SPDX-License-Identifier: Apache-2.0
//
// The HTTP server and its token, over real sockets.
#include "libmc/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "libmc/http/http_access.h"
#include "patience.h"

namespace mc::http {
namespace {

using boost::asio::ip::tcp;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A client that sees each byte.
class Caller {
 public:
  explicit Caller(std::uint16_t port) : socket_(io_) {
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), port});
  }
  void send(const std::string& bytes) { boost::asio::write(socket_, boost::asio::buffer(bytes)); }
  // Bytes up to the end of the text; all bytes if the server ends the connection before.
  std::string until(const std::string& text) {
    boost::system::error_code error;
    while (!error && got_.find(text) == std::string::npos) {
      char bytes[4096];
      const std::size_t count = socket_.read_some(boost::asio::buffer(bytes), error);
      got_.append(bytes, count);
    }
    const std::size_t at = got_.find(text);
    const std::size_t size = at == std::string::npos ? got_.size() : at + text.size();
    const std::string all = got_.substr(0, size);
    got_.erase(0, size);
    return all;
  }
  std::string rest() { return until("no server sends this text"); }

 private:
  boost::asio::io_context io_;
  tcp::socket socket_;
  std::string got_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() { ::alarm(kTestSeconds); }
  ~HttpServerTest() override {
    ::alarm(0);
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }
  void serve(HttpOptions options, HttpHandler handler) {
    options.host = "127.0.0.1";
    auto made = HttpServer::create(io_, options, std::move(handler));
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    server_ = std::move(*made);
    thread_ = std::thread([this] { io_.run(); });
  }
  void serve_echo(const HttpOptions& options = {}) {
    serve(options, [](const HttpRequest& request, const HttpDone& done) {
      std::string text = request.method + " " + request.path + " " + request.body;
      for (const auto& [name, value] : request.query) text += " " + name + "=" + value;
      done({.body = text + "."});
    });
  }
  Caller caller() const { return Caller(server_->port()); }
  std::string answer_to(const std::string& request) const {
    Caller one = caller();
    one.send(request);
    return one.rest();
  }

  boost::asio::io_context io_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpServerTest, AConnectionAsksManyTimes) {
  serve_echo();
  Caller one = caller();
  one.send("GET /a?x=1%202&y HTTP/1.1\r\n\r\nPUT /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz");
  EXPECT_THAT(one.until("x=1 2 y=."), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(one.until("PUT /b xyz."), HasSubstr("Content-Length: 11\r\n"));
  one.send("GET /c HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(one.rest(), EndsWith("GET /c ."));
}

TEST_F(HttpServerTest, AHeadHasNoBody) {
  serve_echo();
  const std::string answer = answer_to("HEAD /a HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 9\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(HttpServerTest, RequestsBeyondTheLimitsAreRefusedWithTheReason) {
  serve_echo();
  EXPECT_THAT(answer_to("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer_to("GET /" + std::string(kMaxHeadBytes, 'a')), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(answer_to("PUT / HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n"),
              StartsWith("HTTP/1.1 413 "));
  for (const char* length : {"-5", "much"}) {
    EXPECT_THAT(answer_to("PUT / HTTP/1.1\r\nContent-Length: " + std::string(length) + "\r\n\r\n"),
                StartsWith("HTTP/1.1 400 "));
  }
}

TEST_F(HttpServerTest, AClientThatSendsTooMuchStillGetsTheAnswer) {
  serve_echo();
  Caller one = caller();
  one.send("PUT / HTTP/1.1\r\nContent-Length: 8000000\r\n\r\n");
  one.send(std::string(8'000'000, 'x'));
  EXPECT_THAT(one.rest(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, ARequestNeedsTheTokenButForHealth) {
  HttpOptions options;
  options.token = "secret";
  serve_echo(options);
  const auto answer = [&](const std::string& path, const std::string& field) {
    return answer_to("PUT " + path + " HTTP/1.1\r\n" + field +
                     "Content-Length: 1\r\nConnection: close\r\n\r\nx");
  };
  for (const char* wrong : {"", "X-API-Key: other\r\n", "X-API-Key: secretly\r\n",
                            "Authorization: Basic secret\r\n", "Authorization: secret\r\n"}) {
    EXPECT_THAT(answer("/a", wrong), StartsWith("HTTP/1.1 401 ")) << wrong;
  }
  EXPECT_THAT(answer("/a", "X-API-Key: secret\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer("/a", "Authorization: Bearer secret\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer("/health", ""), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, AWebPageChangesNothingWithoutAToken) {
  serve_echo(HttpOptions{});
  const auto answer = [&](const std::string& method) {
    return answer_to(method + " /a HTTP/1.1\r\nOrigin: https://example.org\r\n" +
                     "Content-Length: 0\r\nConnection: close\r\n\r\n");
  };
  EXPECT_THAT(answer("POST"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(answer("DELETE"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(answer("GET"), StartsWith("HTTP/1.1 200 "));
}

// Gives "a", "b" and "c", then the end or an error.
HttpHandler pieces(bool breaks) {
  return [breaks](const HttpRequest&, const HttpDone& done) {
    const auto next = std::make_shared<char>('a');
    done({.more = [next, breaks](const HttpGive& give) {
      if (*next <= 'c') return give(std::string(1, (*next)++));
      if (breaks) return give(fail(MC_TIMEOUT, "a host is silent"));
      give(std::string());
    }});
  };
}

TEST_F(HttpServerTest, ABodyOfUnknownLengthComesInPieces) {
  serve({}, pieces(false));
  const std::string chunks = "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n";
  Caller one = caller();
  for (int i = 0; i < 2; ++i) {
    one.send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_THAT(one.until("0\r\n\r\n"), EndsWith("\r\n\r\n" + chunks));
  }
  EXPECT_THAT(answer_to("GET / HTTP/1.0\r\n\r\n"), EndsWith("\r\n\r\nabc"));
}

TEST_F(HttpServerTest, ABodyThatBreaksOffDoesNotLookWhole) {
  serve({}, pieces(true));
  EXPECT_THAT(answer_to("GET / HTTP/1.1\r\n\r\n"), EndsWith("1\r\nc\r\n"));
}

TEST_F(HttpServerTest, ASlowRequestIsCutOff) {
  HttpOptions options;
  options.patience_ns = kSecondNs / 10;
  serve_echo(options);
  EXPECT_EQ(answer_to("GET / HT"), "");
}

TEST_F(HttpServerTest, AConnectionThatAsksNothingMakesRoom) {
  HttpOptions options;
  options.max_connections = 2;
  serve_echo(options);
  Caller oldest = caller();
  Caller other = caller();
  other.send("GET /1 HTTP/1.1\r\n\r\n");
  EXPECT_THAT(other.until("/1 ."), HasSubstr(" 200 "));
  Caller third = caller();
  EXPECT_EQ(oldest.rest(), "");
  for (Caller* one : {&other, &third}) {
    one->send("GET /2 HTTP/1.1\r\n\r\n");
    EXPECT_THAT(one->until("/2 ."), HasSubstr(" 200 "));
  }
}

TEST_F(HttpServerTest, AnAnswerAfterTheServersEndIsDropped) {
  std::mutex mutex;
  std::optional<HttpDone> kept;
  serve({}, [&](const HttpRequest&, HttpDone done) {
    const std::lock_guard lock(mutex);
    kept = std::move(done);
  });
  Caller one = caller();
  one.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(until([&] {
    const std::lock_guard lock(mutex);
    return kept.has_value();
  }));
  io_.stop();
  thread_.join();
  server_.reset();
  (*kept)({.body = "late"});
  EXPECT_EQ(one.rest(), "");
}

TEST_F(HttpServerTest, APortThatIsTakenIsNamed) {
  serve_echo();
  HttpOptions options;
  options.host = "127.0.0.1";
  options.port = server_->port();
  const auto second = HttpServer::create(io_, options, {});
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(std::string(second.error().text()), HasSubstr("in use"));
  options.host = "localhost";
  EXPECT_EQ(HttpServer::create(io_, options, {}).error().code(), MC_INVALID_ARGUMENT);
}

TEST(HttpQuery, IsDecoded) {
  EXPECT_EQ(url_decoded("a%2Fb+c%zz%4"), "a/b c%zz%4");
  const std::map<std::string, std::string> expected = {{"a", "1=2"}, {"b", ""}, {"", "x"}};
  EXPECT_EQ(url_query("a=1=2&b&=x&a=3"), expected);
  EXPECT_TRUE(url_query("").empty());
}

class HttpToken : public ::testing::Test {
 protected:
  HttpToken() { clear(); }
  ~HttpToken() override { clear(); }
  static void clear() {
    ::unsetenv("MC_HTTP_TOKEN_FILE");
    ::unsetenv("ADMIN_API_KEY");
  }
  const auth::ClusterKey none_;
  const auth::ClusterKey key_ = *auth::ClusterKey::from_text(std::string(64, 'k'));
};

TEST_F(HttpToken, OfTheFileOrTheEnvironmentComesFirst) {
  const std::string path = ::testing::TempDir() + "mc_http_token." + std::to_string(::getpid());
  std::ofstream(path) << "of-the-file\r\nanother line\n";
  ::setenv("ADMIN_API_KEY", "of-the-environment", 1);
  EXPECT_EQ(*find_token("", "0.0.0.0", key_, false), "of-the-environment");
  EXPECT_EQ(*find_token(path, "127.0.0.1", key_, false), "of-the-file");
  ::setenv("MC_HTTP_TOKEN_FILE", path.c_str(), 1);
  EXPECT_EQ(*find_token("", "0.0.0.0", none_, false), "of-the-file");
  EXPECT_EQ(*find_token(path, "0.0.0.0", key_, true), "");
  std::ofstream(path).close();
  EXPECT_EQ(find_token(path, "127.0.0.1", key_, false).error().code(), MC_INVALID_ARGUMENT);
  ::unlink(path.c_str());
  EXPECT_EQ(find_token("", "127.0.0.1", none_, false).error().code(), MC_INVALID_ARGUMENT);
}

TEST_F(HttpToken, IsNeededBeyondLoopback) {
  for (const char* host : {"127.0.0.1", "127.3.2.1", "::1"}) {
    EXPECT_EQ(*find_token("", host, key_, false), "") << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "a-name"}) {
    EXPECT_EQ(*find_token("", host, key_, false), key_.http_token()) << host;
    const auto refused = find_token("", host, none_, false);
    ASSERT_FALSE(refused.has_value()) << host;
    EXPECT_THAT(std::string(refused.error().text()), HasSubstr("MC_HTTP_TOKEN_FILE"));
  }
}

}  // namespace
}  // namespace mc::http
