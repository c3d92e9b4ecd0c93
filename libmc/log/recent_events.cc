// SPDX-License-Identifier: Apache-2.0
#include "libmc/log/recent_events.h"

#include <algorithm>

namespace mc::log {

namespace {

bool is_name_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

}  // namespace

void RecentEvents::add(std::uint64_t wall_ms, std::string_view level, std::string_view line) {
  const MutexLock lock(mutex_);
  if (events_.size() == kMost) events_.pop_front();
  events_.push_back(
      {++latest_, wall_ms, std::string(level), std::string(line.substr(0, kMostLineBytes))});
}

std::vector<RecentEvents::Event> RecentEvents::after(std::uint64_t after, std::size_t most) const {
  const MutexLock lock(mutex_);
  auto at = std::ranges::upper_bound(events_, after, {}, &Event::number);
  std::vector<Event> found;
  for (; at != events_.end() && found.size() < most; ++at) found.push_back(*at);
  return found;
}

std::uint64_t RecentEvents::latest() const {
  const MutexLock lock(mutex_);
  return latest_;
}

std::vector<std::pair<std::string, std::string>> pairs_of(std::string_view line) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!line.empty()) {
    const std::size_t equals = line.find_first_of("= ");
    if (equals == std::string_view::npos) break;
    const std::string_view name = line.substr(0, equals);
    const bool is_pair =
        line[equals] == '=' && !name.empty() && std::ranges::all_of(name, is_name_letter);
    line.remove_prefix(equals + 1);
    if (!is_pair) continue;
    std::size_t end = 0;
    std::string_view value;
    if (line.starts_with('"')) {
      // A quote before a space, or at the end of the line, ends the text.
      line.remove_prefix(1);
      end = std::min(line.find("\" "), line.size() - (line.ends_with('"') ? 1 : 0));
      value = line.substr(0, end);
      end = std::min(end + 1, line.size());
    } else {
      end = std::min(line.find(' '), line.size());
      value = line.substr(0, end);
    }
    pairs.emplace_back(std::string(name), std::string(value));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return pairs;
}

}  // namespace mc::log
