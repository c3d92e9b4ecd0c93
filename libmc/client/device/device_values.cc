// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/device/device_values.h"

#include <algorithm>
#include <utility>

#include "libmc/base/checksum.h"

namespace mc::client {

using device::Direction;

void DeviceValues::add(std::size_t number, std::vector<mc_span> room, std::uint64_t hash,
                       const mc_slice* pieces, std::size_t piece_count) {
  std::uint64_t room_bytes = 0;
  std::uint64_t bytes = 0;
  for (const mc_span& span : room) room_bytes += span.size;
  for (std::size_t i = 0; i < piece_count; ++i) bytes += pieces[i].size;
  PartCopies copies(Direction::kFromDevice);
  copies.add(std::span<const mc_span>(room), room_bytes, 0, std::span(pieces, piece_count));
  values_.push_back({number, std::move(room), hash, bytes, std::move(copies)});
}

PartCopies DeviceValues::all() const {
  PartCopies copies(Direction::kFromDevice);
  for (const Value& value : values_) copies.append(value.copies);
  return copies;
}

Status DeviceValues::run(Channel& channel) const { return all().run(channel); }

Status DeviceValues::begin(Client& client, Channel& channel, mc_stream stream,
                           const std::shared_ptr<CopyGroup>& group) const {
  return all().begin(client, channel, stream, {{group}, nullptr});
}

std::uint64_t DeviceValues::sum(std::size_t i) const {
  return sum_of_room(values_[i].room, values_[i].hash, values_[i].bytes);
}

std::uint64_t sum_of_room(std::span<const mc_span> room, std::uint64_t sum, std::uint64_t bytes) {
  for (const mc_span& span : room) {
    const std::uint64_t part = std::min<std::uint64_t>(bytes, span.size);
    sum = checksum(sum, span.data, part);
    bytes -= part;
  }
  return sum;
}

}  // namespace mc::client
