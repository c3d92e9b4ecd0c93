// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/size.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace mc::ctl {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double factor;
};

constexpr double kKi = 1024;
constexpr std::array<Unit, 17> kByteUnits{{
    {"", 1},
    {"b", 1},
    {"k", kKi},
    {"kib", kKi},
    {"kb", 1e3},
    {"m", kKi* kKi},
    {"mib", kKi* kKi},
    {"mb", 1e6},
    {"g", kKi* kKi* kKi},
    {"gib", kKi* kKi* kKi},
    {"gb", 1e9},
    {"t", kKi* kKi* kKi* kKi},
    {"tib", kKi* kKi* kKi* kKi},
    {"tb", 1e12},
    {"p", kKi* kKi* kKi* kKi* kKi},
    {"pib", kKi* kKi* kKi* kKi* kKi},
    {"pb", 1e15},
}};

constexpr std::array<Unit, 8> kTimeUnits{{
    {"", 1e9},
    {"ns", 1},
    {"us", 1e3},
    {"ms", 1e6},
    {"s", 1e9},
    {"m", 60e9},
    {"h", 3600e9},
    {"d", 86400e9},
}};

std::string lower_trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// A plain decimal number and a unit of the table.
template <std::size_t kCount>
std::optional<std::uint64_t> parse_quantity(std::string_view text,
                                            const std::array<Unit, kCount>& units) {
  const std::string low = lower_trimmed(text);
  const std::size_t digits_end = low.find_first_not_of("0123456789.");
  const std::string_view number = std::string_view(low).substr(0, digits_end);
  std::string_view unit_name;
  if (digits_end != std::string::npos) unit_name = std::string_view(low).substr(digits_end);
  while (!unit_name.empty() && unit_name.front() == ' ') unit_name.remove_prefix(1);
  const Unit* unit = nullptr;
  for (const Unit& candidate : units) {
    if (candidate.name == unit_name) unit = &candidate;
  }
  if (unit == nullptr || number.empty()) return std::nullopt;

  const char* const end = number.data() + number.size();
  // Whole numbers are parsed as integers: a double holds only 53 bits.
  if (std::uint64_t whole = 0; number.find('.') == std::string_view::npos) {
    const auto [stop, error] = std::from_chars(number.data(), end, whole);
    if (error != std::errc() || stop != end) return std::nullopt;
    const auto factor = static_cast<std::uint64_t>(unit->factor);
    std::uint64_t product = 0;
    if (__builtin_mul_overflow(whole, factor, &product)) return std::nullopt;
    return product;
  }
  double fraction = 0;
  const auto [stop, error] =
      std::from_chars(number.data(), end, fraction, std::chars_format::fixed);
  if (error != std::errc() || stop != end) return std::nullopt;
  const double product = fraction * unit->factor;
  if (!(product >= 0) || product >= 18446744073709551615.0) return std::nullopt;
  return static_cast<std::uint64_t>(product);
}

// At least three significant digits below 1000, whole numbers above.
std::string three_digits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  return parse_quantity(text, kByteUnits);
}

std::optional<std::uint64_t> parse_duration_ns(std::string_view text) {
  return parse_quantity(text, kTimeUnits);
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 6> kNames{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.5 would round to "1024 KiB".
  while (value >= 1023.5 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", three_digits(value), kNames[unit]);
}

std::string format_duration_ns(double duration_ns) {
  if (!(duration_ns >= 0) || std::isinf(duration_ns)) return "-";
  if (duration_ns == 0) return "0 s";
  if (duration_ns < 999.5) return fmt::format("{:.0f} ns", duration_ns);
  if (duration_ns < 999.5e3) return three_digits(duration_ns / 1e3) + " us";
  if (duration_ns < 999.5e6) return three_digits(duration_ns / 1e6) + " ms";
  if (duration_ns < 119.5e9) return three_digits(duration_ns / 1e9) + " s";
  constexpr double kLongestSeconds = 1e15;
  const double seconds_real = duration_ns / 1e9;
  if (seconds_real > kLongestSeconds) return "-";
  const auto seconds = static_cast<std::uint64_t>(std::llround(seconds_real));
  if (seconds < 3600) return fmt::format("{}m {:02}s", seconds / 60, seconds % 60);
  const std::uint64_t minutes = seconds / 60;
  if (minutes < 48 * 60) return fmt::format("{}h {:02}m", minutes / 60, minutes % 60);
  const std::uint64_t hours = minutes / 60;
  return fmt::format("{}d {:02}h", hours / 24, hours % 24);
}

std::string format_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

}  // namespace mc::ctl
