// SPDX-License-Identifier: Apache-2.0
//
// The limits that a frame of a TCP lane must keep.
#include <gtest/gtest.h>

#include "transport/limits.h"
#include "transport/tcp/frame.h"

namespace mc::transport::tcp {
namespace {

constexpr std::uint64_t kId = 7;

bool accepted(const Frame& frame) {
  return decode_request(std::as_bytes(std::span(&frame, 1)), kId).has_value();
}

Frame sized(FrameKind kind, std::uint32_t size_bytes, std::uint32_t payload_bytes) {
  Frame frame = make_frame(kind, kId);
  frame.size_bytes = size_bytes;
  frame.payload_bytes = payload_bytes;
  return frame;
}

TEST(TcpFrame, ARequestHasTheBytesOfItsKindUpToTheLimit) {
  constexpr std::uint32_t kAll = ~std::uint32_t{0};
  for (const std::uint32_t bytes : {std::uint32_t{0}, kMaxSliceBytes + 1, kAll}) {
    EXPECT_FALSE(accepted(sized(FrameKind::kRead, bytes, 0))) << bytes;
    EXPECT_FALSE(accepted(sized(FrameKind::kWrite, 0, bytes))) << bytes;
  }
  for (const std::uint32_t bytes : {std::uint32_t{0}, kMaxNotificationBytes + 1, kAll}) {
    EXPECT_FALSE(accepted(sized(FrameKind::kNotify, 0, bytes))) << bytes;
  }
  for (const std::uint32_t bytes : {std::uint32_t{1}, kMaxSliceBytes}) {
    EXPECT_TRUE(accepted(sized(FrameKind::kRead, bytes, 0))) << bytes;
    EXPECT_TRUE(accepted(sized(FrameKind::kWrite, 0, bytes))) << bytes;
    EXPECT_FALSE(accepted(sized(FrameKind::kRead, bytes, 1))) << "a read brings no bytes";
    EXPECT_FALSE(accepted(sized(FrameKind::kWrite, 1, bytes))) << "a write asks for none";
  }
  for (const std::uint32_t bytes : {std::uint32_t{1}, kMaxNotificationBytes}) {
    EXPECT_TRUE(accepted(sized(FrameKind::kNotify, 0, bytes))) << bytes;
    EXPECT_FALSE(accepted(sized(FrameKind::kNotify, bytes, 1))) << bytes;
    EXPECT_FALSE(accepted(sized(FrameKind::kPing, 0, bytes))) << bytes;
  }
  EXPECT_TRUE(accepted(sized(FrameKind::kPing, 0, 0)));
}

TEST(TcpFrame, ACutNamesALaneOfThePeer) {
  Frame frame = sized(FrameKind::kCut, kMaxLanes - 1, 0);
  frame.serial = 1;
  EXPECT_TRUE(accepted(frame));
  frame.size_bytes = kMaxLanes;
  EXPECT_FALSE(accepted(frame)) << "no such lane";
  frame.size_bytes = 0;
  frame.serial = 0;
  EXPECT_FALSE(accepted(frame)) << "no such serial";
  frame.serial = 1;
  frame.payload_bytes = 1;
  EXPECT_FALSE(accepted(frame));
}

TEST(TcpFrame, FieldsOutOfPlaceEndTheLane) {
  const Frame sound = sized(FrameKind::kRead, 64, 0);
  ASSERT_TRUE(accepted(sound));
  const auto refused = [&](auto change) {
    Frame frame = sound;
    change(frame);
    return !accepted(frame);
  };
  EXPECT_TRUE(refused([](Frame& frame) { frame.magic ^= 1; }));
  EXPECT_TRUE(refused([](Frame& frame) { frame.kind = 6; }));
  EXPECT_TRUE(refused([](Frame& frame) { frame.kind = 65; })) << "a reply";
  EXPECT_TRUE(refused([](Frame& frame) { frame.outcome = 1; }));
  EXPECT_TRUE(refused([](Frame& frame) { frame.reserved0 = 1; }));
  EXPECT_TRUE(refused([](Frame& frame) { frame.reserved = 1; }));
  EXPECT_TRUE(refused([](Frame& frame) { frame.serial = 1; })) << "of writes and cuts alone";
  EXPECT_TRUE(refused([](Frame& frame) { ++frame.id; }));
  Frame notification = sized(FrameKind::kNotify, 0, 1);
  ASSERT_TRUE(accepted(notification));
  notification.region = 1;
  EXPECT_FALSE(accepted(notification)) << "a notification names no memory";
}

}  // namespace
}  // namespace mc::transport::tcp
