// SPDX-License-Identifier: Apache-2.0
//
// Values of puts in memory of devices. The values of a request are copied to their room together, at once
//   or in the order of a stream. The sums are of the bytes in the room.
// Threads: as the channel.
// Trusts: the caller's pointers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "libmc/client/device/part_copies.h"
#include "libmc/client/session/channel.h"
#include "mc/mc.h"

namespace mc::client {

class DeviceValues {
 public:
  // number: the caller's, counting up. hash: of the key.
  void add(std::size_t number, std::vector<mc_span> room, std::uint64_t hash,
           const mc_slice* pieces, std::size_t piece_count);
  bool empty() const { return values_.empty(); }
  std::size_t size() const { return values_.size(); }
  std::size_t number(std::size_t i) const { return values_[i].number; }

  // Both return after the copies. Errors: those of PartCopies::run(); one bad value fails run() for all.
  Status run(Channel& channel) const;
  Status run_alone(Channel& channel, std::size_t i) const { return values_[i].copies.run(channel); }
  // The group awaits the copies. Errors: those of PartCopies::begin().
  Status begin(Client& client, Channel& channel, mc_stream stream,
               const std::shared_ptr<CopyGroup>& group) const;
  // REQUIRES: the value is copied.
  std::uint64_t sum(std::size_t i) const;

 private:
  struct Value {
    std::size_t number;
    std::vector<mc_span> room;
    std::uint64_t hash;
    std::uint64_t bytes;
    PartCopies copies;
  };
  PartCopies all() const;

  std::vector<Value> values_;
};

// Continues the sum over the first bytes of the room.
std::uint64_t sum_of_room(std::span<const mc_span> room, std::uint64_t sum, std::uint64_t bytes);

}  // namespace mc::client
