// SPDX-License-Identifier: Apache-2.0
#include "agent/gpu/lane.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "libmc/base/failpoint.h"
#include "shm/doorbell.h"

namespace mc::gpu {

namespace {
constexpr std::uint32_t kEpoch = 1;  // a lane has a single worker
}

Lane::Lane(std::uint64_t client, Mapping file, Fd bell, Fd socket, PinnedMemory& pool,
           PinnedMemory* staging)
    : client_(client),
      file_(std::move(file)),
      bell_(std::move(bell)),
      socket_(std::move(socket)),
      pool_(pool),
      staging_(staging),
      requests_(shared().requests, kEpoch),
      completions_(shared().completions, kEpoch) {
  shared().header.epoch.store_release(kEpoch);
}

void Lane::announce_sleep(bool asleep) {
  if (asleep) {
    shm::announce_agent_sleep(shared().header);
  } else {
    shm::announce_agent_awake(shared().header);
  }
}

void Lane::answer(const shm::LaneRequest& request, const Status& status) {
  // After a failure the client copies the bytes itself before the stream goes on.
  if (request.stamp != 0 && status.ok()) {
    shared().done[request.slot].store_release(request.stamp);
    MC_FAILPOINT("gpu.stream_released");
  }
  const shm::LaneCompletion completion{request.request_id, status.code(), 0, {}};
  completions_.publish(std::bit_cast<shm::RecordWords>(completion));
}

void Lane::wake_client() {
  if (!shm::wake_client(shared().header)) return;
  const std::uint64_t one = 1;
  // The client has only an epoll over the eventfd, and cannot fill the counter.
  static_cast<void>(!::write(bell_.get(), &one, sizeof one));
}

bool Lane::next(shm::LaneRequest* request) {
  const auto may_start = [this](const shm::LaneRequest& each) {
    return each.stamp == 0 || shm::has_come(shared().ready[each.slot], each.stamp);
  };
  const auto at = std::find_if(waiting_.begin(), waiting_.end(), may_start);
  if (at != waiting_.end()) {
    *request = *at;
    waiting_.erase(at);
    return true;
  }
  shm::RecordWords words;
  while (waiting_.size() < shm::kRingSlots && requests_.poll(words)) {
    const auto decoded = shm::decode_lane_request(words);
    shm::LaneRequest malformed{};
    malformed.request_id = words[0];
    *request = decoded.value_or(malformed);
    if (!decoded || may_start(*request)) return true;
    waiting_.push_back(*request);
  }
  return false;
}

bool Lane::take(Imports& imports, Started* started) {
  *started = {};
  if (!next(&started->request)) return false;
  if (const Status status = start(started->request, imports, started); !status.ok()) {
    for (const Imports::Name& name : started->used) imports.done(name);
    started->copies.clear();
    answer(started->request, status);
  } else if (started->copies.empty()) {
    answer(started->request, {});
  }
  return true;
}

Status Lane::start(const shm::LaneRequest& request, Imports& imports, Started* started) {
  switch (static_cast<shm::LaneOp>(request.op)) {
    case shm::LaneOp::kOpenMemory: {
      device::IpcHandle handle{};
      std::memcpy(handle.bytes, shared().arguments + request.argument_offset, sizeof handle.bytes);
      return imports.open({client_, request.a}, handle, request.b);
    }
    case shm::LaneOp::kCloseMemory:
      imports.close({client_, request.a});
      return {};
    case shm::LaneOp::kAddChunks:
      return add_chunks(request, imports);
    case shm::LaneOp::kCopy:
      break;
    default:
      return MC_INVALID_ARGUMENT;
  }
  std::uint64_t bytes = 0;
  for (std::uint32_t item = 0; item < request.item_count; ++item) {
    const auto copy = shm::read_copy(shared(), request, item);
    if (!copy || copy->bytes > shm::kMaxLaneBytes - bytes) return MC_INVALID_ARGUMENT;
    bytes += copy->bytes;
    if (Status status = add(*copy, imports, started); !status.ok()) return status;
  }
  return {};
}

Status Lane::add_chunks(const shm::LaneRequest& request, Imports& imports) {
  const auto message = receive_message(socket_.get(), 1);
  if (!message || message->fds.size() != request.item_count) return MC_INVALID_ARGUMENT;
  std::uint64_t bytes[shm::kMaxLaneChunks];
  std::memcpy(bytes, shared().arguments + request.argument_offset, request.argument_bytes);
  return imports.add_chunks({client_, request.a}, request.b, message->fds,
                            std::span(bytes).first(request.item_count));
}

Status Lane::add(const shm::LaneCopy& copy, Imports& imports, Started* started) {
  const bool in_pool = copy.memory == static_cast<std::uint32_t>(shm::LaneMemory::kPool);
  PinnedMemory* const host = in_pool ? &pool_ : staging_;
  const bool to_device = copy.to_device != 0;
  if (host == nullptr || (!to_device && !host->is_writable())) return MC_PERMISSION_DENIED;
  const std::uint64_t size = host->size_bytes();
  if (copy.bytes > size || copy.host_offset > size - copy.bytes) return MC_INVALID_ARGUMENT;
  const Imports::Name name{client_, copy.allocation};
  const auto address = imports.use(name, copy.device_offset, copy.bytes);
  if (!address) return address.error();
  if (!started->copies.empty() && started->used.back() != name) started->copies.back().apart = true;
  started->used.push_back(name);
  for (std::uint64_t done = 0; done < copy.bytes;) {
    const std::uint64_t at = copy.host_offset + done;
    const std::uint64_t pinned = host->pinned_from(at);
    const std::uint64_t bytes = std::min(copy.bytes - done, pinned);
    if (bytes == 0) return {MC_BUSY, "the worker has not pinned this memory yet"};
    started->copies.push_back(
        {to_device, *address + done, host->data() + at, bytes, bytes == pinned});
    done += bytes;
  }
  return {};
}

}  // namespace mc::gpu
