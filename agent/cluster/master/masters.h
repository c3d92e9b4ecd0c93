// SPDX-License-Identifier: Apache-2.0
//
// What it is: the masters of all partitions of the keys: a MasterPort for each. What concerns a key is
//   for of() its name; what concerns the cluster is asked of all, and their answers become one.
//   A partition without a leader holds up only what concerns its own keys.
// Threads: the agent's loop. Owns: nothing; the ports outlive its use of them.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "agent/cluster/master/master_port.h"
#include "metadata/directory/partition.h"

namespace mc::agent {

class Masters {
 public:
  template <typename Answer>
  using Done = MasterPort::Done<Answer>;

  Masters() = default;
  explicit Masters(std::vector<MasterPort*> ports) : ports_(std::move(ports)) {}
  // Of partition 0, partition 1 …
  void set(std::vector<MasterPort*> ports) { ports_ = std::move(ports); }

  std::uint32_t count() const { return static_cast<std::uint32_t>(ports_.size()); }
  std::uint32_t partition_of(const metadata::KeyHash& name) const {
    return metadata::partition_of(name, count());
  }
  MasterPort& at(std::uint32_t partition) const { return *ports_[partition]; }
  MasterPort& of(const metadata::KeyHash& name) const { return *ports_[partition_of(name)]; }
  // Of each partition, where in a batch its keys are: in order, and those without any left out.
  struct Part {
    std::uint32_t partition = 0;
    std::vector<std::size_t> places;
  };
  std::vector<Part> split(std::span<const metadata::KeyHash> names) const;

  bool all_ready() const;
  // The latest version that something published was too old for, wherever.
  std::uint64_t refused_up_to() const;
  void report_unreachable(metadata::wire::Unreachable peer) const;

  // Whom any of them knows, for each knows all that it has heard of since it leads. An error only
  // if none answers.
  void members(std::uint64_t deadline_ns, Done<metadata::wire::MembersAnswer> done) const;
  // Done when all are. Asked again, it goes on.
  void drain(const metadata::wire::Drain& request, std::uint64_t deadline_ns,
             Done<metadata::wire::DrainAnswer> done) const;
  // One answer a partition, in order.
  void stats(std::uint64_t deadline_ns,
             std::function<void(std::vector<Result<metadata::wire::StatsAnswer>>)> done) const;
  // Keys of any partitions; those of a partition that does not answer are kRecovering.
  void locate(const metadata::wire::Locate& request, std::uint64_t deadline_ns,
              Done<metadata::LocateAnswer> done) const;

 private:
  std::vector<MasterPort*> ports_;
};

}  // namespace mc::agent
