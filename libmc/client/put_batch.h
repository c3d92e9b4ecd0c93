// SPDX-License-Identifier: Apache-2.0
//
// The puts of a batch, as a state machine that waits only while the session memory is opened.
//   put_items() waits for the answers that the batch wants, a CompletionQueue looks at the batch
//   again later, and a group takes the puts before they are published. A single put with a cached
//   reservation takes the same steps (writing.h) without a batch.
//
//   items, in order:
//     exists? ──yes──► done
//        │ no
//     room: a cached reservation, ──no──► kReserve for items of the same size ──► wants an answer
//        │  or staging               └──► refused: staging, for other hosts; or done with the status
//        │  (an item that another host shall hold goes to staging at once)
//     copy ──► 8 items or 2 MiB are copied: kPut, while the next items are copied
//        │     (values in memory of devices are copied together: 64 items or 32 MiB)
//        ├──► with a stream, the copies are under way, and the next items begin: wants the copies
//        └──► at the end: wants the answers ──► statuses ──session lost: the items again──► done
//
// Threads: as the given channel.
// Owns: spare reservations, copied puts and requests until their end.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "libmc/client/client.h"
#include "libmc/client/device/device_values.h"
#include "libmc/client/session/channel.h"
#include "libmc/client/writing.h"
#include "mc/mc.h"

namespace mc::client {

class PutBatch {
 public:
  // kPut: the values stay until the end. kPutLater: the values end with keep_values(). kCopy: the
  // batch ends when the values are copied, for a group.
  enum class Mode { kPut, kPutLater, kCopy };
  // kAnswer: of awaited(). kStaging: other calls must free staging, or the agent that opens staging
  // is away. kRequest: the channel is full. kCopies: of a stream.
  enum class Wants { kNothing, kAnswer, kStaging, kRequest, kCopies };

  // items, and the memory that they and the rules point to, stay valid as long as the batch. bell: null,
  // or an eventfd that the ends of copies in the order of a stream signal.
  PutBatch(Client& client, Channel& channel, mc_put_item* items, std::size_t count,
           const PutRules& rules, Mode mode, const Fd* bell = nullptr);
  // Forgets requests without an answer. Copied puts are dropped.
  ~PutBatch();
  PutBatch(const PutBatch&) = delete;
  PutBatch& operator=(const PutBatch&) = delete;

  // Goes on as far as possible. kNothing: all statuses are final.
  Wants step();
  Channel::Ticket awaited() const;
  bool answered() const { return awaited().valid() && channel_.done(awaited()); }
  // Waits for staging for the next item, or for an agent that opens staging. Errors: MC_NO_SPACE,
  // MC_TIMEOUT.
  Status wait_for_staging();
  // Waits for the copies of a request. False: the stream did not come to the copies by the deadline.
  bool wait_for_copies();
  // Items whose copies have not begun.
  bool has_unwritten() const { return next_ < count_; }
  // Ends the items that cannot go on for the lack of staging or of a request.
  void refuse(const Status& why);
  // Ends all items that have not been sent.
  void cancel(mc_status status);
  // Ends all items that have no status yet, and forgets their requests. The room of copies under way comes
  // back with a later batch.
  void give_up(const Status& why);

  // The caller's values end now: copies the values that are not copied yet.
  void keep_values();
  // The requests in flight.
  std::vector<Channel::Ticket> in_flight() const;
  // The puts of a batch for a group. Their keys still belong to the caller.
  std::vector<Put> take_copied();
  // The first failure. REQUIRES: step() wants nothing.
  Status outcome() const;

 private:
  struct Hashed {
    std::size_t index = ~std::size_t{0};
    std::uint64_t seed = 0;
    std::uint64_t hash = 0;
  };
  struct Sent {
    Channel::Ticket ticket;
    std::vector<Put> puts;
  };
  // A request whose copies a stream orders.
  struct Copying {
    std::vector<Put> puts;
    DeviceValues values;
    std::shared_ptr<CopyGroup> group;
    bool summed = false;
  };
  // An item without a final status.
  static constexpr mc_status kOpen = MC_SESSION_LOST;

  bool is_open(std::size_t index) const {
    return items_[index].status == kOpen && items_[index].piece_count > 0;
  }
  std::uint64_t hash_of_item(std::size_t index);
  // The agent or another host copies the value, from staging.
  bool is_staged() const { return channel_.memory().isolated || !elsewhere_.ok() || for_host_; }
  bool wants_host() const { return is_for_other_host(channel_, rules_); }
  // The item to copy is the next one.
  void begin_item();
  Wants write(std::size_t index);
  Wants write_here(std::size_t index, std::uint64_t hash);
  Wants stage(std::size_t index);
  Wants not_staged(std::size_t index, const Status& why);
  Wants reserve(std::uint64_t bytes);
  bool take_spare(std::uint64_t bytes, Reserved& reserved);
  std::uint32_t same_size_from(std::size_t index, std::uint64_t bytes) const;
  void drop_spare();
  void free_staging();
  void drop_copied();
  void copy_values();
  void begin_values();
  bool send_front();
  void end_front(const Status& status);
  void leave_copying();
  void add(Put put, std::size_t index);
  void expect_no_refill(const Put& put) {
    if (put.fields.want_refill != 0) expected_refill_bytes_ -= put.reserved_bytes;
  }
  bool must_send() const;
  Wants send_copied();
  void take_answers();
  void on_reserved();
  void refused(const Status& why);
  void end(std::size_t index, const Status& status);
  bool begin_again();
  bool waits() const { return reserving_.valid() || first_sent_ < sent_.size(); }

  Client& client_;
  Channel& channel_;
  mc_put_item* const items_;
  const std::size_t count_;
  const PutRules& rules_;
  const Mode mode_;
  const Fd* const bell_;

  std::size_t next_ = 0;        // the item to copy
  std::size_t prefetched_ = 0;  // count of items whose look-ups have been started
  int passes_ = 1;
  bool cancelled_ = false;
  // Of the item to copy.
  bool for_host_ = false;  // the item is offered to the host of the rules
  Status elsewhere_;       // why the pool refused the item, which is now offered to other hosts
  std::shared_ptr<Staging> staging_;
  std::optional<std::uint64_t> staging_offset_;  // allocated by wait_for_staging()
  int lost_reservations_ = 0;

  Channel::Ticket reserving_;
  std::size_t reserving_for_ = 0;  // the item
  std::vector<Reserved> spare_;
  std::uint64_t spare_of_ = 0;  // serial of the memory of the session that has the spares
  std::uint64_t expected_refill_bytes_ = 0;
  std::vector<Put> copied_;
  std::uint64_t copied_bytes_ = 0;
  DeviceValues on_devices_;  // of copied_, still to be copied
  std::deque<Copying> copying_;
  std::vector<Sent> sent_;  // from first_sent_ on
  std::size_t first_sent_ = 0;
  std::array<Hashed, 8> hashed_;  // as many items are prefetched
  std::vector<std::vector<std::byte>> values_;
  std::vector<mc_slice> value_pieces_;
  Status failure_;
};

// Puts the items, and waits. Writes the items' statuses; returns the first failure.
mc_status put_items(Client& client, Channel& channel, mc_put_item* items, std::size_t count,
                    const PutRules& rules);
// Runs the batch to the end of all items.
void finish(PutBatch& batch, Channel& channel);
// Runs the batch until the copies of all items have begun in the order of the stream. Waits for room.
void begin_copies(PutBatch& batch, Channel& channel);

}  // namespace mc::client
