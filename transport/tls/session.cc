// SPDX-License-Identifier: Apache-2.0
#include "transport/tls/session.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "libmc/auth/tls_context.h"
#include "libmc/base/fd.h"

namespace mc::transport::tls {

namespace {

// The first byte of a record (RFC 8446, 5.1).
constexpr std::uint8_t kAlert = 21, kHandshake = 22;
// A fatal alert, protocol_version. A peer without TLS can distinguish these bytes from its own
// protocol.
constexpr std::array<std::uint8_t, 7> kPlainRefusal = {kAlert, 3, 1, 0, 2, 2, 70};

constexpr const char* kSpeaksPlain =
    "the peer does not speak TLS: give it peer_tls_cert, peer_tls_key and peer_tls_ca, or take "
    "them from this agent";

std::string reason() {
  const char* const text = ::ERR_reason_error_string(::ERR_peek_last_error());
  return text != nullptr ? text : "the connection ended";
}

// A buffer that gathers small parts into a record.
std::byte* gathering() {
  static thread_local std::array<std::byte, kRecordBytes> bytes;
  return bytes.data();
}

}  // namespace

OpenSslSession::OpenSslSession(ssl_st* ssl, int socket, bool dialer)
    : ssl_(ssl), socket_(socket), dialer_(dialer) {
  if (ssl_ == nullptr) return;
  BIO* const in = ::BIO_new_socket(socket, BIO_NOCLOSE);
  BIO* const out = ::BIO_new(::BIO_s_mem());
  ::SSL_set_bio(ssl_, in, out);
  if (dialer_) {
    ::SSL_set_connect_state(ssl_);
  } else {
    ::SSL_set_accept_state(ssl_);
  }
}

OpenSslSession::~OpenSslSession() { ::SSL_free(ssl_); }

bool OpenSslSession::fail(Status status, int error) {
  if (status_.ok()) status_ = std::move(status);
  ended_ = true;
  errno = error;
  return false;
}

// Peeks at the first byte. A peer without TLS receives seven bytes that its protocol recognises as
// TLS.
bool OpenSslSession::greets_in_tls() {
  std::uint8_t first = 0;
  const ssize_t got = ::recv(socket_, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0) {
    // No byte yet, or not connected yet: the handshake waits as well. If the peer hung up, the
    // handshake reports the error.
    const bool comes = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (comes || errno == ENOTCONN || errno == ECONNRESET) return true;
    return fail({MC_AGENT_UNAVAILABLE, errno_text("connection of a lane", errno)}, errno);
  }
  heard_ = got == 1;
  if (got == 0 || first == kHandshake || (dialer_ && first == kAlert)) return true;
  if (!dialer_) {
    ::send(socket_, kPlainRefusal.data(), kPlainRefusal.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // The kernel would reset the connection if bytes were left unread.
    std::array<std::byte, 512> unread;
    static_cast<void>(::recv(socket_, unread.data(), unread.size(), MSG_DONTWAIT));
  }
  return fail({MC_PERMISSION_DENIED, kSpeaksPlain}, EPROTO);
}

Status OpenSslSession::why_not_shaken(int error) const {
  if (const long verdict = ::SSL_get_verify_result(ssl_); verdict != X509_V_OK) {
    std::string text = "the peer's certificate is not accepted: " + auth::certificate_trouble(ssl_);
    if (verdict == X509_V_ERR_IP_ADDRESS_MISMATCH || verdict == X509_V_ERR_HOSTNAME_MISMATCH) {
      text += "; its subjectAltName must name the address it advertises, or set peer_tls_name";
    } else {
      text += "; is it signed by peer_tls_ca?";
    }
    return {MC_PERMISSION_DENIED, text};
  }
  if (error == SSL_ERROR_SYSCALL || ::ERR_peek_last_error() == 0 ||
      ERR_GET_REASON(::ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    return {MC_AGENT_UNAVAILABLE,
            "the peer hung up during the TLS handshake; its log says why (no peer_tls_cert, "
            "peer_tls_key and peer_tls_ca there, or another peer_tls_ca)"};
  }
  return {MC_PERMISSION_DENIED,
          "TLS: " + reason() + "; have both agents certificates of the same peer_tls_ca?"};
}

tcp::TlsSession::Shaken OpenSslSession::shake() {
  if (ssl_ == nullptr) {
    fail({MC_NO_MEMORY, "OpenSSL has no room for a session"}, ENOMEM);
    return Shaken::kFailed;
  }
  if (!status_.ok()) return Shaken::kFailed;
  if (!heard_ && !greets_in_tls()) return Shaken::kFailed;
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(ssl_);
  const int error = result == 1 ? SSL_ERROR_NONE : ::SSL_get_error(ssl_, result);
  if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ) {
    fail(why_not_shaken(error), EPROTO);
    static_cast<void>(flush());  // sends an alert with the cause
    return Shaken::kFailed;
  }
  // A socket that is not connected yet counts as full.
  if (!flush()) return Shaken::kFailed;
  return error == SSL_ERROR_NONE && !has_unsent() ? Shaken::kDone : Shaken::kWaits;
}

ssize_t OpenSslSession::receive(std::span<const iovec> to) {
  std::size_t taken = 0;
  for (const iovec& part : to) {
    auto* const base = static_cast<std::byte*>(part.iov_base);
    for (std::size_t at = 0; at < part.iov_len;) {
      ::ERR_clear_error();
      std::size_t got = 0;
      const int result = ::SSL_read_ex(ssl_, base + at, part.iov_len - at, &got);
      if (result == 1) {
        at += got;
        taken += got;
        continue;
      }
      const int error = ::SSL_get_error(ssl_, result);
      if (error != SSL_ERROR_WANT_READ) {
        fail({MC_AGENT_UNAVAILABLE, "TLS: " + reason()}, EPROTO);
      } else if (taken == 0) {
        errno = EAGAIN;
      }
      return taken > 0 ? static_cast<ssize_t>(taken) : -1;
    }
  }
  return static_cast<ssize_t>(taken);
}

std::span<const std::byte> OpenSslSession::unsent() const {
  char* data = nullptr;
  const long size = BIO_get_mem_data(::SSL_get_wbio(ssl_), &data);
  return {reinterpret_cast<const std::byte*>(data) + sent_, static_cast<std::size_t>(size) - sent_};
}

bool OpenSslSession::has_unsent() const { return ssl_ != nullptr && !unsent().empty(); }

bool OpenSslSession::flush() {
  while (true) {
    const std::span<const std::byte> left = unsent();
    if (left.empty()) break;
    const ssize_t put = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) return true;
    if (put < 0) return fail({MC_AGENT_UNAVAILABLE, errno_text("send of TLS", errno)}, errno);
    sent_ += static_cast<std::size_t>(put);
  }
  if (sent_ > 0) static_cast<void>(BIO_reset(::SSL_get_wbio(ssl_)));
  sent_ = 0;
  return true;
}

bool OpenSslSession::write_record(const void* from, std::size_t bytes) {
  ::ERR_clear_error();
  if (++records_ % kRecordsPerKey == 0) ::SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);
  std::size_t put = 0;
  // The record goes to memory, so OpenSSL takes all bytes.
  if (::SSL_write_ex(ssl_, from, bytes, &put) == 1 && put == bytes) return true;
  return fail({MC_AGENT_UNAVAILABLE, "TLS: " + reason()}, EPROTO);
}

ssize_t OpenSslSession::send(std::span<const iovec> from) {
  if (!flush()) return -1;
  std::size_t taken = 0;
  std::size_t gathered = 0;
  std::byte* const record = gathering();
  for (const iovec& part : from) {
    const auto* at = static_cast<const std::byte*>(part.iov_base);
    for (std::size_t left = part.iov_len; left > 0;) {
      if (unsent().size() >= kBatchBytes) {
        if (!flush()) return -1;
        if (unsent().size() >= kBatchBytes) {
          // The gathered part has not been sent.
          if (taken == 0) errno = EAGAIN;
          return taken > 0 ? static_cast<ssize_t>(taken) : -1;
        }
      }
      const std::size_t size = std::min(left, kRecordBytes - gathered);
      if (size == kRecordBytes) {
        if (!write_record(at, size)) return -1;
        taken += size;
      } else {
        std::memcpy(record + gathered, at, size);
        gathered += size;
        if (gathered == kRecordBytes) {
          if (!write_record(record, gathered)) return -1;
          taken += std::exchange(gathered, 0);
        }
      }
      at += size;
      left -= size;
    }
  }
  if (gathered > 0) {
    if (!write_record(record, gathered)) return -1;
    taken += gathered;
  }
  if (!flush()) return -1;
  return static_cast<ssize_t>(taken);
}

std::string OpenSslSession::binding() const {
  std::string binding(32, '\0');
  constexpr std::string_view kLabel = "EXPERIMENTAL-mc-lane";
  if (::SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(binding.data()),
                                   binding.size(), kLabel.data(), kLabel.size(), nullptr, 0,
                                   0) != 1) {
    binding.clear();
  }
  return binding;
}

}  // namespace mc::transport::tls
