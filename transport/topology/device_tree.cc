// SPDX-License-Identifier: Apache-2.0
#include "transport/topology/device_tree.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace mc::transport {

namespace {

constexpr std::string_view kHead = "mc-tree 1";
constexpr std::size_t kMaxPathBytes = 4096;
constexpr int kMaxLinks = 40;

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    if (!escape) {
      out += text[i];
      continue;
    }
    ++i;
    out += text[i] == 'n' ? '\n' : text[i];
  }
  return out;
}

// A plain path starts with / and has no empty, "." or ".." parts.
bool is_plain(std::string_view path) {
  if (path.empty() || path.front() != '/' || path.size() > kMaxPathBytes) return false;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at + 1), path.size());
    const std::string_view part = path.substr(at + 1, end - at - 1);
    if (part.empty() || part == "." || part == "..") return false;
    at = end;
  }
  return true;
}

}  // namespace

// ---- The file system --------------------------------------------------------------------------

namespace {
std::string real_path(const std::string& path) {
  char* const found = ::realpath(path.c_str(), nullptr);
  std::string out = found == nullptr ? "" : found;
  std::free(found);
  return out;
}
}  // namespace

DirectoryTree::DirectoryTree(std::string root) : root_(root.empty() ? "" : real_path(root)) {
  if (root_ == "/") root_.clear();
}

std::vector<std::string> DirectoryTree::list(const std::string& directory) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(root_ + directory, error), end; !error && at != end;
       at.increment(error)) {
    names.push_back(at->path().filename().string());
    if (names.size() >= kMaxTreeNames) break;
  }
  std::ranges::sort(names);
  return names;
}

std::optional<std::string> DirectoryTree::read(const std::string& file) const {
  std::ifstream in(root_ + file);
  if (!in) return std::nullopt;
  std::string text(kMaxTreeValueBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  // Some files of /sys open and then refuse to be read: the speed of a link that is down.
  if (in.bad() || (in.gcount() == 0 && !in.eof())) return std::nullopt;
  text.resize(static_cast<std::size_t>(in.gcount()));
  return trimmed(std::move(text));
}

std::optional<std::string> DirectoryTree::resolve(const std::string& path) const {
  const std::string found = real_path(root_ + path);
  if (found.empty() || !found.starts_with(root_)) return std::nullopt;
  return found.substr(root_.size());
}

// ---- A record ---------------------------------------------------------------------------------

bool RecordedTree::is_one(std::string_view text) {
  return text.starts_with(kHead) && (text.size() == kHead.size() || text[kHead.size()] == '\n');
}

Result<RecordedTree> RecordedTree::parse(std::string_view text) {
  const auto broken = [](std::size_t line, const char* why) {
    return fail(MC_INVALID_ARGUMENT, "line " + std::to_string(line) + ": " + why +
                                         "; a recorded tree is made by mcctl topo --record");
  };
  if (text.size() > kMaxTreeBytes) return broken(1, "longer than 8 MiB");
  if (!is_one(text)) return broken(1, "it does not begin with \"mc-tree 1\"");
  RecordedTree tree;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (number == 1 || line.empty() || line.front() == '#') continue;
    const std::size_t value = line.find(" = ");
    const std::size_t link = line.find(" -> ");
    const bool is_link = link < value;
    const std::size_t middle = std::min(value, link);
    // An empty value.
    const bool bare = middle == std::string_view::npos && line.ends_with(" =");
    if (middle == std::string_view::npos && !bare) {
      return broken(number, "neither \"path = value\" nor \"path -> path\"");
    }
    const std::string path(line.substr(0, bare ? line.size() - 2 : middle));
    if (!is_plain(path)) return broken(number, "the path is not absolute and plain");
    Entry entry;
    entry.link = is_link;
    if (!bare) entry.text = unescaped(line.substr(middle + (is_link ? 4 : 3)));
    if (is_link && !is_plain(entry.text)) {
      return broken(number, "the link does not lead to an absolute, plain path");
    }
    if (entry.text.size() > kMaxTreeValueBytes) entry.text.resize(kMaxTreeValueBytes);
    tree.entries_[path] = std::move(entry);
  }
  return tree;
}

std::optional<std::string> RecordedTree::resolve(const std::string& path) const {
  std::string left = path;
  std::string done;
  for (int links = 0; !left.empty();) {
    if (left.front() != '/' || done.size() + left.size() > 2 * kMaxPathBytes) return std::nullopt;
    const std::size_t end = std::min(left.find('/', 1), left.size());
    done += left.substr(0, end);
    left.erase(0, end);
    const auto entry = entries_.find(done);
    if (entry == entries_.end() || !entry->second.link) continue;
    if (++links > kMaxLinks) return std::nullopt;
    left = entry->second.text + left;
    done.clear();
  }
  const auto at = entries_.lower_bound(done);
  const bool exists =
      at != entries_.end() && (at->first == done || at->first.starts_with(done + '/'));
  // "a-b" sorts between "a" and "a/c".
  if (!exists) {
    const auto below = entries_.lower_bound(done + '/');
    if (below == entries_.end() || !below->first.starts_with(done + '/')) return std::nullopt;
  }
  return done;
}

std::vector<std::string> RecordedTree::list(const std::string& directory) const {
  std::vector<std::string> names;
  const auto found = resolve(directory);
  if (!found) return names;
  const std::string start = *found + '/';
  for (auto at = entries_.lower_bound(start);
       at != entries_.end() && at->first.starts_with(start) && names.size() < kMaxTreeNames; ++at) {
    std::string name = at->first.substr(start.size());
    name.erase(std::min(name.find('/'), name.size()));
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::optional<std::string> RecordedTree::read(const std::string& file) const {
  const auto found = resolve(file);
  if (!found) return std::nullopt;
  const auto entry = entries_.find(*found);
  if (entry == entries_.end() || entry->second.link) return std::nullopt;
  return trimmed(entry->second.text);
}

// ---- Recording --------------------------------------------------------------------------------

std::vector<std::string> Recorder::list(const std::string& directory) const {
  std::vector<std::string> names = of_.list(directory);
  for (const std::string& name : names) resolve(directory + '/' + name);
  return names;
}

std::optional<std::string> Recorder::read(const std::string& file) const {
  auto value = of_.read(file);
  const auto place = value ? resolve(file) : std::nullopt;
  if (place) values_[*place] = *value;
  return value;
}

std::optional<std::string> Recorder::resolve(const std::string& path) const {
  const auto found = of_.resolve(path);
  // Records each link of the path, with the real place.
  for (std::size_t end = path.find('/', 1); found; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    const std::size_t slash = part.rfind('/');
    const auto above = slash == 0 ? std::string() : of_.resolve(part.substr(0, slash));
    const auto target = of_.resolve(part);
    if (above && target) {
      const std::string place = *above + part.substr(slash);
      if (place != *target) links_[place] = *target;
    }
    if (end == std::string::npos) break;
  }
  return found;
}

std::string Recorder::text() const {
  std::string out(kHead);
  out += '\n';
  for (const auto& [path, target] : links_) out += path + " -> " + target + '\n';
  for (const auto& [path, value] : values_) out += path + " = " + escaped(value) + '\n';
  return out;
}

}  // namespace mc::transport
