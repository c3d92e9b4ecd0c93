// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace mc::ctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGood[] =
    R"({"timestamp": 7, "input_length": 1000, "output_length": 12, "hash_ids": [40, 9]})";

tl::expected<Trace, std::string> read(const std::string& text, const TraceLimits& limits = {}) {
  std::istringstream in(text);
  return read_trace(in, "t", limits);
}

std::string error_of(const std::string& text, const TraceLimits& limits = {}) {
  const auto trace = read(text, limits);
  return trace.has_value() ? "no error" : trace.error();
}

std::string line_with(const std::string& ids) {
  return R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": )" + ids + "}\n";
}

TEST(Trace, ALineBecomesARequest) {
  const auto trace = read(kGood);
  ASSERT_TRUE(trace.has_value()) << trace.error();
  ASSERT_EQ(trace->requests.size(), 1U);
  const TraceRequest& request = trace->requests[0];
  EXPECT_EQ(request.timestamp_ms, 7U);
  EXPECT_EQ(request.input_tokens, 1'000U);
  EXPECT_EQ(request.output_tokens, 12U);
  EXPECT_THAT(request.blocks, ElementsAre(0U, 1U));
}

TEST(Trace, BlocksAreNumberedInOrderOfAppearance) {
  const auto trace = read(line_with("[40, 9]") + "\r\n" + line_with("[40, 8]") + line_with("[]"));
  ASSERT_TRUE(trace.has_value()) << trace.error();
  EXPECT_THAT(trace->requests[1].blocks, ElementsAre(0U, 2U));
  EXPECT_EQ(trace->requests.size(), 3U);
  EXPECT_EQ(trace->block_count, 3U);
  EXPECT_EQ(trace->reference_count, 4U);
}

TEST(Trace, AnEmptyFileIsRefused) {
  EXPECT_THAT(error_of(""), AllOf(StartsWith("t: holds no request"), HasSubstr("a line")));
  EXPECT_THAT(error_of("\n\n"), StartsWith("t: holds no request"));
}

TEST(Trace, AMissingFileIsNamed) {
  const auto trace = read_trace(std::string(MC_TEST_DATA "/no such trace"));
  ASSERT_FALSE(trace.has_value());
  EXPECT_THAT(trace.error(), HasSubstr("no such trace: cannot be opened (No such file"));
}

TEST(Trace, ADirectoryIsNotATrace) {
  const auto trace = read_trace(std::string(MC_TEST_DATA));
  ASSERT_FALSE(trace.has_value());
  EXPECT_THAT(trace.error(), HasSubstr(": reading failed ("));
}

TEST(Trace, TruncatedJsonIsNamedByItsLine) {
  const std::string text = std::string(kGood) + "\n" + std::string(kGood).substr(0, 60);
  EXPECT_THAT(error_of(text), AllOf(StartsWith("t: line 2 is not valid JSON ("),
                                    HasSubstr("cut short"), testing::Not(HasSubstr("\n"))));
}

TEST(Trace, TextBehindTheObjectIsRefused) {
  EXPECT_THAT(error_of(std::string(kGood) + " {}"), StartsWith("t: line 1 is not valid JSON"));
}

TEST(Trace, DeepNestingIsRefused) {
  EXPECT_THAT(error_of(line_with(std::string(5'000, '['))), StartsWith("t: line 1 is not valid"));
}

TEST(Trace, OnlyObjectsAreRequests) {
  EXPECT_THAT(error_of("[1]"), StartsWith("t: line 1 is not a JSON object; a line looks like"));
  EXPECT_THAT(error_of("7"), StartsWith("t: line 1 is not "));
}

TEST(Trace, AMissingFieldIsNamed) {
  for (const std::string field : {"timestamp", "input_length", "output_length", "hash_ids"}) {
    std::string line = kGood;
    line.replace(line.find(field), 1, "X");
    EXPECT_THAT(error_of(line), StartsWith("t: line 1 has no \"" + field + "\"; a line looks"));
  }
}

TEST(Trace, FieldsOfAnotherTypeAreRefused) {
  std::string line = kGood;
  line.replace(line.find(": 7"), 3, ": -7");
  EXPECT_THAT(error_of(line), HasSubstr("\"timestamp\" that is not a whole number from 0 to"));
  EXPECT_THAT(error_of(line_with("{\"a\": 1}")), HasSubstr("\"hash_ids\" that are not a list"));
  EXPECT_THAT(error_of(line_with("3")), HasSubstr("\"hash_ids\" that are not a list"));
}

TEST(Trace, IdsOutsideTheirRangeAreRefused) {
  EXPECT_TRUE(read(line_with("[9007199254740991]")).has_value());
  for (const std::string id : {"9007199254740992", "-1", "1.5", "1e3", "\"1\"", "null",
                               "123456789012345678901234567890"}) {
    EXPECT_THAT(error_of(line_with("[5, " + id + "]")),
                HasSubstr("line 1 has a hash_ids[1] that is not a whole number from 0 to"))
        << id;
  }
}

TEST(Trace, AChainThatRepeatsABlockIsRefused) {
  EXPECT_THAT(error_of(line_with("[5, 6, 5]")), HasSubstr("repeats block 5 at hash_ids[2]"));
}

TEST(Trace, LineLengthIsBounded) {
  const std::string line = line_with("[1]");
  EXPECT_TRUE(read(line, {.line_bytes = line.size() - 1}).has_value());
  EXPECT_THAT(error_of(line, {.line_bytes = line.size() - 2}),
              HasSubstr("line 1 is longer than " + std::to_string(line.size() - 2) + " bytes"));
}

TEST(Trace, BlocksOfARequestAreBounded) {
  EXPECT_TRUE(read(line_with("[1, 2]"), {.blocks_per_request = 2}).has_value());
  EXPECT_THAT(error_of(line_with("[1, 2, 3]"), {.blocks_per_request = 2}),
              HasSubstr("line 1 has 3 hash_ids, more than 2; split"));
}

TEST(Trace, BlocksOfTheWholeTraceAreBounded) {
  const std::string text = line_with("[1, 2]") + line_with("[1, 2]");
  EXPECT_TRUE(read(text, {.block_references = 4}).has_value());
  EXPECT_THAT(error_of(text, {.block_references = 3}), HasSubstr("line 2 brings the trace over 3"));
}

}  // namespace
}  // namespace mc::ctl
