// SPDX-License-Identifier: Apache-2.0
//
// Another engine, found under a name.
//
//     kUnknown ──► kIntroducing ──► kReading ──► kReady ──┐ table out of date: kReading again
//        ▲              │               │           │     │
//        └──────────────┴───────────────┴───────────┴─────┘ lost: the next request starts anew
//
// Threads: under the engine's lock.
// Owns: the engine's knowledge of the peer.
// Trusts: the engine descriptor and the region table were decoded and checked.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "libmc/base/mutex.h"
#include "transport/engine/address.h"
#include "transport/engine/batch.h"
#include "transport/engine/local/same_host.h"
#include "transport/engine/wire/directory.h"
#include "transport/engine/wire/engine_descriptor.h"
#include "transport/transport.h"

namespace mc::transfer {

struct EnginePeer {
  enum class State : std::uint8_t { kUnknown, kIntroducing, kReading, kReady };

  std::uint64_t id = 0;  // mc_transfer_segment
  std::string name;
  Address address;
  bool probe = false;  // only the engine descriptor is wanted
  State state = State::kUnknown;
  std::uint64_t patient_until_ns = 0;  // until then, a slow introduction is repeated
  std::uint64_t introduced_ns = 0;     // start of the last introduction
  EngineDescriptor engine_descriptor{};
  Directory directory;            // the peer's region table
  std::uint64_t tables_read = 0;  // number of reads; grows when a fresh table arrived
  std::uint64_t losses = 0;       // number of losses; `failure` has the last reason
  Status failure;
  std::shared_ptr<SameHost> same_host;                  // null: over TCP
  transport::PeerId transport_id = transport::kNoPeer;  // kNoPeer: no lanes yet
  std::vector<std::byte> table_bytes;                   // target of the read in progress
  int torn_reads = 0;
  bool look_again = false;         // the table changed during the read in progress
  std::deque<RequestRef> waiting;  // requests that wait for the peer or its table
  std::uint32_t users = 0;         // calls that wait for the peer
  Condition changed;
};

}  // namespace mc::transfer
