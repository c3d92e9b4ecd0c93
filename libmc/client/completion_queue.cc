// SPDX-License-Identifier: Apache-2.0
#include "libmc/client/completion_queue.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "libmc/base/clock.h"
#include "libmc/client/caller_memory.h"
#include "libmc/client/reading.h"
#include "libmc/client/remote.h"
#include "shm/pins.h"

namespace mc::client {

namespace {

constexpr std::uint64_t kWaitSliceNs = 20000000;
constexpr std::uint64_t kCompletionGraceNs = 1000000000;
constexpr std::uint64_t kCancelTimeoutNs = 5000000000;

void watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = fd;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(Client& client) {
  auto queue = std::unique_ptr<CompletionQueue>(new CompletionQueue(client));
  auto event = make_eventfd();
  if (!event) return fail(event.error());
  queue->event_ = std::move(*event);
  queue->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!queue->epoll_) return fail(MC_NO_MEMORY, errno_text("create an epoll", errno));
  watch(queue->epoll_.get(), queue->event_.get());
  {
    const MutexLock lock(queue->mutex_);
    queue->channel_ = client.lease_channel();
    if (queue->channel_ == nullptr) {
      return fail(MC_BUSY, "all channels are in use; open the client with a larger channel_count");
    }
    if (Status status = queue->begin(now_ns() + client.default_timeout_ns()); !status.ok()) {
      return fail(status);
    }
    // Allocate staging now, so that no submission waits for it. A submission without staging keeps
    // a private copy of the value.
    if (queue->channel_->memory().isolated) {
      static_cast<void>(client.staging(now_ns() + client.default_timeout_ns()).has_value());
    }
  }
  client.add_queue(queue.get());
  return queue;
}

CompletionQueue::~CompletionQueue() {
  if (channel_ == nullptr) return;
  if (!client_.inherited_by_fork()) finish_everything();
  client_.forget_queue(this);
  const MutexLock lock(mutex_);
  for (Operation& operation : operations_) {
    for (Item& item : operation.items) {
      if (item.ticket.valid()) channel_->forget(item.ticket);
    }
  }
  client_.return_channel(channel_);
}

// Cancels outstanding requests and waits for the end of each, as long as the agent must answer.
void CompletionQueue::finish_everything() {
  std::vector<std::uint64_t> outstanding;
  {
    const MutexLock lock(mutex_);
    for (const Operation& operation : operations_) outstanding.push_back(operation.request);
  }
  for (const std::uint64_t request : outstanding) static_cast<void>(cancel(request).ok());
  const std::uint64_t until_ns = now_ns() + kCancelTimeoutNs;
  mc_completion dropped[16];
  for (;;) {
    poll(dropped, 16);
    {
      const MutexLock lock(mutex_);
      if (operations_.empty()) return;
    }
    const std::uint64_t now = now_ns();
    if (now >= until_ns || !client_.lost().ok()) return;
    wait_readable(epoll_.get(), std::min(kWaitSliceNs, until_ns - now));
  }
}

// Follows the client to the current connection. Errors: as Channel::join().
Status CompletionQueue::begin(std::uint64_t deadline_ns) {
  if (client_.inherited_by_fork()) return Status(MC_FORKED);
  if (Status status = client_.lost(); !status.ok()) return status;
  if (Status status = channel_->join(deadline_ns); !status.ok()) return status;
  if (watched_generation_ != channel_->generation()) follow_connection();
  return {};
}

void CompletionQueue::follow_connection() {
  const Client::Current now = client_.current();
  if (watched_link_ == now.connection.link) return;
  if (watched_link_) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched_link_->client_event.get(), nullptr);
  }
  watched_link_ = now.connection.link;
  watched_generation_ = now.generation;
  watch(epoll_.get(), watched_link_->client_event.get());
}

// ---- Waiting ------------------------------------------------------------------------------------

int CompletionQueue::fd() { return epoll_.get(); }

// Runs without the lock, because a caller of poll() may hold the lock while it waits for the
// client.
void CompletionQueue::nudge() {
  if (outstanding_.load(std::memory_order_relaxed) > 0) signal_eventfd(event_.get());
}

std::size_t CompletionQueue::poll(mc_completion* completions, std::size_t capacity) {
  const MutexLock lock(mutex_);
  // Drain the events before the look at the completions. An arrival after the drain makes the
  // descriptor readable again.
  epoll_event events[4];
  while (::epoll_wait(epoll_.get(), events, 4, 0) == 4) {
  }
  pump();
  const std::size_t count = take_ready(completions, capacity);
  if (!ready_.empty()) signal_eventfd(event_.get());
  return count;
}

std::size_t CompletionQueue::wait(mc_completion* completions, std::size_t capacity,
                                  std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns;
  for (;;) {
    if (const std::size_t count = poll(completions, capacity)) return count;
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns) return 0;
    wait_readable(epoll_.get(), std::min(kWaitSliceNs, deadline_ns - now));
  }
}

std::size_t CompletionQueue::take_ready(mc_completion* completions, std::size_t capacity) {
  std::size_t count = 0;
  for (; count < capacity && !ready_.empty(); ++count) {
    completions[count] = ready_.front();
    ready_.pop_front();
  }
  return count;
}

void CompletionQueue::add_ready(const mc_completion& completion) {
  ready_.push_back(completion);
  signal_eventfd(event_.get());
}

// Takes in the agent's answers and sends waiting requests.
void CompletionQueue::pump() {
  const std::uint64_t now = now_ns();
  const bool connected = begin(now).ok();
  const bool lost = !client_.lost().ok();
  for (bool again = true; again;) {
    if (connected) channel_->reap();
    for (auto it = operations_.begin(); it != operations_.end();) {
      Operation& operation = *it;
      for (Item& item : operation.items) {
        if (item.phase != Phase::kDone) advance(operation, item);
      }
      if (lost) expire(operation, MC_SESSION_LOST);
      if (now > operation.deadline_ns + kCompletionGraceNs) expire(operation, MC_TIMEOUT);
      if (operation.open_items > 0) {
        ++it;
        continue;
      }
      add_ready({operation.user_data, operation.request, operation.first_failure,
                 static_cast<std::uint32_t>(operation.item_count)});
      it = operations_.erase(it);
      outstanding_.fetch_sub(1, std::memory_order_relaxed);
    }
    again = false;
    if (connected && channel_->anything_in_flight()) {
      channel_->arm_eventfd();
      // Answers that came before the bell was armed ring no bell, so look once more.
      for (Operation& operation : operations_) {
        channel_->reap();
        for (const Item& item : operation.items) {
          again |= item.ticket.valid() && channel_->done(item.ticket);
        }
      }
    }
  }
}

void CompletionQueue::expire(Operation& operation, mc_status status) {
  for (Item& item : operation.items) {
    if (item.phase == Phase::kDone) continue;
    if (item.ticket.valid()) {
      if (item.pin != nullptr) {
        const std::uint32_t slot = channel_->slot_of(item.pin);
        channel_->free_pins_after(item.ticket, &slot, 1);
      }
      channel_->forget(item.ticket);
    }
    item.ticket = {};
    settle(operation, item, status);
  }
}

void CompletionQueue::advance(Operation& operation, Item& item) {
  if (item.phase == Phase::kUnsent) {
    if (operation.cancelled) {
      settle(operation, item, MC_CANCELLED);
    } else {
      send(operation, item);
    }
    return;
  }
  if (!item.ticket.valid() || !channel_->done(item.ticket)) return;
  switch (item.phase) {
    case Phase::kReserving:
      on_reserved(operation, item);
      break;
    case Phase::kPublishing:
      on_published(operation, item);
      break;
    case Phase::kRemoving: {
      const auto status = static_cast<mc_status>(channel_->completion(item.ticket).status);
      channel_->finish(item.ticket);
      item.ticket = {};
      settle(operation, item, status);
      break;
    }
    case Phase::kAsking:
      on_answered(operation, item);
      break;
    case Phase::kUnsent:
    case Phase::kDone:
      break;
  }
}

void CompletionQueue::settle(Operation& operation, Item& item, mc_status status) {
  item.phase = Phase::kDone;
  item.status = status;
  item.buffer = {};
  if (status != MC_OK && operation.first_failure == MC_OK) operation.first_failure = status;
  --operation.open_items;
}

// ---- Put and remove -----------------------------------------------------------------------------

CompletionQueue::Operation CompletionQueue::begun(std::size_t count, std::uint64_t deadline_ns,
                                                  std::uint64_t user_data) {
  Operation operation;
  operation.user_data = user_data;
  operation.deadline_ns = deadline_ns;
  operation.item_count = count;
  return operation;
}

std::uint64_t CompletionQueue::add(Operation operation, std::uint64_t* request) {
  operation.request = next_request_++;
  operation.open_items = operation.items.size();
  if (request != nullptr) *request = operation.request;
  operations_.push_back(std::move(operation));
  outstanding_.fetch_add(1, std::memory_order_relaxed);
  return operations_.back().request;
}

Status CompletionQueue::put(const mc_put_item* items, std::size_t count, const PutRules& rules,
                            std::uint64_t user_data, std::uint64_t* request) {
  const MutexLock lock(mutex_);
  if (Status status = begin(rules.deadline_ns); !status.ok()) return status;
  channel_->reap();
  Operation operation = begun(count, rules.deadline_ns, user_data);
  operation.flags = rules.flags();
  operation.items.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    Item& item = operation.items[i];
    item.key.assign(static_cast<const char*>(items[i].key.data), items[i].key.size);
    item.hash = hash_of(*channel_, items[i].key);
    item.fields = fields_of(*channel_, items[i], rules);
    if (!rules.upsert && object_exists(*channel_, items[i].key, item.hash, true)) {
      item.phase = Phase::kDone;
      continue;
    }
    if (Status placed = place(item, items[i].pieces, items[i].piece_count); !placed.ok()) {
      item.phase = Phase::kDone;
      item.status = placed.code();
      if (operation.first_failure == MC_OK) operation.first_failure = placed.code();
    }
  }
  add(std::move(operation), request);
  Operation& added = operations_.back();
  for (const Item& item : added.items) added.open_items -= item.phase == Phase::kDone ? 1 : 0;
  pump();
  return {};
}

// Copies the value into shared memory if there is room at once, else into a private buffer. Errors:
// those of copies from devices.
Status CompletionQueue::place(Item& item, const mc_slice* pieces, std::size_t piece_count) {
  const Memory& memory = channel_->memory();
  item.session = memory.serial;
  item.placed = false;
  if (memory.isolated || item.elsewhere) {
    auto staging = client_.staging(now_ns() + client_.default_timeout_ns());
    const auto offset = staging ? (*staging)->allocate(item.fields.length, 0) : std::nullopt;
    if (offset) {
      if (Status copied = gather((*staging)->at(*offset), pieces, piece_count); !copied.ok()) {
        (*staging)->free(*offset);
        return copied;
      }
      item.staging = *staging;
      item.fields.staging_offset = *offset;
      item.placed = true;
    }
  } else if (channel_->take_reservation_cache(reservation_bytes(item.fields.length),
                                              item.reserved)) {
    item.fields.checksum = item.hash;
    if (Status copied =
            copy_into(memory, item.reserved, pieces, piece_count, &item.fields.checksum);
        !copied.ok()) {
      channel_->give_reservation_cache(item.reserved);
      return copied;
    }
    set_reservation(item.fields, item.reserved.id);
    item.fields.want_refill = 1;
    item.placed = true;
  }
  if (item.placed || !item.buffer.empty()) return {};
  item.buffer.resize(item.fields.length);
  return gather(item.buffer.data(), pieces, piece_count);
}

Status CompletionQueue::remove(const mc_slice* keys, std::size_t count, std::uint64_t deadline_ns,
                               std::uint64_t user_data, std::uint64_t* request) {
  const MutexLock lock(mutex_);
  if (Status status = begin(deadline_ns); !status.ok()) return status;
  Operation operation = begun(count, deadline_ns, user_data);
  operation.items.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    Item& item = operation.items[i];
    item.verb = Verb::kRemove;
    item.key.assign(static_cast<const char*>(keys[i].data), keys[i].size);
    item.fields.key_bytes = static_cast<std::uint16_t>(keys[i].size);
  }
  add(std::move(operation), request);
  pump();
  return {};
}

void CompletionQueue::send(Operation& operation, Item& item) {
  if (item.verb == Verb::kGet || item.verb == Verb::kExists) {
    ask(operation, item);
    return;
  }
  const bool is_put = item.verb == Verb::kPut;
  const bool staged = channel_->memory().isolated || item.elsewhere;
  if (is_put && !item.placed && !item.buffer.empty() && staged) {
    // Staging may have room by now.
    const mc_slice whole{item.buffer.data(), item.buffer.size()};
    if (!place(item, &whole, 1).ok() || !item.placed) return;
  }
  if (item.placed && item.session != channel_->memory().serial) {
    settle(operation, item, MC_SESSION_LOST);
    return;
  }
  const bool reserving = is_put && !item.placed;
  const std::uint32_t bytes = reserving ? static_cast<std::uint32_t>(sizeof(shm::ReservedItem))
                                        : encoded_bytes(item.key.size());
  auto ticket = channel_->prepare(bytes);
  if (!ticket) return;  // the ring is full; the next pump() tries again
  item.ticket = *ticket;
  if (reserving) {
    item.phase = Phase::kReserving;
    const std::uint16_t flags =
        channel_->memory().clustered ? shm::kFlagElsewhere : std::uint16_t{0};
    channel_->submit(*ticket, shm::Op::kReserve, flags, 1, operation.deadline_ns,
                     reservation_bytes(item.fields.length));
    return;
  }
  encode_item(channel_->arguments(*ticket), item.fields, {item.key.data(), item.key.size()});
  if (!is_put) {
    item.phase = Phase::kRemoving;
    channel_->submit(*ticket, shm::Op::kRemove, 0, 1, operation.deadline_ns);
    return;
  }
  if (item.staging) channel_->hold_staging(*ticket, item.staging, item.fields.staging_offset);
  item.phase = Phase::kPublishing;
  channel_->submit(*ticket, item.staging ? shm::Op::kPutStaged : shm::Op::kPut, operation.flags, 1,
                   operation.deadline_ns);
}

// False: no other host can be asked either.
bool CompletionQueue::offer_elsewhere(Item& item, mc_status status) {
  if (!may_offer_elsewhere(*channel_, Status(status)) || item.elsewhere) return false;
  auto staging = client_.staging(now_ns() + client_.default_timeout_ns());
  item.elsewhere = staging && item.fields.length <= (*staging)->size_bytes();
  return item.elsewhere;
}

void CompletionQueue::on_reserved(Operation& operation, Item& item) {
  const auto status = static_cast<mc_status>(channel_->completion(item.ticket).status);
  const Channel::Ticket ticket = std::exchange(item.ticket, {});
  if (status != MC_OK) {
    channel_->finish(ticket);
    item.phase = Phase::kUnsent;
    if (status == MC_SESSION_LOST) return;
    if (operation.cancelled || !offer_elsewhere(item, status)) {
      settle(operation, item, status);
    } else {
      send(operation, item);
    }
    return;
  }
  std::vector<Reserved> granted;
  channel_->take_granted(ticket, granted);
  item.phase = Phase::kUnsent;
  if (granted.empty()) {
    settle(operation, item, MC_INTERNAL);
    return;
  }
  if (operation.cancelled) {
    channel_->give_reservation_cache(granted.front());
    settle(operation, item, MC_CANCELLED);
    return;
  }
  const Memory& memory = channel_->memory();
  item.session = memory.serial;
  item.reserved = granted.front();
  set_reservation(item.fields, item.reserved.id);
  item.fields.want_refill = channel_->reservation_cache_wants(item.reserved.length) ? 1 : 0;
  const mc_slice whole{item.buffer.data(), item.buffer.size()};
  item.fields.checksum = item.hash;
  // The source is a private buffer in host memory, so no device can refuse the copy.
  static_cast<void>(copy_into(memory, item.reserved, &whole, 1, &item.fields.checksum).ok());
  item.buffer = {};
  item.placed = true;
  send(operation, item);
}

void CompletionQueue::on_published(Operation& operation, Item& item) {
  const auto status = static_cast<mc_status>(channel_->completion(item.ticket).status);
  const shm::ItemResult result = channel_->item_result(item.ticket, 0);
  channel_->finish(item.ticket);
  item.ticket = {};
  if (status == MC_OK && !item.staging) channel_->give_refill(result, item.reserved.length);
  if ((status == MC_NO_SPACE || status == MC_CANCELLED) && !item.staging) {
    channel_->give_back(item.reserved.id);
  }
  settle(operation, item, status);
}

// ---- What other hosts may have ------------------------------------------------------------------

Status CompletionQueue::get(mc_get_item* items, std::size_t count, std::uint64_t deadline_ns,
                            std::uint64_t user_data, std::uint64_t* request) {
  const MutexLock lock(mutex_);
  if (Status status = begin(deadline_ns); !status.ok()) return status;
  Operation operation = begun(count, deadline_ns, user_data);
  for (std::size_t i = 0; i < count; ++i) {
    if (items[i].status != MC_NOT_FOUND) {
      if (operation.first_failure == MC_OK) operation.first_failure = items[i].status;
      continue;
    }
    Item& item = operation.items.emplace_back();
    item.verb = Verb::kGet;
    item.get = &items[i];
    item.key.assign(static_cast<const char*>(items[i].key.data), items[i].key.size);
  }
  add(std::move(operation), request);
  pump();
  return {};
}

Status CompletionQueue::exists(const mc_slice* keys, std::size_t count, mc_status* statuses,
                               std::uint64_t deadline_ns, std::uint64_t user_data,
                               std::uint64_t* request) {
  const MutexLock lock(mutex_);
  if (Status status = begin(deadline_ns); !status.ok()) return status;
  Operation operation = begun(count, deadline_ns, user_data);
  for (std::size_t i = 0; i < count; ++i) {
    if (statuses[i] == MC_OK) continue;
    Item& item = operation.items.emplace_back();
    item.verb = Verb::kExists;
    item.answer = &statuses[i];
    item.key.assign(static_cast<const char*>(keys[i].data), keys[i].size);
  }
  add(std::move(operation), request);
  pump();
  return {};
}

void CompletionQueue::ask(Operation& operation, Item& item) {
  std::uint32_t slot = 0;
  if (item.verb == Verb::kGet) {
    item.pin = channel_->free_pin();
    if (item.pin == nullptr) return;  // questions in flight hold all pins; retry in the next pump()
    item.pin->store_relaxed(shm::kPinWanted);
    slot = channel_->slot_of(item.pin);
  }
  const bool get = item.verb == Verb::kGet;
  const mc_slice key{item.key.data(), item.key.size()};
  const auto ticket = ask_about(*channel_, get ? shm::Op::kFetch : shm::Op::kExists, &key, 1,
                                get ? &slot : nullptr, operation.deadline_ns);
  if (!ticket) {
    if (get) shm::clear_pin(*std::exchange(item.pin, nullptr));
    return;
  }
  item.ticket = *ticket;
  item.phase = Phase::kAsking;
}

void CompletionQueue::on_answered(Operation& operation, Item& item) {
  const shm::ItemResult result = channel_->item_result(item.ticket, 0);
  const auto status = static_cast<mc_status>(result.status);
  channel_->finish(std::exchange(item.ticket, {}));
  if (item.verb == Verb::kExists) {
    *item.answer = status == MC_OK ? MC_OK : MC_NOT_FOUND;
    settle(operation, item, MC_OK);
    return;
  }
  mc_get_item& get = *item.get;
  const FetchedObject fetched = take_fetched(*channel_, std::exchange(item.pin, nullptr), result);
  get.status = fetched.status == MC_OK        ? read_fetched(*channel_, fetched, get.pieces,
                                                             get.piece_count, get.offset, &get.length)
               : fetched.status == MC_TIMEOUT ? MC_NOT_FOUND
                                              : fetched.status;
  settle(operation, item, get.status);
}

void CompletionQueue::complete_now(mc_status status, std::size_t count, std::uint64_t user_data,
                                   std::uint64_t* request) {
  const MutexLock lock(mutex_);
  const std::uint64_t id = next_request_++;
  if (request != nullptr) *request = id;
  add_ready({user_data, id, status, static_cast<std::uint32_t>(count)});
}

Status CompletionQueue::cancel(std::uint64_t request) {
  const MutexLock lock(mutex_);
  pump();
  for (Operation& operation : operations_) {
    if (operation.request != request) continue;
    operation.cancelled = true;
    for (Item& item : operation.items) {
      if (!item.ticket.valid()) continue;
      auto ticket = channel_->prepare(0);
      if (!ticket) return ticket.error();
      channel_->submit(*ticket, shm::Op::kCancel, 0, 0, now_ns() + kCancelTimeoutNs,
                       channel_->request_id(item.ticket));
      channel_->forget(*ticket);
    }
    pump();
    return {};
  }
  return {MC_NOT_FOUND, "the request is complete already"};
}

}  // namespace mc::client
