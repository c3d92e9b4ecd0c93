// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/namespace/index_walks.h"

#include <algorithm>
#include <boost/regex.hpp>
#include <optional>

#include "libmc/base/clock.h"
#include "metadata/directory/partition.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

constexpr std::size_t kListBytes = 512 * 1024;
constexpr std::uint32_t kEntriesPerLook = 16;  // between two looks at the clock

bool is_live(ObjectIndex& index, std::uint32_t entry) {
  return shm::state_of(index.entry(entry).version.load_relaxed()) == shm::EntryState::kLive;
}

}  // namespace

class IndexWalks::Walk {
 public:
  Walk(ClusterTenant& tenant, const wire::Match& match, Partition partition)
      : tenant_(tenant), match_(match), partition_(partition) {}
  virtual ~Walk() = default;
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // False: the walk needs no further entry.
  virtual bool visit(std::uint32_t entry, std::string_view key, std::uint64_t bytes) = 0;
  virtual void finish() = 0;
  virtual bool wants_puts() const = 0;

  // False: the walk is over.
  bool go_on(std::uint64_t until_ns) {
    ObjectIndex& index = tenant_.store().index();
    for (std::uint32_t i = 0; i < kEntriesPerTurn; ++i) {
      if (i % kEntriesPerLook == 0 && i > 0 && now_ns() >= until_ns) return true;
      std::uint32_t entry = 0;
      if (cursor_ < index.entry_count()) {
        entry = cursor_++;
      } else if (!behind_.empty()) {
        entry = behind_.back();
        behind_.pop_back();
      } else {
        return false;
      }
      if (!is_live(index, entry)) continue;
      if (!tenant_.is_stripe(entry)) {
        if (!is_of_partition(index.key_of(entry))) continue;
        const std::uint64_t bytes = index.entry(entry).length.load_relaxed();
        if (!visit(entry, index.key_of(entry), bytes)) return false;
      } else if (const StripeSet* const set = tenant_.speaks_for(entry)) {
        if (is_of_partition(set->key) && !visit(entry, set->key, set->facts.whole_bytes))
          return false;
      }
    }
    return true;
  }
  void arrived(std::uint32_t entry, bool is_put) {
    if (entry < cursor_ && (!is_put || wants_puts())) behind_.push_back(entry);
  }
  ClusterTenant& tenant() const { return tenant_; }

 protected:
  ClusterTenant& tenant_;
  const wire::Match match_;

 private:
  bool is_of_partition(std::string_view key) const {
    return partition_.of == 1 ||
           metadata::partition_of(tenant_.name_of(key), partition_.of) == partition_.number;
  }

  const Partition partition_;
  std::uint32_t cursor_ = 0;
  std::vector<std::uint32_t> behind_;
};

// Lists the smallest `limit` keys after match.after: a heap with the largest of these keys in
// front.
class IndexWalks::Listing final : public Walk {
 public:
  Listing(ClusterTenant& tenant, const wire::Match& match, Partition partition,
          Reply<wire::ListAnswer> reply)
      : Walk(tenant, match, partition), reply_(std::move(reply)) {}

  bool visit(std::uint32_t, std::string_view key, std::uint64_t object_bytes) override {
    std::vector<wire::ListedKey>& keys = answer_.keys;
    if (!key.starts_with(match_.pattern) || (!match_.after.empty() && key <= match_.after)) {
      return true;
    }
    if (keys.size() == match_.limit) {
      answer_.more = true;
      if (keys.empty() || key >= keys.front().key) return true;
      std::ranges::pop_heap(keys, before);
      keys.pop_back();
    }
    keys.push_back({std::string(key), object_bytes});
    std::ranges::push_heap(keys, before);
    return true;
  }
  void finish() override {
    std::vector<wire::ListedKey>& keys = answer_.keys;
    std::ranges::sort_heap(keys, before);
    // The walk may have met a moved object twice.
    const auto same = [](const wire::ListedKey& one, const wire::ListedKey& other) {
      return one.key == other.key;
    };
    keys.erase(std::unique(keys.begin(), keys.end(), same), keys.end());
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      bytes += keys[i].key.size() + 16;
      if (bytes <= kListBytes) continue;
      keys.resize(i);
      answer_.more = true;
      break;
    }
    reply_(std::move(answer_));
  }
  // An object that a put replaces during the walk exists all the time and must be listed.
  bool wants_puts() const override { return true; }

 private:
  static bool before(const wire::ListedKey& one, const wire::ListedKey& other) {
    return one.key < other.key;
  }
  Reply<wire::ListAnswer> reply_;
  wire::ListAnswer answer_;
};

class IndexWalks::Removal final : public Walk {
 public:
  Removal(ClusterTenant& tenant, const wire::Match& match, Partition partition,
          Reply<wire::RemoveMatchingAnswer> reply, std::optional<boost::regex> pattern)
      : Walk(tenant, match, partition), reply_(std::move(reply)), pattern_(std::move(pattern)) {}

  bool visit(std::uint32_t entry, std::string_view key, std::uint64_t) override {
    if (pattern_) {
      try {
        if (!boost::regex_search(key.begin(), key.end(), *pattern_)) return true;
      } catch (const std::exception&) {  // The pattern takes more work than Boost permits.
        failure_ = {MC_TOO_LARGE, "the pattern takes too long to match; say it simpler"};
        return false;
      }
    } else if (!key.starts_with(match_.pattern)) {
      return true;
    }
    tenant_.drop(entry);
    ++answer_.removed;
    return true;
  }
  void finish() override {
    if (failure_.ok()) {
      reply_(answer_);
    } else {
      reply_(fail(failure_));
    }
  }
  bool wants_puts() const override { return false; }

 private:
  Reply<wire::RemoveMatchingAnswer> reply_;
  std::optional<boost::regex> pattern_;
  wire::RemoveMatchingAnswer answer_;
  Status failure_;
};

IndexWalks::IndexWalks() = default;

IndexWalks::~IndexWalks() {
  for (const auto& walk : walks_) walk->tenant().on_arrival = nullptr;
}

template <typename Answer>
bool IndexWalks::admit(const Reply<Answer>& reply) const {
  if (walks_.size() < kMaxWalks) return true;
  reply(fail(MC_BUSY, "256 listings and removals by pattern are under way; ask again later"));
  return false;
}

void IndexWalks::list(ClusterTenant& tenant, const wire::Match& match, Partition partition,
                      Reply<wire::ListAnswer> reply) {
  if (!admit(reply)) return;
  begin(std::make_unique<Listing>(tenant, match, partition, std::move(reply)));
}

void IndexWalks::remove(ClusterTenant& tenant, const wire::Match& match, Partition partition,
                        Reply<wire::RemoveMatchingAnswer> reply) {
  if (!admit(reply)) return;
  std::optional<boost::regex> pattern;
  if (match.kind == wire::Match::Kind::kRegex) {
    try {
      pattern.emplace(match.pattern, boost::regex::extended);
    } catch (const boost::regex_error& error) {
      reply(fail(MC_INVALID_ARGUMENT,
                 "the pattern is no regular expression: " + std::string(error.what())));
      return;
    }
  }
  begin(std::make_unique<Removal>(tenant, match, partition, std::move(reply), std::move(pattern)));
}

void IndexWalks::begin(std::unique_ptr<Walk> walk) {
  ClusterTenant& tenant = walk->tenant();
  tenant.on_arrival = [this, &tenant](std::uint32_t entry, bool is_put) {
    arrived(tenant, entry, is_put);
  };
  walks_.push_back(std::move(walk));
}

void IndexWalks::arrived(const ClusterTenant& tenant, std::uint32_t entry, bool is_put) {
  for (const auto& walk : walks_) {
    if (&walk->tenant() == &tenant) walk->arrived(entry, is_put);
  }
}

void IndexWalks::end_first() {
  const std::unique_ptr<Walk> walk = std::move(walks_.front());
  walks_.pop_front();
  ClusterTenant& tenant = walk->tenant();
  const auto same = [&](const auto& other) { return &other->tenant() == &tenant; };
  if (std::ranges::none_of(walks_, same)) tenant.on_arrival = nullptr;
  walk->finish();
}

void IndexWalks::forget(ClusterTenant& tenant) {
  for (std::size_t left = walks_.size(); left > 0; --left) {
    if (&walks_.front()->tenant() == &tenant) {
      end_first();
      continue;
    }
    walks_.push_back(std::move(walks_.front()));
    walks_.pop_front();
  }
}

void IndexWalks::turn(std::uint64_t now_ns) {
  if (walks_.empty() || now_ns < next_turn_ns_) return;
  // The loop's own time may be some rounds old.
  if (walks_.front()->go_on(mc::now_ns() + kTurnNs)) {
    walks_.push_back(std::move(walks_.front()));
    walks_.pop_front();
  } else {
    end_first();
  }
  next_turn_ns_ = mc::now_ns() + kPauseNs;
}

}  // namespace mc::agent
