// SPDX-License-Identifier: Apache-2.0
//
// A client's request in progress: its items, and the results that the client reads.
// Threads: the agent's loop.
// Owns: nothing in the pool. The Server gives back a reservation of the request.
// Trusts: nothing; an item is copied, then checked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/server/remote_request.h"
#include "agent/server/session.h"
#include "shm/messages.h"

namespace mc::agent {

// The items before `next` are done.
struct Work {
  // A member of a staged group, copied into a reservation and not yet published.
  struct Copied {
    std::string key;
    PutOrder order;  // without a valid key
  };
  // Progress of the current item towards another host: the summed bytes, the pending request and
  // the time of the next attempt.
  struct Elsewhere {
    std::uint64_t summed_bytes = 0;
    std::uint64_t sum = 0;
    std::shared_ptr<RemoteRequest> remote_request;
    std::uint64_t next_ns = 0;
  };
  static constexpr shm::ItemResult kNothing{MC_OK, shm::kNoRefill, 0, 0};

  // The order of an item of a put, without a reservation that was checked.
  static PutOrder order_of(const shm::ArgumentReader::Item& item, const shm::Request& request);
  PutOrder order() const { return order_of(item, request); }

  // Copies the next item, unless an item waits. False: there is none, or the key belongs to the cluster.
  bool next_item();
  // Writes the result of the current item.
  void finish_item(mc_status status, shm::ItemResult result = kNothing);
  // The cluster has refused a put whose result is written already.
  void override_result(const RemoteRequest::Item& changed);
  // From the deadline on, the client may write other bytes to its staging memory. Bytes that were read
  // by then are the object's.
  bool is_late() const;
  // True if the item has a key and its bytes lie in the session's staging memory.
  bool item_is_sound() const;

  Session* session = nullptr;
  std::uint32_t channel = 0;
  shm::Request request{};
  shm::ArgumentReader reader;
  std::uint32_t next = 0;
  mc_status first_failure = MC_OK;
  shm::ItemResult last{};
  // The waiting item, and the number of its copied bytes (kPutStaged).
  bool has_item = false;
  shm::ArgumentReader::Item item;
  std::uint64_t copied_bytes = 0;
  std::uint64_t sum = 0;
  std::uint32_t entry = shm::kNoRefill;
  std::vector<Copied> group{};
  std::shared_ptr<RemoteRequest> remote_request{};  // the part of the work that the cluster does
  std::shared_ptr<RemoteRequest> replicas{};        // the part that comes after that one
  std::shared_ptr<RemoteRequest> forgets{};         // the part of the disks, which has begun
  std::uint64_t begun_ns = 0;                       // start of the item's wait for room
  std::uint64_t waits_since_ns = 0;                 // 0: the request has not waited
  Elsewhere elsewhere{};
};

}  // namespace mc::agent
