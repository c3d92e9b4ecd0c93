// SPDX-License-Identifier: Apache-2.0
//
// The fetch of an object of another host, for readers that wait on this host.
// Threads: the agent's loop.
// Owns: the fetched object until the readers have it; the names of joinable fetches.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "agent/cluster/fetch/holder_questions.h"
#include "agent/cluster/fetch/object_reader.h"
#include "agent/cluster/fetch/waiting_readers.h"
#include "metadata/directory/directory_types.h"

namespace mc::agent {

class Fetcher;

// A master's answer.
struct FoundObject {
  bool answered = false;  // false: no master answered
  metadata::Located object;
  std::vector<MemberId> holders;
};

struct Fetch final : Asker {
  static constexpr OperationKind kKind = OperationKind::kFetch;
  enum class Step : std::uint8_t { kLocate, kLocating, kAsk, kAsking, kRead, kReading, kGathering };
  // How the fetch knows the holders. A failure at the last holder leads to the next state, and to a
  // question to the master. A later version in the answer leads back to kFirst.
  enum class Known : std::uint8_t { kFromCache, kFirst, kRelocated };

  Fetch(Fetcher& with, const metadata::KeyHash& of) : fetcher(with), name(of) {}

  Fetcher& fetcher;
  const metadata::KeyHash name;
  Step at = Step::kLocate;
  FetchedObject object;       // empty while a Read has the object
  std::uint64_t version = 0;  // of the location used last
  WaitingReaders readers;
  std::uint64_t begun_ns = 0;
  std::uint64_t stage_ns = 0;  // when the present question or read began
  std::uint64_t deadline_ns = 0;
  std::uint64_t try_until_ns = 0;  // when another holder should be tried
  std::uint64_t patience_ns = 0;   // until when a holder may be unknown, or a stripe missing
  Known known = Known::kFirst;
  bool joined = false;       // by a reader for which nothing has been tried anew
  bool hot = false;          // the location was used before: make a copy afterwards
  bool holder_away = false;  // one of `holders` could not be reached
  std::vector<MemberId> holders;
  std::size_t next_holder = 0;
  MemberId guessed = metadata::kNoNode;  // a host that was asked before the master had answered
  std::uint64_t located_version = 0;     // by the master; 0: no master was asked
  OperationId read;
  OperationId gather;
  std::optional<FoundObject> found;  // a master's answer, for the next step

 private:
  void step() override;
  void cancel() override;
};

// The fetches that further readers of the same object may join, by the object's name.
class JoinableFetches {
 public:
  explicit JoinableFetches(OperationTable& operations) : operations_(operations) {}

  void add(const Fetch& fetch) { by_name_[fetch.name] = fetch.id(); }
  // Null: none.
  Fetch* find(const metadata::KeyHash& name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : operations_.find<Fetch>(at->second);
  }
  template <typename Predicate>
  void remove_if(const metadata::KeyHash& name, Predicate predicate) {
    const Fetch* const fetch = find(name);
    if (fetch != nullptr && predicate(*fetch)) by_name_.erase(name);
  }
  void remove(const ClusterTenant& tenant) {
    std::erase_if(by_name_, [&](const auto& each) {
      return operations_.find<Fetch>(each.second)->tenant() == &tenant;
    });
  }

 private:
  OperationTable& operations_;
  std::unordered_map<metadata::KeyHash, OperationId, NameHash> by_name_;
};

}  // namespace mc::agent
