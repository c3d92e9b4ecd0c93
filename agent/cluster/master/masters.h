// SPDX-License-Identifier: Apache-2.0
//
// The masters of all partitions of the keys, with a MasterPort each. A request about a
//   key goes to of(name). A request about the cluster goes to all masters, and the answers are
//   merged. A partition without a leader delays only requests about that partition's keys.
// Threads: The agent's loop.
// Owns: Nothing. The ports outlive this object.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "agent/cluster/master/master_port.h"
#include "metadata/directory/key_hash.h"

namespace mc::agent {

class Masters {
 public:
  template <typename Answer>
  using Done = MasterPort::Done<Answer>;

  Masters() = default;
  explicit Masters(std::vector<MasterPort*> ports) : ports_(std::move(ports)) {}
  // ports: of partition 0, partition 1 …
  void set(std::vector<MasterPort*> ports) { ports_ = std::move(ports); }

  std::uint32_t count() const { return static_cast<std::uint32_t>(ports_.size()); }
  std::uint32_t partition_of(const metadata::KeyHash& name) const {
    return metadata::partition_of(name, count());
  }
  MasterPort& at(std::uint32_t partition) const { return *ports_[partition]; }
  MasterPort& of(const metadata::KeyHash& name) const { return *ports_[partition_of(name)]; }
  // Places of a partition's keys in a batch, in order. Partitions without keys are left out.
  struct Part {
    std::uint32_t partition = 0;
    std::vector<std::size_t> places;
  };
  std::vector<Part> split(std::span<const metadata::KeyHash> names) const;

  bool all_ready() const;
  // The maximum of all masters' MasterPort::refused_up_to().
  std::uint64_t refused_up_to() const;
  void report_unreachable(metadata::wire::Unreachable peer) const;

  // True if the host may be read from without a question to the master of the key.
  bool readable(const metadata::KeyHash& name, MemberId node) const {
    return of(name).member_list().readable(node);
  }
  // The earliest MemberList::readable_until_ns() of all partitions.
  std::uint64_t readable_until_ns(MemberId node) const;
  // The union of the lists of members of all partitions.
  metadata::wire::MembersAnswer known_members() const;
  // True if known_members() has changed since the last call with the same `seen`.
  bool members_changed(std::vector<std::uint64_t>& seen) const;
  void refresh_members() const;

  // The union of the members that the masters know. Each leader knows the members heard since its
  // election. Fails only if no master answers.
  void members(std::uint64_t deadline_ns, Done<metadata::wire::MembersAnswer> done) const;
  // Done when all partitions are. A repeated request continues the drain.
  void drain(const metadata::wire::Drain& request, std::uint64_t deadline_ns,
             Done<metadata::wire::DrainAnswer> done) const;
  // Objects of all partitions. Fails if a partition does not answer: the other partitions have
  // removed their objects, and the same call removes the rest later.
  void remove_matching(const metadata::wire::Match& match, std::uint64_t deadline_ns,
                       Done<metadata::wire::RemoveMatchingAnswer> done) const;
  // The smallest match.limit keys after match.after, of all partitions. Fails if a partition does
  // not answer.
  void list(const metadata::wire::Match& match, std::uint64_t deadline_ns,
            Done<metadata::wire::ListAnswer> done) const;
  // One answer a partition, in order.
  void stats(std::uint64_t deadline_ns,
             std::function<void(std::vector<Result<metadata::wire::StatsAnswer>>)> done) const;
  // The keys may be of any partitions. Keys of a partition that does not answer are kRecovering.
  void locate(const metadata::wire::Locate& request, std::uint64_t deadline_ns,
              Done<metadata::LocateAnswer> done) const;

 private:
  std::vector<MasterPort*> ports_;
};

}  // namespace mc::agent
