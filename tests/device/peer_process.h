// SPDX-License-Identifier: Apache-2.0
//
// An mc_device_peer process, which uses the device as an engine does (peer/main.cc), and the answers
// to its commands.
#pragma once

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "device/fake/abi.h"
#include "libmc/base/fd.h"
#include "line_process.h"

namespace mc::device::testing {

class PeerProcess : public LineProcess {
 public:
  PeerProcess() : LineProcess({MC_TEST_BIN "/mc_device_peer"}) {}

  std::uint64_t number(const std::string& command) {
    return std::strtoull(tell(command).c_str(), nullptr, 10);
  }
  std::string tell_of(const std::string& command, std::uint64_t address) {
    return tell(command + " " + std::to_string(address));
  }
  std::uint64_t allocate(std::uint64_t bytes) { return number("alloc " + std::to_string(bytes)); }
  void fill(std::uint64_t address, std::uint64_t bytes, int value) {
    tell("fill " + std::to_string(address) + " " + std::to_string(bytes) + " " +
         std::to_string(value));
  }
  void paint(std::uint64_t address, std::uint64_t bytes, int seed) {
    EXPECT_EQ(tell(place("paint", address, bytes) + std::to_string(seed)), "ok");
  }
  // "ok": the bytes are those of paint().
  std::string check(std::uint64_t address, std::uint64_t bytes, int seed) {
    return tell(place("check", address, bytes) + std::to_string(seed));
  }
  // "COMMAND ADDRESS BYTES "
  static std::string place(const std::string& command, std::uint64_t address, std::uint64_t bytes) {
    return command + " " + std::to_string(address) + " " + std::to_string(bytes) + " ";
  }
  // A descriptor of the chunk with this number, in this process.
  Fd chunk(int which) {
    const auto theirs = static_cast<int>(number("export " + std::to_string(which)));
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid(), 0)));
    Fd ours(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), theirs, 0)));
    EXPECT_TRUE(ours) << "chunk " << which;
    return ours;
  }
  // The answer to "share ADDRESS" or "event".
  CUipcHandle handle(const std::string& command) {
    const std::string text = tell(command);
    CUipcHandle handle{};
    for (std::size_t i = 0; i < sizeof handle.bytes && 2 * i + 1 < text.size(); ++i) {
      handle.bytes[i] =
          static_cast<unsigned char>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
    }
    return handle;
  }
  CUipcHandle share(std::uint64_t address) { return handle("share " + std::to_string(address)); }
};

}  // namespace mc::device::testing
