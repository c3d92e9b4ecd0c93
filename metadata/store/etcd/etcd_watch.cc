// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/etcd/etcd_watch.h"

#include <algorithm>

#include "metadata/store/etcd/etcd_answer.h"
#include "metadata/store/etcd/etcd_request.h"

namespace mc::metadata {

bool EtcdWatch::on_line(std::string_view line, const StopSignal& stop) {
  const auto message = decode_etcd_watch(line, cluster_);
  refused_ = !message;
  if (!message) return false;
  backoff_.reset();
  // A store with a lower revision than the watch's position has lost data.
  if (message->compacted || (message->created && message->revision < position_ && !lost_)) {
    lost_ = true;
    return false;
  }
  if (message->created && lost_) {
    lost_ = false;
    position_ = message->revision;
    callback_({WatchEvent::Kind::kRelist, {"", "", position_, kNoLease}});
  }
  if (message->created && position_ == 0) position_ = message->revision;
  for (const WatchEvent& event : message->events) {
    if (stop.stopped()) return false;
    callback_(event);
  }
  // Advance only now, because all changes of a revision come in one message.
  for (const WatchEvent& event : message->events) {
    position_ = std::max(position_, event.entry.revision);
  }
  return true;
}

bool EtcdWatch::on_bytes(std::string_view bytes, const StopSignal& stop) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (piece.size() > kMaxEtcdWatchBytes - line_.size()) {
      lost_ = true;
      return false;
    }
    line_ += piece;
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    const std::string line = std::move(line_);
    line_.clear();
    if (!line.empty() && !on_line(line, stop)) return false;
  }
  return true;
}

void EtcdWatch::run(const StopSignal& stop) {
  while (!stop.stopped()) {
    line_.clear();
    const Revision start = lost_ || position_ == 0 ? 0 : position_ + 1;
    const Status ended =
        gateway_->stream("/v3/watch", etcd_watch(cluster_ + prefix_, start), stop,
                         [&](long, std::string_view bytes) { return on_bytes(bytes, stop); });
    // Another member, and after an error another token, may succeed.
    if (!ended.ok() || refused_) gateway_->start_over(refused_);
    if (stop.wait_ms(backoff_.next_ms())) return;
  }
}

}  // namespace mc::metadata
