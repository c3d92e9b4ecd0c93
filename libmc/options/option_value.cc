// SPDX-License-Identifier: Apache-2.0
#include "libmc/options/option_value.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "mc/limits.h"

namespace mc::options {
namespace {

constexpr std::string_view kUnits = "KMGTP";
constexpr std::size_t kMaxFractionDigits = 9;

std::optional<std::uint64_t> parse_number(std::string_view text, int base = 10) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// log2 of the unit: "" and "B" 0; "K", "KB", "KiB" 10; and so on, in any case.
std::optional<unsigned> unit_shift(std::string_view unit) {
  std::string upper(unit);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  if (upper.empty() || upper == "B") return 0;
  const std::size_t at = kUnits.find(upper[0]);
  const std::string_view rest = std::string_view(upper).substr(1);
  if (at == std::string_view::npos || !(rest.empty() || rest == "B" || rest == "IB")) {
    return std::nullopt;
  }
  return static_cast<unsigned>(10 * (at + 1));
}

std::optional<std::uint64_t> size_of_text(std::string_view text) {
  text = trimmed(text);
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view number = text.substr(0, digits);
  const auto shift = unit_shift(trimmed(text.substr(digits)));
  if (!shift) return std::nullopt;
  std::string_view fraction;
  if (const std::size_t dot = number.find('.'); dot != std::string_view::npos) {
    fraction = number.substr(dot + 1);
    number = number.substr(0, dot);
    // A fraction of a byte is a mistake.
    if (fraction.empty() || fraction.size() > kMaxFractionDigits || *shift == 0)
      return std::nullopt;
  }
  const auto whole = parse_number(number);
  if (!whole) return std::nullopt;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(*whole, std::uint64_t{1} << *shift, &bytes)) return std::nullopt;
  if (fraction.empty()) return bytes;
  const auto parts = parse_number(fraction);
  if (!parts) return std::nullopt;
  unsigned __int128 scaled = static_cast<unsigned __int128>(*parts) << *shift;
  for (std::size_t i = 0; i < fraction.size(); ++i) scaled /= 10;
  if (__builtin_add_overflow(bytes, static_cast<std::uint64_t>(scaled), &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

std::string octal_text(std::uint64_t mode) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), mode, 8).ptr;
  return "0" + std::string(digits.data(), end);
}

std::optional<OptionValue> parse_uids(std::string_view text) {
  std::vector<std::uint32_t> uids;
  text = trimmed(text);
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const auto uid = parse_number(trimmed(text.substr(0, comma)));
    // 2^32 - 1 means "no user" to the kernel.
    if (!uid || *uid >= 0xffffffff || uids.size() == kMaxUids) return std::nullopt;
    uids.push_back(static_cast<std::uint32_t>(*uid));
    if (comma + 1 == text.size()) return std::nullopt;
    text = comma < text.size() ? text.substr(comma + 1) : std::string_view();
  }
  return uids;
}

std::optional<OptionValue> parse_in_range(const ValueDomain& domain,
                                          std::optional<std::uint64_t> value) {
  if (!value) return std::nullopt;
  if (*value == 0 && domain.may_be_zero) return *value;
  if (*value < domain.lowest || *value > domain.highest) return std::nullopt;
  return *value;
}

// "" for a relative path without a folder.
std::string absolute_path(std::string_view text, const std::string& folder) {
  if (text.starts_with('/')) return std::string(text);
  if (folder.empty()) return {};
  while (text.starts_with("./")) {
    text.remove_prefix(2);
    text.remove_prefix(std::min(text.find_first_not_of('/'), text.size()));
  }
  if (text.empty() || text == ".") return folder;
  return folder + (folder.ends_with('/') ? "" : "/") + std::string(text);
}

std::optional<OptionValue> parse_path(const ValueDomain& domain, std::string_view text,
                                      const std::string& folder) {
  if (text.empty()) return domain.may_be_zero ? std::optional(std::string()) : std::nullopt;
  std::string path = absolute_path(text, folder);
  if (path.empty() || path.size() > domain.highest) return std::nullopt;
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(path.begin(), path.end(), control)) return std::nullopt;
  return path;
}

std::optional<OptionValue> parse_choice(const ValueDomain& domain, std::string_view text) {
  for (const auto& [word, present] : domain.earlier) {
    if (text == word) return std::string(present);
  }
  const auto& words = domain.choices;
  const bool known = std::find(words.begin(), words.end(), text) != words.end();
  if (!known && !(text.empty() && domain.may_be_zero)) return std::nullopt;
  return std::string(text);
}

// A socket without write permission for its owner refuses every user.
std::optional<OptionValue> parse_mode(const ValueDomain& domain, std::string_view text) {
  const auto mode = parse_in_range(domain, parse_number(text, 8));
  if (!mode || (std::get<std::uint64_t>(*mode) & 0600) != 0600) return std::nullopt;
  return mode;
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string all;
  for (const std::string_view word : words) all += (all.empty() ? "" : ", ") + std::string(word);
  return all;
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  if (const auto bytes = size_of_text(text)) return *bytes;
  return fail(MC_INVALID_ARGUMENT, options::quoted(text) +
                                       " is not a size; write bytes or a number with a unit of "
                                       "1024, such as 4096, 64KiB, 1.5G or 2TiB");
}

std::string ValueDomain::accepts() const {
  switch (kind) {
    case ValueKind::kText:
      return "a text of at most " + std::to_string(highest) + " bytes";
    case ValueKind::kPath:
      return "a path whose absolute form has at most " + std::to_string(highest) + " bytes";
    case ValueKind::kName:
      return "1 to " + std::to_string(MC_MAX_NAMESPACE_BYTES) +
             " letters, digits, '.', '_' and '-'";
    case ValueKind::kChoice:
      return "one of " + joined(choices);
    case ValueKind::kSize:
      return std::string(may_be_zero ? "0 or " : "") + "a size from " + format_size(lowest) +
             " to " + format_size(highest) + ", such as 1536MiB or 4G";
    case ValueKind::kCount:
      return "a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest);
    case ValueKind::kOctal:
      return "an octal mode from 0600 to 0777 that lets the owner read and write, such as \"0660\"";
    case ValueKind::kSwitch:
      return "true or false";
    case ValueKind::kUids:
      return "at most " + std::to_string(kMaxUids) + " user ids (numbers) separated by commas";
  }
  return {};
}

std::string ValueDomain::type() const {
  switch (kind) {
    case ValueKind::kText:
      return "TEXT";
    case ValueKind::kPath:
      return "PATH";
    case ValueKind::kName:
      return "NAME";
    case ValueKind::kChoice:
      return "WORD";
    case ValueKind::kSize:
      return "SIZE";
    case ValueKind::kCount:
      return "NUMBER";
    case ValueKind::kOctal:
      return "MODE";
    case ValueKind::kSwitch:
      return "true|false";
    case ValueKind::kUids:
      return "UID,...";
  }
  return {};
}

ValueDomain log_levels() {
  return {ValueKind::kChoice,
          0,
          0,
          false,
          {"trace", "debug", "info", "warn", "error", "off"},
          {{"err", "error"}, {"critical", "error"}}};
}

std::optional<OptionValue> parse_value(const ValueDomain& domain, std::string_view text,
                                       const std::string& folder) {
  if (text.size() > kMaxValueBytes) return std::nullopt;
  switch (domain.kind) {
    case ValueKind::kText:
      if (text.size() > domain.highest || text.find('\0') != text.npos) return std::nullopt;
      return std::string(text);
    case ValueKind::kPath:
      return parse_path(domain, text, folder);
    case ValueKind::kName:
      if (!is_namespace_name(text)) return std::nullopt;
      return std::string(text);
    case ValueKind::kChoice:
      return parse_choice(domain, text);
    case ValueKind::kSize:
      return parse_in_range(domain, size_of_text(text));
    case ValueKind::kCount:
      return parse_in_range(domain, parse_number(text));
    case ValueKind::kOctal:
      return parse_mode(domain, text);
    case ValueKind::kSwitch:
      if (text == "true" || text == "yes" || text == "on" || text == "1") return true;
      if (text == "false" || text == "no" || text == "off" || text == "0") return false;
      return std::nullopt;
    case ValueKind::kUids:
      return parse_uids(text);
  }
  return std::nullopt;
}

std::string format_value(const ValueDomain& domain, const OptionValue& value) {
  switch (domain.kind) {
    case ValueKind::kText:
    case ValueKind::kPath:
    case ValueKind::kName:
    case ValueKind::kChoice:
      return std::get<std::string>(value);
    case ValueKind::kSize:
      return format_size(std::get<std::uint64_t>(value));
    case ValueKind::kCount:
      return std::to_string(std::get<std::uint64_t>(value));
    case ValueKind::kOctal:
      return octal_text(std::get<std::uint64_t>(value));
    case ValueKind::kSwitch:
      return std::get<bool>(value) ? "true" : "false";
    case ValueKind::kUids:
      break;
  }
  std::string all;
  for (const std::uint32_t uid : std::get<std::vector<std::uint32_t>>(value)) {
    all += (all.empty() ? "" : ",") + std::to_string(uid);
  }
  return all;
}

std::string format_size(std::uint64_t bytes) {
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  std::string text = std::to_string(bytes);
  if (unit > 0) text += std::string(1, kUnits[unit - 1]) + "iB";
  return text;
}

bool is_namespace_name(std::string_view name) {
  return !name.empty() && name.size() <= MC_MAX_NAMESPACE_BYTES &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kShownBytes = 80;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, kShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out + (text.size() > kShownBytes ? "...'" : "'");
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace mc::options
