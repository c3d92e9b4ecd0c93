// SPDX-License-Identifier: Apache-2.0
#include "policy/policy_run.h"

#include <vector>

namespace mc::ctl {
namespace {

using agent::EntryId;
using agent::kNoEntry;

constexpr std::uint64_t kBlockBytes = 1;  // all blocks have the same weight here

// Takes the place of the keyed hash of the index (the finaliser of splitmix64).
std::uint64_t key_hash(std::uint64_t block) {
  std::uint64_t h = block + 0x9e3779b97f4a7c15;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

class Pool {
 public:
  Pool(std::size_t block_count, std::size_t capacity_blocks, agent::EvictionPolicy& policy)
      : entry_of_(block_count, kNoEntry), block_of_(capacity_blocks), policy_(policy) {
    free_entries_.reserve(capacity_blocks);
    for (std::size_t i = capacity_blocks; i > 0; --i) {
      free_entries_.push_back(static_cast<EntryId>(i - 1));
    }
  }

  // False if the policy named a victim that is not resident.
  bool serve(const TraceRequest& request, PolicyRun& run) {
    const auto& blocks = request.blocks;
    run.references += blocks.size();
    std::size_t prefix = 0;
    while (prefix < blocks.size() && entry_of_[blocks[prefix]] != kNoEntry) ++prefix;
    run.prefix_hits += prefix;
    for (std::size_t i = 0; i < prefix; ++i) policy_.touch(entry_of_[blocks[i]]);
    for (std::size_t i = prefix; i < blocks.size(); ++i) {
      if (entry_of_[blocks[i]] != kNoEntry) {
        policy_.touch(entry_of_[blocks[i]]);
      } else if (!put(blocks[i], i == 0 ? nullptr : &blocks[i - 1], run)) {
        return false;
      }
    }
    return true;
  }

 private:
  bool put(std::uint32_t block, const std::uint32_t* parent, PolicyRun& run) {
    if (free_entries_.empty()) {
      const EntryId victim = policy_.evict();
      if (victim >= block_of_.size() || entry_of_[block_of_[victim]] != victim) return false;
      entry_of_[block_of_[victim]] = kNoEntry;
      free_entries_.push_back(victim);
      ++run.evictions;
    }
    const EntryId entry = free_entries_.back();
    free_entries_.pop_back();
    entry_of_[block] = entry;
    block_of_[entry] = block;
    policy_.insert({.id = entry,
                    .parent = parent == nullptr ? kNoEntry : entry_of_[*parent],
                    .key_hash = key_hash(block),
                    .bytes = kBlockBytes});
    ++run.insertions;
    return true;
  }

  std::vector<EntryId> entry_of_;        // per block
  std::vector<std::uint32_t> block_of_;  // per entry
  std::vector<EntryId> free_entries_;
  agent::EvictionPolicy& policy_;
};

}  // namespace

tl::expected<PolicyRun, std::string> run_policy(const Trace& trace, std::size_t capacity_blocks,
                                                agent::EvictionPolicy& policy) {
  PolicyRun run;
  Pool pool(trace.block_count, capacity_blocks, policy);
  for (const TraceRequest& request : trace.requests) {
    if (!pool.serve(request, run)) {
      return tl::make_unexpected("policy " + std::string(policy.name()) +
                                 " gave up an object that is not in the pool; it is broken, choose "
                                 "another");
    }
  }
  run.memory_bytes = policy.memory_bytes();
  return run;
}

}  // namespace mc::ctl
