// SPDX-License-Identifier: Apache-2.0
#include "transport/topology/near_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace mc::transport {
namespace {

TEST(NearDevices, AreThoseOfTheNodeThatTheMemoryIsOn) {
  PriorityMatrix matrix;
  matrix.places["cpu:0"] = {{"mlx5_0", "mlx5_1"}, {"mlx5_2"}};
  matrix.places["cpu:1"] = {{"mlx5_2"}, {"mlx5_0", "mlx5_1"}};
  std::array<std::byte, 3> memory{};
  const NearDevices near = near_devices(
      matrix, [&](const std::byte* data) { return "cpu:" + std::to_string(data - memory.data()); });
  // Bits are by place in this list. A place may be empty.
  const std::string devices[] = {"mlx5_2", "", "mlx5_0"};
  EXPECT_EQ(near(&memory[0], devices), 0b100u);
  EXPECT_EQ(near(&memory[1], devices), 0b001u);
  EXPECT_EQ(near(&memory[2], devices), ~std::uint64_t{0}) << "a node that nobody knows";
}

TEST(NearDevices, TheNodeOfAPageIsAskedOfTheKernel) {
  std::byte here{1};
  EXPECT_THAT(place_of_page(&here), ::testing::MatchesRegex("cpu:(-1|[0-9]+)"));
  EXPECT_EQ(place_of_page(nullptr), "cpu:-1");
}

}  // namespace
}  // namespace mc::transport
