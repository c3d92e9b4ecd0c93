// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <gtest/gtest.h>

#include "ctl/text/size.h"

namespace mc::ctl {
namespace {

TEST(CtlSize, BytesAreReadInEveryUsualSpelling) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("64k"), 65536u);
  EXPECT_EQ(parse_bytes("512MiB"), 536870912u);
  EXPECT_EQ(parse_bytes("4GiB"), 4294967296u);
  EXPECT_EQ(parse_bytes("1.5G"), 1610612736u);
  EXPECT_EQ(parse_bytes(" 10 gb "), 10000000000u);
  EXPECT_EQ(parse_bytes("1TiB"), 1ull << 40);
  EXPECT_EQ(parse_bytes("7B"), 7u);
}

TEST(CtlSize, LargestSizeOf64BitsIsReadAndOneMoreIsRefused) {
  EXPECT_EQ(parse_bytes("18446744073709551615"), 18446744073709551615u);
  EXPECT_FALSE(parse_bytes("18446744073709551616"));
  EXPECT_EQ(parse_bytes("16383P"), 16383ull << 50);
  EXPECT_FALSE(parse_bytes("16384P"));
  EXPECT_FALSE(parse_bytes("16384.0P"));
}

TEST(CtlSize, InvalidSizeIsRefused) {
  for (const char* text :
       {"", "-1", "+1", "M", "1x", "1 2", "0x10", "1e3", "1.2.3", ".", "1,5G", "GiB4"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
}

TEST(CtlSize, PrintedBytesKeepThreeDigitsAndNeverReach1024) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(10240), "10.0 KiB");
  EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(1000ull << 20), "1000 MiB");
  EXPECT_EQ(format_bytes(4ull << 30), "4.00 GiB");
  EXPECT_EQ(format_bytes(~0ull), "16.0 EiB");
}

TEST(CtlSize, DurationsAreReadWithUnitsAndSecondsWithout) {
  EXPECT_EQ(parse_duration_ns("80ns"), 80u);
  EXPECT_EQ(parse_duration_ns("500us"), 500000u);
  EXPECT_EQ(parse_duration_ns("250ms"), 250000000u);
  EXPECT_EQ(parse_duration_ns("10"), 10000000000u);
  EXPECT_EQ(parse_duration_ns("1.5m"), 90000000000u);
  EXPECT_EQ(parse_duration_ns("2h"), 7200000000000u);
  EXPECT_FALSE(parse_duration_ns("soon"));
  EXPECT_FALSE(parse_duration_ns("-1s"));
  EXPECT_FALSE(parse_duration_ns("1000000d"));
}

TEST(CtlSize, DurationsArePrintedInTheUnitThatFits) {
  EXPECT_EQ(format_duration_ns(0), "0 s");
  EXPECT_EQ(format_duration_ns(80), "80 ns");
  EXPECT_EQ(format_duration_ns(999.6), "1.00 us");
  EXPECT_EQ(format_duration_ns(1234), "1.23 us");
  EXPECT_EQ(format_duration_ns(45.6e6), "45.6 ms");
  EXPECT_EQ(format_duration_ns(12.34e9), "12.3 s");
  EXPECT_EQ(format_duration_ns(312e9), "5m 12s");
  EXPECT_EQ(format_duration_ns(11040e9), "3h 04m");
  EXPECT_EQ(format_duration_ns(190800e9), "2d 05h");
}

TEST(CtlSize, DurationsThatAreNonePrintAsADash) {
  EXPECT_EQ(format_duration_ns(-1), "-");
  EXPECT_EQ(format_duration_ns(std::nan("")), "-");
  EXPECT_EQ(format_duration_ns(HUGE_VAL), "-");
}

TEST(CtlSize, CountsAreGroupedByThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(~0ull), "18,446,744,073,709,551,615");
}

}  // namespace
}  // namespace mc::ctl
