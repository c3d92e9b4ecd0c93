// SPDX-License-Identifier: Apache-2.0
//
// `mcctl bench --transport`: real bytes between two processes, the description of a target, and the
// messages about missing parts. No test asserts a speed.
#include <gtest/gtest.h>

#include "ctl/bench/cases.h"
#include "ctl/bench/transport_options.h"
#include "ctl/bench/transport_target.h"
#include "patience.h"
#include "transport/fabric/library.h"
#include "transport/limits.h"

namespace mc::ctl {
namespace {

constexpr SamplePlan kShort{.rounds = 1, .seconds = 0.02, .group = 4, .min_samples = 1};

TransportOptions options_for(const std::string& transport) {
  TransportOptions options;
  options.transport = transport;
  options.block_sizes = {"4KiB", "256KiB"};
  options.batch = 4;
  options.threads = 2;
  options.target_bytes = "8MiB";
  return options;
}

void expect_figures(const TransportOptions& options, const std::string& limit) {
  const auto plan = plan_transport(options, kShort);
  ASSERT_TRUE(plan) << plan.error().to_string();
  std::vector<CaseResult> results;
  const Status status = run_transport_cases(
      *plan, kWatchdogNs, [&](const CaseResult& result) { results.push_back(result); });
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_EQ(results.size(), 2u);
  for (const CaseResult& result : results) {
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.name, options.transport + "_" + options.operation);
    EXPECT_EQ(result.limit, limit);
    EXPECT_EQ(result.batch, 4u);
    EXPECT_EQ(result.clients, 2u);
    EXPECT_GT(result.bytes_per_s, 0);
    EXPECT_GT(result.limit_bytes_per_s, 0);
  }
  EXPECT_EQ(results[0].size, 4096u);
  EXPECT_EQ(results[1].size, 256u * 1024);
}

TEST(TransportBench, MeasuresReadsAndWritesOverTcp) {
  TransportOptions options = options_for("tcp");
  expect_figures(options, "bare TCP");
  options.operation = "write";
  expect_figures(options, "bare TCP");
}

TEST(TransportBench, MeasuresTheFabricOverLoopbackAndThroughMemory) {
  if (const auto library = transport::fabric::load_libfabric(); !library) {
    GTEST_SKIP() << library.error().to_string();
  }
  TransportOptions options = options_for("fabric");
  options.provider = "shm";
  expect_figures(options, "memcpy");
  options.provider = "tcp;ofi_rxm";
  options.address = "127.0.0.1";
  options.operation = "write";
  expect_figures(options, "bare TCP");
}

TEST(TransportBench, TheAskerReportsFeaturesThatTheTargetLacks) {
  TransportOptions options = options_for("fabric");
  options.provider = "warp";
  const Status status = run_transport_cases(*plan_transport(options, kShort), kWatchdogNs,
                                            [](const CaseResult&) { FAIL(); });
  EXPECT_EQ(status.code(), MC_UNSUPPORTED);
  EXPECT_NE(status.text().find("libfabric"), std::string::npos) << status.to_string();
}

TEST(TransportBench, AnUnreachableAddressIsNamedWithTheRemedy) {
  TransportOptions options = options_for("tcp");
  options.connect = "127.0.0.1:1";
  const Status status = run_transport_cases(*plan_transport(options, kShort), kWatchdogNs,
                                            [](const CaseResult&) { FAIL(); });
  EXPECT_EQ(status.code(), MC_AGENT_UNAVAILABLE);
  EXPECT_NE(status.text().find("--listen"), std::string::npos) << status.to_string();
}

TEST(TransportBench, OptionsThatMakeNoSenseAreRefused) {
  const auto refused = [](auto change) {
    TransportOptions options = options_for("tcp");
    change(options);
    const auto plan = plan_transport(options, kShort);
    return plan ? MC_OK : plan.error().code();
  };
  EXPECT_EQ(refused([](TransportOptions&) {}), MC_OK);
  EXPECT_EQ(refused([](TransportOptions& o) { o.memory = "device"; }), MC_UNSUPPORTED);
  EXPECT_EQ(refused([](TransportOptions& o) { o.provider = "efa"; }), MC_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TransportOptions& o) { o.block_sizes = {"0"}; }), MC_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TransportOptions& o) { o.block_sizes = {"256MiB"}; }), MC_OK);
  EXPECT_EQ(refused([](TransportOptions& o) { o.block_sizes = {"257MiB"}; }), MC_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TransportOptions& o) { o.connect = "here"; }), MC_INVALID_ARGUMENT);
  EXPECT_EQ(refused([](TransportOptions& o) { o.listen = "127.0.0.1:99999"; }),
            MC_INVALID_ARGUMENT);
  EXPECT_EQ(parse_host_port("[::1]:7000")->host, "::1");
}

TEST(TransportBench, DamagedDescriptorsAreRefused) {
  TargetDescriptor descriptor;
  descriptor.transport = "tcp";
  descriptor.error = "none";
  descriptor.memory_bytes = 77;
  descriptor.region.assign(24, std::byte{3});
  auto bytes = encode_descriptor(descriptor);
  const auto decoded = decode_descriptor(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->transport, "tcp");
  EXPECT_EQ(decoded->error, "none");
  EXPECT_EQ(decoded->memory_bytes, 77u);
  EXPECT_EQ(decoded->region, descriptor.region);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_descriptor(std::span(bytes).first(size))) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_descriptor(bytes));
  descriptor.region.resize(transport::kMaxDescriptorBytes);
  EXPECT_TRUE(decode_descriptor(encode_descriptor(descriptor)));
  descriptor.region.resize(transport::kMaxDescriptorBytes + 1);
  EXPECT_FALSE(decode_descriptor(encode_descriptor(descriptor)));
}

}  // namespace
}  // namespace mc::ctl
