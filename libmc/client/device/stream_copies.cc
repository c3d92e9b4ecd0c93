// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/device/stream_copies.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "libmc/base/clock.h"
#include "libmc/client/client.h"
#include "libmc/client/device/device_copies.h"
#include "libmc/client/device/worker_lane.h"

namespace mc::client {

using device::Calls;
using device::DevicePiece;
using device::Direction;
using device::Driver;

namespace {

constexpr int kLookMs = 1;  // between looks at streams whose worker has ended

std::byte* words_of(const LaneEnd& end) {
  return reinterpret_cast<std::byte*>(&end.lane().ready[0]);
}
constexpr std::size_t kWordsBytes =
    offsetof(shm::DeviceLane, arguments) - offsetof(shm::DeviceLane, ready);

}  // namespace

// ---- Groups -------------------------------------------------------------------------------------

void CopyGroup::begin() {
  const MutexLock lock(mutex_);
  ++under_way_;
}

void CopyGroup::end(const Status& status) {
  const MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = status;
  if (--under_way_ != 0) return;
  ended_.notify_all();
  if (bell_) signal_eventfd(bell_.get());
}

void CopyGroup::fail(const Status& status) {
  const MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = status;
}

Status CopyGroup::wait() {
  const MutexLock lock(mutex_);
  ended_.wait(mutex_, [&]() MC_REQUIRES(mutex_) { return under_way_ == 0; });
  return failure_;
}

bool CopyGroup::is_idle() {
  const MutexLock lock(mutex_);
  return under_way_ == 0;
}

bool CopyGroup::wait_until(std::uint64_t deadline_ns) {
  const MutexLock lock(mutex_);
  const std::uint64_t now = now_ns();
  const std::chrono::nanoseconds left(deadline_ns > now ? deadline_ns - now : 0);
  return ended_.wait_for(mutex_, left, [&]() MC_REQUIRES(mutex_) { return under_way_ == 0; });
}

Status CopyGroup::take_failure() {
  const MutexLock lock(mutex_);
  return std::exchange(failure_, {});
}

// ---- Begin --------------------------------------------------------------------------------------

StreamCopies::StreamCopies(Client& client)
    : client_(client), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (auto wake = make_eventfd()) wake_ = std::move(*wake);
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = wake_.get()}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  thread_ = std::thread([this] { run(); });
}

StreamCopies::~StreamCopies() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  signal_eventfd(wake_.get());
  thread_.join();
  const Calls& calls = Driver::found()->calls();
  for (const Lane& lane : lanes_) {
    const device::Current current(*Driver::found(), lane.device);
    for (void* const event : lane.passed) {
      if (event == nullptr) continue;
      static_cast<void>(calls.event_synchronize(event));
      static_cast<void>(calls.event_destroy(event));
    }
    static_cast<void>(calls.host_unregister(words_of(*lane.end)));
  }
  for (const auto& [device, own] : own_) {
    const device::Current current(*Driver::found(), device);
    static_cast<void>(calls.stream_destroy(own.stream));
  }
}

Status StreamCopies::begin(Channel& channel, int device, Direction direction,
                           std::span<const DevicePiece> pieces, void* stream,
                           const Ending& ending) {
  {
    const device::Current current(*Driver::found(), device);
    if (!current.status().ok()) return current.status();
    int capture = 0;
    const Status known = Driver::found()->call<&Calls::stream_is_capturing>(stream, &capture);
    if (!known.ok()) return known;
    if (capture != 0) {
      return {MC_INVALID_ARGUMENT, "the stream is being captured; a graph holds no copies of mc"};
    }
  }
  std::vector<DevicePiece> request;
  std::uint64_t bytes = 0;
  const auto flush = [&] {
    const Status status = begin_request(channel, device, direction, request, stream, ending);
    request.clear();
    bytes = 0;
    return status;
  };
  for (const DevicePiece& piece : pieces) {
    for (std::uint64_t done = 0; done < piece.bytes;) {
      const std::uint64_t part = std::min(piece.bytes - done, shm::kMaxLaneBytes - bytes);
      request.push_back({piece.device + done, piece.host + done, part});
      done += part;
      bytes += part;
      if (bytes < shm::kMaxLaneBytes && request.size() < shm::kMaxLaneCopies) continue;
      if (Status status = flush(); !status.ok()) return status;
    }
  }
  return request.empty() ? Status() : flush();
}

Status StreamCopies::begin_request(Channel& channel, int device, Direction direction,
                                   const std::vector<DevicePiece>& pieces, void* stream,
                                   const Ending& ending) {
  std::vector<shm::LaneCopy> copies;
  Status refusal = channel.devices().prepare(device, direction, pieces, copies);
  if (refusal.ok()) {
    UnderWay made;
    made.direction = direction;
    made.pieces = pieces;
    made.memory = channel.shared_memory();
    made.ending = ending;
    refusal = send(device, copies, std::move(made), stream);
  }
  if (refusal.ok()) {
    channel.count_worker_copy(device::bytes_of(pieces));
    return {};
  }
  Status status = channel.devices().copy_here(device, direction, pieces, stream);
  if (status.ok()) channel.devices().count_refusal(device::bytes_of(pieces), refusal);
  return status;
}

StreamCopies::Lane* StreamCopies::find_lane(int device, std::uint64_t session) {
  const MutexLock lock(mutex_);
  const auto known = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.device == device && lane.end->worker().session == session && !lane.ended;
  });
  return known == lanes_.end() ? nullptr : &*known;
}

// Pinning may wait for streams, and the thread may have to let these streams go on: without the lock.
Result<StreamCopies::Lane*> StreamCopies::lane_of(int device, std::uint64_t session) {
  if (Lane* const known = find_lane(device, session)) return known;
  const MutexLock opening(opening_);
  if (Lane* const known = find_lane(device, session)) return known;
  const Driver& driver = *Driver::found();
  device::Uuid uuid{};
  if (Status status = driver.call<&Calls::get_device_uuid>(&uuid, device); !status.ok()) {
    return fail(status);
  }
  if (Status status = prepare_own(device); !status.ok()) return fail(status);
  auto end = client_.open_lane(uuid);
  if (!end) return fail(end.error());
  Lane lane;
  lane.device = device;
  lane.end = std::move(*end);
  if (Status status = pin_words(lane); !status.ok()) return fail(status);
  lane.stamps.assign(shm::kRingSlots, 0);
  lane.passed.assign(shm::kRingSlots, nullptr);
  for (std::uint32_t slot = 0; slot < shm::kRingSlots; ++slot) lane.free_slots.push_back(slot);
  const MutexLock lock(mutex_);
  lanes_.push_back(std::move(lane));
  const LaneEnd& opened = *lanes_.back().end;
  for (const int fd : {opened.bell(), opened.ends()[0], opened.ends()[1]}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  lanes_.back().end->expect_bell();  // the thread sleeps
  return &lanes_.back();
}

Status StreamCopies::prepare_own(int device) {
  {
    const MutexLock lock(mutex_);
    if (own_.contains(device)) return {};
  }
  const Driver& driver = *Driver::found();
  const device::Current current(driver, device);
  if (!current.status().ok()) return current.status();
  Own own;
  auto buffers = device::PinnedBuffers::create(driver, device);
  if (!buffers) return buffers.error();
  own.buffers = std::move(*buffers);
  Status status = driver.call<&Calls::stream_create>(&own.stream, device::kNonBlocking);
  if (!status.ok()) return status;
  const MutexLock lock(mutex_);
  own_.emplace(device, std::move(own));
  return {};
}

// The driver writes and reads the words of the lane.
Status StreamCopies::pin_words(Lane& lane) {
  const Driver& driver = *Driver::found();
  const device::Current current(driver, lane.device);
  if (!current.status().ok()) return current.status();
  void* const words = words_of(*lane.end);
  Status status = driver.call<&Calls::host_register>(words, kWordsBytes,
                                                     device::kPortable | device::kDeviceMap);
  if (!status.ok()) return status;
  status = driver.call<&Calls::get_device_pointer>(&lane.ready_at, words, 0U);
  if (!status.ok()) static_cast<void>(driver.calls().host_unregister(words));
  lane.done_at = lane.ready_at + offsetof(shm::DeviceLane, done) - offsetof(shm::DeviceLane, ready);
  return status;
}

Status StreamCopies::send(int device, std::span<const shm::LaneCopy> copies, UnderWay made,
                          void* stream) {
  const Driver& driver = *Driver::found();
  const device::Current current(driver, device);
  if (!current.status().ok()) return current.status();
  const auto found = lane_of(device, made.memory->serial);
  if (!found) return found.error();
  const MutexLock lock(mutex_);
  Lane& lane = **found;
  const auto arguments = std::as_bytes(copies);
  std::optional<std::uint32_t> offset;
  room_.wait(mutex_, [&]() MC_REQUIRES(mutex_) {
    if (lane.ended) return true;
    if (lane.free_slots.empty()) return false;
    offset = lane.arguments.allocate(static_cast<std::uint32_t>(arguments.size()));
    return offset.has_value();
  });
  if (!offset) return {MC_AGENT_UNAVAILABLE, "the worker of the GPU has ended"};
  made.argument_offset = *offset;
  made.slot = lane.free_slots.back();
  made.stamp = ++lane.stamps[made.slot];
  if (made.stamp == 0) made.stamp = ++lane.stamps[made.slot];  // 0: no stamp
  made.request_id = ++lane.last_id;
  void*& passed = lane.passed[made.slot];
  Status status;
  if (passed == nullptr)
    status = driver.call<&Calls::event_create>(&passed, device::kWithoutTiming);
  if (status.ok()) {
    status = driver.call<&Calls::stream_write_value>(
        stream, lane.ready_at + made.slot * sizeof(shm::Word32), made.stamp, 0U);
  }
  if (!status.ok()) {
    lane.arguments.release(made.argument_offset);
    return status;
  }
  lane.free_slots.pop_back();
  shm::LaneRequest request = lane_request(shm::LaneOp::kCopy);
  request.request_id = made.request_id;
  request.item_count = static_cast<std::uint32_t>(copies.size());
  request.slot = made.slot;
  request.stamp = made.stamp;
  const std::uint64_t done_at = lane.done_at + made.slot * sizeof(shm::Word32);
  const std::uint32_t stamp = made.stamp;
  for (const auto& group : made.ending.groups) group->begin();
  lane.under_way.push_back(std::move(made));
  lane.end->publish(request, *offset, arguments);
  status = driver.call<&Calls::stream_wait_value>(stream, done_at, stamp, device::kAtLeast);
  if (status.ok()) status = driver.call<&Calls::event_record>(passed, stream);
  return status;
}

void StreamCopies::leave(Left left) {
  const MutexLock lock(mutex_);
  left_.push_back(std::move(left));
}

std::vector<ReservationId> StreamCopies::take_left(std::uint64_t session) {
  std::vector<ReservationId> room;
  const MutexLock lock(mutex_);
  std::erase_if(left_, [&](const Left& left) {
    if (!left.group->is_idle()) return false;
    if (left.session == session) room.insert(room.end(), left.room.begin(), left.room.end());
    return true;
  });
  return room;
}

// ---- The thread ---------------------------------------------------------------------------------

void StreamCopies::run() {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      bool busy = take_completions();
      busy |= copy_failed();
      const bool idle = std::all_of(lanes_.begin(), lanes_.end(),
                                    [](const Lane& lane) { return lane.under_way.empty(); });
      if (ending_ && idle) break;
      if (busy) continue;
      for (const Lane& lane : lanes_) {
        if (!lane.ended) lane.end->expect_bell();
      }
      if (take_completions()) continue;
    }
    sleep();
  }
}

void StreamCopies::sleep() {
  bool fails = false;
  {
    const MutexLock lock(mutex_);
    for (const Lane& lane : lanes_) {
      for (const UnderWay& copy : lane.under_way) fails |= copy.failed;
    }
  }
  epoll_event events[16];
  static_cast<void>(::epoll_wait(epoll_.get(), events, 16, fails ? kLookMs : -1));
  const MutexLock lock(mutex_);
  for (const Lane& lane : lanes_) {
    if (!lane.ended) lane.end->take_bell();
  }
}

bool StreamCopies::take_completions() {
  bool any = false;
  for (Lane& lane : lanes_) {
    // After the end there are no further completions.
    if (lane.ended) continue;
    const bool ended = lane.end->has_ended();
    while (const auto completion = lane.end->poll()) {
      const auto at = std::find_if(
          lane.under_way.begin(), lane.under_way.end(),
          [&](const UnderWay& copy) { return copy.request_id == completion->request_id; });
      if (at == lane.under_way.end()) continue;
      any = true;
      if (status_of(*completion) == MC_OK) {
        end(lane, at, {});
      } else {
        at->failed = true;
      }
    }
    if (!ended) continue;
    any = true;
    lane.ended = true;
    for (const int fd : {lane.end->bell(), lane.end->ends()[0], lane.end->ends()[1]}) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    }
    for (auto at = lane.under_way.begin(); at != lane.under_way.end();) {
      const auto copy = at++;
      // The worker wrote done after the bytes, and ended before the completion. The stream has gone on.
      if (shm::has_come(lane.end->lane().done[copy->slot], copy->stamp)) {
        end(lane, copy, {});
      } else {
        copy->failed = true;
      }
    }
    room_.notify_all();
  }
  return any;
}

// Copies what no worker has copied, for streams that have come to the copies.
bool StreamCopies::copy_failed() {
  bool any = false;
  for (Lane& lane : lanes_) {
    for (auto at = lane.under_way.begin(); at != lane.under_way.end();) {
      const auto copy = at++;
      if (!copy->failed) continue;
      shm::DeviceLane& words = lane.end->lane();
      if (!shm::has_come(words.ready[copy->slot], copy->stamp)) continue;
      any = true;
      const Status status = copy_here(lane.device, *copy);
      words.done[copy->slot].store_release(copy->stamp);
      end(lane, copy, status);
    }
  }
  return any;
}

Status StreamCopies::copy_here(int device, const UnderWay& copy) {
  // An agent that does not know the session may have given the room to others.
  if (copy.direction == Direction::kFromDevice &&
      client_.current().connection.memory != copy.memory) {
    return MC_SESSION_LOST;
  }
  const Own& own = own_.at(device);
  return own.buffers->copy(copy.direction, copy.pieces, own.stream);
}

void StreamCopies::end(Lane& lane, std::list<UnderWay>::iterator at, const Status& status) {
  lane.free_slots.push_back(at->slot);
  lane.arguments.release(at->argument_offset);
  at->ending.keeps.reset();
  for (const auto& group : at->ending.groups) group->end(status);
  lane.under_way.erase(at);
  room_.notify_all();
}

}  // namespace mc::client
