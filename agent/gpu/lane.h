// SPDX-License-Identifier: Apache-2.0
//
// The worker's end of a client's lane (shm/device_lane.h): takes requests, and answers each of them
//   once.
// Threads: the worker's loop.
// Owns: the mappings of the lane and of the client's staging memory, and the client's bell.
// Trusts: nothing. Requests and ranges are checked; the client gets the rights that the agent named.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "agent/gpu/copier.h"
#include "agent/gpu/imports.h"
#include "agent/gpu/pinned_memory.h"
#include "libmc/base/fd.h"
#include "libmc/base/memory_file.h"
#include "shm/device_lane.h"

namespace mc::gpu {

class Lane {
 public:
  // client: the number of its session. file: a mapped DeviceLane. bell: the client's eventfd. socket:
  // brings descriptors of chunks. staging: null: the client has none.
  Lane(std::uint64_t client, Mapping file, Fd bell, Fd socket, PinnedMemory& pool,
       PinnedMemory* staging);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  std::uint64_t client() const { return client_; }
  // A request whose copies shall be submitted as a group. The imports count as used until finish().
  struct Started {
    shm::LaneRequest request{};
    std::vector<Copy> copies;
    std::vector<Imports::Name> used;
  };
  // Takes the next request that may start; a request without copies is answered at once. False: there
  // is none.
  bool take(Imports& imports, Started* started);
  void answer(const shm::LaneRequest& request, const Status& status);
  // True: requests wait for a stream of the client, which rings no bell.
  bool waits() const { return !waiting_.empty(); }
  // After the answers of a round, and a full fence: wakes the client if it sleeps.
  void wake_client();

  // The client rings the worker's bell after announce_sleep(); has_request() is looked at once more
  // after a full fence.
  void announce_sleep(bool asleep);
  bool has_request() const { return requests_.has_record(); }

 private:
  // The next request that may start. False: there is none.
  bool next(shm::LaneRequest* request);
  Status start(const shm::LaneRequest& request, Imports& imports, Started* started);
  Status add_chunks(const shm::LaneRequest& request, Imports& imports);
  Status add(const shm::LaneCopy& copy, Imports& imports, Started* started);
  shm::DeviceLane& shared() const { return *reinterpret_cast<shm::DeviceLane*>(file_.data()); }

  const std::uint64_t client_;
  const Mapping file_;
  const Fd bell_;
  const Fd socket_;
  PinnedMemory& pool_;
  PinnedMemory* const staging_;
  shm::RingConsumer requests_;
  shm::RingProducer completions_;
  std::vector<shm::LaneRequest> waiting_;  // for streams of the client
};

}  // namespace mc::gpu
