// SPDX-License-Identifier: Apache-2.0
#include "shm/device_lane.h"

#include <bit>
#include <cstring>

namespace mc::shm {

std::optional<LaneRequest> decode_lane_request(const RecordWords& words) {
  const auto request = std::bit_cast<LaneRequest>(words);
  if (request.argument_offset > kLaneArgumentBytes ||
      request.argument_bytes > kLaneArgumentBytes - request.argument_offset) {
    return std::nullopt;
  }
  const bool copies = request.op == static_cast<std::uint32_t>(LaneOp::kCopy);
  if (request.slot >= kRingSlots || (request.stamp != 0 && !copies)) return std::nullopt;
  switch (static_cast<LaneOp>(request.op)) {
    case LaneOp::kOpenMemory:
      if (request.argument_bytes != kDeviceHandleBytes) return std::nullopt;
      return request;
    case LaneOp::kCloseMemory:
      return request;
    case LaneOp::kAddChunks:
      if (request.item_count == 0 || request.item_count > kMaxLaneChunks ||
          request.argument_bytes != request.item_count * sizeof(std::uint64_t)) {
        return std::nullopt;
      }
      return request;
    case LaneOp::kCopy:
      if (request.item_count == 0 || request.item_count > kMaxLaneCopies ||
          request.argument_bytes != request.item_count * sizeof(LaneCopy)) {
        return std::nullopt;
      }
      return request;
    default:
      return std::nullopt;
  }
}

std::optional<LaneCopy> read_copy(const DeviceLane& lane, const LaneRequest& request,
                                  std::uint32_t item) {
  LaneCopy copy;
  std::memcpy(&copy, lane.arguments + request.argument_offset + item * sizeof copy, sizeof copy);
  if (copy.to_device > 1 || (copy.memory != static_cast<std::uint32_t>(LaneMemory::kPool) &&
                             copy.memory != static_cast<std::uint32_t>(LaneMemory::kStaging))) {
    return std::nullopt;
  }
  return copy;
}

}  // namespace mc::shm
