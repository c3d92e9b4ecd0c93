// SPDX-License-Identifier: Apache-2.0
//
// Copies in the order of a caller's stream. A copy begins after the stream's earlier work, and the
//   stream's later work begins after the copy. The calling thread does not wait.
//
//   stream:  earlier ─► ready = stamp      ┌─► done >= stamp ─► later
//   worker:                  └─► copies ───┘  done = stamp
//
//   The object's thread takes completions. After a failure, and after a worker's end, the thread copies
//   the bytes itself, and writes done.
//
//   A stream that waits for a dead worker would wait for ever, so the thread watches the workers.
// Threads: any.
// Owns: a lane for each device, and the copies under way.
// Trusts: the caller checks that the memory is there.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "libmc/base/mutex.h"
#include "libmc/client/device/lane_end.h"
#include "libmc/client/session/argument_arena.h"
#include "libmc/client/session/channel.h"
#include "libmc/client/session/connection.h"
#include "libmc/device/pinned_buffers.h"

namespace mc::client {

class Client;

// Copies that a caller awaits together.
class CopyGroup {
 public:
  // bell: an eventfd that the end of the last copy signals; none by default.
  explicit CopyGroup(Fd bell = Fd()) : bell_(std::move(bell)) {}
  void begin();
  void end(const Status& status);
  void fail(const Status& status);
  bool is_idle();
  // Returns when no copy is under way. Errors: the first failure.
  Status wait();
  // False: copies are still under way at the deadline.
  bool wait_until(std::uint64_t deadline_ns);
  // Returns and forgets the first failure.
  Status take_failure();

 private:
  const Fd bell_;
  Mutex mutex_;
  Condition ended_;
  unsigned under_way_ MC_GUARDED_BY(mutex_) = 0;
  Status failure_ MC_GUARDED_BY(mutex_);
};

class StreamCopies {
 public:
  struct Ending {
    std::vector<std::shared_ptr<CopyGroup>> groups;  // each awaits the copies
    std::shared_ptr<const void> keeps;               // freed after the copies
  };

  explicit StreamCopies(Client& client);
  StreamCopies(const StreamCopies&) = delete;
  StreamCopies& operator=(const StreamCopies&) = delete;
  // Waits for the copies under way.
  ~StreamCopies();

  // Where no worker can copy, the call returns after the copies. Errors: MC_INVALID_ARGUMENT (the stream
  // is being captured), MC_DEVICE_FAILED.
  Status begin(Channel& channel, int device, device::Direction direction,
               std::span<const device::DevicePiece> pieces, void* stream, const Ending& ending);

  // The reserved room of puts that ended before their copies.
  struct Left {
    std::shared_ptr<CopyGroup> group;
    std::uint64_t session = 0;  // serial of the session's memory
    std::vector<ReservationId> room;
  };
  void leave(Left left);
  // The room of this session whose copies have ended since.
  std::vector<ReservationId> take_left(std::uint64_t session);

 private:
  struct UnderWay {
    std::uint64_t request_id = 0;
    std::uint32_t slot = 0;
    std::uint32_t stamp = 0;
    std::uint32_t argument_offset = 0;
    device::Direction direction{};
    std::vector<device::DevicePiece> pieces;
    std::shared_ptr<Memory> memory;
    Ending ending;
    bool failed = false;  // the thread copies
  };
  struct Lane {
    int device = 0;
    std::unique_ptr<LaneEnd> end;
    std::uint64_t ready_at = 0;  // device addresses of the words
    std::uint64_t done_at = 0;
    ArgumentArena arguments{shm::kLaneArgumentBytes};
    std::vector<std::uint32_t> free_slots;
    std::vector<std::uint32_t> stamps;  // the last of each slot
    std::vector<void*> passed;          // events, for each slot: the stream has seen the last stamp
    std::uint64_t last_id = 0;
    std::list<UnderWay> under_way;  // in order
    bool ended = false;             // the lane stays, because streams may still look at its words
  };
  struct Own {  // for copies of the thread; made beforehand, because a stream waits for such a copy
    void* stream = nullptr;
    std::unique_ptr<device::PinnedBuffers> buffers;
  };

  // Of copies that fit in a request of a lane.
  Status begin_request(Channel& channel, int device, device::Direction direction,
                       const std::vector<device::DevicePiece>& pieces, void* stream,
                       const Ending& ending);
  Status send(int device, std::span<const shm::LaneCopy> copies, UnderWay made, void* stream);
  Lane* find_lane(int device, std::uint64_t session);
  Result<Lane*> lane_of(int device, std::uint64_t session);
  Status prepare_own(int device);
  static Status pin_words(Lane& lane);
  void run();
  // Both: false if nothing happened.
  bool take_completions() MC_REQUIRES(mutex_);
  bool copy_failed() MC_REQUIRES(mutex_);
  Status copy_here(int device, const UnderWay& copy) MC_REQUIRES(mutex_);
  void end(Lane& lane, std::list<UnderWay>::iterator at, const Status& status) MC_REQUIRES(mutex_);
  void sleep();

  Client& client_;
  Fd epoll_;
  Fd wake_;
  Mutex opening_;  // serialises the opening of lanes
  Mutex mutex_;
  Condition room_;  // a slot or arguments are free
  std::list<Lane> lanes_ MC_GUARDED_BY(mutex_);
  bool ending_ MC_GUARDED_BY(mutex_) = false;
  std::map<int, Own> own_ MC_GUARDED_BY(mutex_);
  std::vector<Left> left_ MC_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace mc::client
