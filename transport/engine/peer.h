// SPDX-License-Identifier: Apache-2.0
//
// What it is: another engine, found under a name.
//
//     kUnknown ──► kIntroducing ──► kReading ──► kReady ──┐ table out of date: kReading again
//        ▲              │               │           │     │
//        └──────────────┴───────────────┴───────────┴─────┘ lost: the next request begins anew
// Threads: under the engine's lock. Owns: what is known of the peer.
// Trusts: engine descriptor and table have been decoded.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transport/engine/address.h"
#include "transport/engine/directory.h"
#include "transport/engine/engine_descriptor.h"
#include "transport/engine/local/same_host.h"
#include "transport/transport.h"

namespace mc::transfer {

struct Peer {
  enum class State : std::uint8_t { kUnknown, kIntroducing, kReading, kReady };
  struct Waiting {
    std::uint32_t slot = 0;   // of the batch
    std::uint32_t index = 0;  // of the request
  };

  std::uint64_t id = 0;  // mc_transfer_segment
  std::string name;
  Address address;
  bool probe = false;  // asked for its engine descriptor only
  State state = State::kUnknown;
  std::uint64_t patient_until_ns = 0;  // so long an introduction that takes too long is repeated
  std::uint64_t introduced_ns = 0;     // when the last one began
  EngineDescriptor engine_descriptor{};
  Directory directory;
  std::uint64_t tables_read = 0;  // how often; a wait for a fresh one ends when it grows
  std::uint64_t losses = 0;       // how often it was lost; failure says why
  Status failure;
  std::shared_ptr<SameHost> same_host;                  // null: over TCP
  transport::PeerId transport_id = transport::kNoPeer;  // none: no lanes yet
  std::vector<std::byte> table_bytes;                   // a read of the table under way
  int torn_reads = 0;
  bool look_again = false;
  std::deque<Waiting> waiting;
  std::uint32_t users = 0;  // calls that wait for it
  std::condition_variable changed;
};

}  // namespace mc::transfer
