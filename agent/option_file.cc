// SPDX-License-Identifier: Apache-2.0
#include "agent/option_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "agent/option_value.h"
#include "libmc/base/fd.h"

// The one file that includes toml++, which compiles slowly.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
// toml++ 3.3 asserts (in a release: tells the compiler to assume) that "[[" is followed by a key,
// before the line that reports a file where it is not. No assertion of it may be an abort or an
// assumption here.
#undef NDEBUG
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

namespace mc::agent {
namespace {

std::string place(const std::string& name, const toml::source_region& source) {
  return name + ", line " + std::to_string(source.begin.line);
}

tl::unexpected<Status> refuse(const FileEntry& entry, std::string_view why) {
  return fail(MC_INVALID_ARGUMENT, entry.name + " (" + entry.where + "): " + std::string(why));
}

std::string octal(std::int64_t value) {
  std::string digits;
  for (auto left = static_cast<std::uint64_t>(value); left != 0; left /= 8) {
    digits.insert(digits.begin(), static_cast<char>('0' + left % 8));
  }
  return "0" + digits;
}

// A string or a number of the file as text; nullopt for anything else.
std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

Result<FileEntry> read_entry(const toml::key& key, const toml::node& node,
                             const std::string& name) {
  FileEntry entry;
  entry.name = std::string(key.str());
  entry.where = place(name, key.source());
  if (const auto* number = node.as_integer()) {
    entry.is_integer = true;
    const bool is_octal =
        (number->flags() & toml::value_flags::format_as_octal) != toml::value_flags::none;
    if (is_octal && number->get() >= 0) entry.octal_text = octal(number->get());
  }
  if (auto text = scalar_text(node)) {
    entry.text = std::move(*text);
    return entry;
  }
  if (const auto* array = node.as_array()) {
    for (const toml::node& element : *array) {
      const auto text = scalar_text(element);
      if (!text) return refuse(entry, "a list may only hold numbers and texts");
      entry.text += (entry.text.empty() ? "" : ",") + *text;
    }
    return entry;
  }
  if (node.is_floating_point()) {
    return refuse(entry, "a number with a fraction; write a size as text, such as \"1.5GiB\"");
  }
  if (node.is_table()) {
    // Left to the reader of names, which knows whether there is such an option at all.
    entry.text = "a table";
    return entry;
  }
  return refuse(entry, "no option is a date or a time");
}

Result<FileTable> read_table(const toml::table& table, const std::string& name, bool is_top) {
  FileTable result;
  result.where = place(name, table.source());
  for (const auto& [key, node] : table) {
    if (is_top && key.str() == "namespace") continue;
    auto entry = read_entry(key, node, name);
    if (!entry) return fail(entry.error());
    result.entries.push_back(std::move(*entry));
  }
  return result;
}

// Where the string or comment that starts at `at` ends, by TOML's quoting rules; at + 1 when none
// starts there. A one-line string that is not closed ends with its line.
std::size_t end_of_quoted(std::string_view toml, std::size_t at) {
  const char quote = toml[at];
  if (quote == '#') return std::min(toml.find('\n', at), toml.size());
  if (quote != '"' && quote != '\'') return at + 1;
  const bool is_long = toml.substr(at, 3) == std::string(3, quote);
  const std::string closing(is_long ? 3 : 1, quote);
  for (std::size_t i = at + closing.size(); i < toml.size(); ++i) {
    if (!is_long && toml[i] == '\n') return i;
    if (quote == '"' && toml[i] == '\\') {
      ++i;
    } else if (toml.substr(i, closing.size()) == closing) {
      i += closing.size();
      // A long string may end in one or two quotes of its own.
      for (int extra = 0; is_long && extra < 2 && i < toml.size() && toml[i] == quote; ++extra) ++i;
      return i;
    }
  }
  return toml.size();
}

// The first byte beyond ASCII that is in no string or comment. TOML has none there, and toml++ 3.3
// runs into undefined behaviour at some.
std::optional<std::size_t> find_stray_letter(std::string_view toml) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  for (std::size_t i = toml.starts_with(kByteOrderMark) ? 3 : 0; i < toml.size();) {
    if (static_cast<unsigned char>(toml[i]) >= 0x80) return i;
    // A quote in the middle of a word, as in 1b"x", opens no string: toml++ reads on over it.
    constexpr std::string_view kBeforeString = " \t\r\n=[,{.\"'";
    const bool opens = i == 0 || kBeforeString.find(toml[i - 1]) != std::string_view::npos ||
                       (toml[i] != '"' && toml[i] != '\'');
    i = opens ? end_of_quoted(toml, i) : i + 1;
  }
  return std::nullopt;
}

tl::unexpected<Status> not_toml(const std::string& name, std::size_t line, std::size_t column,
                                std::string_view why) {
  return fail(MC_INVALID_ARGUMENT, name + ", line " + std::to_string(line) + ", column " +
                                       std::to_string(column) + ": not TOML: " + std::string(why));
}

}  // namespace

Result<std::string> read_config(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    return fail(MC_INVALID_ARGUMENT, errno_text("configuration file " + quoted(path), errno) +
                                         "; name one that the agent's user can read");
  }
  std::string text(kMaxConfigBytes + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return fail(MC_INVALID_ARGUMENT, errno_text("configuration file " + quoted(path), errno));
    }
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  text.resize(length);
  return text;
}

Result<OptionFile> parse_config(std::string_view toml, const std::string& name) {
  if (toml.size() > kMaxConfigBytes) {
    return fail(MC_INVALID_ARGUMENT, "configuration file " + quoted(name) +
                                         " is longer than 1MiB; is it the right file?");
  }
  if (const auto at = find_stray_letter(toml)) {
    const std::string_view before = toml.substr(0, *at);
    const auto line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
    return not_toml(name, line, *at - (before.rfind('\n') + 1) + 1,
                    "a letter beyond ASCII must stand in quotes or in a comment");
  }
  const toml::parse_result parsed = toml::parse(toml);
  if (!parsed) {
    const auto& error = parsed.error();
    return not_toml(name, error.source().begin.line, error.source().begin.column,
                    error.description());
  }
  OptionFile file;
  auto top = read_table(parsed.table(), name, true);
  if (!top) return fail(top.error());
  file.top = std::move(*top);
  const toml::node* const namespaces = parsed.table().get("namespace");
  if (namespaces == nullptr) return file;
  const toml::array* const array = namespaces->as_array();
  if (array == nullptr) {
    return fail(MC_INVALID_ARGUMENT, "namespace (" + place(name, namespaces->source()) +
                                         "): write [[namespace]], in two brackets, for each");
  }
  for (const toml::node& node : *array) {
    if (!node.is_table()) {
      return fail(MC_INVALID_ARGUMENT, "namespace (" + place(name, node.source()) +
                                           "): write [[namespace]] and its options below");
    }
    auto table = read_table(*node.as_table(), name, false);
    if (!table) return fail(table.error());
    file.namespaces.push_back(std::move(*table));
  }
  return file;
}

}  // namespace mc::agent
