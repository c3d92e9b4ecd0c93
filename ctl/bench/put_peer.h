// SPDX-License-Identifier: Apache-2.0
//
// What it is: batched puts, or copies of the same bytes, for a while: by this process and by a
// second client at the same time, which is a process of its own (with an embedded pool: a thread).
// Threads: one. A peer must be started before the process opens a client or starts a thread.
// Owns: the peer process. Trusts: the peer, which runs this file.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "ctl/bench/limits.h"
#include "libmc/base/fd.h"
#include "mc/status.h"

namespace mc::ctl {

struct PutOrder {
  bool copy_only = false;  // the limit: memcpy into the region instead of a put
  std::uint64_t object_bytes = 0;
  std::uint64_t batch = 1;
  double seconds = 0;
  std::uint64_t region_bytes = 0;
};

struct PutReport {
  mc_status status = MC_OK;
  double p50_ns = 0;  // of a batch
  double p99_ns = 0;
  double bytes_per_s = 0;
};

// REQUIRES: client is not null unless copy_only.
PutReport put_for_a_while(mc_client* client, const SharedRegion& region, const PutOrder& order);

struct PutPeerPlan {
  std::string agent;  // empty: libmc's default
  std::string name_space;
  std::uint64_t timeout_ns = 0;
};

class PutPeer {
 public:
  static Result<PutPeer> start(const PutPeerPlan& plan, const Fd& region_file);
  PutPeer(PutPeer&& other) noexcept;
  PutPeer& operator=(PutPeer&&) = delete;
  PutPeer(const PutPeer&) = delete;
  PutPeer& operator=(const PutPeer&) = delete;
  ~PutPeer();

  // The peer opens its client and maps the region at its first order; an order of 0 s does only
  // that.
  bool begin(const PutOrder& order);
  PutReport finish();

 private:
  PutPeer() = default;

  pid_t pid_ = 0;
  Fd orders_;
  Fd reports_;
};

}  // namespace mc::ctl
