// SPDX-License-Identifier: Apache-2.0
//
// The calls of transfer.hpp: two engines of one process.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "mc/transfer.hpp"
#include "patience.h"

namespace mc::transfer::testing {
namespace {

class TransferFace : public ::testing::Test {
 protected:
  TransferFace() {
    const TransferRange here{local_.data(), local_.size()}, there{remote_.data(), remote_.size()};
    EXPECT_TRUE(a_.register_memory({&here, 1}, MC_TRANSFER_READ).ok());
    EXPECT_TRUE(b_.register_memory({&there, 1}, MC_TRANSFER_READ | MC_TRANSFER_WRITE, "*").ok());
    segment_ = a_.open_segment(b_.info().value().name).value();
  }
  static TransferEngine open() {
    TransferOptions options;
    options.timeout_ns = kWatchdogNs;
    return TransferEngine::open(options).value();
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(remote_.data()); }

  std::vector<char> local_ = std::vector<char>(4096, 1);
  std::vector<char> remote_ = std::vector<char>(4096, 2);
  TransferEngine a_ = open(), b_ = open();
  TransferSegment segment_ = 0;
};

TEST_F(TransferFace, BytesMoveAndNotificationsFollow) {
  const std::array requests{transfer_put(local_.data(), segment_, address(), 100),
                            transfer_put(local_.data(), segment_, address() + 200, 50)};
  TransferSubmitOptions options;
  options.notify = segment_;
  options.notify_name = "name";
  options.notify_message = "message";
  options.checksum = true;
  ASSERT_TRUE(a_.run(requests, options).ok());
  EXPECT_EQ(remote_[99], 1);
  EXPECT_EQ(remote_[100], 2);
  EXPECT_EQ(remote_[249], 1);
  const auto note = b_.take_notification();
  ASSERT_TRUE(note);
  EXPECT_EQ(note->name(), "name");
  EXPECT_EQ(note->message(), "message");
  EXPECT_EQ(b_.take_notification().error().code(), MC_NOT_FOUND);
  ASSERT_TRUE(a_.notify(segment_, "alone", "").ok());
  EXPECT_EQ(b_.take_notification().value().name(), "alone");
}

TEST_F(TransferFace, ABatchIsPolledWaitedForAndFreedByItsEnd) {
  const auto get = transfer_get(local_.data(), segment_, address(), 4096);
  auto batch = a_.submit({&get, 1});
  ASSERT_TRUE(batch);
  ASSERT_TRUE(batch->wait().ok());
  TransferState state{};
  EXPECT_TRUE(batch->poll({&state, 1}).value());
  EXPECT_EQ(state.bytes, 4096u);
  EXPECT_EQ(local_[4095], 2);
  TransferBatch moved = std::move(*batch);
  EXPECT_TRUE(batch->empty());  // NOLINT(bugprone-use-after-move): the promise under test
  EXPECT_EQ(batch->wait().code(), MC_INVALID_ARGUMENT);
  moved = TransferBatch();
  // All batches are free again.
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(a_.submit({&get, 1}));
}

TEST_F(TransferFace, TellsOfItselfAndOfPeers) {
  std::array<TransferRegion, 2> regions{};
  ASSERT_EQ(a_.list_regions(segment_, regions).value(), 1u);
  EXPECT_EQ(regions[0].address, address());
  EXPECT_TRUE(a_.segment_is_local(segment_).value());
  EXPECT_TRUE(a_.probe(b_.info().value().name).ok());
  std::array<char, 4096> text{};
  EXPECT_GT(a_.describe(text).value(), 0u);
  EXPECT_TRUE(a_.close_segment(segment_).ok());
  EXPECT_EQ(a_.close_segment(segment_).code(), MC_INVALID_ARGUMENT);
}

TEST_F(TransferFace, ErrorsHaveACodeAndACause) {
  TransferOptions options;
  options.listen = "nowhere";
  const auto engine = TransferEngine::open(options);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code(), MC_INVALID_ARGUMENT);
  EXPECT_NE(engine.error().text().find("nowhere"), std::string_view::npos);
  const TransferEngine none;
  EXPECT_EQ(none.info().error().code(), MC_INVALID_ARGUMENT);
  void* const address = local_.data() + 1;
  EXPECT_EQ(a_.unregister_memory({&address, 1}).code(), MC_NOT_FOUND);
}

}  // namespace
}  // namespace mc::transfer::testing
