// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/elector.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "libmc/base/clock.h"

namespace mc::metadata {

namespace {

// While another master leads.
constexpr std::uint64_t kCampaignEveryNs = 250 * kMs;
// While the partition has no leader and other masters go first.
constexpr std::uint64_t kVacantEveryNs = 50 * kMs;
constexpr std::uint64_t kResignNs = 500 * kMs;
// While the store takes no values.
constexpr std::uint64_t kRetryEveryNs = 50 * kMs;
constexpr std::string_view kCountKey = "share_count";
// The distance to a heard epoch. Removal numbers begin at 4,096 times the epoch, and so above the
// numbers of the leader that was heard.
constexpr std::uint64_t kEpochLeap = 1u << 20;
constexpr std::uint64_t kMaxHeardEpoch = 1ull << 62;

// Writes the number if the store has none, else compares.
Status fix_partition_count(ClusterStore& store, std::uint32_t partitions,
                           std::uint64_t deadline_ns) {
  const auto made =
      store.compare_and_set(kCountKey, 0, std::to_string(partitions), kNoLease, deadline_ns);
  if (made && made->applied) return {};
  // Another master was first, or this master was and the answer was lost.
  if (!made && made.error().code() != kOutcomeUnknown) return made.error();
  return check_partition_count(store, partitions, deadline_ns);
}

}  // namespace

Status check_partition_count(ClusterStore& store, std::uint32_t partitions,
                             std::uint64_t deadline_ns) {
  const auto found = store.get(kCountKey, deadline_ns);
  if (!found) return found.error().code() == MC_NOT_FOUND ? Status() : found.error();
  if (found->value == std::to_string(partitions)) return {};
  return {MC_INVALID_ARGUMENT,
          "this cluster has " + found->value.substr(0, 20) +
              " partitions, and this master is configured for " + std::to_string(partitions) +
              "; set partitions = " + found->value.substr(0, 20) +
              ", or stop all masters of the cluster, remove its key share_count from " +
              store.name() + ", and start them with the new number"};
}

Elector::Elector(std::unique_ptr<ClusterStore> store, std::string address, std::uint32_t ttl_ms,
                 Partition partition, Callbacks callbacks, const StartStoreThread& start_thread)
    : store_(std::move(store)),
      address_(std::move(address)),
      ttl_ms_(ttl_ms),
      partition_(partition),
      prefix_(partition.number == 0 ? "" : "shares/" + std::to_string(partition.number) + "/"),
      callbacks_(std::move(callbacks)),
      lock_(*store_, address_, ttl_ms, now_ns, partition.number),
      thread_(start_thread([this] { return step(); })) {}

Elector::~Elector() {
  thread_.reset();
  if (leading_) end_leadership();
  static_cast<void>(lock_.resign(now_ns() + kResignNs));
}

bool Elector::leads(std::uint64_t epoch) const {
  return epoch_ == epoch && (holds_lease() || goes_on());
}

// A tenth of the lease is left for clocks of different speed.
void Elector::hold_lease(std::uint64_t asked_ns) {
  renewed_ns_ = asked_ns;
  valid_until_ns_ = asked_ns + lock_.ttl_ms() * 900'000ull;
}

// The lock is renewed each fourth of the lease. Two heartbeats must pass before the lease ends, until the
// members' promises are known.
bool Elector::renewal_is_late() const { return now_ns() > renewed_ns_ + ttl_ms_ * 300'000ull; }

void Elector::go_on(std::uint64_t epoch, std::uint64_t until_ns) {
  if (epoch == epoch_) goes_on_until_ns_ = until_ns;
}

bool Elector::goes_on() const { return now_ns() < goes_on_until_ns_ && outbid_ <= epoch_; }

void Elector::save(std::string key, std::optional<std::string> value, std::function<void()> done) {
  {
    const MutexLock lock(mutex_);
    Saved& saved = saved_[prefix_ + key];
    saved.value = std::move(value);
    if (done) saved.done.push_back(std::move(done));
  }
  thread_->wake();
}

std::uint64_t Elector::step() { return leading_ ? lead() : stand_by(); }

// Whether this master may campaign now. A master whose turn has not come only looks up the leader.
bool Elector::may_try(std::uint64_t deadline_ns) {
  const auto found = find_leader(*store_, deadline_ns, partition_.number);
  if (!found && found.error().code() != MC_NOT_FOUND) {
    callbacks_.trouble(found.error());
    store_is_silent_ = true;
    return false;
  }
  const bool other_led = last_leader_ != "?" && !last_leader_.empty() && last_leader_ != address_;
  if (std::exchange(store_is_silent_, false) && other_led) {
    others_wait_until_ns_ = now_ns() + ttl_ms_ * kMs;
  }
  tell_leader(found ? found->value : std::string());
  if (found) {
    vacant_since_ns_ = 0;
    return found->value == address_;  // this master may have led before the store was away
  }
  const std::uint64_t now = now_ns();
  if (vacant_since_ns_ == 0) vacant_since_ns_ = now;
  if (now < others_wait_until_ns_) return false;
  return partition_.roster == nullptr ||
         partition_.roster->may_take(partition_.number, now - vacant_since_ns_);
}

void Elector::tell_leader(const std::string& leader) {
  if (leader != last_leader_) callbacks_.leader(leader);
  last_leader_ = leader;
}

// True: this process leads now.
bool Elector::campaign() {
  if (!may_try(now_ns() + ttl_ms_ * kMs)) return false;
  const std::uint64_t asked_ns = now_ns();
  const std::uint64_t deadline_ns = asked_ns + ttl_ms_ * kMs;
  const auto won = lock_.campaign(deadline_ns);
  if (!won) {
    callbacks_.trouble(won.error());
    return false;
  }
  if (!*won) {
    const auto found = find_leader(*store_, deadline_ns, partition_.number);
    tell_leader(found ? found->value : std::string());
    return false;
  }
  last_leader_ = "?";
  vacant_since_ns_ = 0;
  hold_lease(asked_ns);
  return true;
}

// 0: the store has no such number.
Result<std::uint64_t> Elector::read_number(std::string_view key, std::uint64_t deadline_ns) {
  const auto found = store_->get(prefix_ + std::string(key), deadline_ns);
  if (!found && found.error().code() != MC_NOT_FOUND) return fail(found.error());
  std::uint64_t number = 0;
  if (!found) return number;
  const std::string& text = found->value;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Result<Term> Elector::read_term() {
  const std::uint64_t deadline_ns = now_ns() + ttl_ms_ * kMs / 2;
  Term term;
  if (const Status status = fix_partition_count(*store_, partition_.of, deadline_ns);
      !status.ok()) {
    return fail(status);
  }
  const auto risk = store_->risk_of_loss(deadline_ns);
  if (!risk && risk.error().code() == MC_INVALID_ARGUMENT) return fail(risk.error());
  for (const auto& [prefix, entries] :
       {std::pair(kMembersPrefix, &term.members), std::pair(kAwayPrefix, &term.away),
        std::pair(kRemovedPrefix, &term.removed), std::pair(kPatternsPrefix, &term.patterns)}) {
    auto listing = store_->list(prefix_ + std::string(prefix), deadline_ns);
    if (!listing) return fail(listing.error());
    *entries = *std::move(listing);
  }
  const auto removals = read_number(kRemovalsKey, deadline_ns);
  if (!removals) return fail(removals.error());
  term.removals = *removals;
  const auto offset = read_number(kEpochOffsetKey, deadline_ns);
  if (!offset) return fail(offset.error());
  term.epoch = lock_.epoch() + *offset;
  const auto written = store_->write_guarded(lock_.guard(), prefix_ + std::string(kLastEpochKey),
                                             std::to_string(term.epoch), deadline_ns);
  if (!written) return fail(written.error());
  if (!*written) return fail(MC_NOT_FOUND, "another master leads by now");
  return term;
}

std::uint64_t Elector::stand_by() {
  {
    const MutexLock lock(mutex_);
    saved_.clear();  // values of an earlier leadership
  }
  if (!campaign()) return now_ns() + (vacant_since_ns_ != 0 ? kVacantEveryNs : kCampaignEveryNs);
  auto term = read_term();
  if (!term) {
    callbacks_.trouble(term.error());
    valid_until_ns_.store(0);
    static_cast<void>(lock_.resign(now_ns() + kResignNs));
    return now_ns() + kCampaignEveryNs;
  }
  goes_on_until_ns_ = 0;
  epoch_ = term->epoch;
  leading_ = true;
  writes_are_open_ = false;  // of an earlier leadership
  renew_at_ns_ = now_ns();
  callbacks_.leading(std::move(*term));
  return renew_at_ns_;
}

// False: the leadership is over.
bool Elector::renew() {
  const std::uint64_t asked_ns = now_ns();
  const Status status = lock_.renew(asked_ns + ttl_ms_ * kMs / 2);
  if (status.ok()) {
    hold_lease(asked_ns);
    return true;
  }
  callbacks_.trouble(status);
  if (status.code() == MC_NOT_FOUND) {
    valid_until_ns_ = 0;  // nothing guards writes before the lock is taken again
    return goes_on() && take_lock_again();
  }
  return lock_.leads() || goes_on();
}

// The lease has ended while the store was silent. False: the leadership is over.
bool Elector::take_lock_again() {
  const std::uint64_t asked_ns = now_ns();
  const std::uint64_t deadline_ns = asked_ns + ttl_ms_ * kMs / 2;
  const auto won = lock_.campaign(deadline_ns);
  if (won && !*won) return false;
  const auto last =
      won ? read_number(kLastEpochKey, deadline_ns) : Result<std::uint64_t>(fail(won.error()));
  if (last && *last == epoch_) {
    hold_lease(asked_ns);
    return true;
  }
  if (!last) callbacks_.trouble(last.error());
  if (won) static_cast<void>(lock_.resign(now_ns() + kResignNs));
  return !last && goes_on();
}

std::uint64_t Elector::lead() {
  if (now_ns() >= renew_at_ns_) {
    if (!renew()) return end_leadership();
    renew_at_ns_ = now_ns() + ttl_ms_ * kMs / 4;
  }
  if (!holds_lease()) return outbid_ > epoch_ ? end_leadership() : renew_at_ns_;
  const Written written = write_saved();
  if (written == Written::kNotLeader) return end_leadership();
  if (outbid_ > epoch_) return raise_epochs();
  if (!gives_up()) {
    return written == Written::kAll ? renew_at_ns_
                                    : std::min(renew_at_ns_, now_ns() + kRetryEveryNs);
  }
  const std::uint64_t next_ns = end_leadership();
  static_cast<void>(lock_.resign(now_ns() + kResignNs));
  return next_ns;
}

void Elector::outbid(std::uint64_t heard) {
  if (heard > kMaxHeardEpoch) return;
  std::uint64_t highest = outbid_;
  while (highest < heard && !outbid_.compare_exchange_weak(highest, heard)) continue;
  thread_->wake();
}

std::uint64_t Elector::raise_epochs() {
  const std::uint64_t heard = outbid_;
  const auto written = store_->write_guarded(lock_.guard(), prefix_ + std::string(kEpochOffsetKey),
                                             std::to_string(heard + kEpochLeap - lock_.epoch()),
                                             now_ns() + lock_.ttl_ms() * kMs / 4);
  if (!written) {
    callbacks_.trouble(written.error());
    return std::min(renew_at_ns_, now_ns() + kRetryEveryNs);
  }
  if (*written) {
    callbacks_.trouble({MC_BUSY, "a member has heard of epoch " + std::to_string(heard) +
                                     ", above epoch " + std::to_string(epoch_) +
                                     " of this leader: the store has lost its data, or its clock "
                                     "was set back. The next leader's epoch is higher"});
  }
  const std::uint64_t next_ns = end_leadership();
  static_cast<void>(lock_.resign(now_ns() + kResignNs));
  return next_ns;
}

std::uint64_t Elector::end_leadership() {
  leading_ = false;
  epoch_ = 0;  // before a late go_on()
  valid_until_ns_ = 0;
  goes_on_until_ns_ = 0;
  callbacks_.lost();
  return now_ns();
}

bool Elector::gives_up() {
  return partition_.roster != nullptr && partition_.roster->gives_up(partition_.number, now_ns());
}

Elector::Written Elector::write_saved() {
  std::map<std::string, Saved> saved;
  {
    const MutexLock lock(mutex_);
    saved.swap(saved_);
  }
  const std::uint64_t deadline_ns = now_ns() + lock_.ttl_ms() * kMs / 4;
  Status trouble = writes_are_open_ ? lock_.outdate_guards(deadline_ns) : Status();
  if (trouble.code() == MC_NOT_FOUND) {
    callbacks_.trouble(trouble);
    return Written::kNotLeader;
  }
  writes_are_open_ = !trouble.ok();
  for (auto& [key, one] : saved) {
    // A full store refuses values and still removes keys, but a store that is away answers nothing.
    const bool away = trouble.code() == kStoreUnavailable || trouble.code() == kOutcomeUnknown;
    if (away || writes_are_open_) {
      write_later(key, std::move(one));
      continue;
    }
    const auto written = store_->write_guarded(lock_.guard(), key, one.value, deadline_ns);
    if (written && !*written) {
      callbacks_.trouble({MC_NOT_FOUND, "another master leads partition " +
                                            std::to_string(partition_.number) +
                                            ", so the store takes no value of this one"});
      return Written::kNotLeader;
    }
    if (written) {
      for (const auto& done : one.done) done();
    } else {
      trouble = written.error();
      writes_are_open_ = trouble.code() == kOutcomeUnknown;
      write_later(key, std::move(one));
    }
  }
  if (trouble.ok()) return Written::kAll;
  callbacks_.trouble(trouble);
  return Written::kAgain;
}

// Unless a newer value is queued.
void Elector::write_later(const std::string& key, Saved one) {
  const MutexLock lock(mutex_);
  const auto [later, none] = saved_.try_emplace(key);
  if (none) later->second.value = std::move(one.value);
  std::ranges::move(one.done, std::back_inserter(later->second.done));
}

}  // namespace mc::metadata
