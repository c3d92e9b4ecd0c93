// SPDX-License-Identifier: Apache-2.0
//
// Gives a hot key another replica at another node, and releases the replica when the
//   key has cooled down.
//
//     locates ──► HotKeys ──window──► hot: a copy job, like repair's ──done──► an extra, remembered
//                                     cold for cool_ns: release, if enough other holders stay
//
// No promise depends on an extra. Repair does not replace it, the holder may evict it like any
// cached object, and a key that stays hot gets another extra. The list of extras is bounded and in
// memory. It ends with this master's leadership; holders later evict the forgotten extras.
// Threads: one; the directory's.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "metadata/placement/copy_job.h"
#include "metadata/placement/drain.h"
#include "metadata/placement/hot_keys.h"
#include "metadata/placement/placement.h"

namespace mc::metadata {

struct HotReplicaOptions {
  HotKeyOptions keys;
  CopyLimits limits{.max_in_flight = 32, .max_per_node = 4};
  std::uint32_t max_extras = 4096;
  // An extra is released if the key would not have been half hot without the extra for this long.
  std::uint64_t cool_ns = 30'000'000'000;
};

class HotReplicas {
 public:
  explicit HotReplicas(const HotReplicaOptions& options)
      : options_(options), keys_(options.keys), ledger_(options.limits) {}

  // A key was located. weight: the number of locates that this call stands for.
  void note(KeyHash hash, std::uint32_t weight) { keys_.note(hash, weight); }
  // At the end of a window: appends copies and releases. Otherwise does nothing.
  void advance(const Directory& directory, std::span<const NodeView> nodes, std::uint64_t now_ns,
               CopyAndRelease& orders);
  // A job ended. ok: the target's publish was applied.
  void finished(KeyHash hash, bool ok, std::uint64_t now_ns);
  void node_gone(NodeId node);

  [[nodiscard]] std::size_t extras() const { return extras_.size(); }
  [[nodiscard]] std::size_t in_flight() const { return ledger_.count(); }

 private:
  struct Extra {
    std::uint64_t version = 0;
    std::uint64_t warm_ns = 0;  // the last time that the extra was useful
  };

  void look_at_extras(const Directory& directory, std::span<const NodeView> nodes,
                      std::uint64_t now_ns, CopyAndRelease& orders);

  HotReplicaOptions options_;
  HotKeys keys_;
  CopyLedger ledger_;
  std::map<std::pair<KeyHash, NodeId>, Extra> extras_;
};

}  // namespace mc::metadata
