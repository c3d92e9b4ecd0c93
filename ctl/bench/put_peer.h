// SPDX-License-Identifier: Apache-2.0
//
// Batched puts, or copies of the same bytes, for a given time, by this process and by
//   a second client at the same time. The second client is a process; with an embedded pool, the
//   second client is a thread.
// Threads: a single thread. A peer must be started before the process opens a client or starts a
// thread.
// Owns: the peer process.
// Trusts: the peer, which runs this code.
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
  std::string agent;  // empty: the default of libmc
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

  // The peer opens a client and maps the region at the first order. An order of 0 s has
  // no other effect.
  bool begin(const PutOrder& order);
  PutReport finish();

 private:
  PutPeer() = default;

  pid_t pid_ = 0;
  Fd orders_;
  Fd reports_;
};

}  // namespace mc::ctl
