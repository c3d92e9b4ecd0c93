// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/namespace/index_walks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "libmc/base/clock.h"
#include "metadata/directory/key_hash.h"

namespace mc::agent {

namespace wire = metadata::wire;

namespace {

constexpr std::uint32_t kEntriesPerLook = 16;  // between two looks at the clock
constexpr std::size_t kMatchKeys = 1024;       // of a batch for the KeyMatcher
constexpr std::size_t kMatchBytes = 64 * 1024;

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

  enum class Next { kMore, kWaits, kWaitsForDisks, kOver };

  // False: the walk visits no further entry in this turn.
  virtual bool visit(std::uint32_t entry, std::string_view key, std::uint64_t bytes) = 0;
  // An object on a disk, or on its way there. key: as in LocalDisks::Keys. Returns as visit().
  virtual bool visit_on_disk(const SharedObject& object, std::string_view key) = 0;
  // The work before the next entries. nullopt: none is left.
  virtual std::optional<Next> before_entries(std::uint64_t /*until_ns*/) { return std::nullopt; }
  // True: the walk has so much work under way that the next objects on disks have to wait.
  virtual bool is_busy() const { return false; }
  // No object is left.
  virtual Next after_objects() { return Next::kOver; }
  virtual void finish() = 0;
  virtual bool wants_puts() const = 0;
  // False: the walk needs no keys of objects on disks, so nobody reads the footers.
  virtual bool wants_keys() const { return true; }

  Next go_on(std::uint64_t until_ns) {
    if (const std::optional<Next> next = before_entries(until_ns)) return *next;
    ObjectIndex& index = tenant_.store().index();
    for (std::uint32_t i = 0; i < kEntriesPerTurn; ++i) {
      if (i % kEntriesPerLook == 0 && i > 0 && now_ns() >= until_ns) return Next::kMore;
      std::uint32_t entry = 0;
      if (cursor_ < index.entry_count()) {
        entry = cursor_++;
      } else if (!behind_.empty()) {
        entry = behind_.back();
        behind_.pop_back();
      } else {
        return visit_disks(until_ns);
      }
      if (!is_live(index, entry)) continue;
      if (!tenant_.is_stripe(entry)) {
        if (!is_of_partition(index.key_of(entry))) continue;
        const std::uint64_t bytes = index.entry(entry).length.load_relaxed();
        if (!visit(entry, index.key_of(entry), bytes)) break;
      } else if (const StripeSet* const set = tenant_.speaks_for(entry)) {
        if (is_of_partition(set->key) && !visit(entry, set->key, set->facts.whole_bytes)) break;
      }
    }
    return Next::kMore;
  }
  void arrived(std::uint32_t entry, bool is_put) {
    if (entry < cursor_ && (!is_put || wants_puts())) behind_.push_back(entry);
  }
  ClusterTenant& tenant() const { return tenant_; }

 protected:
  ClusterTenant& tenant_;
  const wire::Match match_;

  bool is_of_partition(const metadata::KeyHash& name) const {
    return metadata::partition_of(name, partition_.of) == partition_.number;
  }

 private:
  bool is_of_partition(std::string_view key) const {
    return partition_.of == 1 || is_of_partition(tenant_.name_of(key));
  }

  // The disks come after the entries, since objects leave the pool meanwhile. The walk visits an object that comes
  // back as an entry behind the cursor.
  Next visit_disks(std::uint64_t until_ns) {
    const LocalDisks* const disks = tenant_.disks();
    if (disks == nullptr || disks_are_over_) return after_objects();
    if (keys_ == nullptr) keys_ = disks->keys_of(*tenant_.tenant(), wants_keys());
    bool goes_on = true;
    const auto visit = [&](const SharedObject& object, std::string_view key) {
      if (!is_of_partition({object.name.hi, object.name.lo})) return;
      goes_on = visit_on_disk(object, key) && goes_on;
    };
    while (goes_on && behind_.empty()) {
      if (is_busy()) return Next::kWaitsForDisks;
      const LocalDisks::Keys::Next next = keys_->go_on(visit);
      if (next == LocalDisks::Keys::Next::kWaits) return Next::kWaitsForDisks;
      disks_are_over_ = next == LocalDisks::Keys::Next::kOver;
      if (disks_are_over_ || now_ns() >= until_ns) break;
    }
    if (disks_are_over_) keys_.reset();
    return Next::kMore;
  }

  const Partition partition_;
  std::uint32_t cursor_ = 0;
  std::vector<std::uint32_t> behind_;
  std::unique_ptr<LocalDisks::Keys> keys_;
  bool disks_are_over_ = false;
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
  bool visit_on_disk(const SharedObject& object, std::string_view key) override {
    const bool visited = tenant_.find(object.name) != kNoEntry;
    return key.empty() || visited || visit(kNoEntry, key, object.length);
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
      if (bytes <= wire::kListedBytes) continue;
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

class IndexWalks::Removal : public Walk {
 public:
  Removal(ClusterTenant& tenant, const wire::Match& match, Partition partition,
          Reply<wire::RemoveMatchingAnswer> reply)
      : Walk(tenant, match, partition), reply_(std::move(reply)) {}

  bool visit(std::uint32_t entry, std::string_view key, std::uint64_t) override {
    if (key.starts_with(match_.pattern)) remove(entry);
    return true;
  }
  bool visit_on_disk(const SharedObject& object, std::string_view key) override {
    if (key.empty() || key.starts_with(match_.pattern)) remove(object);
    return true;
  }
  bool is_busy() const override { return drops_->open >= kMostDrops; }
  Next after_objects() override {
    if (LocalDisks* const disks = tenant_.disks();
        disks != nullptr && !std::exchange(asked_, true)) {
      // The walk has not seen the objects of a disk that failed. The end of any drop tells whether that disk may
      // bring them back.
      ++drops_->open;
      disks->drop({}, 0, ended());
    }
    if (drops_->open > 0) return Next::kWaitsForDisks;
    if (!drops_->durable) failure_ = {MC_DISK_AWAY, "a disk that failed may bring objects back"};
    return Next::kOver;
  }
  void finish() override {
    if (failure_.ok()) {
      reply_(answer_);
    } else {
      reply_(fail(failure_));
    }
  }
  bool wants_puts() const override { return false; }
  bool wants_keys() const override { return !match_.pattern.empty(); }

 protected:
  void remove(std::uint32_t entry) {
    ++drops_->open;
    tenant_.drop(entry, ended());
    ++answer_.removed;
  }
  void remove(const SharedObject& object) {
    LocalDisks& disks = *tenant_.disks();
    const std::uint32_t entry = tenant_.find(object.name);
    const bool in_pool = entry != kNoEntry && tenant_.book().row(entry).version == object.version;
    if (in_pool) return remove(entry);  // and from the disks
    const bool is_there = disks.version_of(object.name) == object.version;
    ++drops_->open;
    disks.drop(object.name, object.version, ended());
    if (!is_there) return;  // visited twice, or replaced
    ++answer_.removed;
    tenant_.left_disks(object.name, object.version);
  }
  Status failure_;

 private:
  static constexpr std::size_t kMostDrops = 8192;  // at once
  struct Drops {
    std::size_t open = 0;
    bool durable = true;
  };

  LocalDisks::Dropped ended() const {
    return [drops = drops_](bool durable) {
      --drops->open;
      drops->durable &= durable;
    };
  }

  Reply<wire::RemoveMatchingAnswer> reply_;
  wire::RemoveMatchingAnswer answer_;
  bool asked_ = false;
  const std::shared_ptr<Drops> drops_ = std::make_shared<Drops>();
};

class IndexWalks::RegexRemoval final : public Removal {
 public:
  RegexRemoval(ClusterTenant& tenant, const wire::Match& match, Partition partition,
               Reply<wire::RemoveMatchingAnswer> reply, KeyMatcher& matcher)
      : Removal(tenant, match, partition, std::move(reply)),
        matcher_(matcher),
        expression_(std::make_shared<KeyMatcher::Expression>()),
        batch_(new_batch()) {
    expression_->text = match.pattern;
  }
  bool wants_keys() const override { return true; }
  ~RegexRemoval() override { batch_->cancelled = true; }
  RegexRemoval(const RegexRemoval&) = delete;
  RegexRemoval& operator=(const RegexRemoval&) = delete;

  bool visit(std::uint32_t entry, std::string_view key, std::uint64_t) override {
    return add({.entry = entry, .version = version_of(entry)}, key);
  }
  bool visit_on_disk(const SharedObject& object, std::string_view key) override {
    if (!key.empty()) return add({.object = object}, key);
    remove(object);
    return true;
  }
  std::optional<Next> before_entries(std::uint64_t until_ns) override {
    if (full_) return submit();
    if (!submitted_) return std::nullopt;
    if (!batch_->done.load(std::memory_order_acquire)) return Next::kWaits;
    if (!batch_->failure.ok()) return end(batch_->failure);
    for (const std::size_t first = next_; next_ < candidates_.size(); ++next_) {
      if (next_ % kEntriesPerLook == 0 && next_ > first && now_ns() >= until_ns) return Next::kMore;
      remove_match(next_);
    }
    candidates_.clear();
    next_ = 0;
    submitted_ = false;
    batch_ = new_batch();
    return std::nullopt;
  }
  Next after_objects() override {
    return candidates_.empty() ? Removal::after_objects() : submit();
  }

 private:
  struct Candidate {
    std::uint32_t entry = kNoEntry;
    std::uint64_t version = 0;  // of the entry
    SharedObject object = {};   // without an entry
  };

  bool add(const Candidate& candidate, std::string_view key) {
    batch_->keys += key;
    batch_->ends.push_back(static_cast<std::uint32_t>(batch_->keys.size()));
    candidates_.push_back(candidate);
    full_ = candidates_.size() >= kMatchKeys || batch_->keys.size() >= kMatchBytes;
    return !full_;
  }

  std::shared_ptr<KeyMatcher::Batch> new_batch() const {
    auto batch = std::make_shared<KeyMatcher::Batch>();
    batch->expression = expression_;
    return batch;
  }
  std::uint64_t version_of(std::uint32_t entry) const {
    return tenant_.store().index().entry(entry).version.load_relaxed();
  }
  Next submit() {
    full_ = false;
    submitted_ = true;
    if (Status status = matcher_.submit(batch_); !status.ok()) return end(status);
    return Next::kWaits;
  }
  Next end(const Status& failure) {
    failure_ = failure;
    return Next::kOver;
  }
  // An object that has moved since comes again: see arrived(). A replaced object stays.
  void remove_match(std::size_t number) {
    if (!batch_->matches[number]) return;
    const Candidate& candidate = candidates_[number];
    if (candidate.entry == kNoEntry) {
      remove(candidate.object);
    } else if (version_of(candidate.entry) == candidate.version) {
      remove(candidate.entry);
    }
  }

  KeyMatcher& matcher_;
  const std::shared_ptr<KeyMatcher::Expression> expression_;
  std::shared_ptr<KeyMatcher::Batch> batch_;  // of the candidates
  std::vector<Candidate> candidates_;
  std::size_t next_ = 0;  // candidate
  bool full_ = false;
  bool submitted_ = false;
};

IndexWalks::IndexWalks() = default;

IndexWalks::~IndexWalks() = default;

template <typename Answer>
bool IndexWalks::admit(const Reply<Answer>& reply) const {
  if (walks_.size() < kMaxWalks) return true;
  reply(fail(MC_BUSY, "256 listings and removals by pattern are under way; ask again later"));
  return false;
}

void IndexWalks::list(ClusterTenant& tenant, const wire::Match& match, Partition partition,
                      Reply<wire::ListAnswer> reply) {
  if (!admit(reply)) return;
  walks_.push_back(std::make_unique<Listing>(tenant, match, partition, std::move(reply)));
}

void IndexWalks::remove(ClusterTenant& tenant, const wire::Match& match, Partition partition,
                        Reply<wire::RemoveMatchingAnswer> reply) {
  if (!admit(reply)) return;
  if (match.kind == wire::Match::Kind::kRegex) {
    walks_.push_back(
        std::make_unique<RegexRemoval>(tenant, match, partition, std::move(reply), matcher_));
  } else {
    walks_.push_back(std::make_unique<Removal>(tenant, match, partition, std::move(reply)));
  }
}

void IndexWalks::arrived(const ClusterTenant& tenant, std::uint32_t entry, bool is_put) {
  for (const auto& walk : walks_) {
    if (&walk->tenant() == &tenant) walk->arrived(entry, is_put);
  }
}

void IndexWalks::end_first() {
  const std::unique_ptr<Walk> walk = std::move(walks_.front());
  walks_.pop_front();
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
  const Walk::Next next = walks_.front()->go_on(mc::now_ns() + kTurnNs);
  if (next == Walk::Next::kOver) {
    end_first();
  } else {
    walks_.push_back(std::move(walks_.front()));
    walks_.pop_front();
  }
  const bool for_disks = next == Walk::Next::kWaitsForDisks;
  waiting_ = for_disks || next == Walk::Next::kWaits ? waiting_ + 1 : 0;
  for_disks_ = for_disks ? for_disks_ + 1 : 0;
  const auto all = [this](std::size_t turns) { return turns > 0 && turns >= walks_.size(); };
  next_turn_ns_ = mc::now_ns() + (all(for_disks_) ? kDiskPauseNs
                                  : all(waiting_) ? kMatchPauseNs
                                                  : kPauseNs);
}

}  // namespace mc::agent
