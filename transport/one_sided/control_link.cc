// SPDX-License-Identifier: Apache-2.0
#include "transport/one_sided/control_link.h"

#include <sys/socket.h>

#include <cerrno>

namespace mc::transport {

namespace {
constexpr std::size_t kMaxUnsentBytes = 256 * 1024;
constexpr std::size_t kReadBytes = 16 * 1024;
}  // namespace

bool ControlLink::send(std::span<const std::byte> message) {
  if (failed_) return false;
  if (out_.size() - sent_ + message.size() > kMaxUnsentBytes) {
    failed_ = true;
    return false;
  }
  out_.insert(out_.end(), message.begin(), message.end());
  return flush();
}

bool ControlLink::flush() {
  while (sent_ < out_.size()) {
    const ssize_t put =
        ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (put < 0) {
      failed_ = true;
      return false;
    }
    sent_ += static_cast<std::size_t>(put);
  }
  out_.clear();
  sent_ = 0;
  return true;
}

bool ControlLink::consume(const Sink& sink) {
  std::size_t at = 0;
  while (in_.size() - at >= kControlHeaderBytes) {
    const auto bytes = std::span<const std::byte>(in_).subspan(at);
    const auto header = decode_control_header(bytes.first(kControlHeaderBytes), protocol_);
    if (!header) return false;
    if (bytes.size() < kControlHeaderBytes + header->body_bytes) break;
    if (!sink(*header, bytes.subspan(kControlHeaderBytes, header->body_bytes))) return false;
    at += kControlHeaderBytes + header->body_bytes;
  }
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

bool ControlLink::work(const Sink& sink) {
  if (failed_ || !flush()) return false;
  for (;;) {
    const std::size_t had = in_.size();
    in_.resize(had + kReadBytes);
    const ssize_t got = ::recv(socket_.get(), in_.data() + had, kReadBytes, 0);
    in_.resize(had + static_cast<std::size_t>(got > 0 ? got : 0));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0 || !consume(sink)) {
      failed_ = true;
      return false;
    }
  }
}

}  // namespace mc::transport
