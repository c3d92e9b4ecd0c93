// SPDX-License-Identifier: Apache-2.0
#include "tier/model_disk.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace mc::tier::testing {

namespace {

bool overlap(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

[[noreturn]] void refuse(const char* cause) {
  std::fprintf(stderr, "a submission to the model disk breaks the contract of Disk: %s\n", cause);
  std::abort();
}

}  // namespace

ModelDisk::ModelDisk(std::uint64_t bytes, std::uint64_t seed, SparseBytes image,
                     std::uint32_t depth)
    : bytes_(bytes), depth_(depth), random_(seed), visible_(std::move(image)), durable_(visible_) {}

// Vigna's SplitMix64.
std::uint64_t ModelDisk::next() {
  std::uint64_t z = random_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t ModelDisk::some_delay_ns() {
  const std::uint64_t least = std::min(faults_.min_delay_ns, faults_.max_delay_ns);
  return least + next() % (faults_.max_delay_ns - least + 1);
}

std::uint64_t ModelDisk::healthy_ns(const BlockOperation& operation) const {
  const std::uint64_t blocks = round_up(operation.bytes, kBlockBytes) / kBlockBytes;
  std::uint64_t time_ns = speed_.flush_ns;
  if (operation.kind == Kind::kRead) time_ns = speed_.read_ns + blocks * speed_.block_ns;
  if (operation.kind == Kind::kWrite) time_ns = speed_.write_ns + blocks * speed_.block_ns;
  return time_ns;
}

void ModelDisk::fail_next(Kind kind, std::uint64_t count, int error) {
  fail_next(kind) = {count, error};
}

void ModelDisk::fail_range(Kind kind, std::uint64_t offset, std::uint64_t bytes, int error) {
  bad_ranges_.push_back({kind, offset, bytes, error});
}

void ModelDisk::flip_bit(std::uint64_t offset, unsigned bit) {
  ++counts_.flipped;
  visible_.flip_bit(offset, bit);
  durable_.flip_bit(offset, bit);
  durable_.share(visible_, offset, 1);
  for (Unflushed& write : unflushed_) {
    if (overlap(write.offset, write.bytes.size(), offset, 1)) {
      write.bytes[offset - write.offset] ^= static_cast<std::byte>(1u << bit);
    }
  }
}

void ModelDisk::flip_bit_in_next_read(std::uint64_t offset, unsigned bit) {
  next_flips_.push_back({offset, bit});
}

void ModelDisk::misdirect_next_write(std::uint64_t offset) { misdirect_next_ = offset; }

void ModelDisk::heal() {
  faults_ = {};
  slowness_ = 1;
  for (FailNext& fails : fail_next_) fails = {};
  bad_ranges_.clear();
  next_flips_.clear();
  misdirect_next_ = kNever;
  loses_next_ = false;
}

void ModelDisk::vanish() {
  vanished_ = true;
  std::multimap<std::uint64_t, Flight> flights;
  flights.swap(flights_);
  for (auto& [due_ns, flight] : flights) {
    ++counts_.failed;
    ended_.push_back({flight.operation.cookie, ENODEV});
  }
}

void ModelDisk::check(const BlockOperation& operation) const {
  if (under_way_ >= depth_) refuse("too many operations are under way");
  if (operation.kind == Kind::kFlush) {
    if (operation.bytes != 0) refuse("a flush has bytes");
    return;
  }
  if (operation.bytes == 0) refuse("no bytes");
  if ((operation.offset | operation.bytes) % read_sector_bytes_ != 0) {
    refuse("offset or size is no multiple of a sector");
  }
  if ((operation.kind == Kind::kWrite && (operation.offset | operation.bytes) % kBlockBytes != 0) ||
      reinterpret_cast<std::uintptr_t>(operation.memory) % kBlockBytes != 0) {
    refuse("offset, size or address is no multiple of a block");
  }
  if (operation.memory == nullptr) refuse("no memory");
  if (operation.offset > bytes_ || operation.bytes > bytes_ - operation.offset) {
    refuse("the range ends behind the disk");
  }
}

int ModelDisk::plan_error(const BlockOperation& operation) {
  double probability = faults_.fail_flush;
  if (operation.kind == Kind::kRead) probability = faults_.fail_read;
  if (operation.kind == Kind::kWrite) probability = faults_.fail_write;
  int error = happens(probability) ? faults_.error : 0;
  for (const BadRange& bad : bad_ranges_) {
    if (bad.kind == operation.kind &&
        overlap(operation.offset, operation.bytes, bad.offset, bad.bytes)) {
      error = bad.error;
    }
  }
  FailNext& fails = fail_next(operation.kind);
  if (fails.count > 0) {
    --fails.count;
    error = fails.error;
  }
  return vanished_ ? ENODEV : error;
}

void ModelDisk::plan_write(Flight& flight) {
  const BlockOperation& operation = flight.operation;
  const std::uint64_t places = (bytes_ - operation.bytes) / kBlockBytes + 1;
  const std::uint64_t elsewhere = next() % places * kBlockBytes;
  if (happens(faults_.misdirect) && elsewhere != operation.offset) flight.target = elsewhere;
  if (misdirect_next_ != kNever) {
    flight.target = std::min(std::exchange(misdirect_next_, kNever), bytes_ - operation.bytes);
  }
  flight.lost = happens(faults_.lose) || std::exchange(loses_next_, false);
  if (flight.error != 0) return;
  if (flight.lost) {
    ++counts_.lost;
  } else if (flight.target != operation.offset) {
    ++counts_.misdirected;
  }
}

void ModelDisk::submit(const BlockOperation& operation) {
  check(operation);
  ++under_way_;
  Flight flight;
  flight.operation = operation;
  flight.target = operation.offset;
  flight.carried_out = carried_out_;
  flight.error = plan_error(operation);
  flight.flips = happens(faults_.flip_bit);
  if (operation.kind == Kind::kWrite) plan_write(flight);
  std::uint64_t time_ns = healthy_ns(operation);
  if (happens(faults_.delay)) {
    ++counts_.delayed;
    time_ns += some_delay_ns();
  }
  if (happens(faults_.reorder)) {
    ++counts_.reordered;
    flight.late_ns = some_delay_ns();
  }
  const auto slow_ns = static_cast<std::uint64_t>(static_cast<double>(time_ns) * slowness_);
  flights_.emplace(now_ns_ + (vanished_ ? 0 : slow_ns), flight);
}

void ModelDisk::carry_out(Flight& flight) {
  switch (flight.operation.kind) {
    case Kind::kRead:
      read(flight);
      break;
    case Kind::kWrite:
      write(flight);
      break;
    case Kind::kFlush:
      flush(flight);
      break;
  }
  if (flight.error != 0) ++counts_.failed;
}

void ModelDisk::read(const Flight& flight) {
  const BlockOperation& operation = flight.operation;
  const std::span memory(operation.memory, operation.bytes);
  ++counts_.reads;
  if (flight.error != 0) {
    std::memset(memory.data(), 0xdb, memory.size());
    return;
  }
  counts_.read_bytes += operation.bytes;
  visible_.read(operation.offset, memory);
  if (flight.flips) {
    ++counts_.flipped;
    const std::uint64_t bit = next() % (operation.bytes * 8);
    memory[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  std::erase_if(next_flips_, [&](const Flip& flip) {
    if (!overlap(operation.offset, operation.bytes, flip.offset, 1)) return false;
    ++counts_.flipped;
    memory[flip.offset - operation.offset] ^= static_cast<std::byte>(1u << flip.bit);
    return true;
  });
}

void ModelDisk::write(const Flight& flight) {
  const BlockOperation& operation = flight.operation;
  const std::span<const std::byte> memory(operation.memory, operation.bytes);
  ++counts_.writes;
  ++carried_out_;
  if (flight.error == ENODEV) return;
  if (flight.error != 0) {
    for (std::uint64_t at = 0; at < memory.size(); at += kSectorBytes) {
      if (happens(0.5)) keep(operation.offset + at, memory.subspan(at, kSectorBytes));
    }
    return;
  }
  counts_.written_bytes += operation.bytes;
  if (!flight.lost) keep(flight.target, memory);
}

void ModelDisk::keep(std::uint64_t offset, std::span<const std::byte> bytes) {
  visible_.write(offset, bytes);
  unflushed_.push_back({carried_out_, offset, {bytes.begin(), bytes.end()}});
}

void ModelDisk::flush(const Flight& flight) {
  ++counts_.flushes;
  if (flight.error == ENODEV) return;
  const auto later = std::ranges::find_if(
      unflushed_, [&](const Unflushed& write) { return write.order > flight.carried_out; });
  if (flight.error == 0) {
    for (auto write = unflushed_.begin(); write != later; ++write) {
      durable_.write(write->offset, write->bytes);
    }
    for (auto write = unflushed_.begin(); write != later; ++write) {
      durable_.share(visible_, write->offset, write->bytes.size());
    }
  }
  unflushed_.erase(unflushed_.begin(), later);
}

// Writes a random choice of the sectors.
void ModelDisk::tear(SparseBytes& image, std::uint64_t offset, std::span<const std::byte> bytes) {
  for (std::uint64_t at = 0; at < bytes.size(); at += kSectorBytes) {
    if (happens(0.5)) image.write(offset + at, bytes.subspan(at, kSectorBytes));
  }
}

SparseBytes ModelDisk::power_cut() {
  std::vector<Unflushed> loose;
  loose.swap(unflushed_);
  for (const auto& [due_ns, flight] : flights_) {
    const BlockOperation& operation = flight.operation;
    if (operation.kind != Kind::kWrite || flight.error != 0 || flight.lost) continue;
    loose.push_back({0, flight.target, {operation.memory, operation.memory + operation.bytes}});
  }
  // The cache writes back in any order, so that an older write may cover a later one.
  for (std::size_t left = loose.size(); left > 1; --left) {
    std::swap(loose[left - 1], loose[next() % left]);
  }
  SparseBytes image = durable_;
  for (const Unflushed& write : loose) tear(image, write.offset, write.bytes);
  vanish();
  return image;
}

void ModelDisk::set_now(std::uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  while (!flights_.empty() && flights_.begin()->first <= now_ns_) {
    const auto first = flights_.begin();
    const std::uint64_t due_ns = first->first;
    Flight flight = first->second;
    flights_.erase(first);
    carry_out(flight);
    late_.emplace(due_ns + flight.late_ns, BlockEnd{flight.operation.cookie, flight.error});
  }
  while (!late_.empty() && late_.begin()->first <= now_ns_) {
    ended_.push_back(late_.begin()->second);
    late_.erase(late_.begin());
  }
}

std::uint64_t ModelDisk::next_end_ns() const {
  if (!ended_.empty()) return 0;
  std::uint64_t next_ns = kNever;
  if (!late_.empty()) next_ns = late_.begin()->first;
  if (!flights_.empty()) next_ns = std::min(next_ns, flights_.begin()->first);
  return next_ns;
}

void ModelDisk::take_ended(std::vector<BlockEnd>& ended) {
  set_now(now_ns_);
  under_way_ -= static_cast<std::uint32_t>(ended_.size());
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

void ModelDisk::wait(std::uint64_t timeout_ns) {
  const std::uint64_t deadline_ns = now_ns_ + std::min(timeout_ns, kNever - now_ns_);
  set_now(now_ns_);
  // An operation that was carried out may end later.
  while (!woken_.load() && ended_.empty() && now_ns_ < deadline_ns) {
    set_now(std::min(next_end_ns(), deadline_ns));
  }
  woken_.store(false);
}

}  // namespace mc::tier::testing
