// SPDX-License-Identifier: Apache-2.0
//
// The loop of one watch in etcd. The loop reads a stream of JSON lines. A broken stream
//   is opened again after the last delivered revision.
// Threads: run() is the body of a WatchLoop.
// Trusts: as etcd_answer.h. A line longer than kMaxEtcdWatchBytes counts as missed changes.
#pragma once

#include <memory>
#include <string>

#include "metadata/store/etcd/etcd_gateway.h"
#include "metadata/store/watch_loop.h"

namespace mc::metadata {

class EtcdWatch {
 public:
  EtcdWatch(std::shared_ptr<EtcdGateway> gateway, std::string cluster, std::string prefix,
            Revision position, WatchCallback callback)
      : gateway_(std::move(gateway)),
        cluster_(std::move(cluster)),
        prefix_(std::move(prefix)),
        position_(position),
        callback_(std::move(callback)) {}

  void run(const StopSignal& stop);

 private:
  // False: the stream must be opened again.
  bool on_bytes(std::string_view bytes, const StopSignal& stop);
  bool on_line(std::string_view line, const StopSignal& stop);

  const std::shared_ptr<EtcdGateway> gateway_;
  const std::string cluster_;
  const std::string prefix_;
  Revision position_;
  bool lost_ = false;     // the next stream starts at the present revision and says kRelist first
  bool refused_ = false;  // the last stream ended with an error of the server
  const WatchCallback callback_;
  std::string line_;  // the part of a line that has arrived
  Backoff backoff_;
};

}  // namespace mc::metadata
