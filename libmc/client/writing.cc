// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/writing.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"
#include "libmc/client/api/errors.h"
#include "libmc/client/caller_memory.h"
#include "libmc/client/reading.h"

namespace mc::client {

namespace {

// Items per publishing request: few, so that the agent starts while later items are being copied.
constexpr std::uint32_t kItemsPerRequest = 8;
constexpr std::uint64_t kBytesPerRequest = 2u << 20;
constexpr std::uint32_t kReservationsPerRequest = 64;
// If the session is replaced during a put, the put is tried again on the new session.
constexpr int kTries = 3;
// Number of items whose look-ups are prefetched ahead of the copy.
constexpr std::size_t kPrefetchItems = 8;
// The agent answers at the deadline; the grace period covers the delivery of the answer.
constexpr std::uint64_t kWriteGraceNs = 500000000;
// Values up to this size are copied within the time that an agent polls its rings after a bell.
constexpr std::uint64_t kWakeAheadBytes = 64 * 1024;

// Puts items of a batch on one session. The destructor leaves no request unfinished.
class PutRun {
 public:
  PutRun(Client& client, Channel& channel, mc_put_item* items, std::size_t count,
         const PutRules& rules)
      : client_(client), channel_(channel), items_(items), count_(count), rules_(rules) {}
  ~PutRun() { drop_spare(); }

  // Starts loading the data that add() needs for an item.
  void prefetch(std::size_t index) { channel_.memory().index.prefetch(hash_of_item(index)); }

  void add(std::size_t index) {
    mc_put_item& item = items_[index];
    if (!rules_.upsert && object_exists(channel_, item.key, hash_of_item(index), true)) {
      item.status = MC_OK;
      return;
    }
    if (const Status status = channel_.memory().isolated ? stage(index) : write_or_offer(index);
        !status.ok()) {
      item.status = status.code();
      if (failure_.ok()) failure_ = status;
      return;
    }
    bytes_ += value_bytes(item);
    if (batch_.size() >= kItemsPerRequest || bytes_ >= kBytesPerRequest) submit();
  }

  // Waits for all requests; afterwards the items' statuses are final.
  Status finish() {
    submit();
    collect_all();
    return failure_;
  }

 private:
  struct Batched {
    std::size_t index = 0;
    shm::PutItem fields{};
    std::uint64_t reserved_bytes = 0;
    bool staged = false;  // false: in the pool
    bool own_staging = false;
  };
  struct Hashed {
    std::size_t index = ~std::size_t{0};
    std::uint64_t seed = 0;
    std::uint64_t hash = 0;
  };
  struct Sent {
    Channel::Ticket ticket;
    std::vector<Batched> items;
  };

  // The hash of an item's key, computed once per seed. The seed belongs to the channel's session.
  std::uint64_t hash_of_item(std::size_t index) {
    Hashed& hashed = hashed_[index % hashed_.size()];
    const std::uint64_t seed = channel_.memory().index.hash_seed();
    if (hashed.index != index || hashed.seed != seed) {
      hashed = {index, seed, hash_of(channel_, items_[index].key)};
    }
    return hashed.hash;
  }

  Status write(std::size_t index) {
    const mc_put_item& item = items_[index];
    const std::uint64_t bytes = reservation_bytes(value_bytes(item));
    Reserved reserved;
    if (Status status = obtain(index, bytes, reserved); !status.ok()) {
      return status;
    }
    // obtain() may have waited, and the session may have changed since the look-up.
    session_ = channel_.memory().serial;
    std::uint64_t sum = hash_of_item(index);
    if (Status copied = copy_into(channel_.memory(), reserved, item.pieces, item.piece_count, &sum);
        !copied.ok()) {
      channel_.give_reservation_cache(reserved);
      return copied;
    }
    const bool refill = channel_.reservation_cache_wants(bytes, expected_refill_bytes_);
    if (refill) expected_refill_bytes_ += bytes;
    MC_FAILPOINT("client.copied");
    Batched& batched = batch_.emplace_back();
    batched.index = index;
    batched.fields = fields_of(channel_, item, rules_);
    set_reservation(batched.fields, reserved.id);
    batched.fields.checksum = sum;
    batched.fields.want_refill = refill ? 1 : 0;
    batched.reserved_bytes = bytes;
    return {};
  }

  // If the pool has no room, another host may have: the agent asks that host, which reads the bytes
  // from staging.
  Status write_or_offer(std::size_t index) {
    const Status status = write(index);
    if (!may_offer_elsewhere(channel_, status)) return status;
    submit();  // all items of a request are of one kind
    if (const Status staged = stage(index); !staged.ok()) {
      return {status.code(), std::string(status.text()) +
                                 "; and no other host can be asked: " + staged.to_string()};
    }
    submit();
    return {};
  }

  Status stage(std::size_t index) {
    const mc_put_item& item = items_[index];
    const std::uint64_t length = value_bytes(item);
    Batched batched;
    batched.index = index;
    session_ = channel_.memory().serial;
    batched.fields = fields_of(channel_, item, rules_);
    auto staging = client_.staging(rules_.deadline_ns);
    if (!staging) return staging.error();
    staging_ = *staging;
    const auto inside =
        item.piece_count == 1 ? staging_->offset_of(item.pieces[0].data, length) : std::nullopt;
    if (inside) {
      batched.fields.staging_offset = *inside;
    } else {
      if (length > staging_->size_bytes()) {
        return {MC_TOO_LARGE, "a value of " + std::to_string(length) +
                                  " bytes does not fit in this client's staging memory of " +
                                  std::to_string(staging_->size_bytes()) +
                                  "; open the client with larger staging_bytes"};
      }
      auto offset = staging_->allocate(length, now_ns());
      // Requests in flight hold staging, so wait for their end.
      if (!offset && (!sent_.empty() || !batch_.empty())) {
        submit();
        collect_all();
      }
      if (!offset) offset = staging_->allocate(length, rules_.deadline_ns);
      if (!offset) return {MC_NO_SPACE, "this client's staging memory is in use by other calls"};
      batched.own_staging = true;
      batched.fields.staging_offset = *offset;
      if (Status copied = gather(staging_->at(*offset), item.pieces, item.piece_count);
          !copied.ok()) {
        staging_->free(*offset);
        return copied;
      }
    }
    batched.staged = true;
    batch_.push_back(batched);
    return {};
  }

  // Number of items, starting with this one, that need a reservation of the same size.
  std::uint32_t same_size_from(std::size_t index, std::uint64_t bytes) const {
    std::uint32_t same = 1;
    while (same < kReservationsPerRequest && index + same < count_ &&
           reservation_bytes(value_bytes(items_[index + same])) == bytes) {
      ++same;
    }
    return same;
  }

  // Reservations of a lost session are gone with the session.
  void drop_spare() {
    if (spare_of_ == channel_.memory().serial) {
      for (const Reserved& spare : spare_) channel_.give_reservation_cache(spare);
    }
    spare_.clear();
  }

  Status obtain(std::size_t index, std::uint64_t bytes, Reserved& reserved) {
    if (channel_.take_reservation_cache(bytes, reserved)) return {};
    if (spare_.empty() || spare_.back().length != bytes || spare_of_ != channel_.memory().serial) {
      drop_spare();
      const std::uint32_t count = same_size_from(index, bytes);
      // Unpublished objects in this batch cannot be evicted. Publish them before waiting for room.
      submit();
      Status status = reserve_pool(channel_, bytes, count, rules_.deadline_ns, spare_);
      if (status.code() == MC_BUSY && !sent_.empty()) {
        // A batch with many different sizes can fill the channel alone.
        collect_all();
        status = reserve_pool(channel_, bytes, count, rules_.deadline_ns, spare_);
      }
      if (!status.ok()) return status;
      spare_of_ = channel_.memory().serial;
    }
    reserved = spare_.back();
    spare_.pop_back();
    return {};
  }

  void submit() {
    if (batch_.empty()) return;
    Sent sent;
    sent.items.swap(batch_);
    batch_.reserve(kItemsPerRequest);
    bytes_ = 0;
    const bool stale = session_ != channel_.memory().serial;
    auto ticket =
        stale ? fail(MC_SESSION_LOST, "the agent lost this session") : prepare_items(sent.items);
    if (!ticket) {
      for (const Batched& batched : sent.items) {
        items_[batched.index].status = ticket.error().code();
        if (batched.own_staging) staging_->free(batched.fields.staging_offset);
        if (!stale && !batched.staged)
          channel_.give_back({batched.fields.entry, batched.fields.generation});
      }
      if (failure_.ok()) failure_ = ticket.error();
      return;
    }
    const auto count = static_cast<std::uint32_t>(sent.items.size());
    const bool staged = sent.items.front().staged;
    channel_.submit(*ticket, staged ? shm::Op::kPutStaged : shm::Op::kPut, rules_.flags(), count,
                    rules_.deadline_ns);
    sent.ticket = *ticket;
    sent_.push_back(std::move(sent));
  }

  Result<Channel::Ticket> prepare_items(const std::vector<Batched>& batch) {
    const auto count = static_cast<std::uint32_t>(batch.size());
    std::uint32_t bytes = shm::result_bytes(count);
    for (const Batched& batched : batch) bytes += encoded_bytes(items_[batched.index].key.size);
    auto ticket = channel_.prepare(bytes);
    while (!ticket && !sent_.empty()) {
      collect(sent_.front());
      sent_.erase(sent_.begin());
      ticket = channel_.prepare(bytes);
    }
    if (!ticket) return ticket;
    unsigned char* at = channel_.arguments(*ticket) + shm::result_bytes(count);
    for (const Batched& batched : batch) {
      at += encode_item(at, batched.fields, items_[batched.index].key);
      if (batched.own_staging)
        channel_.hold_staging(*ticket, staging_, batched.fields.staging_offset);
    }
    return ticket;
  }

  void collect_all() {
    for (const Sent& sent : sent_) collect(sent);
    sent_.clear();
  }

  void collect(const Sent& sent) {
    if (!channel_.wait(sent.ticket, rules_.deadline_ns + kWriteGraceNs)) {
      for (const Batched& batched : sent.items) items_[batched.index].status = MC_TIMEOUT;
      if (failure_.ok()) failure_ = Status(MC_TIMEOUT);
      channel_.forget(sent.ticket);
      return;
    }
    const mc_status whole = static_cast<mc_status>(channel_.completion(sent.ticket).status);
    for (std::uint32_t i = 0; i < sent.items.size(); ++i) {
      const Batched& batched = sent.items[i];
      const shm::ItemResult result = channel_.item_result(sent.ticket, i);
      const auto status = static_cast<mc_status>(result.status);
      items_[batched.index].status = status;
      if (status != MC_OK && failure_.ok()) failure_ = Status(status);
      channel_.give_refill(result, batched.reserved_bytes);
      const bool still_reserved = status == MC_NO_SPACE || status == MC_CANCELLED;
      if (still_reserved && !batched.staged && whole != MC_SESSION_LOST) {
        channel_.give_back({batched.fields.entry, batched.fields.generation});
      }
    }
    channel_.finish(sent.ticket);
  }

  Client& client_;
  Channel& channel_;
  mc_put_item* items_;
  std::size_t count_;
  const PutRules& rules_;
  std::uint64_t session_ = 0;  // serial of the memory of the session that has the batch
  std::shared_ptr<Staging> staging_;
  std::vector<Reserved> spare_;
  std::uint64_t spare_of_ = 0;  // serial of the memory of the session that has the spares
  std::vector<Batched> batch_;
  std::array<Hashed, kPrefetchItems> hashed_;
  std::uint64_t bytes_ = 0;
  std::uint64_t expected_refill_bytes_ = 0;
  std::vector<Sent> sent_;
  Status failure_;
};

}  // namespace

[[gnu::hot]] std::uint64_t reservation_bytes(std::uint64_t length) {
  return (length + shm::kReservationUnitBytes - 1) / shm::kReservationUnitBytes *
         shm::kReservationUnitBytes;
}

[[gnu::hot]] std::uint64_t value_bytes(const mc_put_item& item) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < item.piece_count; ++i) bytes += item.pieces[i].size;
  return bytes;
}

[[gnu::hot]] shm::PutItem fields_of(const Channel& channel, const mc_put_item& item,
                                    const PutRules& rules) {
  const mc_slice parent = item.parent.size > 0 ? item.parent : rules.parent;
  shm::PutItem fields{};
  fields.length = value_bytes(item);
  fields.key_bytes = static_cast<std::uint16_t>(item.key.size);
  fields.parent_hash = parent.size > 0 ? hash_of(channel, parent) : 0;
  fields.pin = static_cast<std::uint8_t>(rules.pin);
  fields.pin_ttl_s = rules.pin_ttl_s;
  fields.replicas = rules.replicas;
  return fields;
}

[[gnu::hot]] mc_status check_item(const mc_put_item& item) {
  if (check_key(item.key) != MC_OK || item.pieces == nullptr || item.piece_count == 0 ||
      item.piece_count > MC_MAX_PIECES || item.parent.size > MC_MAX_KEY_BYTES) {
    return MC_INVALID_ARGUMENT;
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < item.piece_count; ++i) {
    if (item.pieces[i].size > MC_MAX_OBJECT_BYTES) return MC_TOO_LARGE;
    if (item.pieces[i].data == nullptr && item.pieces[i].size > 0) return MC_INVALID_ARGUMENT;
    bytes += item.pieces[i].size;
  }
  if (bytes == 0) return MC_INVALID_ARGUMENT;
  return bytes > MC_MAX_OBJECT_BYTES ? MC_TOO_LARGE : MC_OK;
}

namespace {

// The common put: one item with a cached reservation. False: use the general path; the item is
// unchanged.
[[gnu::hot]] bool put_from_reservation_cache(Channel& channel, mc_put_item& item,
                                             const PutRules& rules) {
  const Memory& memory = channel.memory();
  const std::uint64_t length = value_bytes(item);
  if (length <= kWakeAheadBytes) channel.wake_ahead();
  const std::uint64_t hash = hash_of(channel, item.key);
  if (memory.isolated) return false;
  if (!rules.upsert && object_exists(channel, item.key, hash, true)) {
    item.status = MC_OK;
    return true;
  }
  Reserved reserved;
  if (!channel.take_reservation_cache(reservation_bytes(length), reserved)) return false;
  auto ticket = channel.prepare(encoded_bytes(item.key.size));
  std::uint64_t sum = hash;
  if (!ticket || !copy_into(memory, reserved, item.pieces, item.piece_count, &sum).ok()) {
    if (ticket) channel.forget(*ticket);
    channel.give_reservation_cache(reserved);
    return false;
  }
  shm::PutItem fields = fields_of(channel, item, rules);
  set_reservation(fields, reserved.id);
  fields.want_refill = 1;
  fields.checksum = sum;
  encode_item(channel.arguments(*ticket), fields, item.key);
  MC_FAILPOINT("client.copied");
  channel.submit(*ticket, shm::Op::kPut, rules.flags(), 1, rules.deadline_ns);
  if (!channel.wait(*ticket, rules.deadline_ns + kWriteGraceNs)) {
    channel.forget(*ticket);
    item.status = MC_TIMEOUT;
    return true;
  }
  const shm::ItemResult result = channel.item_result(*ticket, 0);
  channel.finish(*ticket);
  item.status = static_cast<mc_status>(result.status);
  if (item.status == MC_SESSION_LOST) return false;
  channel.give_refill(result, reserved.length);
  if (item.status == MC_NO_SPACE || item.status == MC_CANCELLED) {
    channel.give_back(reserved.id);
  }
  return true;
}

}  // namespace

[[gnu::hot]] mc_status put_items(Client& client, Channel& channel, mc_put_item* items,
                                 std::size_t count, const PutRules& rules) {
  if (count == 1 && check_item(items[0]) == MC_OK &&
      put_from_reservation_cache(channel, items[0], rules)) {
    return items[0].status == MC_OK ? MC_OK : set_error(items[0].status);
  }
  Status first;
  for (std::size_t i = 0; i < count; ++i) {
    items[i].status = check_item(items[i]);
    if (items[i].status == MC_OK)
      items[i].status = MC_SESSION_LOST;  // not done yet
    else if (first.ok())
      first = Status(items[i].status);
  }
  for (int tries = 0; tries < kTries; ++tries) {
    PutRun run(client, channel, items, count, rules);
    bool any = false;
    std::size_t ahead = 0;
    for (std::size_t i = 0; i < count; ++i) {
      for (; ahead < std::min(count, i + kPrefetchItems); ++ahead) {
        if (items[ahead].status == MC_SESSION_LOST) run.prefetch(ahead);
      }
      if (items[i].status != MC_SESSION_LOST) continue;
      any = true;
      run.add(i);
    }
    if (!any) break;
    const Status status = run.finish();
    if (!status.ok() && status.code() != MC_SESSION_LOST && first.ok()) first = status;
    if (now_ns() >= rules.deadline_ns) break;
  }
  for (std::size_t i = 0; i < count && first.ok(); ++i) {
    if (items[i].status != MC_OK) first = Status(items[i].status);
  }
  if (first.code() == MC_SESSION_LOST && !client.lost().ok()) first = client.lost();
  return first.ok() ? MC_OK : set_error(first);
}

bool may_offer_elsewhere(const Channel& channel, const Status& status) {
  return channel.memory().clustered && !channel.memory().isolated &&
         (status.code() == MC_NO_SPACE || status.code() == MC_TOO_LARGE);
}

Status reserve_pool(Channel& channel, std::uint64_t bytes, std::uint32_t count,
                    std::uint64_t deadline_ns, std::vector<Reserved>& granted, bool for_group) {
  const std::uint16_t flags =
      !for_group && channel.memory().clustered ? shm::kFlagElsewhere : std::uint16_t{0};
  for (int tries = 0; tries < kTries; ++tries) {
    auto ticket = channel.prepare(static_cast<std::uint32_t>(count * sizeof(shm::ReservedItem)));
    if (!ticket) return ticket.error();
    channel.submit(*ticket, shm::Op::kReserve, flags, count, deadline_ns, bytes);
    if (!channel.wait(*ticket, deadline_ns + kWriteGraceNs)) {
      channel.forget(*ticket);
      return {MC_TIMEOUT, "the agent did not answer by the deadline; see mcctl status"};
    }
    const auto status = static_cast<mc_status>(channel.completion(*ticket).status);
    if (status == MC_OK) {
      channel.take_granted(*ticket, granted);
      return granted.empty() ? Status(MC_INTERNAL, "the agent granted nothing") : Status();
    }
    channel.finish(*ticket);
    if (status == MC_SESSION_LOST) continue;
    if (status == MC_TOO_LARGE) {
      return {MC_TOO_LARGE, "a value of " + std::to_string(bytes) +
                                " bytes is larger than the pool, its capacity or this session's "
                                "quota; raise pool_bytes or session_quota_bytes"};
    }
    return status;
  }
  return Status(MC_SESSION_LOST);
}

[[gnu::hot]] Status copy_into(const Memory& memory, const Reserved& reserved,
                              const mc_slice* pieces, std::size_t piece_count, std::uint64_t* sum) {
  for (std::uint32_t i = 0; i < reserved.extent_count; ++i) {
    memory.prepare_write(reserved.extents[i].offset_bytes, reserved.extents[i].length_bytes);
  }
  std::uint32_t extent = 0;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < piece_count; ++i) {
    const auto* from = static_cast<const std::byte*>(pieces[i].data);
    std::uint64_t left = pieces[i].size;
    while (left > 0) {
      const shm::ExtentRecord& to = reserved.extents[extent];
      const std::uint64_t step = std::min(left, to.length_bytes - at);
      std::byte* const place = memory.pool_for_writing() + to.offset_bytes + at;
      if (Status copied = copy_and_sum(place, from, step, sum); !copied.ok()) return copied;
      from += step;
      left -= step;
      if ((at += step) == to.length_bytes) at = 0, ++extent;
    }
  }
  return {};
}

[[gnu::hot]] std::uint32_t encode_item(unsigned char* at, const shm::PutItem& fields,
                                       mc_slice key) {
  std::memcpy(at, &fields, sizeof fields);
  if (key.size > 0) std::memcpy(at + sizeof fields, key.data, key.size);
  return encoded_bytes(key.size);
}

Status publish_items(Channel& channel, const WrittenItem* items, std::size_t count,
                     std::uint16_t flags, std::uint64_t deadline_ns) {
  const bool group = (flags & shm::kFlagGroup) != 0;
  const auto item_count = static_cast<std::uint32_t>(count);
  std::uint64_t bytes = shm::result_bytes(item_count);
  for (std::size_t i = 0; i < count; ++i) bytes += encoded_bytes(items[i].key.size());
  if (bytes > shm::kArgumentBytes) {
    return {MC_TOO_LARGE, "the keys of the group are too long together; make it smaller"};
  }
  auto ticket = channel.prepare(static_cast<std::uint32_t>(bytes));
  if (!ticket) return ticket.error();
  unsigned char* at = channel.arguments(*ticket) + shm::result_bytes(item_count);
  for (std::size_t i = 0; i < count; ++i) {
    shm::PutItem fields = items[i].fields;
    if (!items[i].staged) set_reservation(fields, items[i].reserved.id);
    at += encode_item(at, fields, {items[i].key.data(), items[i].key.size()});
  }
  const bool staged = items[0].staged;
  channel.submit(*ticket, staged ? shm::Op::kPutStaged : shm::Op::kPut, flags, item_count,
                 deadline_ns);
  if (!channel.wait(*ticket, deadline_ns + kWriteGraceNs)) {
    channel.forget(*ticket);
    return {MC_TIMEOUT, "the agent did not answer by the deadline; see mcctl status"};
  }
  const auto status = static_cast<mc_status>(channel.completion(*ticket).status);
  const bool kept = !group && (status == MC_NO_SPACE || status == MC_CANCELLED);
  channel.finish(*ticket);
  for (std::size_t i = 0; kept && !staged && i < count; ++i) {
    channel.give_back(items[i].reserved.id);
  }
  return status;
}

Status remove_items(Channel& channel, const mc_slice* keys, std::size_t count, mc_status* statuses,
                    std::uint64_t deadline_ns) {
  mc_status first = MC_OK;
  std::size_t done = 0;
  while (done < count) {
    std::uint32_t bytes = 0;
    std::uint32_t items = 0;
    while (done + items < count && bytes < shm::kArgumentBytes / 4) {
      bytes += encoded_bytes(keys[done + items++].size);
    }
    auto ticket = channel.prepare(bytes + shm::result_bytes(items));
    if (!ticket) return ticket.error();
    unsigned char* at = channel.arguments(*ticket) + shm::result_bytes(items);
    for (std::uint32_t i = 0; i < items; ++i) {
      shm::PutItem fields{};
      fields.key_bytes = static_cast<std::uint16_t>(keys[done + i].size);
      at += encode_item(at, fields, keys[done + i]);
    }
    channel.submit(*ticket, shm::Op::kRemove, 0, items, deadline_ns);
    if (!channel.wait(*ticket, deadline_ns)) {
      channel.forget(*ticket);
      std::fill(statuses + done, statuses + count, MC_TIMEOUT);
      return {MC_TIMEOUT, "the agent did not answer by the deadline; see mcctl status"};
    }
    for (std::uint32_t i = 0; i < items; ++i) {
      statuses[done + i] = static_cast<mc_status>(channel.item_result(*ticket, i).status);
      if (first == MC_OK) first = statuses[done + i];
    }
    channel.finish(*ticket);
    done += items;
  }
  return first;
}

Status set_pin(Channel& channel, mc_slice key, mc_pin pin, std::uint32_t ttl_s,
               std::uint64_t deadline_ns) {
  auto ticket = channel.prepare(encoded_bytes(key.size));
  if (!ticket) return ticket.error();
  shm::PutItem fields{};
  fields.key_bytes = static_cast<std::uint16_t>(key.size);
  fields.pin = static_cast<std::uint8_t>(pin);
  fields.pin_ttl_s = ttl_s;
  encode_item(channel.arguments(*ticket), fields, key);
  channel.submit(*ticket, shm::Op::kSetPin, 0, 1, deadline_ns);
  if (!channel.wait(*ticket, deadline_ns)) {
    channel.forget(*ticket);
    return {MC_TIMEOUT, "the agent did not answer by the deadline; see mcctl status"};
  }
  const auto status = static_cast<mc_status>(channel.completion(*ticket).status);
  channel.finish(*ticket);
  return status;
}

}  // namespace mc::client
