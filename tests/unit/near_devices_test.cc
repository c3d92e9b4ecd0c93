// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/peer/one_sided_way.h"

#include <gtest/gtest.h>

#include <array>

namespace mc::agent {
namespace {

TEST(NearDevices, AreThoseOfTheNodeThatTheMemoryIsOn) {
  transport::PriorityMatrix matrix;
  matrix.places["cpu:0"] = {{"mlx5_0", "mlx5_1"}, {"mlx5_2"}};
  matrix.places["cpu:1"] = {{"mlx5_2"}, {"mlx5_0", "mlx5_1"}};
  std::array<std::byte, 3> memory{};
  const NearDevices near = near_devices(
      matrix, [&](const std::byte* data) { return static_cast<int>(data - memory.data()); });
  // Bits are by place in this list. A place may be empty.
  const std::string devices[] = {"mlx5_2", "", "mlx5_0"};
  EXPECT_EQ(near(&memory[0], devices), 0b100u);
  EXPECT_EQ(near(&memory[1], devices), 0b001u);
  EXPECT_EQ(near(&memory[2], devices), ~std::uint64_t{0}) << "a node that nobody knows";
}

TEST(NearDevices, TheNodeOfAPageIsAskedOfTheKernel) {
  std::byte here{1};
  const int node = memory_node_of(&here);
  EXPECT_GE(node, -1);
  EXPECT_LT(node, 1024);
  EXPECT_EQ(memory_node_of(nullptr), -1);
}

}  // namespace
}  // namespace mc::agent
