// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <json/reader.h>
#include <json/value.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace {

class Replay : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/mc-replay-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    directory_ = directory;
    std::ifstream whole(MC_TEST_DATA "/conversation_trace.jsonl");
    std::ofstream part(directory_ + "/trace.jsonl");
    std::string line;
    for (int i = 0; i < 1500 && std::getline(whole, line); ++i) part << line << '\n';
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // The output of mcctl replay for the first requests of the recorded hour.
  std::string run(const std::string& options, const std::string& errors = "2>&1") {
    const std::string command = "cd " + directory_ +
                                " && " MC_TEST_BIN "/mcctl replay trace.jsonl " + options + " " +
                                errors;
    FILE* const pipe = ::popen(command.c_str(), "r");
    std::string output;
    char text[4096];
    while (std::fgets(text, sizeof text, pipe) != nullptr) output += text;
    const int status = ::pclose(pipe);
    exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return output;
  }
  // The report as JSON, by one worker with a pool in its process.
  Json::Value report(const std::string& options) {
    const std::string output = run("--embedded --workers 1 --json " + options, "");
    EXPECT_EQ(exit_status_, 0) << output;
    Json::Value json;
    const std::unique_ptr<Json::CharReader> reader(Json::CharReaderBuilder().newCharReader());
    const char* const end = output.data() + output.size();
    EXPECT_TRUE(output.starts_with('{') && reader->parse(output.data(), end, &json, nullptr))
        << output;
    return json;
  }

  std::string directory_;
  int exit_status_ = -1;
};

TEST_F(Replay, ByOneWorkerWithoutAnAgentIsRepeatable) {
  const std::string options = "--block-bytes 256 --capacity-blocks 500";
  const Json::Value first = report(options), second = report(options);
  EXPECT_EQ(first["wrong_bytes"].asUInt64(), 0u);
  EXPECT_GT(first["hit_refs"].asUInt64(), 0u);
  for (const char* name : {"block_refs", "hit_refs", "evictions"}) {
    EXPECT_EQ(first[name], second[name]) << name;
  }
}

TEST_F(Replay, WithAnSsdHitsInBothTiersAndLeavesNoFile) {
  const std::string pool = "--block-bytes 8KiB --capacity-blocks 500 --no-report ";
  const Json::Value dram = report(pool);
  std::filesystem::create_directory(directory_ + "/ssd");
  const Json::Value both = report(pool + "--ssd-bytes 64MiB --ssd-folder ssd");
  EXPECT_TRUE(std::filesystem::is_empty(directory_ + "/ssd"));
  EXPECT_EQ(both["wrong_bytes"].asUInt64(), 0u);
  EXPECT_GT(both["hit_refs"].asUInt64(), dram["hit_refs"].asUInt64());
  EXPECT_EQ(both["dram_hit_refs"].asUInt64() + both["ssd_hit_refs"].asUInt64(),
            both["hit_refs"].asUInt64());
  EXPECT_GT(both["ssd_hit_refs"].asUInt64(), 0u);
  EXPECT_EQ(both["reference_blocks"].asUInt64(), 500u + (64u << 20) / 8192);
  EXPECT_LE(both["hit_ratio"].asDouble(), both["optimum_hit_ratio"].asDouble());
  // A worker waits for the disk, so that the disk gets all that leaves the pool.
  EXPECT_EQ(both["ssd_lost_blocks"].asUInt64(), 0u);
  EXPECT_GT(both["ssd_dropped_blocks"].asUInt64(), 0u);
  EXPECT_EQ(both["ssd_demoted_bytes"].asUInt64(), both["ssd_demoted_blocks"].asUInt64() * 8192);
  EXPECT_GT(both["ssd_write_amplification"].asDouble(), 1.0);
}

TEST_F(Replay, SaysWhyThereIsNoSsd) {
  const std::string pool = "--embedded --capacity-blocks 500 --no-report ";
  const auto refuses = [this](const std::string& options, int status, const std::string& why) {
    const std::string output = run(options);
    EXPECT_EQ(exit_status_, status) << output;
    EXPECT_NE(output.find(why), std::string::npos) << output;
  };
  refuses("--ssd-bytes 64MiB", 2, "needs --embedded");
  refuses(pool + "--ssd-bytes 1MiB", 2, "from 64.0 MiB to");
  refuses(pool + "--ssd-folder .", 2, "needs --ssd-bytes");
  refuses(pool + "--ssd-bytes 64MiB --copy", 2, "--copy");
  refuses(pool + "--ssd-bytes 64MiB --ssd-folder missing", 1, "another folder");
  refuses(pool + "--ssd-bytes 1TiB --ssd-folder .", 1, "room");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

}  // namespace
