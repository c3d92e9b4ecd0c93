// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/redis/stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "libmc/base/clock.h"
#include "metadata/store/quiet_pipe.h"

namespace mc::metadata {
namespace {

constexpr std::size_t kReadBytes = 64u << 10;

std::string tls_words() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  if (error == 0) return "the server closed the connection";
  const char* const reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : "error " + std::to_string(error);
}

bool is_address(const std::string& host) {
  in6_addr buffer;
  return ::inet_pton(AF_INET, host.c_str(), &buffer) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &buffer) == 1;
}

}  // namespace

void Stream::Free::operator()(SSL* session) const { SSL_free(session); }

Result<StreamTls> StreamTls::open(const TlsFiles& files) {
  auth::TlsSettings settings;
  settings.cert = {"the URL's cert", files.cert};
  settings.key = {"the URL's key", files.key};
  settings.ca = {"the URL's ca", files.ca};
  settings.system_ca = true;
  settings.verify_peer = true;
  settings.allow_tls_1_2 = true;
  settings.finish = [](SSL_CTX* context) {
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return Status();
  };
  auto contexts = auth::TlsContexts::open(std::move(settings));
  if (!contexts) return fail(contexts.error());
  return StreamTls{std::move(*contexts), files.server_name};
}

Status Stream::wait(short events, std::uint64_t deadline_ns) const {
  pollfd waited{socket_.get(), events, 0};
  for (;;) {
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns) return {kOutcomeUnknown, "no answer by the deadline"};
    const std::uint64_t left_ms = (deadline_ns - now) / 1000000 + 1;
    ::poll(&waited, 1, static_cast<int>(std::min<std::uint64_t>(left_ms, 60000)));
    if (waited.revents != 0) return {};
  }
}

Status Stream::connect(const Address& address, std::uint64_t deadline_ns) {
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return {MC_NO_MEMORY, errno_text("socket", errno)};
  socket_.reset(fd);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) {
    return {};
  }
  if (errno != EINPROGRESS) return {kStoreUnavailable, errno_text("connect", errno)};
  if (Status status = wait(POLLOUT, deadline_ns); !status.ok()) {
    return {kStoreUnavailable, "connect: timed out"};
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? Status() : Status(kStoreUnavailable, errno_text("connect", error));
}

Status Stream::wait_for_tls(int result, std::uint64_t deadline_ns) {
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return wait(POLLIN, deadline_ns);
    case SSL_ERROR_WANT_WRITE:
      return wait(POLLOUT, deadline_ns);
    default:
      return {kOutcomeUnknown, "TLS: " + tls_words()};
  }
}

Status Stream::shake_hands(const StreamTls& tls, const std::string& host,
                           std::uint64_t deadline_ns) {
  const std::string& name = tls.server_name.empty() ? host : tls.server_name;
  session_.reset(SSL_new(tls.contexts->current().get()));
  SSL* const session = session_.get();
  if (session == nullptr || SSL_set_fd(session, socket_.get()) != 1) {
    return {MC_NO_MEMORY, "TLS: " + tls_words()};
  }
  if (is_address(name)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), name.c_str());
  } else {
    SSL_set_tlsext_host_name(session, name.c_str());
    SSL_set1_host(session, name.c_str());
  }
  const QuietPipe quiet;
  for (int result = 0; (result = SSL_connect(session)) != 1;) {
    if (Status status = wait_for_tls(result, deadline_ns); !status.ok()) {
      if (const std::string trouble = auth::certificate_trouble(session); !trouble.empty()) {
        return {MC_PERMISSION_DENIED, "TLS: the server's certificate was refused: " + trouble +
                                          "; check ca= and server_name="};
      }
      return {kStoreUnavailable, "TLS handshake: " + std::string(status.text()) +
                                     "; does the server speak TLS on this port?"};
    }
  }
  return {};
}

Result<Stream> Stream::open(Resolver& resolver, const Endpoint& endpoint, const StreamTls* tls,
                            std::uint64_t deadline_ns) {
  const auto addresses = resolver.resolve(endpoint, deadline_ns);
  if (!addresses) return fail(addresses.error());
  Status last(kStoreUnavailable, "no address");
  for (const Address& address : *addresses) {
    Stream stream;
    last = stream.connect(address, deadline_ns);
    if (!last.ok()) continue;
    if (tls != nullptr) last = stream.shake_hands(*tls, endpoint.host, deadline_ns);
    if (!last.ok()) return fail(last);
    return stream;
  }
  return fail(last);
}

bool Stream::quiet() const { return !wait_readable(socket_.get(), 0); }

Status Stream::write(std::string_view bytes, std::uint64_t deadline_ns) {
  const QuietPipe quiet;
  while (!bytes.empty()) {
    Status status;
    if (session_) {
      const int count = static_cast<int>(std::min<std::size_t>(bytes.size(), 1u << 24));
      const int done = SSL_write(session_.get(), bytes.data(), count);
      if (done > 0) bytes.remove_prefix(static_cast<std::size_t>(done));
      if (done <= 0) status = wait_for_tls(done, deadline_ns);
    } else {
      const ssize_t done = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (done >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(done));
      } else if (errno == EAGAIN) {
        status = wait(POLLOUT, deadline_ns);
      } else if (errno != EINTR) {
        status = {kOutcomeUnknown, errno_text("send", errno)};
      }
    }
    if (!status.ok()) return status;
  }
  return {};
}

Status Stream::read(std::string& to, std::uint64_t deadline_ns) {
  const QuietPipe quiet;
  std::array<char, kReadBytes> buffer;
  for (;;) {
    Status status;
    ssize_t got = 0;
    if (session_) {
      got = SSL_read(session_.get(), buffer.data(), static_cast<int>(buffer.size()));
      if (got <= 0) status = wait_for_tls(static_cast<int>(got), deadline_ns);
    } else {
      got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (got == 0) return {kOutcomeUnknown, "the server closed the connection"};
      if (got < 0 && errno == EAGAIN) {
        status = wait(POLLIN, deadline_ns);
      } else if (got < 0 && errno != EINTR) {
        status = {kOutcomeUnknown, errno_text("recv", errno)};
      }
    }
    if (!status.ok()) return status;
    if (got > 0) {
      to.append(buffer.data(), static_cast<std::size_t>(got));
      return {};
    }
  }
}

}  // namespace mc::metadata
