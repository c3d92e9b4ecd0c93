// SPDX-License-Identifier: Apache-2.0
//
// Promises of the rails, on a model of 8 × 400 Gb/s. The time is simulated, so rates and latencies
// can be asserted.
#include "sim/rail_model.h"
#include "libmc/base/clock.h"

#include <gtest/gtest.h>

#include <iostream>

namespace mc::sim {
namespace {

using transport::Priority;
using transport::RailHealth;

constexpr std::uint64_t kObject = 1u << 20;
constexpr double kLine = 8 * 50.0;  // bytes per ns

void tell(const RailModel::Result& result) {
  std::cout << result.objects << " objects, " << result.bytes_per_ns / kLine * 100
            << " % of 8 lines, p50 " << result.p50_ns / 1000 << " p99 " << result.p99_ns / 1000
            << " max " << result.max_ns / 1000 << " us\n";
}

RailModel::Result measured(RailModel& model, std::uint64_t from_ns, std::uint64_t until_ns,
                           Priority priority = Priority::kForeground) {
  model.run_until(from_ns);
  model.mark();
  model.run_until(until_ns);
  const RailModel::Result result = model.result(priority);
  tell(result);
  return result;
}

TEST(RailModel, EightRailsCarryTheirFullLineRate) {
  RailModel model({});
  model.keep_reading(Priority::kForeground, 64, kObject);
  EXPECT_GE(measured(model, 2 * kMs, 10 * kMs).bytes_per_ns, 0.97 * kLine);
  EXPECT_EQ(model.packets_lost(), 0u);
}

TEST(RailModel, OneReadAloneUsesSeveralRails) {
  RailModel model({});
  model.keep_reading(Priority::kForeground, 1, 64 * kObject);
  const auto result = measured(model, 2 * kMs, 20 * kMs);
  EXPECT_GE(result.bytes_per_ns, 0.9 * kLine);
}

TEST(RailModel, ADeadRailIsLeftAndTheOthersCarryOn) {
  RailModel model({});
  model.keep_reading(Priority::kForeground, 64, kObject);
  model.set_speed(10 * kMs, 0, 3, 0);
  model.run_until(10 * kMs);
  model.mark();
  // The period begins with the failure and includes the discovery.
  model.run_until(60 * kMs);
  const auto result = model.result(Priority::kForeground);
  tell(result);
  EXPECT_GE(result.bytes_per_ns, 0.97 * 7 / 8 * kLine);
  EXPECT_LE(result.max_ns, 8 * kMs) << "its slices are sent again elsewhere";
  EXPECT_GT(model.slices_resent(), 0u);
  EXPECT_EQ(model.rails(0).status(3).health, RailHealth::kDown);
  EXPECT_EQ(model.rails(0).status(3).failures, 1u);
  EXPECT_GT(model.rails(0).status(3).taken_back_slices, 0u);
}

TEST(RailModel, ARailThatIsBackIsTakenBackGradually) {
  RailModel model({});
  model.keep_reading(Priority::kForeground, 64, kObject);
  model.set_speed(10 * kMs, 0, 3, 0);
  model.set_speed(40 * kMs, 0, 3, 1);
  model.run_until(40 * kMs);
  ASSERT_EQ(model.rails(0).status(3).health, RailHealth::kDown);
  bool recovering = false;
  while (model.now_ns() < 200 * kMs && model.rails(0).status(3).health != RailHealth::kUp) {
    model.run_until(model.now_ns() + 2'000);
    recovering |= model.rails(0).status(3).health == RailHealth::kRecovering;
  }
  EXPECT_TRUE(recovering);
  EXPECT_GE(measured(model, model.now_ns() + 2 * kMs, model.now_ns() + 10 * kMs).bytes_per_ns,
            0.97 * kLine);
}

TEST(RailModel, ASlowRailDelaysNoObject) {
  RailModel healthy({});
  healthy.keep_reading(Priority::kForeground, 64, kObject);
  const auto before = measured(healthy, 2 * kMs, 12 * kMs);
  RailModel model({});
  model.keep_reading(Priority::kForeground, 64, kObject);
  model.set_speed(5 * kMs, 0, 3, 0.1);
  const auto result = measured(model, 10 * kMs, 30 * kMs);
  EXPECT_GE(result.bytes_per_ns, 0.97 * 7.1 / 8 * kLine);
  // Over all objects, including objects with slices on the slow rail.
  EXPECT_LE(static_cast<double>(result.p99_ns), 1.2 * static_cast<double>(before.p99_ns));
  EXPECT_EQ(model.rails(0).status(3).health, RailHealth::kSlow);
}

TEST(RailModel, ACrawlingRailIsLeftForGrowingPauses) {
  RailModel model({});
  model.keep_reading(Priority::kForeground, 64, kObject);
  // At this speed half a slice arrives before the time-out. Small probes still succeed.
  model.set_speed(10 * kMs, 0, 3, 0.0005);
  const auto result = measured(model, 10 * kMs, 90 * kMs);
  EXPECT_GE(result.bytes_per_ns, 0.97 * 7 / 8 * kLine);
  EXPECT_LE(result.max_ns, 12 * kMs);
  EXPECT_GE(model.rails(0).status(3).failures, 2u);
  EXPECT_LE(model.rails(0).status(3).failures, 5u);
}

TEST(RailModel, ManySendersDoNotOverrunOneReceiver) {
  RailModelOptions options;
  options.senders = 16;
  options.port_buffer_bytes = 4u << 20;
  RailModel with(options);
  with.keep_reading(Priority::kForeground, 256, kObject);
  EXPECT_GE(measured(with, 2 * kMs, 10 * kMs).bytes_per_ns, 0.97 * kLine);
  EXPECT_EQ(with.packets_lost(), 0u);

  options.credits = false;
  RailModel without(options);
  without.keep_reading(Priority::kForeground, 256, kObject);
  measured(without, 2 * kMs, 10 * kMs);
  EXPECT_GT(without.packets_lost(), 0u)
      << "the model has no incast, so the test above shows nothing";
}

TEST(RailModel, SendersPartitionTheReceiverEvenly) {
  RailModelOptions options;
  options.senders = 16;
  RailModel model(options);
  model.keep_reading(Priority::kForeground, 256, kObject);
  model.run_until(10 * kMs);
  std::uint64_t least = ~std::uint64_t{0}, most = 0;
  for (std::uint32_t s = 0; s < options.senders; ++s) {
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < options.nics; ++i) bytes += model.rails(s).status(i).done_bytes;
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  EXPECT_GE(static_cast<double>(least), 0.9 * static_cast<double>(most));
}

TEST(RailModel, ForegroundGoesFirstAndBackgroundIsNotStarved) {
  RailModel alone({});
  alone.keep_reading(Priority::kForeground, 4, kObject);
  const auto before = measured(alone, 2 * kMs, 10 * kMs);

  RailModel model({});
  model.keep_reading(Priority::kForeground, 4, kObject);
  model.keep_reading(Priority::kPrefetch, 64, kObject);
  model.keep_reading(Priority::kMigration, 64, kObject);
  const auto result = measured(model, 2 * kMs, 10 * kMs);
  const auto prefetch = model.result(Priority::kPrefetch);
  const auto migration = model.result(Priority::kMigration);
  std::cout << "prefetch " << prefetch.bytes_per_ns / kLine << " migration "
            << migration.bytes_per_ns / kLine << " of the lines\n";
  EXPECT_GE(prefetch.bytes_per_ns, 1.8 * migration.bytes_per_ns);
  EXPECT_GE(result.bytes_per_ns + prefetch.bytes_per_ns + migration.bytes_per_ns, 0.97 * kLine);
  const auto window_ns = static_cast<std::uint64_t>(
      static_cast<double>(model.rails(0).window_bytes(0)) / model.rails(0).bytes_per_ns(0));
  EXPECT_LE(result.p99_ns, before.p99_ns + window_ns) << "what is not urgent stands before it";

  RailModel full({});
  full.keep_reading(Priority::kForeground, 256, kObject);
  full.keep_reading(Priority::kMigration, 64, kObject);
  EXPECT_GE(measured(full, 2 * kMs, 10 * kMs).bytes_per_ns, 0.9 * kLine);
  EXPECT_GE(full.result(Priority::kMigration).bytes_per_ns, 0.02 * kLine);
}

TEST(RailModel, ARailThatComesAndGoesCostsLittle) {
  RailModel model({});
  model.keep_reading(Priority::kForeground, 64, kObject);
  for (std::uint64_t at_ns = 10 * kMs; at_ns < 60 * kMs; at_ns += 20 * kMs) {
    model.set_speed(at_ns, 0, 3, 0);
    model.set_speed(at_ns + 10 * kMs, 0, 3, 1);
  }
  EXPECT_GE(measured(model, 10 * kMs, 70 * kMs).bytes_per_ns, 0.97 * 7 / 8 * kLine);
  EXPECT_GT(model.rails(0).status(3).failures, 1u);
}

TEST(RailModel, NearRailsAreFullBeforeFarOnesAreUsed) {
  RailModel model({});
  // The load is small enough for the two near NICs.
  model.keep_reading(Priority::kForeground, 4, kObject, 0b11);
  measured(model, 2 * kMs, 10 * kMs);
  EXPECT_GT(model.nic_bytes(0) + model.nic_bytes(1), 0u);
  for (std::uint32_t i = 2; i < 8; ++i) EXPECT_EQ(model.nic_bytes(i), 0u) << i;

  RailModel busy({});
  busy.keep_reading(Priority::kForeground, 64, kObject, 0b11);
  EXPECT_GE(measured(busy, 2 * kMs, 10 * kMs).bytes_per_ns, 0.97 * kLine);
}

TEST(RailModel, LossCostsOnlyTheLostBytes) {
  RailModelOptions options;
  options.lost_packets = 1e-4;
  RailModel model(options);
  model.keep_reading(Priority::kForeground, 128, kObject);
  EXPECT_GE(measured(model, 2 * kMs, 30 * kMs).bytes_per_ns, 0.97 * kLine);
  EXPECT_GT(model.packets_lost(), 0u);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(model.rails(0).status(i).failures, 0u);
}

TEST(RailModel, WindowsGrowUntilLongWaysAreFull) {
  RailModelOptions options;
  options.nics = 2;
  options.line_bytes_per_ns = 12.5;
  options.one_way_ns = 500'000;
  options.port_buffer_bytes = 64u << 20;
  options.credits = false;
  RailModel model(options);
  model.keep_reading(Priority::kForeground, 256, kObject);
  EXPECT_GE(measured(model, 100 * kMs, 200 * kMs).bytes_per_ns, 0.9 * 25);
}

}  // namespace
}  // namespace mc::sim
