// SPDX-License-Identifier: Apache-2.0
//
// TLS 1.3 over a socket, by OpenSSL. The session makes many records in memory and sends
//   all of them in one system call. Large parts are encrypted in place from the pool; small parts
//   are first gathered into records. The session replaces keys long before the limit.
//
//     send: vectors ─► records of 16 KiB ─► SSL_write ─► out_ ─► send
//     receive: recv of up to 64 KiB ─► SSL_read ─► vectors
//
// Threads: the socket's owner.
// Owns: the session, not the socket.
// Trusts: only bytes that OpenSSL has verified.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/tcp/wire.h"

struct ssl_st;

namespace mc::transport::tls {

inline constexpr std::size_t kRecordBytes = 16 * 1024;
// Bytes of records in one system call.
inline constexpr std::size_t kBatchBytes = 64 * 1024;
// AES-GCM allows 2^24.5 records under one key (RFC 8446, 5.5).
inline constexpr std::uint64_t kRecordsPerKey = 1u << 18;

class OpenSslSession final : public tcp::TlsSession {
 public:
  // Takes ssl; null: there was no memory for a session.
  OpenSslSession(ssl_st* ssl, int socket, bool dialer);
  ~OpenSslSession() override;

  Shaken shake() override;
  ssize_t receive(std::span<const iovec> to) override;
  bool has_ended() const override { return ended_; }
  ssize_t send(std::span<const iovec> from) override;
  bool has_unsent() const override;
  bool flush() override;
  std::string binding() const override;
  const Status& status() const override { return status_; }

 private:
  // Both return false on failure, with status() and errno.
  bool write_record(const void* from, std::size_t bytes);
  bool greets_in_tls();
  bool fail(Status status, int error);
  Status why_not_shaken(int error) const;
  // Encrypted bytes that are not sent yet.
  std::span<const std::byte> unsent() const;

  ssl_st* const ssl_;
  const int socket_;
  const bool dialer_;
  bool ended_ = false;
  bool heard_ = false;    // the peer's first byte has come and belongs to TLS
  std::size_t sent_ = 0;  // sent bytes of the session's memory
  std::uint64_t records_ = 0;
  Status status_;
};

}  // namespace mc::transport::tls
