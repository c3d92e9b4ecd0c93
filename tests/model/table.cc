// SPDX-License-Identifier: Apache-2.0
//
// Prints a counterexample as a table: a line per step, a column per thread. The moment at which a
// store leaves the thread's buffer stands in the thread's column after ">".
#include <cstdio>
#include <cstring>

#include "tests/model/machine.h"

namespace mc::model {

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "";
    case Kind::kLoad:
      return "load";
    case Kind::kStore:
      return "store";
    case Kind::kFlush:
      return "> visible";
    case Kind::kRmw:
      return "exchange";
    case Kind::kFence:
      return "fence";
    case Kind::kAwait:
      return "look again";
    case Kind::kFutexWait:
      return "futex wait";
    case Kind::kFutexSleep:
      return "woken";
    case Kind::kFutexWake:
      return "futex wake";
    case Kind::kSignal:
      return "signal";
    case Kind::kWaitEvent:
      return "take signal";
    case Kind::kPunch:
      return "punch";
    case Kind::kKill:
      return "DIES";
  }
  return "";
}

void Machine::note(unsigned process, Kind kind, const void* address, std::uint64_t value,
                   const Site& site) {
  const std::uint64_t at =
      address == nullptr
          ? 0
          : static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - arena_base());
  steps_.push_back({process, kind, at, value, site});
}

std::string Machine::place(std::uint64_t address) const {
  const Name* best = nullptr;
  for (const Name& name : names_) {
    if (address < name.first || address >= name.end) continue;
    if (best == nullptr || name.end - name.first < best->end - best->first) best = &name;
  }
  if (best == nullptr) return "+" + std::to_string(address);
  if (address == best->first && best->end - best->first <= 8) return best->text;
  return best->text + "+" + std::to_string(address - best->first);
}

std::string Machine::table() const {
  constexpr int kColumn = 46;
  std::string text;
  char line[512];
  std::snprintf(line, sizeof line, "%4s  ", "step");
  text += line;
  for (const Thread& thread : threads_) {
    std::snprintf(line, sizeof line, "%-*s", kColumn, thread.name.c_str());
    text += line;
  }
  text += "where\n";
  unsigned number = 0;
  for (const Step& step : steps_) {
    std::string cell = kind_name(step.kind);
    if (step.address != 0) {
      char value[24];
      std::snprintf(value, sizeof value, "%llx", static_cast<unsigned long long>(step.value));
      cell += " " + place(step.address) + " = " + value;
    }
    const unsigned thread = processes_[step.process].thread;
    std::snprintf(line, sizeof line, "%4u  %*s%-*s", ++number, static_cast<int>(thread) * kColumn,
                  "", static_cast<int>(threads_.size() - thread) * kColumn, cell.c_str());
    text += line;
    if (step.site.line != 0) {
      const char* slash = std::strrchr(step.site.file, '/');
      std::snprintf(line, sizeof line, "%s:%d %s", slash == nullptr ? step.site.file : slash + 1,
                    step.site.line, step.site.function);
      text += line;
    }
    text += "\n";
  }
  return text;
}

}  // namespace mc::model
