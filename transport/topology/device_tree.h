// SPDX-License-Identifier: Apache-2.0
//
// The files of /sys that describe a host: the files of this host, or a record of
//   another host's files, so that a machine can be examined without access to the machine.
//
//     mc-tree 1
//     /sys/devices/system/node/node0/cpulist = 0-55,112-167
//     /sys/bus/pci/devices/0000:18:00.0 -> /sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0
//
//   In values, \n and \\ stand for a new line and a backslash. A line that begins with # is a
//   comment.
// Threads: a single thread.
// Owns: a RecordedTree owns the text; a Recorder owns the files that were read through it.
// Trusts: nothing. Paths, values, links and the number of links are bounded.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mc/status.h"

namespace mc::transport {

inline constexpr std::size_t kMaxTreeBytes = 8u << 20;   // of a record
inline constexpr std::size_t kMaxTreeValueBytes = 4096;  // of a file; longer content is cut
inline constexpr std::size_t kMaxTreeNames = 16 * 1024;  // in a directory

class DeviceTree {
 public:
  virtual ~DeviceTree() = default;
  // The sorted names; empty if the directory does not exist.
  virtual std::vector<std::string> list(const std::string& directory) const = 0;
  // The content without white space at the end; none if the file cannot be read.
  virtual std::optional<std::string> read(const std::string& file) const = 0;
  // The path without links; none if the path does not exist.
  virtual std::optional<std::string> resolve(const std::string& path) const = 0;
};

// The tree of the file system, with paths below root.
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
  // Whether the text begins like a record.
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

// Passes each call on, and remembers the answers for text(), which RecordedTree reads.
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
