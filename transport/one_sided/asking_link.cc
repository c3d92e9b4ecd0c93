// SPDX-License-Identifier: Apache-2.0
#include "transport/one_sided/asking_link.h"

#include "transport/limits.h"
#include "transport/tcp/socket.h"

namespace mc::transport {

Status AskingLink::attach(Fd socket, std::uint64_t now_ns) {
  if (link_) return {MC_BUSY, "this peer has its link already"};
  Status status = tcp::prepare_lane(socket.get());
  if (!status.ok()) return status;
  status = edges_.watch(socket.get(), &watched_, Edges::Kind::kLink);
  if (!status.ok()) return status;
  link_ = std::make_unique<ControlLink>(std::move(socket), protocol_);
  rail_.on_up(0);
  introduced_ = false;
  pinging_ = false;
  heard_ns_ = now_ns;
  return {};
}

void AskingLink::dial_failed(std::uint64_t now_ns) {
  if (!link_) rail_.on_failed(0, now_ns);
}

void AskingLink::close() {
  if (!link_) return;
  edges_.forget(link_->socket(), &watched_);
  link_.reset();
  introduced_ = false;
}

void AskingLink::fail(std::uint64_t now_ns) {
  close();
  rail_.on_failed(0, now_ns);
}

AskingLink::Due AskingLink::due(std::uint64_t now_ns, bool was_away) {
  if (!link_) return rail_.probe(now_ns) ? Due::kDial : Due::kNothing;
  if (was_away) heard_ns_ = now_ns;
  const bool is_silent =
      pinging_ && now_ns >= heard_ns_ + kLaneDeadNs && now_ns >= pinged_ns_ + kLaneDeadNs;
  if (link_->failed() || is_silent) return Due::kFail;
  if (pinging_ || now_ns < pinged_ns_ + kHeartbeatNs) return Due::kNothing;
  pinging_ = true;
  pinged_ns_ = now_ns;
  return Due::kPing;
}

}  // namespace mc::transport
