// SPDX-License-Identifier: Apache-2.0
//
// The tier on files, with its threads.
#include "agent/tier/tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <fstream>

#include "libmc/base/checksum.h"
#include "libmc/base/clock.h"
#include "patience.h"
#include "tier/temporary_folder.h"

namespace mc::tier::testing {
namespace {

using ::testing::HasSubstr;

class TierOnFiles : public ::testing::Test {
 protected:
  void start(const std::vector<std::string>& names) {
    tier_.reset();
    ends_.clear();
    Tier::Plan plan{.bytes_of_each = 64 << 20, .random = now_ns()};
    for (const std::string& name : names) plan.paths.push_back(folder_.file(name));
    tier_ = std::make_unique<Tier>(plan);
    turn_until([this] { return !tier_->log().recovering(); });
  }
  template <typename Condition>
  void turn_until(const Condition& condition) {
    const auto deadline = now_ns() + 60'000 * kMs;
    while (!condition() && now_ns() < deadline) {
      std::vector<pollfd> waits;
      for (const int fd : tier_->wait_fds()) waits.push_back({fd, POLLIN, 0});
      ::poll(waits.data(), waits.size(), 10);
      tier_->do_work(now_ns());
      tier_->log().take_ended(ends_);
    }
    ASSERT_TRUE(condition());
  }
  LogEnd wait_for(std::uint64_t ticket) {
    LogEnd found;
    turn_until([&] {
      for (const LogEnd& end : ends_) {
        if (end.ticket == ticket) found = end;
      }
      return found.ticket == ticket;
    });
    return found;
  }
  void put(const std::string& key) {
    auto& value = values_[key];
    value.assign(100'000, static_cast<std::byte>(key.size()));
    const auto ticket = tier_->log().put({.name = {key, 1},
                                          .version = 1,
                                          .length = value.size(),
                                          .sum_seed = 1,
                                          .checksum = checksum(1, value.data(), value.size())},
                                         {{value.data(), value.size()}});
    ASSERT_TRUE(ticket);
    ASSERT_EQ(wait_for(*ticket).outcome, LogEnd::Outcome::kDone);
  }
  bool has(const std::string& key) {
    std::vector<std::byte> bytes(100'000);
    const auto ticket =
        tier_->log().read({key, 1}, {{bytes.data(), bytes.size()}}, Urgency::kGet, 1);
    return ticket && wait_for(*ticket).outcome == LogEnd::Outcome::kDone && bytes == values_[key];
  }

  TemporaryFolder folder_;
  std::unique_ptr<Tier> tier_;
  std::vector<LogEnd> ends_;
  std::map<std::string, std::vector<std::byte>> values_;
};

TEST_F(TierOnFiles, ObjectsComeBackAfterARestart) {
  start({"a", "b"});
  for (int i = 0; i < 12; ++i) put("key" + std::string(static_cast<std::size_t>(i), 'x'));
  start({"a", "b"});
  for (const auto& [key, value] : values_) EXPECT_TRUE(has(key)) << key;
}

// The sanitizers see a thread that uses memory of the log, or of a caller, after its end.
TEST_F(TierOnFiles, EndsDuringPutsAndReads) {
  start({"a", "b"});
  put("read");
  for (int round = 0; round < 8; ++round) {
    std::vector<std::vector<std::byte>> memory;
    for (int i = 0; i < 40; ++i) {
      memory.emplace_back(100'000);
      const Piece piece{memory.back().data(), memory.back().size()};
      if (i % 2 == 0) {
        ASSERT_TRUE(tier_->log().read({"read", 1}, {piece}, Urgency::kGet, 1));
        continue;
      }
      const std::string key = std::to_string(round) + "/" + std::to_string(i);
      ASSERT_TRUE(tier_->log().put({.name = {key, 1},
                                    .version = 1,
                                    .length = piece.bytes,
                                    .sum_seed = 1,
                                    .checksum = checksum(1, piece.data, piece.bytes)},
                                   {piece}));
    }
    for (int turn = 0; turn < round; ++turn) tier_->do_work(now_ns());
    tier_.reset();
    memory.clear();
    start({"a", "b"});
  }
  EXPECT_TRUE(has("read"));
}

TEST_F(TierOnFiles, ADiskThatCannotBeOpenedIsNamedAndTheOthersServe) {
  start({"absent/a", "b"});
  const auto reports = tier_->report();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].disk.state, DiskState::kRefused);
  EXPECT_THAT(reports[0].disk.text, HasSubstr("create the directory"));
  EXPECT_EQ(reports[1].disk.state, DiskState::kServing);
  put("key");
  EXPECT_TRUE(has("key"));
}

TEST_F(TierOnFiles, AFileWithOtherDataIsRefusedByNameAndKept) {
  {
    std::ofstream other(folder_.file("a"));
    other << std::string(64 << 20, 'x');
  }
  start({"a"});
  EXPECT_EQ(tier_->report()[0].disk.state, DiskState::kRefused);
  EXPECT_THAT(tier_->report()[0].disk.text,
              HasSubstr(folder_.file("a") + ": the disk has other data"));
  std::ifstream kept(folder_.file("a"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(kept), {}), std::string(64 << 20, 'x'));
}

TEST_F(TierOnFiles, ChangesOfTheStateAreToldOnce) {
  start({"a"});
  EXPECT_EQ(tier_->take_changes().size(), 1u);
  EXPECT_TRUE(tier_->take_changes().empty());
}

}  // namespace
}  // namespace mc::tier::testing
