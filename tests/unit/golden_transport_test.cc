// SPDX-License-Identifier: Apache-2.0
//
// The bytes of the agent-agent data contract, as agents of this version send them.
#include <gtest/gtest.h>

#include "transport/tcp/frame.h"
#include "transport/tcp/lane_hello.h"
#include "unit/golden_file.h"

namespace mc::transport::tcp {
namespace {

using golden::Sections;

LaneHello sample_hello() { return make_hello({0x1122334455667788, 5}, 0x99, 3, LaneRole::kBulk); }

LaneHello sample_rdma_hello() {
  return make_hello({0x1122334455667788, 5, feature_of(LinkProtocol::kRdma)}, 0x99, 0,
                    LaneRole::kSmall, LinkProtocol::kRdma);
}

Frame sample_read() {
  Frame frame = make_frame(FrameKind::kRead, 7);
  frame.region = 0xa1a2a3a4a5a6a7a8;
  frame.generation = 0xb1;
  frame.offset_bytes = 0xc1c2c3c4c5;
  frame.size_bytes = 0x00100000;
  frame.left_us = 5'000'000;
  return frame;
}

Frame sample_write() {
  Frame frame = sample_read();
  frame.kind = static_cast<std::uint16_t>(FrameKind::kWrite);
  frame.payload_bytes = frame.size_bytes;
  frame.size_bytes = 0;
  frame.serial = 0xd1d2d3;
  return frame;
}

Frame sample_cut() {
  Frame frame = make_frame(FrameKind::kCut, 9);
  frame.size_bytes = 3;
  frame.serial = 0xd1d2d3;
  return frame;
}

Frame sample_data() {
  Frame frame = make_frame(FrameKind::kData, 7);
  frame.payload_bytes = 0x1000;
  return frame;
}

Frame sample_refusal() {
  Frame frame = make_frame(FrameKind::kAnswer, 8);
  frame.outcome = static_cast<std::uint8_t>(Outcome::kStale);
  return frame;
}

std::map<std::string, golden::Bytes> samples() {
  return {{"hello", golden::bytes_of(sample_hello())},
          {"hello_rdma", golden::bytes_of(sample_rdma_hello())},
          {"read", golden::bytes_of(sample_read())},
          {"write", golden::bytes_of(sample_write())},
          {"cut", golden::bytes_of(sample_cut())},
          {"data", golden::bytes_of(sample_data())},
          {"refusal", golden::bytes_of(sample_refusal())},
          {"ping", golden::bytes_of(make_frame(FrameKind::kPing, 9))}};
}

TEST(GoldenTransport, FramesAndHelloHaveTheBytesOfVersionTwo) {
  golden::compare("transport-v2.txt", samples());
}

TEST(GoldenTransport, TheFilesBytesAreUnderstood) {
  Sections sections = golden::read("transport-v2.txt");
  EXPECT_TRUE(decode_hello(sections["hello"]));
  EXPECT_TRUE(decode_hello(sections["hello_rdma"]));
  EXPECT_TRUE(decode_request(sections["read"], 7));
  EXPECT_TRUE(decode_request(sections["write"], 7));
  EXPECT_TRUE(decode_request(sections["ping"], 9));
  EXPECT_TRUE(decode_request(sections["cut"], 9));
  EXPECT_TRUE(decode_reply(sections["data"], {FrameKind::kData, 7, 0x1000}));
  EXPECT_TRUE(decode_reply(sections["refusal"], {FrameKind::kAnswer, 8, 0}));
}

}  // namespace
}  // namespace mc::transport::tcp
