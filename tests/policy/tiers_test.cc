// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <json/reader.h>
#include <json/value.h>
#include <sys/wait.h>

#include <cstdio>
#include <memory>
#include <string>

namespace mc {
namespace {

// DRAM for 5,000 blocks, and an SSD for 37,500. LRU of 35,000 blocks in one tier reaches 0.929 of the optimum.
TEST(Tiers, RecordedConversationsReachTheirShareOfTheOptimumWithFewWrites) {
  FILE* const pipe =
      ::popen(MC_TEST_BIN "/mcctl replay " MC_TEST_DATA
                          "/conversation_trace.jsonl --embedded --workers 1 --json --no-report "
                          "--block-bytes 16KiB --capacity-blocks 5000 --ssd-bytes 614400000",
              "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  char text[4096];
  while (std::fgets(text, sizeof text, pipe) != nullptr) output += text;
  EXPECT_EQ(::pclose(pipe), 0);
  ASSERT_TRUE(output.starts_with('{')) << output;
  Json::Value json;
  const std::unique_ptr<Json::CharReader> reader(Json::CharReaderBuilder().newCharReader());
  ASSERT_TRUE(reader->parse(output.data(), output.data() + output.size(), &json, nullptr))
      << output;
  EXPECT_GE(json["optimum_share"].asDouble(), 0.94) << output;
  EXPECT_LE(json["ssd_write_amplification"].asDouble(), 1.3) << output;
  EXPECT_EQ(json["ssd_lost_blocks"].asUInt64(), 0u) << output;
  EXPECT_EQ(json["wrong_bytes"].asUInt64(), 0u) << output;
}

}  // namespace
}  // namespace mc
