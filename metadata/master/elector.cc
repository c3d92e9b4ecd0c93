// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/elector.h"

#include <charconv>

#include "libmc/base/clock.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kCampaignEveryNs = 250 * kMillisecond;  // if no watch has woken it

}  // namespace

Elector::Elector(std::unique_ptr<ClusterStore> store, std::string address, std::uint32_t ttl_ms,
                 Callbacks callbacks)
    : store_(std::move(store)),
      address_(std::move(address)),
      ttl_ms_(ttl_ms),
      callbacks_(std::move(callbacks)),
      lock_(*store_, address_, ttl_ms, now_ns),
      thread_([this] { run(); }) {}

Elector::~Elector() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  watch_.reset();
}

bool Elector::leads(std::uint64_t epoch) const {
  return now_ns() < valid_until_ns_.load(std::memory_order_acquire) && epoch_ == epoch;
}

void Elector::save(std::string key, std::optional<std::string> value) {
  {
    const std::lock_guard lock(mutex_);
    saved_[std::move(key)] = std::move(value);
  }
  wake_.notify_all();
}

void Elector::wait(std::uint64_t nanoseconds) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, std::chrono::nanoseconds(nanoseconds),
                 [this] { return stopping_ || changed_ || !saved_.empty(); });
  changed_ = false;
}

void Elector::run() {
  if (store_->capabilities().watch) {
    auto watch = store_->watch(kLeaderKey, 0, [this](const WatchEvent&) {
      {
        const std::lock_guard lock(mutex_);
        changed_ = true;
      }
      wake_.notify_all();
    });
    if (watch) watch_ = std::move(*watch);
  }
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
      saved_.clear();  // of a leadership that has ended
    }
    if (campaign()) {
      lead();
    } else {
      wait(kCampaignEveryNs);
    }
  }
  static_cast<void>(lock_.resign(now_ns() + 500 * kMillisecond));
}

// True: this process leads.
bool Elector::campaign() {
  const std::uint64_t asked_ns = now_ns();
  const std::uint64_t deadline_ns = asked_ns + ttl_ms_ * kMillisecond;
  const auto won = lock_.campaign(deadline_ns);
  if (!won) {
    callbacks_.trouble(won.error());
    return false;
  }
  std::string leader;
  if (!*won) {
    if (const auto found = find_leader(*store_, deadline_ns)) leader = found->value;
  }
  if (!*won && leader != last_leader_) callbacks_.leader(leader);
  last_leader_ = *won ? "?" : leader;
  if (*won) {
    epoch_ = lock_.epoch();
    valid_until_ns_.store(asked_ns + lock_.ttl_ms() * 900'000ull);
  }
  return *won;
}

Result<Term> Elector::read_term(std::uint64_t epoch) {
  const std::uint64_t deadline_ns = now_ns() + ttl_ms_ * kMillisecond / 2;
  Term term{.epoch = epoch, .members = {}, .removals = 0};
  auto listing = store_->list(kMembersPrefix, deadline_ns);
  if (!listing) return fail(listing.error());
  term.members = std::move(listing->entries);
  const auto removals = store_->get(kRemovalsKey, deadline_ns);
  if (removals) {
    const std::string& text = removals->value;
    std::from_chars(text.data(), text.data() + text.size(), term.removals);
  } else if (removals.error().code() != MC_NOT_FOUND) {
    return fail(removals.error());
  }
  return term;
}

void Elector::lead() {
  auto term = read_term(lock_.epoch());
  if (!term) {
    callbacks_.trouble(term.error());
    valid_until_ns_.store(0);
    static_cast<void>(lock_.resign(now_ns() + 500 * kMillisecond));
    wait(kCampaignEveryNs);
    return;
  }
  callbacks_.leading(std::move(*term));
  const std::uint64_t renew_every_ns = lock_.ttl_ms() * kMillisecond / 4;
  std::uint64_t renew_at_ns = now_ns();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    if (now_ns() >= renew_at_ns) {
      const std::uint64_t asked_ns = now_ns();
      const Status status = lock_.renew(asked_ns + lock_.ttl_ms() * kMillisecond / 2);
      if (status.ok()) {
        valid_until_ns_.store(asked_ns + lock_.ttl_ms() * 900'000ull);
      } else {
        callbacks_.trouble(status);
        if (status.code() == MC_NOT_FOUND || !lock_.leads()) break;
      }
      renew_at_ns = now_ns() + renew_every_ns;
    }
    write_saved();
    const std::uint64_t now = now_ns();
    if (renew_at_ns > now) wait(renew_at_ns - now);
  }
  valid_until_ns_.store(0);
  callbacks_.lost();
}

void Elector::write_saved() {
  std::map<std::string, std::optional<std::string>> saved;
  {
    const std::lock_guard lock(mutex_);
    saved.swap(saved_);
  }
  const std::uint64_t deadline_ns = now_ns() + lock_.ttl_ms() * kMillisecond / 4;
  for (auto& [key, value] : saved) {
    Status status = leads(epoch_) ? Status() : Status(kStoreUnavailable);
    if (status.ok() && value.has_value()) {
      const auto put = store_->put(key, *value, kNoLease, deadline_ns);
      if (!put) status = put.error();
    } else if (status.ok()) {
      status = store_->remove(key, deadline_ns);
      if (status.code() == MC_NOT_FOUND) status = {};
    }
    if (status.ok()) continue;
    // What is written matters for the next leader only: later, unless something newer is there.
    callbacks_.trouble(status);
    if (status.code() != kStoreUnavailable && status.code() != kOutcomeUnknown) continue;
    const std::lock_guard lock(mutex_);
    saved_.try_emplace(key, std::move(value));
  }
}

}  // namespace mc::metadata
