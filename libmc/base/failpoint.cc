// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/failpoint.h"

#ifdef MC_FAILPOINTS

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mc {

namespace {

enum class Action { kKill, kStop, kPause };

struct Armed {
  std::string name;
  Action action = Action::kKill;
  std::uint64_t at = 1;
  std::atomic<std::uint64_t> seen{0};
};

using ArmedList = std::vector<std::unique_ptr<Armed>>;

ArmedList parse(const char* text) {
  ArmedList list;
  std::string_view rest = text != nullptr ? text : "";
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    std::string_view one = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos) continue;
    auto armed = std::make_unique<Armed>();
    std::string_view name = one.substr(0, equals);
    const std::string_view action = one.substr(equals + 1);
    if (const std::size_t at = name.find('@'); at != std::string_view::npos) {
      armed->at = std::strtoull(std::string(name.substr(at + 1)).c_str(), nullptr, 10);
      name = name.substr(0, at);
    }
    armed->name = name;
    armed->action = action == "stop"    ? Action::kStop
                    : action == "pause" ? Action::kPause
                                        : Action::kKill;
    list.push_back(std::move(armed));
  }
  return list;
}

const ArmedList& armed_list() {
  static const ArmedList list = parse(std::getenv("MC_FAILPOINTS"));
  return list;
}

void pause_for_supervisor(const std::string& name) {
  const char* text = std::getenv("MC_FAILPOINT_FD");
  if (text == nullptr) return;
  const int fd = std::atoi(text);
  const std::string line = name + "\n";
  if (::write(fd, line.data(), line.size()) < 0) return;
  char go = 0;
  while (::read(fd, &go, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace

void failpoint_reached(const char* name) {
  const ArmedList& list = armed_list();
  if (list.empty()) return;
  for (const auto& armed : list) {
    if (armed->name != name || armed->seen.fetch_add(1) + 1 != armed->at) continue;
    switch (armed->action) {
      case Action::kKill:
        ::kill(::getpid(), SIGKILL);
        break;
      case Action::kStop:
        ::raise(SIGSTOP);
        break;
      case Action::kPause:
        pause_for_supervisor(armed->name);
        break;
    }
  }
}

}  // namespace mc

#endif
