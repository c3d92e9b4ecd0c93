// SPDX-License-Identifier: Apache-2.0
//
// What it is: the files of /sys that tell what a host is made of: those of this host, or a record
//   of another one's, so that a machine can be looked at without having it.
//
//     mc-tree 1
//     /sys/devices/system/node/node0/cpulist = 0-55,112-167
//     /sys/bus/pci/devices/0000:18:00.0 -> /sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0
//
//   In values \n and \\ stand for a new line and a backslash; # begins a comment line.
// Threads: one. Owns: a RecordedTree its text, a Recorder what was read through it.
// Trusts: nothing; paths, values, links and their number are bounded.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mc/status.h"

namespace mc::transport {

inline constexpr std::size_t kMaxTreeBytes = 8u << 20;   // of a record
inline constexpr std::size_t kMaxTreeValueBytes = 4096;  // of a file; the rest is left out
inline constexpr std::size_t kMaxTreeNames = 16 * 1024;  // in a directory

class DeviceTree {
 public:
  virtual ~DeviceTree() = default;
  // Sorted; none if there is no such directory.
  virtual std::vector<std::string> list(const std::string& directory) const = 0;
  // Without white space at its end; none if it cannot be read.
  virtual std::optional<std::string> read(const std::string& file) const = 0;
  // The path without links; none if nothing is there.
  virtual std::optional<std::string> resolve(const std::string& path) const = 0;
};

// Of the file system, with paths below root.
class DirectoryTree : public DeviceTree {
 public:
  explicit DirectoryTree(std::string root = "");
  std::vector<std::string> list(const std::string& directory) const override;
  std::optional<std::string> read(const std::string& file) const override;
  std::optional<std::string> resolve(const std::string& path) const override;

 private:
  std::string root_;
};

class RecordedTree : public DeviceTree {
 public:
  // Errors: MC_INVALID_ARGUMENT, with the line.
  static Result<RecordedTree> parse(std::string_view text);
  // Whether it begins like one.
  static bool is_one(std::string_view text);

  std::vector<std::string> list(const std::string& directory) const override;
  std::optional<std::string> read(const std::string& file) const override;
  std::optional<std::string> resolve(const std::string& path) const override;

 private:
  struct Entry {
    bool link = false;
    std::string text;
  };
  std::map<std::string, Entry> entries_;  // by path, links not followed
};

// Passes everything on, and can say afterwards what was asked for, as a RecordedTree reads it.
class Recorder : public DeviceTree {
 public:
  explicit Recorder(const DeviceTree& of) : of_(of) {}
  std::vector<std::string> list(const std::string& directory) const override;
  std::optional<std::string> read(const std::string& file) const override;
  std::optional<std::string> resolve(const std::string& path) const override;
  std::string text() const;

 private:
  const DeviceTree& of_;
  mutable std::map<std::string, std::string> values_;
  mutable std::map<std::string, std::string> links_;
};

}  // namespace mc::transport
