// SPDX-License-Identifier: Apache-2.0
//
// The bytes of the file that a client and the worker of a GPU share.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>

#include "mc/status.h"
#include "shm/device_lane.h"
#include "unit/golden_file.h"

namespace mc::shm {
namespace {

LaneRequest sample(LaneOp op, std::uint32_t items, std::uint32_t bytes) {
  return {0x0102030405060708,
          static_cast<std::uint32_t>(op),
          items,
          64,
          bytes,
          0xa1a2a3a4,
          0xb1b2b3b4b5b6b7b8,
          op == LaneOp::kCopy ? 200U : 0U,
          op == LaneOp::kCopy ? 0xc1c2c3c4U : 0U,
          0};
}

template <typename T>
golden::Bytes bytes_of(const T& value) {
  golden::Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Offsets of the parts of the file, 64 bit each.
golden::Bytes offsets() {
  const std::uint64_t all[] = {offsetof(DeviceLane, header),
                               offsetof(DeviceLane, requests),
                               offsetof(DeviceLane, completions),
                               offsetof(DeviceLane, ready),
                               offsetof(DeviceLane, done),
                               offsetof(DeviceLane, arguments),
                               sizeof(DeviceLane)};
  return bytes_of(all);
}

std::map<std::string, golden::Bytes> lane_samples() {
  return {{"open_memory", bytes_of(sample(LaneOp::kOpenMemory, 0, kDeviceHandleBytes))},
          {"close_memory", bytes_of(sample(LaneOp::kCloseMemory, 0, 0))},
          {"copy", bytes_of(sample(LaneOp::kCopy, 2, 2 * sizeof(LaneCopy)))},
          {"add_chunks", bytes_of(sample(LaneOp::kAddChunks, 3, 24))},
          {"item", bytes_of(LaneCopy{7, 0x1000, 0x2000, 0x3000, 2, 1})},
          {"completion", bytes_of(LaneCompletion{0x0102030405060708, MC_BUSY, 0, {}})},
          {"offsets", offsets()}};
}

TEST(GoldenLane, RequestsAndPlacesHaveTheBytesOfVersionOne) {
  golden::compare("lane-v1.txt", lane_samples());
}

TEST(GoldenLane, TheDecoderReadsTheGoldenRequests) {
  const auto sections = golden::read("lane-v1.txt");
  for (const char* name : {"open_memory", "close_memory", "copy", "add_chunks"}) {
    RecordWords words{};
    std::memcpy(words.data(), sections.at(name).data(), sizeof words);
    const auto request = decode_lane_request(words);
    ASSERT_TRUE(request) << name;
    EXPECT_EQ(request->a, 0xa1a2a3a4u) << name;
  }
  const auto lane = std::make_unique<DeviceLane>();
  std::memcpy(lane->arguments + 64 + sizeof(LaneCopy), sections.at("item").data(),
              sizeof(LaneCopy));
  const auto item = read_copy(*lane, sample(LaneOp::kCopy, 2, 2 * sizeof(LaneCopy)), 1);
  ASSERT_TRUE(item);
  EXPECT_EQ(item->bytes, 0x3000u);
}

TEST(GoldenLane, ARequestOutsideItsBoundsIsNone) {
  const auto refused = [](auto change) {
    LaneRequest request = sample(LaneOp::kCopy, 2, 2 * sizeof(LaneCopy));
    change(request);
    return !decode_lane_request(std::bit_cast<RecordWords>(request));
  };
  EXPECT_FALSE(refused([](LaneRequest&) {}));
  EXPECT_TRUE(refused([](LaneRequest& r) { r.slot = kRingSlots; }));
  EXPECT_TRUE(refused([](LaneRequest& r) { r.item_count = 3; }));
  EXPECT_TRUE(refused([](LaneRequest& r) { r.item_count = 0; }));
  EXPECT_TRUE(refused([](LaneRequest& r) { r.argument_offset = kLaneArgumentBytes - 8; }));
  EXPECT_TRUE(refused([](LaneRequest& r) { r.argument_offset = ~0U; }));
  EXPECT_TRUE(refused([](LaneRequest& r) {
    r.op = static_cast<std::uint32_t>(LaneOp::kCloseMemory);  // with a stamp
  }));
}

}  // namespace
}  // namespace mc::shm
