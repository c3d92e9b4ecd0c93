// SPDX-License-Identifier: Apache-2.0
//
// The tier of a host: the logs of its disks, with one catalog. New objects go to the disk that needs
//   the least time for them, by its measured speed.
//
//   kReading ──superblocks──► kPreparing ──run is served──► kServing
//
//   A disk that cannot be used does not stop the others. A disk with other data, with data of another
//   tier, or of a later format, is never written.
//
//   Which disks know all removals. Each start, and each failure of a disk, has a number, the run. First all
//   disks that serve have the run durably, then all have it as the served run, with these disks as members.
//   Until then no removal is acknowledged. A disk whose run is lower than a served run was away, and is
//   emptied. If more than half of the members are away, or half with the member of the lowest number, these
//   may have served without the disks that are here: the disks that are here then begin a new tier,
//   without objects.
//   One case is left: a disk that failed and could not be written any more comes back, and all disks that
//   served on are away. Then removals since its failure are not known.
// Threads: the agent's loop. All slow work is done by the jobs.
// Owns: the logs. The caller owns the jobs, which outlive this object.
// Trusts: its caller. Bytes from the disks are checked.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "agent/tier/log/catalog.h"
#include "agent/tier/log/disk_log.h"
#include "agent/tier/log/key_walk.h"
#include "mc/status.h"

namespace mc::tier {

struct NewObject {
  ObjectName name;
  std::uint64_t version = 0;
  std::uint8_t marks = 0;      // kept for the caller; kMarkBits
  std::uint64_t length = 0;    // bytes of the pieces
  std::uint64_t sum_seed = 0;  // the checksum starts from this number
  std::uint64_t checksum = 0;
  std::uint64_t parent_hash = 0;  // TierKey::hash of the parent; 0: none
  std::uint64_t pool_parent = 0;  // hash of the parent for the caller; 0: none
  std::uint32_t group = 0;
  bool soon = false;  // wait for no further records, since the memory of the pieces is short
  // The caller bounds the bytes that wait, and the log takes them all.
  bool paced = false;
};

enum class DiskState : std::uint8_t { kOpening, kRecovering, kServing, kRefused, kFailed };

// The word of a state, as status and metrics show it.
std::string_view name_of(DiskState state);

struct DiskReport {
  std::string name = {};
  DiskState state = DiskState::kOpening;
  std::string text = {};  // why the disk is refused or failed, with the remedy
  std::uint64_t bytes = 0, live_bytes = 0;
  std::uint32_t segments = 0, free_segments = 0;
  std::string emptied = {};  // why the disk has begun without its objects; empty: it has not
  DiskLog::Counters log = {};
  Cleaner::Counters cleaner = {};
  Recovery::Counters recovery = {};
};

class Log {
 public:
  struct Config {
    DiskLog::Config disk = {};
    std::uint64_t segment_bytes = 0;  // of new disks; 0: by the size of the disk
    // Random numbers for a new tier and its disks.
    std::uint64_t random = 0;
    bool disks_not_opened = false;  // there are disks beside these, which may have objects
    // The agent's node id and incarnation, for the next start.
    std::uint64_t host = 0, incarnation = 0;
    // Disks of other hosts are refused: their masters may have removed objects meanwhile.
    bool only_own_disks = false;
  };
  struct DiskPlan {
    DiskJobs* jobs = nullptr;
    std::string name;  // for messages
  };

  Log(std::vector<DiskPlan> disks, const Config& config);

  // ---- Objects. A ticket comes back once from take_ended().
  // kExists: the object is in the tier or on its way. kBusy: too much waits, a removal or another
  // version of the key is under way, or the tier recovers. kTooLarge: no segment has room. kUnavailable:
  // no disk serves.
  enum class Refusal : std::uint8_t { kExists, kBusy, kTooLarge, kUnavailable };
  // The pieces stay valid and unchanged until the end. An object of another version gives way.
  tl::expected<std::uint64_t, Refusal> put(const NewObject& object, std::vector<Piece> pieces);
  // Removals that have not ended.
  static constexpr std::size_t kMostRemovals = 65536;
  // From now on the object is not found. The end says that no restart brings the object back; kFailed:
  // a disk that failed may bring the object back. Nothing: no disk can have the object. kBusy: too many
  // removals wait.
  tl::expected<std::optional<std::uint64_t>, Refusal> remove(const ObjectName& name);
  // The object's entry, or null. The pointer is valid until the next call.
  const TierEntry* find(const ObjectName& name) const;
  // For NewObject::parent_hash.
  std::uint64_t hash_of(const ObjectName& name) const { return key_of(name).hash; }
  // True if a restart may bring back an object of the key: a disk has a record, damaged or not, or a put or a
  // removal is under way.
  bool may_bring_back(const ObjectName& name) const;
  // Whether so many further removals may begin.
  bool may_remove(std::size_t count) const {
    return early_.size() + removals_.size() + count <= kMostRemovals;
  }
  // True if a disk has, or gets, the object with this version.
  bool has_version(const ObjectName& name, std::uint64_t version) const;
  // The latest record of the object that a disk has, or gets. Nothing: none, or a removal is under way.
  struct Latest {
    std::uint64_t version = 0;
    bool readable = true;  // the bytes are not damaged, and the disk serves
    bool refused = false;  // the disk has refused the last read
  };
  std::optional<Latest> latest(const ObjectName& name) const;
  // Sets TierEntry::marks in memory: the record on the disk keeps its own.
  void set_marks(const ObjectName& name, std::uint8_t marks);
  // See Catalog::walk().
  template <typename Visit>
  std::uint32_t walk(std::uint32_t from, std::uint32_t most, Visit visit) const {
    return catalog_.walk(from, most, [&](const TierEntry& entry) {
      if (disk_serves(entry)) visit(entry);
    });
  }
  // Walks over the objects of each disk. REQUIRES: !recovering(). The log outlives the calls of the walks.
  std::deque<KeyWalk> walk_keys() const;
  // The log remembers which objects are of this namespace. There may be too many other ones.
  void know_namespace(std::uint64_t id) { catalog_.number_namespace(id); }
  std::optional<std::uint64_t> namespace_of(const TierEntry& entry) const {
    return catalog_.namespace_of(entry);
  }
  // Puts are accepted: a disk serves, and the disks agree about the removals.
  bool takes_puts() const { return takes_puts_ && early_.empty(); }
  // Not yet: the disks are still being read, or do not agree yet.
  bool will_take_puts() const;
  std::size_t disk_count() const { return slots_.size(); }
  std::size_t serving_disks() const;
  // To all disks, with copies of the cleaner and all else.
  std::uint64_t written_bytes() const;
  // Reads the object into the pieces. LogEnd::checksum starts from sum_seed. Nothing: there is no such
  // object, or it has another length. Without a key in the name, the record's key is not compared.
  std::optional<std::uint64_t> read(const ObjectName& name, std::vector<Piece> to, Urgency urgency,
                                    std::uint64_t sum_seed);

  void do_work(std::uint64_t now_ns);
  // The time at which do_work() has work that no job announces; 0: now; UINT64_MAX: none.
  std::uint64_t next_work_ns() const;
  void take_ended(std::vector<LogEnd>& ended);
  // Objects that left to make room, or with a failed disk.
  void take_dropped(std::vector<Dropped>& dropped);

  // True while find() may not know an object that is on a disk.
  bool recovering() const { return catalog_.recovering() || !early_.empty(); }
  std::uint32_t object_count() const { return catalog_.size(); }
  std::uint64_t memory_bytes() const { return catalog_.memory_bytes(); }
  bool idle() const;
  std::vector<DiskReport> report() const;

 private:
  struct Slot {
    DiskPlan plan;
    DiskState state = DiskState::kOpening;
    std::string text = {};
    std::uint32_t looks = 0;      // reads under way before the log begins
    int error = 0;                // of these
    bool looks_at_edges = false;  // there is no superblock
    bool blank = true;            // as far as read
    std::string emptied = {};
    bool takes_a_number = false;                // the number of the superblock is taken
    std::optional<Superblock> superblock = {};  // the copy that counts
    std::uint64_t since_ns = 0;                 // of the state
    std::unique_ptr<DiskLog> log = {};
  };
  enum class Phase : std::uint8_t { kReading, kPreparing, kServing };
  // The number of the run is being written; then, that the run is served.
  enum class RunStep : std::uint8_t { kRun, kServed, kDone };
  struct Removal {
    TierKey key;
    std::uint64_t order = 0;
    std::uint32_t left = 0;  // disks that have not ended
    int error = 0;
  };

  static constexpr std::uint64_t kNoTicket = 0;
  TierKey key_of(const ObjectName& name) const { return tier_key(name, secret_); }
  std::uint64_t random();
  void look(Slot& slot, std::uint64_t offset, std::uint64_t bytes);
  void take_looks(Slot& slot);
  void read_superblocks();
  void look_at_superblock(Slot& slot, std::span<const std::byte> block);
  void look_further(Slot& slot);
  void decide();
  void join_tier();
  void take_numbers();
  void begin_tier();
  bool has_quorum() const;
  void refuse(Slot& slot, std::string text);
  void lose(Slot& slot, std::string text);
  void begin_log(Slot& slot);
  void begin_run();
  void write_run(std::uint64_t served_run);
  void advance_run();
  // The secret of the tier, and so a TierKey, is not known yet.
  static std::uint64_t early_name(const ObjectName& name);
  void remove_early();
  enum class Acknowledging : std::uint8_t { kNow, kLater, kNever };
  Acknowledging acknowledging() const;
  void acknowledge();
  bool run_is_durable() const;
  void watch(Slot& slot);
  tl::expected<Slot*, Refusal> choose(const RecordHeader& header, bool paced,
                                      const std::vector<Slot*>& holders);
  DiskLog* log_of(std::uint32_t disk) const;
  bool disk_serves(const TierEntry& entry) const;
  void settle();
  std::vector<Slot*> holders_of(const TierKey& key);
  void forget(const TierKey& key, std::uint64_t namespace_id, const std::vector<Slot*>& holders,
              std::uint64_t order, std::uint64_t ticket);
  void remove_as(std::uint64_t ticket, const TierKey& key, std::uint64_t namespace_id);
  void end_removal(const LogEnd& end);

  std::vector<Slot> slots_;
  Config config_;
  std::uint64_t random_state_;
  Phase phase_ = Phase::kReading;
  std::uint64_t now_ns_ = 0;
  // Removals before the disks were known.
  struct Early {
    std::string key;
    std::uint64_t namespace_id = 0;
    std::optional<TierKey> given = {};
    std::uint64_t ticket = 0;

    ObjectName name() const { return {key, namespace_id, given}; }
  };
  std::deque<Early> early_;
  std::unordered_multiset<std::uint64_t> early_names_;  // early_name() of each
  TierId tier_{}, previous_{};
  std::uint64_t secret_ = 0;
  RunStep run_step_ = RunStep::kRun;
  std::uint64_t run_ = 0, served_run_ = 0;
  std::uint64_t members_ = 0;  // of the served run
  std::uint64_t numbers_ = 0;  // of disks that are taken, a bit each
  Catalog catalog_;
  std::uint64_t next_ticket_ = 1;
  std::unordered_map<std::uint64_t, Removal> removals_;
  std::deque<std::uint64_t> durable_removals_;  // tickets that wait for acknowledging()
  bool settled_ = false;                        // puts may come
  bool takes_puts_ = false;                     // and a disk serves
  std::vector<LogEnd> ended_;
  std::vector<LogEnd> disk_ends_;
  std::vector<JobEnd> job_ends_;
};

}  // namespace mc::tier
