// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/fetch/object_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "agent/cluster/fetch/reservation.h"
#include "libmc/base/clock.h"
#include "libmc/base/failpoint.h"

namespace mc::agent {

using transport::Outcome;

namespace {

constexpr std::uint64_t kPartBytes = 2 << 20;
constexpr std::size_t kPartsOut = 6;
// Between two tries to get room, if nothing else turns the loop.
constexpr std::uint64_t kRoomNs = kMs;
// Before the next try with a holder that serves too many reads.
constexpr std::uint64_t kBusyNs = kMs;
// A holder that delivers less than 1 MB/s is given up for the next holder. The transport notices a
// lost holder sooner.
constexpr std::uint64_t kSlowNsPerByte = 1'000;

}  // namespace

FetchedObject& FetchedObject::operator=(FetchedObject&& other) noexcept {
  std::swap(tenant, other.tenant);
  std::swap(name, other.name);
  std::swap(key, other.key);
  std::swap(from, other.from);
  std::swap(bytes, other.bytes);
  std::swap(entry, other.entry);
  return *this;
}

void FetchedObject::give_back() {
  if (entry == kNoEntry) return;
  tenant->store().abandon(kClusterSession, std::exchange(entry, kNoEntry));
}

// ---- Beginning ----------------------------------------------------------------------------------

void Read::step() {
  if (state == State::kRoom) reader.seek_room(*this);
  if (state == State::kPausing) reader.begin_transfers(*this);
}
void Read::on_event(const transport::Event& event) { reader.on_event(*this, event); }
void Read::cancel() { reader.cancel(*this); }

OperationId ObjectReader::begin(FetchedObject object, const ReadTerms& terms, OperationId parent) {
  auto read = std::make_unique<Read>(*this);
  ClusterTenant* const tenant = object.tenant;
  read->object = std::move(object);
  read->terms = terms;
  return operations_.begin(std::move(read), tenant, parent).id();
}

void ObjectReader::update(OperationId id, std::uint64_t deadline_ns, bool waited_for) {
  Read* const read = operations_.find<Read>(id);
  if (read == nullptr) return;
  read->terms.deadline_ns = deadline_ns;
  read->terms.waited_for = waited_for;
}

bool ObjectReader::waits_for_room(OperationId id) const {
  const Read* const read = operations_.find<Read>(id);
  return read != nullptr && !read->over() && read->state == Read::State::kRoom;
}

void ObjectReader::cancel(Read& read) {
  if (read.reads_open == 0) return end(read, Read::End::kFailed);
  read.state = Read::State::kDraining;
  for (const Read::Part& part : read.parts) transport_.cancel(part.id);
}

void ObjectReader::seek_room(Read& read) {
  if (read.is_part()) return begin_transfers(read);
  FetchedObject& object = read.object;
  ObjectStore& store = object.tenant->store();
  const ObjectStore::Reserve result = store.reserve(
      kClusterSession, object.from.row.length + read.terms.label_bytes, true, object.entry);
  if (result == ObjectStore::Reserve::kOk) return begin_transfers(read);
  object.entry = kNoEntry;
  const bool again = result == ObjectStore::Reserve::kAgain;
  const bool wait = result == ObjectStore::Reserve::kWait &&
                    (!read.terms.room_must_come || store.room_may_come());
  if (!again && !wait) return end(read, Read::End::kNoRoom);
  want_room_.push_back(read.id());
  operations_.wake_at(read, operations_.now_ns() + kRoomNs);
}

void ObjectReader::begin_transfers(Read& read) {
  read.state = Read::State::kReading;
  read.parts.clear();
  read.asked_bytes = read.summed_bytes = 0;
  read.sum = read.object.name.lo;  // each checksum begins with the key's hash
  read.outcome = Outcome::kDone;
  if (!read.object.bytes.empty()) {
    end(read, put_bytes(read.object) ? Read::End::kRead : Read::End::kFailed);
  } else {
    to_submit_.push_back(read.id());
  }
}

bool ObjectReader::put_bytes(FetchedObject& object) {
  ObjectStore& store = object.tenant->store();
  const std::byte* from = object.bytes.data();
  const std::uint64_t bytes = std::min<std::uint64_t>(object.bytes.size(), object.from.row.length);
  each_piece(store.extents(object.entry), 0, bytes, [&](std::uint64_t offset, std::uint64_t size) {
    std::memcpy(store.pool().data() + offset, from, size);
    from += size;
  });
  const std::uint64_t sum = sum_of(store, object.entry, object.name.lo, 0, bytes);
  object.bytes.clear();
  ++counters_.came_along;
  return is_sound(object, sum);
}

std::optional<Read::End> ObjectReader::read_now(FetchedObject& object) {
  ObjectStore& store = object.tenant->store();
  const auto result = store.reserve(kClusterSession, object.from.row.length, true, object.entry);
  if (result != ObjectStore::Reserve::kOk) {
    object.entry = kNoEntry;
    return std::nullopt;
  }
  if (put_bytes(object)) return Read::End::kRead;
  object.give_back();
  return Read::End::kFailed;
}

bool ObjectReader::may_submit(const Read& read) {
  return read.state == Read::State::kReading && read.outcome == Outcome::kDone &&
         read.asked_bytes < read.object.from.row.length && read.reads_open < kPartsOut;
}

// ---- Reading ------------------------------------------------------------------------------------

void ObjectReader::submit() {
  if (to_submit_.empty()) return;
  plan_.clear();
  std::vector<OperationId> due = std::exchange(to_submit_, {});
  std::ranges::sort(due);
  due.erase(std::unique(due.begin(), due.end()), due.end());
  for (const OperationId id : due) {
    Read* const read = operations_.find<Read>(id);
    if (read == nullptr || read->over() || !may_submit(*read)) continue;
    if (!peers_.id_of(read->object.from.node)) {
      read->outcome = Outcome::kPeerLost;
      if (read->reads_open == 0) on_read(*read);
      continue;
    }
    MC_FAILPOINT("fetch.before_read");
    const std::size_t first = plan_.operations.size();
    plan(*read);
    plan_.reads.push_back({id, plan_.operations.size() - first});
  }
  if (plan_.reads.empty()) return;
  std::size_t piece = 0;
  for (std::size_t i = 0; i < plan_.operations.size(); ++i) {
    plan_.operations[i].pieces = {plan_.pieces.data() + piece, plan_.piece_counts[i]};
    piece += plan_.piece_counts[i];
  }
  const std::size_t taken = transport_.submit(plan_.operations, operations_.now_ns());
  std::size_t first = 0;
  for (const auto& [id, count] : plan_.reads) {
    Read& read = *operations_.find<Read>(id);
    for (std::size_t i = first; i < std::min(first + count, taken); ++i) {
      std::uint64_t bytes = 0;
      for (const transport::Piece& each : plan_.operations[i].pieces) bytes += each.size_bytes;
      read.parts.push_back({plan_.operations[i].id, bytes});
      read.asked_bytes += bytes;
      ++read.reads_open;
    }
    first += count;
    // The transport is full. The next turn tries again.
    if (read.reads_open == 0) to_submit_.push_back(id);
  }
}

// REQUIRES: the holder is a known peer.
void ObjectReader::plan(const Read& read) {
  const std::uint64_t now_ns = operations_.now_ns();
  const Location& source = read.object.from;
  // The deadline for the question to a holder does not limit the time for the bytes.
  const std::uint64_t length = source.row.length;
  const std::uint64_t coming = std::min(length, length - read.asked_bytes + kPartsOut * kPartBytes);
  const std::uint64_t until_ns = std::max(
      read.terms.try_until_ns, std::min(read.terms.deadline_ns, now_ns + coming * kSlowNsPerByte));
  std::size_t open = read.reads_open;
  std::uint64_t at = read.asked_bytes;  // of the object
  std::uint64_t begins = 0;             // of the source's extent
  for (const shm::ExtentRecord& extent : source.row.extents) {
    const std::uint64_t ends = begins + extent.length_bytes;
    while (at < ends && open < kPartsOut) {
      const std::uint64_t bytes = std::min(ends - at, kPartBytes);
      transport::Operation& operation = plan_.operations.emplace_back();
      operation.peer = *peers_.id_of(source.node);
      operation.cookie = read.id().value();
      operation.deadline_ns = std::max(until_ns, now_ns + kLeastTryNs);
      if (!read.terms.waited_for) operation.priority = transport::Priority::kMigration;
      operation.region = source.region;
      operation.generation = source.row.generation;
      operation.offset_bytes = extent.offset_bytes + (at - begins);
      plan_.piece_counts.push_back(append_pieces(read, at, bytes));
      at += bytes;
      ++open;
    }
    begins = ends;
  }
}

std::size_t ObjectReader::append_pieces(const Read& read, std::uint64_t from, std::uint64_t bytes) {
  const std::size_t before = plan_.pieces.size();
  const ClusterTenant& tenant = *read.object.tenant;
  std::byte* const pool = tenant.store().pool().data();
  const std::uint32_t entry = read.is_part() ? read.terms.into : read.object.entry;
  each_piece(tenant.store().extents(entry), read.terms.at_bytes + from, bytes,
             [&](std::uint64_t offset, std::uint64_t size) {
               plan_.pieces.push_back({pool + offset, size, tenant.region});
             });
  return plan_.pieces.size() - before;
}

void ObjectReader::on_event(Read& read, const transport::Event& event) {
  const auto part = std::ranges::find(read.parts, event.id, &Read::Part::id);
  if (part == read.parts.end() || part->in) return;
  part->in = true;
  --read.reads_open;
  if (event.outcome != Outcome::kDone && read.outcome == Outcome::kDone) {
    read.outcome = event.outcome;
  }
  if (read.state == Read::State::kDraining) {
    if (read.reads_open == 0) end(read, Read::End::kFailed);
  } else if (read.outcome != Outcome::kDone) {
    if (read.reads_open == 0) on_read(read);
  } else {
    to_submit_.push_back(read.id());
    to_sum_.push_back(read.id());
  }
}

void ObjectReader::prepare() {
  for (const OperationId id : std::exchange(want_room_, {})) {
    if (Read* const read = operations_.find<Read>(id)) operations_.wake(*read);
  }
  // The next parts are on their way while this part is summed.
  submit();
  sum_parts();
}

// Sums a single part of each read, so that a large object does not block the loop.
void ObjectReader::sum_parts() {
  for (const OperationId id : std::exchange(to_sum_, {})) {
    Read* const read = operations_.find<Read>(id);
    if (read == nullptr || read->state != Read::State::kReading || read->parts.empty()) continue;
    if (read->outcome != Outcome::kDone || !read->parts.front().in) continue;
    if (read->is_part()) {
      for (; !read->parts.empty() && read->parts.front().in; read->parts.pop_front()) {
        read->summed_bytes += read->parts.front().bytes;
      }
    } else {
      sum_next(*read, read->parts.front().bytes);
      read->parts.pop_front();
    }
    if (read->summed_bytes == read->object.from.row.length) {
      on_read(*read);
      continue;
    }
    if (!read->parts.empty() && read->parts.front().in) to_sum_.push_back(id);
  }
}

void ObjectReader::sum_next(Read& read, std::uint64_t bytes) {
  read.sum =
      sum_of(read.object.tenant->store(), read.object.entry, read.sum, read.summed_bytes, bytes);
  read.summed_bytes += bytes;
}

void ObjectReader::on_read(Read& read) {
  if (read.outcome == Outcome::kBusy && operations_.now_ns() < read.terms.try_until_ns) {
    read.state = Read::State::kPausing;
    return operations_.wake_at(read, operations_.now_ns() + kBusyNs);
  }
  if (read.outcome != Outcome::kDone) return end(read, Read::End::kFailed);
  if (read.is_part()) return end(read, Read::End::kRead);
  end(read, is_sound(read.object, read.sum) ? Read::End::kRead : Read::End::kFailed);
}

// Compares the checksum, and counts the object.
bool ObjectReader::is_sound(const FetchedObject& object, std::uint64_t sum) {
  if (sum != object.from.row.checksum) {
    ++counters_.corrupt;
    return false;
  }
  MC_FAILPOINT("fetch.verified");
  ++counters_.read_objects;
  counters_.read_bytes += object.from.row.length;
  return true;
}

void ObjectReader::end(Read& read, Read::End result) {
  read.end = result;
  if (result != Read::End::kRead) read.object.give_back();
  operations_.end(read);
}

}  // namespace mc::agent
