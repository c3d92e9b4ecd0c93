// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/index/tier_index.h"

#include <algorithm>
#include <utility>

namespace mc::tier {

TierIndex::TierIndex() {
  owned_.push_back(make_page(kSmallestPage, 0));
  pages_.push_back(owned_.back().get());
  page_bytes_ = bytes_of(*owned_.back());
}

std::unique_ptr<TierIndex::Page> TierIndex::make_page(std::uint32_t slot_count, unsigned bits) {
  auto page = std::make_unique<Page>();
  page->slots = std::make_unique<std::uint32_t[]>(slot_count);
  page->slot_count = slot_count;
  page->bits = bits;
  return page;
}

std::uint32_t TierIndex::find(const TierKey& key) const {
  const Page& page = page_of(key.hash);
  const std::uint32_t tag = slot_word(key.hash, 0) & 0xf0000000;
  for (std::uint32_t at = home(page, key.hash);; at = at + 1 == page.slot_count ? 0 : at + 1) {
    const std::uint32_t slot = page.slots[at];
    if (slot == 0) return kNoEntry;
    if ((slot & 0xf0000000) != tag) continue;
    const std::uint32_t number = number_in(slot);
    if (this->at(number).key() == key) return number;
  }
}

void TierIndex::place_in(Page& page, std::uint64_t hash, std::uint32_t number) {
  std::uint32_t at = home(page, hash);
  while (page.slots[at] != 0) at = at + 1 == page.slot_count ? 0 : at + 1;
  page.slots[at] = slot_word(hash, number);
  ++page.used;
}

std::uint32_t TierIndex::take_number() {
  if (free_ != kNoEntry) return std::exchange(free_, static_cast<std::uint32_t>(at(free_).hash));
  if (next_ == kMaxEntries) return kNoEntry;
  if (next_ % kBlockEntries == 0) blocks_.push_back(std::make_unique<TierEntry[]>(kBlockEntries));
  return next_++;
}

std::uint32_t TierIndex::insert(const TierEntry& entry) {
  const std::uint32_t number = take_number();
  if (number == kNoEntry) return kNoEntry;
  while (is_full(page_of(entry.hash))) grow(page_of(entry.hash));
  at(number) = entry;
  place_in(page_of(entry.hash), entry.hash, number);
  ++size_;
  return number;
}

void TierIndex::grow(Page& page) {
  if (page.slot_count == kLargestPage && page.bits < kMostBits) return split(page);
  std::uint32_t slot_count = page.slot_count + page.slot_count / 4;
  if (page.slot_count < kLargestPage) slot_count = std::min(slot_count, kLargestPage);
  auto larger = make_page(slot_count, page.bits);
  for (std::uint32_t at = 0; at < page.slot_count; ++at) {
    if (page.slots[at] == 0) continue;
    const std::uint32_t number = number_in(page.slots[at]);
    place_in(*larger, this->at(number).hash, number);
  }
  page_bytes_ += bytes_of(*larger) - bytes_of(page);
  page = std::move(*larger);
}

void TierIndex::split(Page& page) {
  if (page.bits == bits_) {
    std::vector<Page*> wider(pages_.size() * 2);
    for (std::size_t i = 0; i < wider.size(); ++i) wider[i] = pages_[i / 2];
    pages_ = std::move(wider);
    ++bits_;
  }
  const unsigned bits = page.bits + 1;
  auto upper = make_page(kSmallestPage, bits);
  auto lower = make_page(kSmallestPage, bits);
  page_bytes_ += bytes_of(*upper) + bytes_of(*lower) - bytes_of(page);
  std::uint64_t any_hash = 0;
  for (std::uint32_t at = 0; at < page.slot_count; ++at) {
    if (page.slots[at] == 0) continue;
    const std::uint32_t number = number_in(page.slots[at]);
    any_hash = this->at(number).hash;
    Page* half = (any_hash >> (64 - bits) & 1) != 0 ? upper.get() : lower.get();
    // A half that is full already has got nearly all entries. One slot stays free in any case.
    while (is_full(*half)) grow(*half);
    place_in(*half, any_hash, number);
  }
  // The references of the page are neighbours: they have the page's bits in common.
  const std::size_t count = std::size_t{1} << (bits_ - page.bits);
  const std::size_t first =
      page.bits == 0 ? 0 : static_cast<std::size_t>(any_hash >> (64 - page.bits)) * count;
  for (std::size_t i = first + count / 2; i < first + count; ++i) pages_[i] = upper.get();
  page = std::move(*lower);
  owned_.push_back(std::move(upper));
}

bool TierIndex::free_some() {
  constexpr std::size_t kAtOnce = 16;
  for (std::size_t i = 0; i < kAtOnce && !blocks_.empty(); ++i) blocks_.pop_back();
  if (!blocks_.empty()) return true;
  for (std::size_t i = 0; i < kAtOnce && !owned_.empty(); ++i) owned_.pop_back();
  return !owned_.empty();
}

void TierIndex::erase(std::uint32_t number) {
  const std::uint64_t hash = at(number).hash;
  Page& page = page_of(hash);
  const auto after = [&page](std::uint32_t at) { return at + 1 == page.slot_count ? 0 : at + 1; };
  std::uint32_t hole = home(page, hash);
  while (page.slots[hole] == 0 || number_in(page.slots[hole]) != number) hole = after(hole);
  // Entries behind the hole move up, so that no search ends at the hole too early.
  for (std::uint32_t at = after(hole); page.slots[at] != 0; at = after(at)) {
    const std::uint32_t wanted = home(page, this->at(number_in(page.slots[at])).hash);
    const bool may_stay =
        hole <= at ? (hole < wanted && wanted <= at) : (hole < wanted || wanted <= at);
    if (may_stay) continue;
    page.slots[hole] = page.slots[at];
    hole = at;
  }
  page.slots[hole] = 0;
  --page.used;
  at(number) = {.hash = free_, .place = {.segment = kNoEntry}};
  free_ = number;
  --size_;
}

}  // namespace mc::tier
