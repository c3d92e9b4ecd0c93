// SPDX-License-Identifier: Apache-2.0
#include "sim/history.h"

#include <algorithm>
#include <cstring>

#include "sim/sim_clock.h"
#include "sim/sim_random.h"

namespace mc::sim {

namespace {

// The effects of a failure may last this long: members are declared lost, links reconnect, reports
// are sent, and drops are ordered again.
constexpr std::uint64_t kAftermathNs = 3'000 * kMs;

// A host died with its memory. For this long the master may still take the host for a holder, and a
// put that only creates yields to that holder.
constexpr std::uint64_t kMissedNs = 1'500 * kMs;

struct Head {
  std::uint32_t key;
  std::uint32_t put;
};

}  // namespace

std::vector<std::byte> History::bytes_of(Number put) const {
  std::vector<std::byte> bytes(puts_[put].size);
  Random random(seed_ * 1'000'003 + put);
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
  }
  const Head head{puts_[put].key, put};
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes;
}

void History::fail(std::string what) {
  if (failures_.size() < 20) failures_.push_back(std::move(what));
}

std::string History::name(Number put) const {
  const Put& of = puts_[put];
  return "put " + std::to_string(put) + " of key " + std::to_string(of.key) + " (" +
         std::to_string(of.begin_ns / 1000) + " to " +
         (of.end_ns == UINT64_MAX ? "?" : std::to_string(of.end_ns / 1000)) + " us" +
         (of.upsert ? ", upsert" : "") + (of.announced ? ", announced" : "") + ")";
}

// ---- Puts and removals --------------------------------------------------------------------------

History::Number History::begin_put(unsigned key, std::uint64_t size, bool upsert,
                                   std::uint64_t now_ns) {
  Put put;
  put.key = key;
  put.size = std::max<std::uint64_t>(size, sizeof(Head));
  put.upsert = upsert;
  put.begin_ns = now_ns;
  puts_.push_back(put);
  note(now_ns);
  return static_cast<Number>(puts_.size() - 1);
}

void History::end_put(Number number, Ending ending, bool announced, std::uint64_t memory,
                      std::int64_t clock_ahead_ns, std::uint64_t now_ns) {
  Put& put = puts_[number];
  put.ending = ending;
  put.announced = announced;
  put.clock_ahead_ns = clock_ahead_ns;
  put.end_ns = now_ns;
  put.memory = memory;
  if (ending == Ending::kStored) ++puts_stored;
  note(now_ns + static_cast<std::uint64_t>(ending));
}

std::size_t History::begin_remove(unsigned key, std::uint64_t memory, std::uint64_t now_ns) {
  Remove remove;
  remove.key = key;
  remove.begin_ns = now_ns;
  remove.memory = memory;
  removes_.push_back(remove);
  note(now_ns);
  return removes_.size() - 1;
}

void History::end_remove(std::size_t remove, bool over, bool sure, std::uint64_t now_ns) {
  removes_[remove].over = over;
  removes_[remove].end_ns = now_ns;
  removes_[remove].sure = sure;
  if (sure) ++removes_sure;
  note(now_ns + (sure ? 1 : 0));
}

void History::disturbed(std::uint64_t from_ns, std::uint64_t to_ns,
                        std::vector<std::uint64_t> nodes) {
  disturbances_.push_back({from_ns, to_ns + kAftermathNs, std::move(nodes)});
}

void History::lost(unsigned key, std::uint64_t now_ns) { lost_[key] = now_ns; }

bool History::calm(std::uint64_t from_ns, std::uint64_t to_ns) const {
  return std::ranges::none_of(disturbances_,
                              [&](const Span& span) { return span.touches(from_ns, to_ns); });
}

bool History::calm_at(std::uint64_t node, std::uint64_t from_ns, std::uint64_t to_ns) const {
  return std::ranges::none_of(disturbances_, [&](const Span& span) {
    return span.touches(from_ns, to_ns) &&
           (span.nodes.empty() || std::ranges::find(span.nodes, node) != span.nodes.end());
  });
}

// ---- Reads --------------------------------------------------------------------------------------

std::optional<History::Number> History::read(const Reader& reader, unsigned key,
                                             std::span<const std::byte> bytes,
                                             std::uint64_t begin_ns, std::uint64_t now_ns) {
  ++reads;
  Head head{};
  if (bytes.size() >= sizeof head) std::memcpy(&head, bytes.data(), sizeof head);
  const bool known = bytes.size() >= sizeof head && head.put < puts_.size() && head.key == key &&
                     puts_[head.put].key == key;
  if (!known) {
    fail("I1 reader " + std::to_string(reader.id) + " got bytes of no put of key " +
         std::to_string(key));
    return std::nullopt;
  }
  const std::vector<std::byte> whole = bytes_of(head.put);
  if (whole.size() != bytes.size() || std::memcmp(whole.data(), bytes.data(), whole.size()) != 0) {
    fail("I1 reader " + std::to_string(reader.id) + " got a part of, or wrong bytes for, " +
         name(head.put));
    return std::nullopt;
  }
  note(head.put);
  check_read(reader, head.put, begin_ns, now_ns);
  return head.put;
}

void History::check_read(const Reader& reader, Number number, std::uint64_t begin_ns,
                         std::uint64_t now_ns) {
  const Put& put = puts_[number];
  const bool settled = put.ending == Ending::kStored && put.announced;
  if (settled && calm(put.begin_ns, now_ns)) {
    for (const Remove& remove : removes_) {
      if (remove.key != put.key || !remove.sure) continue;
      if (put.end_ns < remove.begin_ns && remove.end_ns < begin_ns) {
        fail("a get begun at " + std::to_string(begin_ns / 1000) + " us by reader " +
             std::to_string(reader.id) + " read " + name(number) + ", which was removed from " +
             std::to_string(remove.begin_ns / 1000) + " to " +
             std::to_string(remove.end_ns / 1000) + " us");
      }
    }
  }
  if (!settled) return;
  check_stale(reader, number, begin_ns, now_ns);
  const auto [last, first_time] = last_read_.try_emplace({reader.id, put.key}, number);
  if (first_time) return;
  const Put& before = puts_[last->second];
  const bool back = before.upsert && put.end_ns < before.begin_ns;
  if (back && calm(put.begin_ns, now_ns)) {
    fail("reader " + std::to_string(reader.id) + " saw " + name(last->second) + " and then, at " +
         std::to_string(now_ns / 1000) + " us, " + name(number));
  }
  last->second = number;
}

// A reader whose own links are up must not read what was replaced, whatever happens to others.
void History::check_stale(const Reader& reader, Number number, std::uint64_t begin_ns,
                          std::uint64_t now_ns) {
  const Put& put = puts_[number];
  const auto replaced = [&](std::uint64_t from_ns, std::uint64_t to_ns) {
    return put.end_ns < from_ns && to_ns < begin_ns && calm_at(reader.node, from_ns, now_ns);
  };
  const auto fail_after = [&](const std::string& by) {
    fail("a get begun at " + std::to_string(begin_ns / 1000) + " us on node " +
         std::to_string(reader.node) + " read " + name(number) + " after " + by);
  };
  for (const Remove& remove : removes_) {
    if (remove.key == put.key && remove.sure && replaced(remove.begin_ns, remove.end_ns)) {
      return fail_after("a removal that ended at " + std::to_string(remove.end_ns / 1000) + " us");
    }
  }
  for (Number later = 0; later < puts_.size(); ++later) {
    const Put& by = puts_[later];
    const bool acknowledged = by.ending == Ending::kStored && by.announced && by.upsert;
    if (by.key == put.key && acknowledged && replaced(by.begin_ns, by.end_ns)) {
      return fail_after(name(later));
    }
  }
}

// ---- The end ------------------------------------------------------------------------------------

void History::final_read(unsigned key, std::uint64_t node, std::optional<Number> put) {
  final_[key][node] = put;
  note(put ? *put + 1 : 0);
}

void History::finish(unsigned keys, std::uint64_t memory) {
  for (unsigned key = 0; key < keys; ++key) {
    std::set<std::optional<Number>> seen;
    std::string who;
    for (const auto& [node, put] : final_[key]) {
      seen.insert(put);
      who += " node " + std::to_string(node) + ": " + (put ? name(*put) : "a miss");
    }
    // An evicted copy may have been the last copy of its key.
    if (evicted_) continue;
    if (seen.size() > 1) fail("nodes read different things in the end:" + who);

    // I2, I3: an acknowledged put is there, unless a later operation removed it.
    for (Number number = 0; number < puts_.size(); ++number) {
      const Put& put = puts_[number];
      if (put.key != key || put.ending != Ending::kStored) continue;
      bool stays = !lost_.contains(key) || put.begin_ns > lost_[key] + kMissedNs;
      for (const Remove& remove : removes_) {
        if (remove.key == key && !(remove.over && remove.end_ns < put.begin_ns)) stays = false;
      }
      if (stays && seen.contains(std::nullopt)) {
        fail("I2 " + name(number) + " was acknowledged and cannot be read in the end:" + who);
        break;
      }
    }
    for (const std::optional<Number>& last : seen) {
      if (!last || puts_[*last].ending != Ending::kStored) continue;
      const Put& put = puts_[*last];
      for (Number number = 0; number < puts_.size(); ++number) {
        const Put& later = puts_[number];
        if (later.key != key || later.ending != Ending::kStored || !later.upsert) continue;
        if (put.end_ns >= later.begin_ns || lost_.contains(key)) continue;
        // Hosts without a master know only their own clocks.
        const bool unheard = !put.announced && !later.announced;
        if (unheard && put.time_by_clock() > later.time_by_clock()) continue;
        bool removed = false;
        for (const Remove& remove : removes_) removed |= remove.key == key;
        if (!removed) fail(name(*last) + " is read in the end, not the later " + name(number));
      }
      for (const Remove& remove : removes_) {
        // Versions come from the hosts' clocks. By the clock of its host a put may be newer than
        // the removal.
        if (remove.key != key || !remove.sure || !put.announced) continue;
        // The masters since then, or the store, know of the removal. A returning host cannot bring
        // the object back.
        if (put.end_ns < remove.begin_ns && remove.memory == memory && put.memory == memory) {
          fail(name(*last) + " is read in the end, though it was removed from " +
               std::to_string(remove.begin_ns / 1000) + " to " +
               std::to_string(remove.end_ns / 1000) + " us");
        }
      }
    }
  }
}

}  // namespace mc::sim
