// SPDX-License-Identifier: Apache-2.0
#include "agent/option_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "agent/option_value.h"
#include "libmc/base/fd.h"

// The one file that includes toml++, which compiles slowly.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
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
  const toml::parse_result parsed = toml::parse(toml);
  if (!parsed) {
    const auto& error = parsed.error();
    return fail(MC_INVALID_ARGUMENT, name + ", line " + std::to_string(error.source().begin.line) +
                                         ", column " + std::to_string(error.source().begin.column) +
                                         ": not TOML: " + std::string(error.description()));
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
