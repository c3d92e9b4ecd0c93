// SPDX-License-Identifier: Apache-2.0
#include "agent/tier/log/log.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "libmc/base/fd.h"
#include "libmc/base/hash.h"

namespace mc::tier {

namespace {

constexpr std::uint64_t kFewestSegments = 8;
constexpr std::uint64_t kAnswerNs = 30'000'000'000;  // a disk that answers later is left out
// Where other file systems, partition tables and arrays have their marks.
constexpr std::uint64_t kEdgeBytes = 2 << 20;
constexpr std::size_t kEarlyAtOnce = 64;
constexpr std::size_t kEndsAtOnce = 512;
constexpr std::uint64_t kSmallestAutomaticBytes = 1 << 20;
constexpr std::uint64_t kLargestAutomaticBytes = 64 << 20;

// No object lies in two segments. So small segments waste room behind large objects, and few segments
// waste room for the cleaner.
std::uint64_t segment_bytes_for(std::uint64_t disk_bytes) {
  const auto part = [disk_bytes](std::uint64_t count, std::uint64_t most) {
    return std::min(std::bit_floor(disk_bytes / count), most);
  };
  const std::uint64_t wanted =
      std::max({part(32, 8 << 20), part(64, 16 << 20), part(512, kLargestAutomaticBytes)});
  return std::max(wanted, kSmallestAutomaticBytes);
}

bool is_usable(const Superblock& superblock) {
  return superblock.segment_bytes >= kSmallestSegmentBytes &&
         superblock.segment_bytes <= kLargestSegmentBytes &&
         superblock.segment_bytes % kBlockBytes == 0 && superblock.disk < kMaxDisks;
}

}  // namespace

std::string_view name_of(DiskState state) {
  constexpr std::string_view kNames[] = {"opening", "recovering", "serving", "refused", "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

Log::Log(std::vector<DiskPlan> disks, const Config& config)
    : config_(config), random_state_(config.random) {
  for (DiskPlan& plan : disks) {
    slots_.push_back({.plan = std::move(plan)});
    for (std::uint64_t copy = 0; copy < kSuperblocks; ++copy) {
      look(slots_.back(), copy * kBlockBytes, kBlockBytes);
    }
  }
}

void Log::look(Slot& slot, std::uint64_t offset, std::uint64_t bytes) {
  ++slot.looks;
  slot.plan.jobs->submit({.kind = Job::Kind::kRead,
                          .urgency = Urgency::kLog,
                          .id = offset,
                          .offset = offset,
                          .bytes = bytes});
}

// splitmix64
std::uint64_t Log::random() {
  std::uint64_t word = random_state_ += 0x9e3779b97f4a7c15ull;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  return (word ^ (word >> 31)) | 1;
}

void Log::refuse(Slot& slot, std::string text) {
  slot.state = DiskState::kRefused;
  slot.text = slot.plan.name + ": " + std::move(text);
}

void Log::lose(Slot& slot, std::string text) {
  slot.state = DiskState::kFailed;
  slot.text = std::move(text);
}

// Learns from a copy of the superblock whether the disk is ours.
void Log::look_at_superblock(Slot& slot, std::span<const std::byte> block) {
  const auto found = read_superblock(block);
  if (!found) return;
  if (found->format > kFormat) {
    return refuse(slot, "a later version of mc wrote this disk (format " +
                            std::to_string(found->format) + ", known is " +
                            std::to_string(kFormat) +
                            "); run that version, or name another path in tier_paths");
  }
  // A copy that empties the disk counts in any case.
  const bool better = !slot.superblock || found->life == 0 ||
                      (slot.superblock->life != 0 && found->run > slot.superblock->run);
  if (better && is_usable(*found)) slot.superblock = found;
}

void Log::take_looks(Slot& slot) {
  job_ends_.clear();
  slot.plan.jobs->take_ended(job_ends_);
  for (const JobEnd& end : job_ends_) {
    --slot.looks;
    if (slot.state != DiskState::kOpening) continue;
    if (end.outcome != JobEnd::Outcome::kDone) {
      slot.error = end.error;
    } else if (slot.looks_at_edges) {
      slot.blank = slot.blank && std::all_of(end.bytes.begin(), end.bytes.end(),
                                             [](std::byte byte) { return byte == std::byte{0}; });
    } else {
      look_at_superblock(slot, end.bytes);
    }
  }
  if (slot.state == DiskState::kOpening && slot.looks == 0 && !slot.superblock) look_further(slot);
}

// The disk has no superblock: only a blank disk is taken.
void Log::look_further(Slot& slot) {
  if (slot.error != 0) {
    lose(slot, errno_text(slot.plan.name + ": cannot read the disk", slot.error) +
                   "; replace the disk, or name another path in tier_paths");
  } else if (!slot.looks_at_edges) {
    slot.looks_at_edges = true;
    const std::uint64_t bytes = std::min(kEdgeBytes, slot.plan.jobs->disk_bytes());
    look(slot, 0, bytes);
    look(slot, slot.plan.jobs->disk_bytes() - bytes, bytes);
  } else if (!slot.blank) {
    refuse(
        slot,
        "the disk has other data, and is not written; name another path in tier_paths, or, if "
        "nobody needs the data, remove the file, or zero the first and the last 2 MiB of the device");
  }
}

void Log::read_superblocks() {
  bool all = true;
  for (Slot& slot : slots_) {
    if (slot.since_ns == 0) slot.since_ns = now_ns_;
    take_looks(slot);
    if (slot.state != DiskState::kOpening || slot.looks == 0) continue;
    all = false;
    if (now_ns_ <= slot.since_ns + kAnswerNs) continue;
    slot.plan.jobs->give_up();
    lose(slot,
         slot.plan.name + ": the disk does not answer; replace the disk, then restart the agent");
  }
  if (all) decide();
}

// The first disk with a superblock names the tier. A crash may have left some disks of a tier at the tier
// before: these are emptied.
void Log::join_tier() {
  bool known = false;
  for (Slot& slot : slots_) {
    if (slot.state != DiskState::kOpening || !slot.superblock) continue;
    const Superblock& superblock = *slot.superblock;
    if (config_.only_own_disks && superblock.host != config_.host && superblock.host != 0) {
      refuse(slot,
             "the disk belongs to node " + std::to_string(superblock.host) +
                 " of a cluster; stop and start the agent to take over that node with its disks, "
                 "or, if nobody needs its objects, zero the first 2 MiB of this disk");
      continue;
    }
    if (!known) {
      known = true;
      tier_ = superblock.tier;
      previous_ = superblock.previous;
      secret_ = superblock.secret;
    }
    if (superblock.tier != tier_) {
      const bool sibling = superblock.previous == previous_ && previous_ != TierId{};
      if (superblock.tier == previous_ || superblock.previous == tier_ || sibling) {
        slot.superblock->run = slot.superblock->served_run = 0;
        slot.emptied = "the disk belonged to an earlier tier";
        continue;
      }
      refuse(slot,
             "the disk belongs to another tier, and is not written; name the disks of one tier in "
             "tier_paths, or, if nobody needs its objects, zero the first 2 MiB of this disk");
      continue;
    }
    run_ = std::max(run_, superblock.run);
    if (superblock.served_run >= served_run_) {
      served_run_ = superblock.served_run;
      members_ = superblock.members;
    }
  }
  if (!known) {
    secret_ = random();
    begin_tier();
  }
  take_numbers();
}

// A disk that was away may have a number that another disk has by now.
void Log::take_numbers() {
  for (const bool current : {true, false}) {
    for (Slot& slot : slots_) {
      if (slot.state != DiskState::kOpening || !slot.superblock) continue;
      const bool is_current = slot.emptied.empty() && slot.superblock->run >= served_run_;
      if (current != is_current) continue;
      const std::uint64_t bit = std::uint64_t{1} << slot.superblock->disk;
      if ((numbers_ & bit) == 0) {
        numbers_ |= bit;
      } else if (current) {
        refuse(slot, "the disk is a copy of another disk in tier_paths; name only one of the two");
      } else {
        slot.takes_a_number = true;
      }
    }
  }
}

void Log::begin_tier() {
  previous_ = tier_;
  served_run_ = members_ = 0;
  const std::uint64_t words[] = {random(), random()};
  std::memcpy(tier_.data(), words, tier_.size());
}

// Whether the members that are away cannot have served without the disks that are here.
bool Log::has_quorum() const {
  std::uint64_t here = 0;
  for (const Slot& slot : slots_) {
    if (slot.state != DiskState::kOpening || !slot.superblock) continue;
    if (slot.superblock->run >= served_run_) here |= std::uint64_t{1} << slot.superblock->disk;
  }
  const int count = std::popcount(members_), present = std::popcount(members_ & here);
  if (2 * present != count) return 2 * present > count;
  const std::uint64_t lowest = members_ & (~members_ + 1);
  return count == 0 || (here & lowest) != 0;
}

void Log::decide() {
  join_tier();
  // A tier that has never served has no objects, and stays what it is.
  const bool continues = served_run_ == 0 || has_quorum();
  const std::uint64_t served_before = served_run_;
  if (!continues) begin_tier();
  phase_ = Phase::kPreparing;
  for (Slot& slot : slots_) {
    if (slot.state != DiskState::kOpening) continue;
    if (!slot.superblock || !slot.emptied.empty()) {
      // New, or of an earlier tier.
    } else if (slot.superblock->format < kFormat) {
      slot.emptied = "an earlier version of mc wrote the disk";
    } else if (slot.superblock->life == 0) {
      slot.emptied = "a write had failed";
    } else if (slot.superblock->run < served_before) {
      slot.emptied = "the disk missed a start, or had failed";
    } else if (!continues) {
      slot.emptied = "other disks of the tier may have served without this one";
    }
    begin_log(slot);
  }
  begin_run();
}

void Log::begin_log(Slot& slot) {
  const bool is_new = !slot.superblock;
  Superblock superblock = slot.superblock.value_or(Superblock{});
  if (is_new || slot.takes_a_number) {
    if (numbers_ == UINT64_MAX) return refuse(slot, "a tier has at most 64 disks");
    superblock.disk = static_cast<std::uint32_t>(std::countr_one(numbers_));
    numbers_ |= std::uint64_t{1} << superblock.disk;
  }
  if (is_new) {
    superblock.segment_bytes = config_.segment_bytes != 0
                                   ? config_.segment_bytes
                                   : segment_bytes_for(slot.plan.jobs->disk_bytes());
  }
  const std::uint64_t room = slot.plan.jobs->disk_bytes() - kFirstSegmentOffset;
  const std::uint64_t count =
      std::min<std::uint64_t>(room / superblock.segment_bytes, kMaxSegmentsOfDisk - 1);
  if (count < kFewestSegments) {
    return refuse(slot, "the disk has room for " + std::to_string(count) + " segments of " +
                            std::to_string(superblock.segment_bytes >> 10) +
                            " KiB, and at least 8 are needed; raise tier_bytes");
  }
  // Segments that are cut off may have removals.
  const bool smaller = !is_new && count < superblock.segment_count;
  if (slot.emptied.empty() && smaller) slot.emptied = "the disk is smaller than before";
  const bool empty = is_new || !slot.emptied.empty();
  if (empty) superblock.life = random();
  superblock.format = kFormat;
  superblock.host = config_.host;
  superblock.incarnation = config_.incarnation;
  superblock.tier = tier_;
  superblock.previous = previous_;
  superblock.secret = secret_;
  superblock.segment_count = count;
  slot.superblock = superblock;
  slot.state = DiskState::kRecovering;
  slot.log = std::make_unique<DiskLog>(*slot.plan.jobs, catalog_, superblock, empty, config_.disk);
}

void Log::begin_run() {
  ++run_;
  if (phase_ == Phase::kPreparing) catalog_.begin_run(run_);
  run_step_ = RunStep::kRun;
  write_run(served_run_);
}

// With all disks that have not failed as members.
void Log::write_run(std::uint64_t served_run) {
  if (served_run == run_) {
    members_ = 0;
    for (const Slot& slot : slots_) {
      if (slot.log && !slot.log->failed()) members_ |= std::uint64_t{1} << slot.superblock->disk;
    }
  }
  for (Slot& slot : slots_) {
    if (slot.log && !slot.log->failed()) slot.log->begin_run(run_, served_run, members_);
  }
}

bool Log::run_is_durable() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
    return !slot.log || slot.log->failed() || slot.log->superblock_is_durable();
  });
}

void Log::watch(Slot& slot) {
  if (slot.state == DiskState::kFailed) return;
  if (slot.log->failed()) {
    lose(slot,
         errno_text(slot.plan.name + ": the disk failed", slot.log->error()) +
             "; its objects are lost. Replace the disk, or make room for it, then restart the "
             "agent");
    // If the disk comes back, its run shows that the disk missed removals.
    begin_run();
  } else if (slot.log->recovered()) {
    slot.state = DiskState::kServing;
  } else {
    slot.state = DiskState::kRecovering;
  }
}

// Removals are acknowledged only while no failed disk can come back with objects.
Log::Acknowledging Log::acknowledging() const {
  if (phase_ != Phase::kServing || run_step_ != RunStep::kDone) return Acknowledging::kLater;
  bool another_serves = false, may_come_back = config_.disks_not_opened;
  for (const Slot& slot : slots_) {
    const bool serves = slot.log && !slot.log->failed();
    const bool is_void = slot.log && slot.log->void_is_durable();
    another_serves = another_serves || serves;
    may_come_back = may_come_back || (slot.state == DiskState::kFailed && !is_void);
  }
  // The run of the others is higher than that of such a disk.
  return another_serves || !may_come_back ? Acknowledging::kNow : Acknowledging::kNever;
}

void Log::do_work(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  if (phase_ == Phase::kReading) return read_superblocks();
  std::uint64_t unread_order = 0;
  bool recovered = true;
  for (Slot& slot : slots_) {
    if (!slot.log) {
      take_looks(slot);  // a late answer
      continue;
    }
    slot.log->do_work(now_ns);
    watch(slot);
    unread_order = std::max(unread_order, slot.log->unread_order());
    recovered = recovered && slot.state != DiskState::kRecovering &&
                (slot.log->failed() || !catalog_.has_shadowed(slot.superblock->disk));
  }
  advance_run();
  if (phase_ != Phase::kServing) return;
  remove_early();
  if (catalog_.recovering()) {
    catalog_.set_unread_order(unread_order);
    if (recovered) catalog_.end_recovery();
  } else {
    catalog_.free_some();
  }
  settle();
}

// While a disk has records that count no more only because of another disk, nothing may leave that disk.
void Log::settle() {
  settled_ =
      !catalog_.recovering() && std::none_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
        return slot.log && slot.log->needs_all_removals();
      });
  takes_puts_ = false;
  for (Slot& slot : slots_) {
    if (!slot.log) continue;
    slot.log->set_settled(settled_);
    takes_puts_ = takes_puts_ || (settled_ && !slot.log->failed());
  }
}

void Log::advance_run() {
  if (run_step_ == RunStep::kDone || !run_is_durable()) return;
  if (run_step_ == RunStep::kRun) {
    run_step_ = RunStep::kServed;
    served_run_ = run_;
    return write_run(run_);
  }
  run_step_ = RunStep::kDone;
  if (phase_ != Phase::kPreparing) return;
  phase_ = Phase::kServing;
  for (Slot& slot : slots_) {
    if (slot.log) slot.log->serve();
  }
}

std::uint64_t Log::early_name(const ObjectName& name) {
  if (name.given) return name.given->hash;
  return XXH3_64bits_withSeed(name.key.data(), name.key.size(), name.namespace_id);
}

void Log::remove_early() {
  for (std::size_t i = 0; i < kEarlyAtOnce && !early_.empty(); ++i) {
    const Early early = std::move(early_.front());
    early_.pop_front();
    early_names_.erase(early_names_.find(early_name(early.name())));
    remove_as(early.ticket, key_of(early.name()), early.namespace_id);
  }
}

DiskLog* Log::log_of(std::uint32_t disk) const {
  for (const Slot& slot : slots_) {
    if (slot.log && slot.log->superblock().disk == disk) return slot.log.get();
  }
  return nullptr;
}

// A later version goes to the disk of the earlier one, behind its removal: there the removal is durable
// before the later version is.
tl::expected<Log::Slot*, Log::Refusal> Log::choose(const RecordHeader& header, bool paced,
                                                   const std::vector<Slot*>& holders) {
  Slot* best = nullptr;
  Refusal refusal = Refusal::kUnavailable;
  for (Slot& slot : slots_) {
    if (!slot.log || slot.log->failed()) continue;
    const bool elsewhere =
        !holders.empty() && !holders.front()->log->failed() && holders.front() != &slot;
    if (elsewhere) continue;
    if (header.length > largest_object(slot.log->superblock().segment_bytes, header.key_bytes)) {
      if (refusal == Refusal::kUnavailable) refusal = Refusal::kTooLarge;
    } else if (!paced && !slot.log->has_room_for(header)) {
      refusal = Refusal::kBusy;
    } else if (best == nullptr || slot.log->time_for(header.record_bytes()) <
                                      best->log->time_for(header.record_bytes())) {
      best = &slot;
    }
  }
  if (best == nullptr) return tl::make_unexpected(refusal);
  return best;
}

bool Log::will_take_puts() const {
  if (settled_ && early_.empty()) return false;
  return std::ranges::any_of(slots_, [](const Slot& slot) {
    return slot.state != DiskState::kRefused && slot.state != DiskState::kFailed;
  });
}

std::size_t Log::serving_disks() const {
  const auto serves = [](const Slot& slot) { return slot.state == DiskState::kServing; };
  return static_cast<std::size_t>(std::ranges::count_if(slots_, serves));
}

tl::expected<std::uint64_t, Log::Refusal> Log::put(const NewObject& object,
                                                   std::vector<Piece> pieces) {
  if (!settled_ || !early_.empty()) {
    return tl::make_unexpected(Refusal::kBusy);
  }
  if (catalog_.full()) return tl::make_unexpected(Refusal::kUnavailable);
  const TierKey key = key_of(object.name);
  if (has_version(object.name, object.version)) {
    return tl::make_unexpected(Refusal::kExists);
  }
  if (catalog_.unfinished(key) != nullptr) return tl::make_unexpected(Refusal::kBusy);
  NewRecord record;
  record.header = {.marks = object.marks,
                   .key_bytes = static_cast<std::uint16_t>(object.name.key.size()),
                   .length = object.length,
                   .hash = key.hash,
                   .more = key.more,
                   .group = object.group,
                   .namespace_id = object.name.namespace_id,
                   .version = object.version,
                   .sum_seed = object.sum_seed,
                   .checksum = object.checksum,
                   .parent_hash = object.parent_hash,
                   .pool_parent = object.pool_parent};
  const std::vector<Slot*> holders = holders_of(key);
  const auto chosen = choose(record.header, object.paced, holders);
  if (!chosen) return tl::make_unexpected(chosen.error());
  Slot* const slot = *chosen;
  // An earlier version must not come back if this one leaves first.
  if (!holders.empty()) {
    forget(key, object.name.namespace_id, holders, catalog_.take_order(), kNoTicket);
  }
  record.header.order = catalog_.take_order();
  record.key = object.name.key;
  record.pieces = std::move(pieces);
  record.ticket = next_ticket_++;
  record.soon = object.soon;
  catalog_.begin(key, {.order = record.header.order,
                       .disks = std::uint64_t{1} << slot->log->superblock().disk,
                       .is_put = true,
                       .version = object.version});
  const std::uint64_t ticket = record.ticket;
  slot->log->append(std::move(record));
  return ticket;
}

// The disks that may have a record of the key.
std::vector<Log::Slot*> Log::holders_of(const TierKey& key) {
  const std::uint32_t known = catalog_.find_any(key);
  const Catalog::Unfinished* const unfinished = catalog_.unfinished(key);
  std::vector<Slot*> holders;
  for (Slot& slot : slots_) {
    if (!slot.log) continue;
    const std::uint32_t disk = slot.log->superblock().disk;
    const bool holds = (known != kNoEntry && disk_of(catalog_.at(known).place.segment) == disk) ||
                       (unfinished != nullptr && (unfinished->disks >> disk & 1) != 0);
    if (holds || slot.log->needs_all_removals()) holders.push_back(&slot);
  }
  return holders;
}

void Log::forget(const TierKey& key, std::uint64_t namespace_id, const std::vector<Slot*>& holders,
                 std::uint64_t order, std::uint64_t ticket) {
  const std::uint32_t known = catalog_.find_any(key);
  if (known != kNoEntry) catalog_.erase(known);
  const RecordHeader header{.kind = RecordKind::kRemoval,
                            .hash = key.hash,
                            .more = key.more,
                            .namespace_id = namespace_id,
                            .order = order};
  for (Slot* const slot : holders) {
    if (catalog_.recovering()) catalog_.recover_removal(header, slot->superblock->disk);
    NewRecord record{.header = header, .ticket = ticket, .soon = true};
    slot->log->append(std::move(record));
  }
}

tl::expected<std::optional<std::uint64_t>, Log::Refusal> Log::remove(const ObjectName& name) {
  if (!may_remove(1)) return tl::make_unexpected(Refusal::kBusy);
  if (phase_ != Phase::kServing) {
    early_.push_back({.key = std::string(name.key),
                      .namespace_id = name.namespace_id,
                      .given = name.given,
                      .ticket = next_ticket_});
    early_names_.insert(early_name(name));
    return next_ticket_++;
  }
  const TierKey key = key_of(name);
  // A failed disk may come back with an object that nobody knows any more.
  if (holders_of(key).empty() && acknowledging() == Acknowledging::kNow) return std::nullopt;
  remove_as(next_ticket_, key, name.namespace_id);
  return next_ticket_++;
}

void Log::remove_as(std::uint64_t ticket, const TierKey& key, std::uint64_t namespace_id) {
  const std::vector<Slot*> holders = holders_of(key);
  const std::uint64_t order = catalog_.take_order();
  removals_[ticket] = {
      .key = key, .order = order, .left = static_cast<std::uint32_t>(holders.size())};
  if (holders.empty()) {
    durable_removals_.push_back(ticket);
    return;
  }
  std::uint64_t disks = 0;
  for (const Slot* const slot : holders) disks |= std::uint64_t{1} << slot->superblock->disk;
  catalog_.begin(key, {.order = order, .disks = disks});
  forget(key, namespace_id, holders, order, ticket);
}

void Log::end_removal(const LogEnd& end) {
  Removal& removal = removals_[end.ticket];
  if (end.outcome == LogEnd::Outcome::kFailed) removal.error = end.error;
  if (--removal.left > 0) return;
  catalog_.end(removal.key, removal.order);
  durable_removals_.push_back(end.ticket);
}

// Tells the ends of removals, in their order.
void Log::acknowledge() {
  const Acknowledging when = acknowledging();
  if (when == Acknowledging::kLater) return;
  for (std::size_t i = 0; i < kEndsAtOnce && !durable_removals_.empty(); ++i) {
    const std::uint64_t ticket = durable_removals_.front();
    durable_removals_.pop_front();
    const auto removal = removals_.extract(ticket);
    const bool failed = when == Acknowledging::kNever;
    ended_.push_back({.ticket = ticket,
                      .outcome = failed ? LogEnd::Outcome::kFailed : LogEnd::Outcome::kDone,
                      .error = failed ? removal.mapped().error : 0,
                      .header = {}});
  }
}

bool Log::may_bring_back(const ObjectName& name) const {
  if (!early_.empty() && early_names_.contains(early_name(name))) return true;
  const TierKey key = key_of(name);
  return catalog_.find_any(key) != kNoEntry || catalog_.unfinished(key) != nullptr;
}

std::optional<Log::Latest> Log::latest(const ObjectName& name) const {
  const TierKey key = key_of(name);
  if (const Catalog::Unfinished* const unfinished = catalog_.unfinished(key)) {
    return unfinished->is_put ? std::optional(Latest{.version = unfinished->version})
                              : std::nullopt;
  }
  const std::uint32_t number = catalog_.find_any(key);
  if (number == kNoEntry) return std::nullopt;
  const TierEntry& entry = catalog_.at(number);
  return Latest{.version = entry.version,
                .readable = (entry.flags & kEntryDamaged) == 0 && disk_serves(entry),
                .refused = (entry.flags & kEntryRefused) != 0};
}

void Log::set_marks(const ObjectName& name, std::uint8_t marks) {
  const std::uint32_t number = catalog_.find_any(key_of(name));
  if (number != kNoEntry) catalog_.at(number).marks = marks & ((1u << kMarkBits) - 1);
}

bool Log::has_version(const ObjectName& name, std::uint64_t version) const {
  const auto known = latest(name);
  return known && known->version == version && known->readable && !known->refused;
}

const TierEntry* Log::find(const ObjectName& name) const {
  if (!early_.empty()) return nullptr;
  const std::uint32_t number = catalog_.find(key_of(name));
  if (number == kNoEntry || !disk_serves(catalog_.at(number))) return nullptr;
  return &catalog_.at(number);
}

// A disk that failed, or has to be emptied, still has entries for a while.
bool Log::disk_serves(const TierEntry& entry) const {
  const DiskLog* const log = log_of(disk_of(entry.place.segment));
  return !log->failed() && !log->must_empty();
}

std::optional<std::uint64_t> Log::read(const ObjectName& name, std::vector<Piece> to,
                                       Urgency urgency, std::uint64_t sum_seed) {
  const TierEntry* const entry = find(name);
  std::uint64_t room = 0;
  for (const Piece& piece : to) room += piece.bytes;
  if (entry == nullptr || entry->length != room) return std::nullopt;
  const std::uint64_t ticket = next_ticket_++;
  log_of(disk_of(entry->place.segment))
      ->read(ticket, catalog_.find(entry->key()), std::string(name.key), std::move(to), urgency,
             sum_seed);
  return ticket;
}

std::deque<KeyWalk> Log::walk_keys() const {
  std::deque<KeyWalk> walks;
  for (const Slot& slot : slots_) {
    if (slot.log) walks.emplace_back(catalog_, *slot.log);
  }
  return walks;
}

void Log::take_ended(std::vector<LogEnd>& ended) {
  for (Slot& slot : slots_) {
    if (!slot.log) continue;
    disk_ends_.clear();
    slot.log->take_ended(disk_ends_);
    for (const LogEnd& end : disk_ends_) {
      if (removals_.contains(end.ticket)) {
        end_removal(end);
      } else if (end.ticket != kNoTicket) {
        ended_.push_back(end);
      }
    }
  }
  acknowledge();
  std::move(ended_.begin(), ended_.end(), std::back_inserter(ended));
  ended_.clear();
}

void Log::take_dropped(std::vector<Dropped>& dropped) {
  for (Slot& slot : slots_) {
    if (slot.log) slot.log->take_dropped(dropped);
  }
}

std::uint64_t Log::written_bytes() const {
  std::uint64_t bytes = 0;
  for (const Slot& slot : slots_) {
    if (slot.log) bytes += slot.log->counters().written_bytes;
  }
  return bytes;
}

std::uint64_t Log::next_work_ns() const {
  std::uint64_t next = UINT64_MAX;
  if (phase_ == Phase::kServing && !early_.empty()) return 0;
  if (!durable_removals_.empty() && acknowledging() != Acknowledging::kLater) return 0;
  for (const Slot& slot : slots_) {
    if (slot.log) next = std::min(next, slot.log->next_work_ns());
  }
  return next;
}

bool Log::idle() const {
  return phase_ == Phase::kServing && durable_removals_.empty() &&
         std::all_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return !slot.log || slot.log->idle(); });
}

std::vector<DiskReport> Log::report() const {
  std::vector<DiskReport> reports;
  for (const Slot& slot : slots_) {
    DiskReport report{.name = slot.plan.name, .state = slot.state, .text = slot.text};
    report.bytes = slot.plan.jobs->disk_bytes();
    if (slot.log) {
      report.live_bytes = catalog_.live_units_of_disk(slot.log->superblock().disk) * kUnitBytes;
      report.emptied =
          slot.log->emptied() > 0 ? "removals on the disk could not be read" : slot.emptied;
      report.segments = slot.log->segments().count();
      report.free_segments = slot.log->segments().free_count();
      report.log = slot.log->counters();
      report.cleaner = slot.log->cleaner_counters();
      report.recovery = slot.log->recovery_counters();
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace mc::tier
