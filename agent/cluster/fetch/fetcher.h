// SPDX-License-Identifier: Apache-2.0
//
// What it is: gets objects that other hosts hold: finds out who, asks where, reads, compares the
//   checksum, and lends the bytes to whoever waits. What is asked for a second time becomes a copy
//   of this host's, so that a hot prefix spreads.
//
//              location known ─────────────────────────┐
//     begin ──► kLocate ──master──► kAsk ──holder──► kRoom ──► kRead ──► sum ──► lent, or kept
//                  ▲                  │  next holder, while there are any and time is left
//                  └── stale ─────────┴──────────────────────────────────────► a miss, counted
//
//   An object in stripes is the Gatherer's from the master's answer on; here it is lent.
//   Questions to one place that come up in one round of the loop go out as one message. Several
//   that want one object share its fetch. A small object comes with the answer and is not read.
// Threads: the agent's loop. Owns: fetches under way, their reservations, the location cache.
// Trusts: what a holder says of places is checked by its own transport and the checksum.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "agent/cluster/fetch/location_cache.h"
#include "agent/cluster/master/masters.h"
#include "agent/cluster/namespace/cluster_tenant.h"
#include "agent/cluster/peer/peers.h"
#include "agent/cluster/publish/announcer.h"
#include "agent/cluster/stripe/gatherer.h"
#include "agent/server/remote_request.h"
#include "transport/transport.h"

namespace mc::agent {

struct FetchCounters {
  std::uint64_t fetches = 0, shared = 0, located = 0, location_hits = 0, asked = 0;
  std::uint64_t holder_hits = 0;  // asked without the master, which had named them before
  std::uint64_t read_objects = 0, read_bytes = 0, lent = 0, kept = 0, next_holders = 0;
  std::uint64_t came_along = 0;  // with the answer to where they are
  std::uint64_t delivered = 0;   // to readers
  std::uint64_t held_for_others = 0;
  // Misses by reason.
  std::uint64_t nobody = 0, recovering = 0, master_away = 0, holders_failed = 0, late = 0,
                no_room = 0, corrupt = 0, incomplete = 0;
};

class Fetcher {
 public:
  using Ended = std::function<void(mc_status)>;

  Fetcher(const Masters& masters, Peers& peers, transport::Transport& transport,
          Announcer& announcer, Gatherer& gatherer, const metadata::Reader& reader)
      : masters_(masters),
        peers_(peers),
        transport_(transport),
        announcer_(announcer),
        gatherer_(gatherer),
        reader_(reader) {}

  void fetch(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
             std::uint64_t now_ns);
  void exists(const std::shared_ptr<RemoteRequest>& remote_request, ClusterTenant& tenant,
              std::uint64_t now_ns);
  // Becomes a holder of that object, whose key only its holders know.
  void copy(const std::vector<ClusterTenant*>& tenants, const metadata::KeyHash& name,
            MemberId source, std::uint64_t deadline_ns, Ended ended);
  // Becomes the holder of an object that a client of `writer` is putting, and whose bytes lie
  // there. ended: MC_OK, MC_NO_SPACE, MC_CANCELLED (its version is too old) or another failure.
  void hold(ClusterTenant& tenant, const PeerMessage& message, MemberId writer,
            std::uint64_t now_ns, Ended ended);
  // The same for a stripe, of a set that is expected: it stays open, and no master is told.
  void hold_stripe(ClusterTenant& tenant, const PeerMessage& message, MemberId writer,
                   std::uint64_t now_ns, Ended ended);
  // Its pins are not to be written any more.
  void give_up(RemoteRequest& remote_request) { remote_request.abandoned = true; }
  // The namespace goes away. True: nothing reads into its pool any more; else poll, and call again.
  bool forget(const ClusterTenant& tenant);
  // The master has ordered the object dropped, up to this version: what of it is on its way is
  // still given to whoever waits, but not kept, and nobody else gets it.
  void dropped(const metadata::KeyHash& name, std::uint64_t up_to_version);
  // This node has put the key itself, which the master is told behind what it was told already.
  void put_here(const metadata::PublishItem& put);
  // Or any object of the namespace.
  void dropped(const ClusterTenant& tenant);
  // A report begins, which names what is held: with it the master forgets what was only offered.
  void report_begun(std::uint32_t partition);

  void on_answer(MemberId from, const PeerMessage& message,
                 const std::vector<std::unique_ptr<ClusterTenant>>& tenants);
  void on_event(const transport::Event& event);
  void flush(std::uint64_t now_ns);
  // When flush() must be called though nothing happens; UINT64_MAX: never.
  std::uint64_t next_ns() const;
  bool idle() const { return fetches_.empty(); }
  bool take_ended() { return std::exchange(ended_, false); }

  LocationCache& locations() { return locations_; }
  const FetchCounters& counters() const { return counters_; }

  // Cookies of this class' operations; others are not for on_event().
  static constexpr std::uint64_t kAskCookie = 1ull << 63;
  static constexpr std::uint64_t kReadCookie = 1ull << 62;

 private:
  // The least a holder is given before the next one is tried.
  static constexpr std::uint64_t kLeastTryNs = 50'000'000;
  // An answer that has not come by then is lost, most likely: after a cut, the ways there and back
  // are not up again at the same time.
  static constexpr std::uint64_t kAnswerNs = 300'000'000;
  // A master that is away makes a miss, not a wait: prompts are computed meanwhile.
  static constexpr std::uint64_t kMostLocateNs = 800'000'000;
  static constexpr std::uint64_t kPartBytes = 2 << 20;
  static constexpr std::size_t kPartsOut = 6;

  enum class Step : std::uint8_t {
    kLocate,
    kLocating,
    kAsk,
    kAsking,
    kRoom,
    kReading,
    kOffered,
    kGathering
  };
  struct Waiter {
    std::shared_ptr<RemoteRequest> remote_request;
    std::size_t item = 0;
  };
  struct Held {  // of a put that a client of another host makes
    MemberId writer = metadata::kNoNode;
    std::uint32_t request = 0;
    PutOrder order;                  // pins, and whether it replaces
    std::vector<std::byte> label{};  // of a stripe
  };
  struct Fetch {
    std::uint64_t id = 0;
    ClusterTenant* tenant = nullptr;  // of a copy: unknown until a holder has told
    std::vector<ClusterTenant*> candidates;
    metadata::KeyHash name;
    std::string key;
    std::vector<Waiter> waiters;
    Ended ended;  // of a copy
    std::uint64_t deadline_ns = 0;
    std::uint64_t try_until_ns = 0;
    std::uint64_t patience_ns = 0;    // until when a holder may be unknown, or a stripe missing
    std::uint64_t not_before_ns = 0;  // to be located
    std::uint64_t gather = 0;         // the Gatherer's name of it
    Step step = Step::kLocate;
    bool relocated = false;  // once, after a stale location
    bool joined = false;     // by a reader who has not had a try of his own
    bool from_cache = false;
    bool hot = false;   // asked for again: a copy is made when its readers have it
    bool keep = false;  // as a copy, under its key
    bool offered = false;
    metadata::PublishItem offer;  // what was offered
    metadata::Verdict verdict = metadata::Verdict::kStale;
    bool verdict_due = false;  // asked for, and nobody has said that none comes
    bool verdict_in = false;
    bool missed = false;  // only its reads have not ended
    bool kept = false;
    bool dropped = false;  // removed or replaced since it was begun
    std::optional<Held> held;
    std::vector<MemberId> holders;
    std::size_t next_holder = 0;
    Location at;
    bool bytes_asked = false;      // with the place; the holder may have read them by now
    std::vector<std::byte> bytes;  // that came with the answer
    std::uint32_t entry = kNoEntry;
    // A large object is read part by part, some at a time, and each is summed while others come.
    struct Part {
      transport::OperationId id = transport::kNoOperation;
      std::uint64_t bytes = 0;
      bool in = false;
    };
    std::deque<Part> parts;        // asked for and not summed, in the object's order
    std::uint32_t reads_open = 0;  // of these, those that are not in
    std::uint64_t asked_bytes = 0, summed_bytes = 0;  // of the object, from its beginning
    std::uint64_t sum = 0;
    transport::Outcome read_outcome = transport::Outcome::kDone;
  };
  using FetchPointer = std::unique_ptr<Fetch>;
  struct AskBatch {
    MemberId node = metadata::kNoNode;
    std::vector<std::uint64_t> fetches;
    std::size_t open = 0;
    std::uint64_t until_ns = 0;
    std::uint64_t again_ns = UINT64_MAX;  // when it is asked again; never: it has not arrived yet
  };

  Fetch* find(std::uint64_t id);
  Fetch& start(ClusterTenant* tenant, const metadata::KeyHash& name, std::uint64_t deadline_ns);
  void mark_dropped(Fetch& fetch);
  static bool may_join(const Fetch& fetch);
  bool serve_locally(RemoteRequest& remote_request, RemoteRequest::Item& item,
                     ClusterTenant& tenant);
  void send_locates(std::uint64_t now_ns);
  void send_due_locates(std::uint64_t now_ns);
  void send_locate(std::uint32_t partition, std::vector<std::uint64_t> ids, std::uint64_t now_ns);
  bool ask_known_holders(Fetch& fetch);
  void note_holders(const metadata::KeyHash& name, const metadata::LocateAnswer& answer,
                    const metadata::Located& located);
  // REQUIRES: keys of one share.
  void ask_whether_there(const std::shared_ptr<RemoteRequest>& remote_request,
                         std::vector<std::size_t> items, const metadata::wire::Locate& request,
                         std::uint64_t now_ns);
  void send_asks(std::uint64_t now_ns);
  void on_located(const std::vector<std::uint64_t>& ids,
                  const Result<metadata::LocateAnswer>& answer);
  void on_row(Fetch& fetch, MemberId from, transport::RemoteRegionId region, const PlaceRow& row);
  void gather(Fetch& fetch, const metadata::Located& located, std::span<const MemberId> holders);
  void on_gathered(Fetch& fetch, mc_status status, std::uint32_t entry, const StripeFacts& facts);
  bool locate_again(Fetch& fetch);
  void seek_room(Fetch& fetch);
  static metadata::PublishItem item_of(const Fetch& fetch);
  void offer(Fetch& fetch);
  void supersede(const Fetch& fetch);
  void take_back(const metadata::PublishItem& item, std::uint64_t of,
                 std::optional<metadata::Verdict> verdict);
  void read(Fetch& fetch);
  static bool may_read(const Fetch& fetch) {
    return fetch.step == Step::kReading && fetch.read_outcome == transport::Outcome::kDone &&
           fetch.asked_bytes < fetch.at.row.length && fetch.reads_open < kPartsOut;
  }
  void submit_reads(std::uint64_t now_ns);
  void plan_reads(const Fetch& fetch, std::uint64_t now_ns);
  std::size_t append_pieces(const PoolExtents& lies, std::uint64_t from, std::uint64_t bytes,
                            const ClusterTenant& tenant);
  void take_bytes(Fetch& fetch);
  void on_part(Fetch& fetch, const transport::Event& event);
  void sum_parts();
  void sum_next(Fetch& fetch, std::uint64_t bytes);
  void on_read(Fetch& fetch);
  void deliver(Fetch& fetch);
  std::uint32_t keep_copy(Fetch& fetch);
  std::uint32_t publish_copy(Fetch& fetch);
  void shelve(Fetch& fetch);
  bool hold_upsert(Fetch& fetch);
  static std::uint32_t held_entry(const Fetch& fetch);
  static mc_status held_status(const Fetch& fetch);
  void begin_copies(std::uint64_t now_ns);
  void try_next(Fetch& fetch, std::uint64_t now_ns);
  void give_back(Fetch& fetch);
  void miss(Fetch& fetch, mc_status status, std::uint64_t& reason);
  void end(Fetch& fetch);
  void check_times(std::uint64_t now_ns);
  void ask_again(std::uint64_t now_ns);

  const Masters& masters_;
  Peers& peers_;
  transport::Transport& transport_;
  Announcer& announcer_;
  Gatherer& gatherer_;
  const metadata::Reader reader_;
  LocationCache locations_;
  HolderCache holders_;
  FetchCounters counters_;
  std::unordered_map<std::uint64_t, FetchPointer> fetches_;
  std::unordered_map<metadata::KeyHash, std::uint64_t, NameHash> by_name_;  // of fetches
  std::vector<std::uint64_t> to_locate_, to_ask_, want_room_, to_read_, to_sum_;
  // The reads of one turn. Its memory is used again.
  struct ReadPlan {
    std::vector<transport::Operation> operations;
    std::vector<std::size_t> piece_counts;  // of each operation
    std::vector<transport::Piece> pieces;
    std::vector<std::pair<std::uint64_t, std::size_t>> fetches;  // id, its operations
    void clear() { operations.clear(), piece_counts.clear(), pieces.clear(), fetches.clear(); }
  };
  ReadPlan read_plan_;
  struct Hot {
    ClusterTenant* tenant;
    metadata::KeyHash name;
    std::string key;
    Location at;
    std::uint64_t due_ns;
  };
  std::deque<Hot> hot_;  // to become copies when nobody waits, or at their time
  std::unordered_map<std::uint32_t, AskBatch> asks_;
  std::uint32_t next_ask_ = 1;
  std::uint64_t next_id_ = 1;
  std::uint64_t next_check_ns_ = 0;
  std::uint64_t now_ns_ = 0;
  bool ended_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace mc::agent
