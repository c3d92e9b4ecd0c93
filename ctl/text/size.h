// SPDX-License-Identifier: Apache-2.0
//
// Sizes, durations and counts in the form that people write and read.
// Threads: any; pure functions.
// Owns: nothing.
// Trusts: nothing; text of the user that does not parse is nullopt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mc::ctl {

// A number, perhaps with a fraction, and a unit: "4096", "512MiB", "1.5G", "64k", "10 GB". B or no
// unit: bytes; K, KiB, M, MiB, ...: powers of 1024, as in Linux tools; KB, MB, GB, ...: powers of
// 1000. Case does not matter. Nullopt: another form, negative, or beyond 64 bits. Fractions of a
// byte are cut off.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

// "0 B", "1023 B", "1.50 KiB", "4.00 GiB": three significant digits or more, never more than 1023.
std::string format_bytes(std::uint64_t bytes);

// A number and a unit: "250ms", "10s", "1.5m", "2h", "1d", "500us", "80ns". No unit: seconds.
std::optional<std::uint64_t> parse_duration_ns(std::string_view text);

// "80 ns", "1.23 us", "45.6 ms", "12.3 s", then "5m 12s", "3h 04m", "2d 05h". Negative and
// not-a-number values print as "-".
std::string format_duration_ns(double duration_ns);

// With separators: "1,234,567".
std::string format_count(std::uint64_t count);

}  // namespace mc::ctl
