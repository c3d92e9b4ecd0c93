// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/put_batch.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "libmc/base/clock.h"
#include "libmc/client/api/errors.h"
#include "libmc/client/caller_memory.h"
#include "libmc/client/reading.h"

namespace mc::client {

namespace {

// Items of a request: few, so that the agent starts while later items are being copied.
constexpr std::size_t kItemsPerRequest = 8;
constexpr std::uint64_t kBytesPerRequest = 2u << 20;
// The same for values in memory of devices: many, because the worker copies them at once.
constexpr std::size_t kDeviceItemsPerRequest = 64;
constexpr std::uint64_t kDeviceBytesPerRequest = 32u << 20;
constexpr std::uint32_t kReservationsPerRequest = 64;
// Between two tries to open staging while the agent is away.
constexpr std::uint64_t kAgentAwayNs = 20'000'000;
// Values up to this size are copied within the time that an agent polls its rings after a bell, and
// within the time that a visitor of the reservation cache may wait.
constexpr std::uint64_t kSmallBytes = 64 * 1024;

// The agent that has these answers is away. The next agent may have another answer.
bool is_away(mc_status status) {
  return status == MC_SESSION_LOST || status == MC_AGENT_UNAVAILABLE || status == MC_TIMEOUT;
}

}  // namespace

PutBatch::PutBatch(Client& client, Channel& channel, mc_put_item* items, std::size_t count,
                   const PutRules& rules, Mode mode, const Fd* bell)
    : client_(client),
      channel_(channel),
      items_(items),
      count_(count),
      rules_(rules),
      mode_(mode),
      bell_(bell) {
  if (rules.stream != nullptr && may_be_devices()) {
    const auto left = client.stream_copies().take_left(channel.memory().serial);
    if (!left.empty()) channel.give_back(left);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const mc_status bad = check_item(items[i]);
    items[i].status = kOpen;
    if (bad != MC_OK) end(i, Status(bad));
  }
  begin_item();
}

PutBatch::~PutBatch() {
  if (client_.inherited_by_fork()) return;  // the parent has the requests
  try {
    if (reserving_.valid()) channel_.forget(reserving_);
    for (; first_sent_ < sent_.size(); ++first_sent_) channel_.forget(sent_[first_sent_].ticket);
    leave_copying();
    drop_copied();
    drop_spare();
    free_staging();
  } catch (const std::bad_alloc&) {
    // The rest stays with the session, whose end returns the rest.
  }
}

PutBatch::Wants PutBatch::step() {
  take_answers();
  // One lock for the items of a request: the fence of a lock waits until all earlier copies are
  // written.
  std::optional<Channel::ReservationCacheLock> cache;
  for (;;) {
    while (next_ < count_) {
      if (must_send()) {
        cache.reset();
        if (const Wants wants = send_copied(); wants != Wants::kNothing) return wants;
      }
      for (; prefetched_ < std::min(count_, next_ + hashed_.size()); ++prefetched_) {
        if (!is_open(prefetched_)) continue;
        channel_.memory().index.prefetch(hash_of_item(prefetched_));
      }
      if (is_open(next_)) {
        if (is_staged() || value_bytes(items_[next_]) > kSmallBytes) {
          cache.reset();
        } else if (!cache) {
          cache.emplace(channel_);
        }
        if (const Wants wants = write(next_); wants != Wants::kNothing) return wants;
      }
      ++next_;
      begin_item();
    }
    if (!on_devices_.empty()) cache.reset();
    if (const Wants wants = send_copied(); wants != Wants::kNothing) return wants;
    if (!copying_.empty()) take_answers();  // without a worker, copies have ended
    if (waits()) return Wants::kAnswer;
    if (!copying_.empty()) {
      return copying_.front().group->is_idle() ? Wants::kRequest : Wants::kCopies;
    }
    if (!begin_again()) return Wants::kNothing;
  }
}

void PutBatch::begin_item() {
  for_host_ = wants_host();
  elsewhere_ = {};
  lost_reservations_ = 0;
  free_staging();
}

// The hash of an item's key, computed once per seed. The seed belongs to the channel's session.
std::uint64_t PutBatch::hash_of_item(std::size_t index) {
  Hashed& hashed = hashed_[index % hashed_.size()];
  const std::uint64_t seed = channel_.memory().index.hash_seed();
  if (hashed.index != index || hashed.seed != seed) {
    hashed = {index, seed, hash_of(channel_, items_[index].key)};
  }
  return hashed.hash;
}

// ---- Copying ------------------------------------------------------------------------------------

// kNothing: the item is copied, or has its status.
PutBatch::Wants PutBatch::write(std::size_t index) {
  const std::uint64_t hash = hash_of_item(index);
  const mc_put_item& item = items_[index];
  if (rules_.stream != nullptr && !is_any_on_device(item.pieces, item.piece_count)) {
    end(index,
        {MC_INVALID_ARGUMENT, "a stream orders copies of device memory, not of host memory"});
    return Wants::kNothing;
  }
  if (mode_ != Mode::kCopy && rules_.keeps_existing() &&
      object_exists(channel_, item.key, hash, true)) {
    end(index, {});
    return Wants::kNothing;
  }
  if (is_staged()) return stage(index);
  return write_here(index, hash);
}

PutBatch::Wants PutBatch::write_here(std::size_t index, std::uint64_t hash) {
  const mc_put_item& item = items_[index];
  const std::uint64_t bytes = shm::reservation_bytes(value_bytes(item));
  Reserved reserved;
  if (!channel_.take_reservation_cache(bytes, reserved) && !take_spare(bytes, reserved)) {
    return reserve(bytes);
  }
  Put put = put_of(channel_, item, rules_);
  Status copied;
  if (is_any_on_device(item.pieces, item.piece_count)) {
    on_devices_.add(copied_.size(), room_of(channel_.memory(), reserved), hash, item.pieces,
                    item.piece_count);
    locate(channel_.memory(), reserved, put);
  } else {
    copied = write_to_pool(channel_, reserved, hash, item.pieces, item.piece_count, put);
  }
  if (!copied.ok()) {
    channel_.give_reservation_cache(reserved);
    end(index, copied);
    return Wants::kNothing;
  }
  if (mode_ != Mode::kCopy && channel_.reservation_cache_wants(bytes, expected_refill_bytes_)) {
    expected_refill_bytes_ += bytes;
    put.fields.want_refill = 1;
  }
  add(std::move(put), index);
  return Wants::kNothing;
}

// Another host may have room where this host has none, or shall hold the object. The agent asks that
// host, which reads the bytes from staging.
PutBatch::Wants PutBatch::stage(std::size_t index) {
  const mc_put_item& item = items_[index];
  const std::uint64_t length = value_bytes(item);
  // All items of a request are of one kind.
  if ((!elsewhere_.ok() || for_host_) && !copied_.empty()) {
    if (const Wants wants = send_copied(); wants != Wants::kNothing) return wants;
  }
  const auto staging = client_.staging(rules_.deadline_ns);
  if (!staging) {
    free_staging();
    staging_ = nullptr;
    if (is_away(staging.error().code())) return Wants::kStaging;
    return not_staged(index, staging.error());
  }
  if (*staging != staging_) free_staging();
  staging_ = *staging;
  Put put = put_of(channel_, item, rules_);
  // A value that stays in the caller's part of staging needs no copy.
  const auto inside = item.piece_count == 1 && mode_ == Mode::kPut && rules_.stream == nullptr
                          ? staging_->offset_of(item.pieces[0].data, length)
                          : std::nullopt;
  if (inside) {
    put.fields.staging_offset = *inside;
    put.session = channel_.memory().serial;
    add(std::move(put), index);
    return Wants::kNothing;
  }
  if (length > staging_->size_bytes()) {
    return not_staged(index,
                      {MC_TOO_LARGE, "a value of " + std::to_string(length) +
                                         " bytes does not fit in this client's staging memory of " +
                                         std::to_string(staging_->size_bytes()) +
                                         "; open the client with larger staging_bytes"});
  }
  auto offset = std::exchange(staging_offset_, std::nullopt);
  if (!offset) offset = allocate_staging(channel_, *staging_, length, 0);
  if (!offset) {
    // Requests in flight hold staging.
    if (const Wants wants = send_copied(); wants != Wants::kNothing) return wants;
    return waits() ? Wants::kAnswer : Wants::kStaging;
  }
  if (Status copied = write_to_staging(channel_, staging_, *offset, item.pieces, item.piece_count,
                                       rules_.stream, put);
      !copied.ok()) {
    end(index, copied);
    return Wants::kNothing;
  }
  add(std::move(put), index);
  return Wants::kNothing;
}

// Staging cannot take the item. An item for another host stays on this host then.
PutBatch::Wants PutBatch::not_staged(std::size_t index, const Status& why) {
  refused(why);
  return is_open(index) && !is_staged() ? write_here(index, hash_of_item(index)) : Wants::kNothing;
}

void PutBatch::add(Put put, std::size_t index) {
  copied_bytes_ += put.fields.length;
  put.item = index;
  if (copied_.empty()) copied_.reserve(kItemsPerRequest);
  copied_.push_back(std::move(put));
  if (!values_.empty()) {
    values_[index] = {};
    items_[index].piece_count = 0;
  }
}

Status PutBatch::wait_for_staging() {
  if (!staging_) {
    if (now_ns() < rules_.deadline_ns && !client_.stop_within(kAgentAwayNs)) return {};
    return {MC_TIMEOUT, "the agent did not share session memory by the deadline; see mcctl status"};
  }
  if (mode_ == Mode::kCopy) {
    return {MC_NO_SPACE,
            "the group does not fit in this client's staging memory; open the client with larger "
            "staging_bytes"};
  }
  staging_offset_ =
      allocate_staging(channel_, *staging_, value_bytes(items_[next_]), rules_.deadline_ns);
  if (staging_offset_) return {};
  return {MC_NO_SPACE, "this client's staging memory is in use by other calls"};
}

void PutBatch::free_staging() {
  if (staging_offset_) staging_->free(*std::exchange(staging_offset_, std::nullopt));
}

void PutBatch::drop_copied() {
  for (const Put& put : copied_) expect_no_refill(put);
  drop(&channel_, copied_);
  copied_.clear();
  copied_bytes_ = 0;
  on_devices_ = {};
}

// Copies and sums the values in memory of devices. A put whose value cannot be copied ends.
void PutBatch::copy_values() {
  if (on_devices_.empty()) return;
  const bool together = on_devices_.run(channel_).ok();
  std::vector<Put> puts = std::exchange(copied_, {});
  std::size_t value = 0;
  for (std::size_t i = 0; i < puts.size(); ++i) {
    Put& put = puts[i];
    if (value < on_devices_.size() && on_devices_.number(value) == i) {
      const Status copied = together ? Status() : on_devices_.run_alone(channel_, value);
      if (!copied.ok()) {
        expect_no_refill(put);
        copied_bytes_ -= put.fields.length;
        drop(&channel_, {&put, 1});
        end(put.item, copied);
        ++value;
        continue;
      }
      put.fields.checksum = on_devices_.sum(value++);
    }
    copied_.push_back(std::move(put));
  }
  on_devices_ = {};
}

// The copies are work of the stream from now on.
void PutBatch::begin_values() {
  auto bell = bell_ != nullptr ? bell_->duplicate() : Result<Fd>(Fd());
  const auto group = std::make_shared<CopyGroup>(bell ? std::move(*bell) : Fd());
  Status begun = bell ? Status() : bell.error();
  if (begun.ok()) begun = on_devices_.begin(client_, channel_, rules_.stream, group);
  if (!begun.ok()) {
    // Some of the copies may be under way.
    static_cast<void>(group->wait().ok());
    for (const Put& put : copied_) end(put.item, begun);
    return drop_copied();
  }
  copying_.push_back({std::exchange(copied_, {}), std::exchange(on_devices_, {}), group, false});
  copied_bytes_ = 0;
}

// REQUIRES: no copy of the first request is under way. False: the channel is full.
bool PutBatch::send_front() {
  Copying& front = copying_.front();
  Status failure = cancelled_ ? Status(MC_CANCELLED) : front.group->wait();
  // The stream may have overwritten the values since: no second try.
  if (front.puts.front().session != channel_.memory().serial) failure = Status(MC_SESSION_LOST);
  if (!failure.ok()) {
    end_front(failure);
    return true;
  }
  for (std::size_t i = 0; !front.summed && i < front.puts.size(); ++i) {
    front.puts[i].fields.checksum = front.values.sum(i);
  }
  front.summed = true;
  if (sent_.size() == sent_.capacity()) sent_.reserve(2 * sent_.size() + 4);
  const auto ticket = send(channel_, front.puts, rules_.flags(), rules_.deadline_ns);
  if (!ticket) return false;
  sent_.push_back({*ticket, std::move(front.puts)});
  copying_.pop_front();
  return true;
}

void PutBatch::end_front(const Status& status) {
  for (const Put& put : copying_.front().puts) {
    expect_no_refill(put);
    end(put.item, status);
  }
  drop(&channel_, copying_.front().puts);
  copying_.pop_front();
}

void PutBatch::leave_copying() {
  for (Copying& copying : copying_) {
    StreamCopies::Left left{copying.group, copying.puts.front().session, {}};
    for (const Put& put : copying.puts) {
      left.room.push_back({put.fields.entry, put.fields.generation});
    }
    client_.stream_copies().leave(std::move(left));
  }
  copying_.clear();
}

bool PutBatch::wait_for_copies() { return copying_.front().group->wait_until(rules_.deadline_ns); }

std::vector<Put> PutBatch::take_copied() {
  for (const Put& put : copied_) end(put.item, {});
  return std::exchange(copied_, {});
}

void PutBatch::keep_values() {
  copy_values();
  values_.resize(count_);
  value_pieces_.resize(count_);
  for (std::size_t i = 0; i < count_; ++i) {
    mc_put_item& item = items_[i];
    if (i >= next_ && is_open(i)) {
      values_[i].resize(value_bytes(item));
      if (Status copied = gather(channel_, values_[i].data(), item.pieces, item.piece_count);
          !copied.ok()) {
        end(i, copied);
      }
      value_pieces_[i] = {values_[i].data(), values_[i].size()};
      item.pieces = &value_pieces_[i];
      item.piece_count = 1;
    } else {
      item.piece_count = 0;  // the value is gone
    }
  }
}

// ---- Reservations -------------------------------------------------------------------------------

PutBatch::Wants PutBatch::reserve(std::uint64_t bytes) {
  if (reserving_.valid()) return Wants::kAnswer;
  drop_spare();
  // Unpublished objects of this batch cannot be evicted. They are published before the agent looks
  // for room.
  if (const Wants wants = send_copied(); wants != Wants::kNothing) return wants;
  // A value that the agent refuses at once may go to another host. A group cannot.
  const bool elsewhere = mode_ != Mode::kCopy && channel_.memory().clustered;
  const auto ticket =
      send_reserve(channel_, bytes, same_size_from(next_, bytes), elsewhere, rules_.deadline_ns);
  // A batch with many different sizes can fill the channel alone.
  if (!ticket) return waits() ? Wants::kAnswer : Wants::kRequest;
  reserving_ = *ticket;
  reserving_for_ = next_;
  return Wants::kAnswer;
}

// Number of items, starting with this one, that need a reservation of the same size.
std::uint32_t PutBatch::same_size_from(std::size_t index, std::uint64_t bytes) const {
  std::uint32_t same = 1;
  while (same < kReservationsPerRequest && index + same < count_ && is_open(index + same) &&
         shm::reservation_bytes(value_bytes(items_[index + same])) == bytes) {
    ++same;
  }
  return same;
}

void PutBatch::on_reserved() {
  const Channel::Ticket ticket = std::exchange(reserving_, {});
  const Status status = take_reserved(channel_, ticket, spare_);
  spare_of_ = channel_.memory().serial;
  // Meanwhile the item may have ended, or found room.
  if (status.ok() || next_ != reserving_for_) return;
  if (status.code() != MC_SESSION_LOST) return refused(status);
  if (++lost_reservations_ >= kSessionTries) cancel(MC_SESSION_LOST);
}

// The item to copy gets no room here. In a cluster, the item is offered to other hosts.
void PutBatch::refused(const Status& why) {
  if (for_host_ && !channel_.memory().isolated) {
    for_host_ = false;
  } else if (!elsewhere_.ok()) {
    end(next_, {elsewhere_.code(), std::string(elsewhere_.text()) +
                                       "; and no other host can be asked: " + why.to_string()});
  } else if (mode_ != Mode::kCopy && may_offer_elsewhere(channel_, why.code())) {
    elsewhere_ = why;
  } else {
    end(next_, why);
  }
}

bool PutBatch::take_spare(std::uint64_t bytes, Reserved& reserved) {
  if (spare_.empty() || spare_.back().length != bytes || spare_of_ != channel_.memory().serial) {
    return false;
  }
  reserved = spare_.back();
  spare_.pop_back();
  return true;
}

// Reservations of a lost session are gone with the session.
void PutBatch::drop_spare() {
  if (spare_of_ == channel_.memory().serial) {
    while (!spare_.empty()) {
      const Reserved spare = spare_.back();
      spare_.pop_back();
      channel_.give_reservation_cache(spare);
    }
  }
  spare_.clear();
}

// ---- Requests -----------------------------------------------------------------------------------

bool PutBatch::must_send() const {
  if (copied_.empty()) return false;
  if (copied_.front().session != channel_.memory().serial) return true;
  if (mode_ == Mode::kCopy) return false;
  // Items for other hosts go alone.
  const bool elsewhere =
      !copied_.front().in_pool() && (wants_host() || !channel_.memory().isolated);
  if (!on_devices_.empty()) {
    return copied_.size() >= kDeviceItemsPerRequest || copied_bytes_ >= kDeviceBytesPerRequest;
  }
  return elsewhere || copied_.size() >= kItemsPerRequest || copied_bytes_ >= kBytesPerRequest;
}

PutBatch::Wants PutBatch::send_copied() {
  if (copied_.empty()) return Wants::kNothing;
  if (copied_.front().session != channel_.memory().serial) {
    // The session is lost, and the items stay open.
    drop_copied();
    return Wants::kNothing;
  }
  if (rules_.stream != nullptr && !on_devices_.empty()) {
    begin_values();
    return Wants::kNothing;
  }
  copy_values();
  if (mode_ == Mode::kCopy || copied_.empty()) return Wants::kNothing;
  // No exception may part the ticket from the puts.
  if (sent_.size() == sent_.capacity()) sent_.reserve(2 * sent_.size() + 4);
  const std::uint64_t host = wants_host() && !copied_.front().in_pool() ? rules_.host : 0;
  const auto ticket = send(channel_, copied_, rules_.flags(), rules_.deadline_ns, host);
  if (!ticket) return waits() ? Wants::kAnswer : Wants::kRequest;
  sent_.push_back({*ticket, std::move(copied_)});
  copied_ = {};
  copied_bytes_ = 0;
  return Wants::kNothing;
}

Channel::Ticket PutBatch::awaited() const {
  if (reserving_.valid()) return reserving_;
  return first_sent_ < sent_.size() ? sent_[first_sent_].ticket : Channel::Ticket{};
}

void PutBatch::take_answers() {
  if (reserving_.valid() && channel_.done(reserving_)) on_reserved();
  for (; first_sent_ < sent_.size() && channel_.done(sent_[first_sent_].ticket); ++first_sent_) {
    Sent& sent = sent_[first_sent_];
    settle(channel_, sent.ticket, sent.puts, rules_.flags());
    for (const Put& put : sent.puts) {
      expect_no_refill(put);
      if (put.status != kOpen) end(put.item, Status(put.status));
    }
  }
  while (!copying_.empty() && copying_.front().group->is_idle() && send_front()) {
  }
  if (first_sent_ < sent_.size()) return;
  sent_.clear();
  first_sent_ = 0;
}

std::vector<Channel::Ticket> PutBatch::in_flight() const {
  std::vector<Channel::Ticket> tickets;
  if (reserving_.valid()) tickets.push_back(reserving_);
  for (std::size_t i = first_sent_; i < sent_.size(); ++i) tickets.push_back(sent_[i].ticket);
  return tickets;
}

// ---- Ends ---------------------------------------------------------------------------------------

void PutBatch::end(std::size_t index, const Status& status) {
  items_[index].status = status.code();
  if (!status.ok() && failure_.ok()) failure_ = status;
}

// Puts the items of a lost session again. False: no item is left, or no try.
bool PutBatch::begin_again() {
  const bool once = mode_ == Mode::kCopy || rules_.stream != nullptr;
  if (once || cancelled_ || passes_ >= kSessionTries) return false;
  bool any = false;
  for (std::size_t i = 0; i < count_ && !any; ++i) any = is_open(i);
  if (!any || now_ns() >= rules_.deadline_ns) return false;
  ++passes_;
  next_ = prefetched_ = 0;
  begin_item();
  return true;
}

void PutBatch::refuse(const Status& why) {
  if (!copied_.empty() && mode_ != Mode::kCopy) {
    for (const Put& put : copied_) end(put.item, why);
    drop_copied();
  } else if (next_ < count_) {
    refused(why);
  } else if (!copying_.empty()) {
    end_front(why);
  }
}

void PutBatch::cancel(mc_status status) {
  cancelled_ = true;
  for (const Put& put : copied_) end(put.item, Status(status));
  drop_copied();
  for (; next_ < count_; ++next_) {
    if (is_open(next_)) end(next_, Status(status));
  }
}

void PutBatch::give_up(const Status& why) {
  take_answers();
  cancel(why.code());
  if (reserving_.valid()) channel_.forget(std::exchange(reserving_, {}));
  for (; first_sent_ < sent_.size(); ++first_sent_) {
    const Sent& sent = sent_[first_sent_];
    channel_.forget(sent.ticket);
    for (const Put& put : sent.puts) end(put.item, why);
  }
  for (const Copying& copying : copying_) {
    for (const Put& put : copying.puts) end(put.item, why);
  }
  leave_copying();
}

Status PutBatch::outcome() const {
  for (std::size_t i = 0; i < count_ && failure_.ok(); ++i) {
    if (items_[i].status != MC_OK) return Status(items_[i].status);
  }
  return failure_;
}

// ---- Waiting calls ------------------------------------------------------------------------------

namespace {

void wait_for(PutBatch& batch, Channel& channel, PutBatch::Wants wants) {
  switch (wants) {
    case PutBatch::Wants::kNothing:
      return;
    case PutBatch::Wants::kAnswer:
      if (!channel.wait(batch.awaited())) {
        batch.give_up({MC_TIMEOUT, "the agent did not answer by the deadline; see mcctl status"});
      }
      return;
    case PutBatch::Wants::kStaging:
      if (Status none = batch.wait_for_staging(); !none.ok()) batch.refuse(none);
      return;
    case PutBatch::Wants::kRequest:
      return batch.refuse(
          {MC_BUSY, "too many requests are in flight on this channel; wait for some"});
    case PutBatch::Wants::kCopies:
      if (!batch.wait_for_copies()) {
        batch.give_up({MC_TIMEOUT, "the stream did not come to the copies by the deadline"});
      }
  }
}

}  // namespace

void finish(PutBatch& batch, Channel& channel) {
  for (;;) {
    const PutBatch::Wants wants = batch.step();
    if (wants == PutBatch::Wants::kNothing) return;
    wait_for(batch, channel, wants);
  }
}

void begin_copies(PutBatch& batch, Channel& channel) {
  for (;;) {
    const PutBatch::Wants wants = batch.step();
    if (!batch.has_unwritten()) return;
    wait_for(batch, channel, wants);
  }
}

namespace {

// The common put: one item with a cached reservation. False: use the general path; the item is
// unchanged.
[[gnu::hot]] bool put_from_reservation_cache(Channel& channel, mc_put_item& item,
                                             const PutRules& rules) {
  const std::uint64_t length = value_bytes(item);
  if (length <= kSmallBytes) channel.wake_ahead();
  const std::uint64_t hash = hash_of(channel, item.key);
  if (channel.memory().isolated || is_for_other_host(channel, rules) || rules.stream != nullptr) {
    return false;
  }
  if (rules.keeps_existing() && object_exists(channel, item.key, hash, true)) {
    item.status = MC_OK;
    return true;
  }
  Reserved reserved;
  if (!channel.take_reservation_cache(shm::reservation_bytes(length), reserved)) return false;
  Put put = put_of(channel, item, rules);
  put.fields.want_refill = 1;
  const bool copied =
      write_to_pool(channel, reserved, hash, item.pieces, item.piece_count, put).ok();
  auto ticket = copied ? send(channel, {&put, 1}, rules.flags(), rules.deadline_ns)
                       : fail(MC_BUSY, "the general path reports the failure");
  if (!ticket) {
    channel.give_reservation_cache(reserved);
    return false;
  }
  if (!channel.wait(*ticket)) {
    channel.forget(*ticket);
    item.status = MC_TIMEOUT;
    return true;
  }
  settle(channel, *ticket, {&put, 1}, rules.flags());
  item.status = put.status;
  return put.status != MC_SESSION_LOST;
}

}  // namespace

[[gnu::hot]] mc_status put_items(Client& client, Channel& channel, mc_put_item* items,
                                 std::size_t count, const PutRules& rules) {
  if (count == 1 && check_item(items[0]) == MC_OK &&
      put_from_reservation_cache(channel, items[0], rules)) {
    return items[0].status == MC_OK ? MC_OK : set_error(items[0].status);
  }
  PutBatch batch(client, channel, items, count, rules, PutBatch::Mode::kPut);
  finish(batch, channel);
  Status first = batch.outcome();
  if (first.code() == MC_SESSION_LOST && !client.lost().ok()) first = client.lost();
  return first.ok() ? MC_OK : set_error(first);
}

}  // namespace mc::client
