// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/extents/extent_pool.h"

#include <algorithm>
#include <thread>

#include "libmc/base/failpoint.h"
#include "libmc/base/mutex.h"

namespace mc::agent {

namespace {

constexpr std::uint64_t kFirstChunkBytes = 16ull << 20;
constexpr std::uint64_t kChunkBytes = 64ull << 20;
// Memory that a growing pool leaves to the rest of the host.
constexpr std::uint64_t kSpareMemoryBytes = 128ull << 20;
constexpr std::uint64_t kCollapseBytes = 16ull << 20;
// An arena shrinks in steps: the allocator walks the blocks of a step.
constexpr std::uint64_t kShrinkStepBytes = 16ull << 20;
constexpr std::uint64_t kAlignBytes = kHugePageBytes;

std::uint64_t granules_for(std::uint64_t bytes) {
  return (bytes + kGranuleBytes - 1) / kGranuleBytes;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::uint64_t PoolExtents::bytes() const {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < count; ++i) sum += at[i].length_bytes;
  return sum;
}

// Takes memory from the system and gives memory back in its own thread, one order at a time, since each
// order takes tens of milliseconds. The thread starts with the first order: a complete pool that was
// taken over may never give an order.
class ExtentPool::Reserver {
 public:
  enum class Job { kReserve, kCollapse, kPunch };
  struct Order {
    Job job = Job::kReserve;
    const Mapping* collapse = nullptr;  // kCollapse
    std::size_t arena = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
    Status status;
  };

  Reserver(const MemoryFile* file, int event) : file_(file), event_(event) {}
  ~Reserver() {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  bool busy() {
    MutexLock lock(mutex_);
    return has_order_ || has_result_;
  }
  void order(const Order& order) {
    {
      MutexLock lock(mutex_);
      order_ = order;
      has_order_ = true;
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    changed_.notify_all();
  }
  std::optional<Order> result() {
    MutexLock lock(mutex_);
    if (!has_result_) return std::nullopt;
    has_result_ = false;
    return order_;
  }

 private:
  void run() {
    MutexLock lock(mutex_);
    for (;;) {
      while (!stop_ && !has_order_) changed_.wait(mutex_);
      if (stop_) return;
      Order order = order_;
      lock.unlock();
      if (order.job == Job::kPunch) {
        order.status = file_->punch(order.offset_bytes, order.bytes);
      } else if (order.job == Job::kCollapse) {
        if (order.collapse->collapse(order.offset_bytes, order.bytes) ==
            Mapping::Collapse::kNever) {
          order.status = Status(MC_UNSUPPORTED);
        }
      } else if (!file_->huge() && available_memory_bytes() < order.bytes + kSpareMemoryBytes) {
        order.status = {MC_NO_MEMORY, "this host has only " +
                                          std::to_string(available_memory_bytes() >> 20) +
                                          " MiB of memory left; lower pool_bytes"};
      } else {
        order.status = file_->reserve(order.offset_bytes, order.bytes);
      }
      lock.lock();
      order_ = order;
      has_order_ = false;
      has_result_ = true;
      signal_eventfd(event_);
    }
  }

  const MemoryFile* file_;
  int event_;
  Mutex mutex_;
  Condition changed_;
  Order order_ MC_GUARDED_BY(mutex_);
  bool has_order_ MC_GUARDED_BY(mutex_) = false;
  bool has_result_ MC_GUARDED_BY(mutex_) = false;
  bool stop_ MC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

ExtentPool::~ExtentPool() = default;

Result<std::unique_ptr<ExtentPool>> ExtentPool::create(shm::IndexHeader* header,
                                                       std::uint64_t pool_bytes,
                                                       std::uint64_t max_bytes,
                                                       std::uint32_t arenas, HugePages huge) {
  auto pool = std::unique_ptr<ExtentPool>(new ExtentPool);
  pool->may_collapse_ = huge != HugePages::kOff;
  if (const std::uint64_t free = free_huge_page_bytes(); free < pool_bytes) {
    if (huge == HugePages::kRequire) {
      return fail(MC_NO_MEMORY,
                  "huge_pages = \"require\", but only " + std::to_string(free / kHugePageBytes) +
                      " of the " +
                      std::to_string((pool_bytes + kHugePageBytes - 1) / kHugePageBytes) +
                      " pages of 2 MiB that the pool needs are free; run: sysctl vm.nr_hugepages=" +
                      std::to_string((pool_bytes + kHugePageBytes - 1) / kHugePageBytes));
    }
    huge = HugePages::kOff;
  }
  const std::uint64_t stride =
      round_up((std::max(max_bytes, pool_bytes) + arenas - 1) / arenas, kAlignBytes);
  const std::vector<std::uint64_t> parts(arenas, stride);
  auto file = MemoryFile::create_growing("mc-pool", parts, huge);
  if (!file) return fail(file.error());
  pool->file_ = std::move(*file);
  header->pool_max_bytes.store_relaxed(pool->file_.size_bytes());
  header->arena_count.store_relaxed(arenas);
  pool->target_bytes_ = pool_bytes;
  if (Status status = pool->attach(header, arenas); !status.ok()) return fail(status);
  pool->note_sizes(pool_bytes);
  pool->order_next_chunk();
  return pool;
}

std::vector<std::uint64_t> ExtentPool::part_bytes(const shm::IndexHeader& header) {
  const std::uint64_t arenas =
      std::clamp<std::uint64_t>(header.arena_count.load_relaxed(), 1, shm::kMaxArenas);
  return std::vector<std::uint64_t>(arenas, header.pool_max_bytes.load_relaxed() / arenas);
}

Result<std::unique_ptr<ExtentPool>> ExtentPool::adopt(shm::IndexHeader* header, MemoryFile file,
                                                      std::uint64_t pool_bytes, HugePages huge) {
  auto pool = std::unique_ptr<ExtentPool>(new ExtentPool);
  pool->may_collapse_ = huge != HugePages::kOff;
  pool->file_ = std::move(file);
  const std::uint64_t arenas = header->arena_count.load_relaxed();
  if (arenas == 0 || arenas > shm::kMaxArenas || arenas != pool->file_.part_count() ||
      header->pool_max_bytes.load_relaxed() != pool->file_.size_bytes() ||
      pool->file_.size_bytes() % (arenas * kAlignBytes) != 0) {
    return fail(MC_CORRUPT, "the kept pool file does not match its index");
  }
  // A size that was configured anew counts; else the size of the last resize.
  const std::uint64_t resized_bytes = header->wanted_pool_bytes.load_relaxed();
  const bool changed = header->configured_pool_bytes.load_relaxed() != pool_bytes;
  pool->target_bytes_ = std::min(changed || resized_bytes == 0 ? pool_bytes : resized_bytes,
                                 pool->file_.size_bytes());
  if (Status status = pool->attach(header, static_cast<std::uint32_t>(arenas)); !status.ok()) {
    return fail(status);
  }
  for (std::size_t i = 0; i < arenas; ++i) {
    const std::uint64_t bytes =
        header->arena_bytes[i].load_relaxed() / kGranuleBytes * kGranuleBytes;
    if (bytes > pool->stride_) return fail(MC_CORRUPT, "an arena is larger than its file");
    // To reserve pages that exist takes time for each page.
    if (pool->file_.resident_bytes(i) < bytes) {
      if (Status status = pool->file_.reserve(i * pool->stride_, bytes); !status.ok()) {
        return fail(status);
      }
    }
    if (!pool->arenas_[i]->grow(bytes / kGranuleBytes))
      return fail(MC_CORRUPT, "an arena is larger than an allocator can manage");
  }
  pool->note_sizes(pool_bytes);
  return pool;
}

// In this order: if the agent dies in between, the next start finds a configured size that differs.
void ExtentPool::note_sizes(std::uint64_t configured_bytes) {
  header_->wanted_pool_bytes.store_release(target_bytes_);
  header_->configured_pool_bytes.store_release(configured_bytes);
}

Status ExtentPool::attach(shm::IndexHeader* header, std::uint32_t arenas) {
  header_ = header;
  stride_ = file_.size_bytes() / arenas / kGranuleBytes * kGranuleBytes;
  auto mapping = Mapping::map_all(file_, Mapping::Access::kReadWrite);
  if (!mapping) return mapping.error();
  mapping_ = std::move(*mapping);
  auto event = make_eventfd();
  if (!event) return event.error();
  chunk_event_ = std::move(*event);
  for (std::uint32_t i = 0; i < arenas; ++i) arenas_.push_back(std::make_unique<ExtentAllocator>());
  reserver_ = std::make_unique<Reserver>(&file_, chunk_event_.get());
  collapsed_bytes_.resize(arenas, 0);
  return {};
}

std::uint64_t ExtentPool::arena_target(std::size_t arena) const {
  // Whole huge pages in a file of huge pages, else whole small pages.
  const std::uint64_t unit = file_.huge() ? kAlignBytes : shm::kPageBytes;
  const std::uint64_t pages = target_bytes_ / unit;
  const std::uint64_t count = arenas_.size();
  return std::min(stride_, (pages / count + (arena < pages % count ? 1 : 0)) * unit);
}

void ExtentPool::order_next_chunk() {
  if (blocked_ || reserver_->busy()) return;
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    const std::size_t arena = (next_arena_ + i) % arenas_.size();
    const std::uint64_t have = arenas_[arena]->size_granules() * kGranuleBytes;
    const std::uint64_t target = arena_target(arena);
    if (have >= target) continue;
    if (may_grow_ && !may_grow_()) return;
    const std::uint64_t most = have == 0 ? kFirstChunkBytes : kChunkBytes;
    next_arena_ = arena + 1;
    reserver_->order({Reserver::Job::kReserve,
                      nullptr,
                      arena,
                      arena * stride_ + have,
                      std::min(most, target - have),
                      {}});
    return;
  }
  if (may_collapse_ && idle_ && !file_.huge()) order_collapse();
}

// All memory is reserved: continue with huge pages.
bool ExtentPool::order_collapse() {
  if (const auto first = collapse_first_ ? collapse_first_() : std::nullopt) {
    reserver_->order(
        {Reserver::Job::kCollapse, first->mapping, 0, first->offset_bytes, first->bytes, {}});
    return true;
  }
  for (std::size_t arena = 0; arena < arenas_.size(); ++arena) {
    const std::uint64_t whole =
        arenas_[arena]->size_granules() * kGranuleBytes / kHugePageBytes * kHugePageBytes;
    const std::uint64_t have = std::min(collapsed_bytes_[arena], whole);
    if (have == whole) continue;
    collapsed_bytes_[arena] = std::min(have + kCollapseBytes, whole);
    reserver_->order({Reserver::Job::kCollapse,
                      &mapping_,
                      arena,
                      arena * stride_ + have,
                      collapsed_bytes_[arena] - have,
                      {}});
    return true;
  }
  return false;
}

void ExtentPool::set_idle(bool idle) {
  if (idle_ == idle) return;
  idle_ = idle;
  order_next_chunk();
}

bool ExtentPool::on_chunk() {
  drain_eventfd(chunk_event_.get());
  const auto done = reserver_->result();
  if (!done) return false;
  if (done->job == Reserver::Job::kPunch) {
    punching_ = false;
    if (!done->status.ok()) growth_status_ = done->status;
    give_back_tails();
    order_next_chunk();
    return false;
  }
  if (done->job == Reserver::Job::kCollapse) {
    // The kernel lacks the operation, or memory is too fragmented: small pages serve as well.
    if (!done->status.ok()) may_collapse_ = false;
    order_next_chunk();
    return false;
  }
  if (!done->status.ok()) {
    blocked_ = true;
    growth_status_ = done->status;
    return false;
  }
  ExtentAllocator& arena = *arenas_[done->arena];
  const std::uint64_t have = arena.size_granules() * kGranuleBytes;
  const bool wanted =
      have == done->offset_bytes - done->arena * stride_ && have < arena_target(done->arena);
  const bool grown = wanted && arena.grow(done->bytes / kGranuleBytes);
  if (!grown) {
    // The pool was made smaller meanwhile.
    order_punch(done->arena, done->offset_bytes, done->bytes);
  }
  publish_size();
  order_next_chunk();
  return grown;
}

void ExtentPool::retry_growth() {
  if (blocked_) {
    blocked_ = false;
    growth_status_ = {};
  }
  order_next_chunk();
}

void ExtentPool::publish_size() {
  ++size_changes_;
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    header_->arena_bytes[i].store_relaxed(arenas_[i]->size_granules() * kGranuleBytes);
  }
  header_->pool_bytes.store_release(reserved_bytes());
}

[[gnu::hot]] bool ExtentPool::allocate(std::uint64_t bytes, bool may_split, PoolExtents& extents) {
  const std::size_t count = arenas_.size();
  extents.count = 0;
  // Arenas take turns, so that the load is even.
  const std::size_t first = count == 1 ? 0 : next_arena_++ % count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t arena = (first + i) % count;
    if (const auto got = arenas_[arena]->allocate(granules_for(bytes))) {
      extents.at[extents.count++] = {arena * stride_ + got->first_granule * kGranuleBytes,
                                     got->granules * kGranuleBytes, got->node};
      return true;
    }
  }
  if (!may_split) return false;
  std::uint64_t left = granules_for(bytes);
  while (left > 0 && extents.count < MC_MAX_EXTENTS) {
    std::size_t best = 0;
    std::uint64_t most = 0;
    for (std::size_t arena = 0; arena < count; ++arena) {
      const std::uint64_t free = arenas_[arena]->largest_free();
      if (free > most) most = free, best = arena;
    }
    const auto got = most == 0 ? std::nullopt : arenas_[best]->allocate(std::min(most, left));
    if (!got) break;
    extents.at[extents.count++] = {best * stride_ + got->first_granule * kGranuleBytes,
                                   got->granules * kGranuleBytes, got->node};
    left -= got->granules;
  }
  if (left == 0) return true;
  for (std::uint32_t i = 0; i < extents.count; ++i) free(extents.at[i]);
  extents.count = 0;
  return false;
}

void ExtentPool::free(const PoolExtent& extent) {
  arenas_[extent.offset_bytes / stride_]->free(extent.node);
}

bool ExtentPool::grow_into(PoolExtent& extent, Side side, std::uint64_t most_bytes) {
  const std::size_t arena = extent.offset_bytes / stride_;
  const std::uint64_t grown =
      arenas_[arena]->grow_into(extent.node, side, most_bytes / kGranuleBytes) * kGranuleBytes;
  if (side == Side::kBefore) extent.offset_bytes -= grown;
  extent.length_bytes += grown;
  return grown > 0;
}

bool ExtentPool::take_largest(std::uint64_t most_bytes, PoolExtent& extent) {
  std::size_t best = 0;
  std::uint64_t most = 0;
  for (std::size_t arena = 0; arena < arenas_.size(); ++arena) {
    const std::uint64_t free = arenas_[arena]->largest_free();
    if (free > most) most = free, best = arena;
  }
  const auto got = arenas_[best]->allocate(std::min(most, granules_for(most_bytes)));
  if (!got) return false;
  extent = {best * stride_ + got->first_granule * kGranuleBytes, got->granules * kGranuleBytes,
            got->node};
  return true;
}

bool ExtentPool::take_behind(const PoolExtent& from, std::uint64_t most_bytes, unsigned tries,
                             PoolExtent& extent) {
  const std::size_t arena = from.offset_bytes / stride_;
  const BlockId node = arenas_[arena]->take_behind(from.node, granules_for(most_bytes), tries);
  if (node == kNoBlock) return false;
  const Allocation got = arenas_[arena]->find(node);
  extent = {arena * stride_ + got.first_granule * kGranuleBytes, got.granules * kGranuleBytes,
            node};
  return true;
}

void ExtentPool::trim(PoolExtents& extents, std::uint64_t bytes) {
  std::uint64_t left = granules_for(bytes) * kGranuleBytes;
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < extents.count; ++i) {
    PoolExtent& extent = extents.at[i];
    if (left == 0) {
      free(extent);
      continue;
    }
    if (extent.length_bytes > left) {
      arenas_[extent.offset_bytes / stride_]->trim(extent.node, left / kGranuleBytes);
      extent.length_bytes = left;
    }
    left -= extent.length_bytes;
    ++kept;
  }
  extents.count = kept;
}

void ExtentPool::claim_all(std::span<Claim> sorted) {
  std::size_t at = 0;
  for (std::size_t arena = 0; arena < arenas_.size(); ++arena) {
    const std::uint64_t base = arena * stride_;
    ExtentAllocator::Claimer claimer(*arenas_[arena]);
    for (; at < sorted.size() && sorted[at].extent.offset_bytes < base + stride_; ++at) {
      Claim& claim = sorted[at];
      const auto& [offset, length] = claim.extent;
      if (offset % kGranuleBytes != 0 || length % kGranuleBytes != 0) continue;
      claim.block = claimer.claim({(offset - base) / kGranuleBytes, length / kGranuleBytes});
      if (claim.block != kNoBlock) arenas_[arena]->set_owner(claim.block, claim.owner);
    }
  }
}

void ExtentPool::resize(std::uint64_t pool_bytes) {
  target_bytes_ = std::min(pool_bytes, max_bytes());
  header_->wanted_pool_bytes.store_release(target_bytes_);
  blocked_ = false;
  growth_status_ = {};
  for (std::size_t i = 0; i < arenas_.size(); ++i) set_limit(i);
  order_next_chunk();
}

// Withdraws the last step of an arena that shrinks.
void ExtentPool::set_limit(std::size_t arena) {
  const std::uint64_t size = arenas_[arena]->size_granules();
  const std::uint64_t target = arena_target(arena) / kGranuleBytes;
  constexpr std::uint64_t kStep = kShrinkStepBytes / kGranuleBytes;
  const std::uint64_t step_end = size > kStep ? size - kStep : 0;
  arenas_[arena]->set_limit(target < size ? std::max(target, step_end)
                                          : ExtentAllocator::kMaxGranules);
}

bool ExtentPool::must_leave(std::uint64_t offset_bytes, std::uint64_t length_bytes) const {
  const std::size_t arena = offset_bytes / stride_;
  const std::uint64_t end = offset_bytes - arena * stride_ + length_bytes;
  return end > arena_target(arena);
}

bool ExtentPool::shrinking() const {
  if (punching_) return true;
  for (const auto& arena : arenas_) {
    if (arena->size_granules() > arena->limit_granules()) return true;
  }
  return false;
}

std::vector<std::uint32_t> ExtentPool::tail_owners(std::size_t most) const {
  std::vector<std::uint32_t> owners;
  const std::size_t share = std::max<std::size_t>(most / arenas_.size(), 1);
  for (const auto& arena : arenas_) {
    if (arena->size_granules() > arena->limit_granules()) arena->owners_beyond_limit(share, owners);
  }
  return owners;
}

void ExtentPool::order_punch(std::size_t arena, std::uint64_t offset_bytes, std::uint64_t bytes) {
  punching_ = true;
  reserver_->order({Reserver::Job::kPunch, nullptr, arena, offset_bytes, bytes, {}});
}

void ExtentPool::give_back_strays() {
  if (growing() || shrinking() || punching_ || reserver_->busy()) return;
  next_stray_ = (next_stray_ + 1) % arenas_.size();
  const std::uint64_t bytes = arenas_[next_stray_]->size_granules() * kGranuleBytes;
  if (file_.resident_bytes(next_stray_) <= bytes) return;
  order_punch(next_stray_, next_stray_ * stride_ + bytes, stride_ - bytes);
}

bool ExtentPool::give_back_tails() {
  bool gave = false;
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    ExtentAllocator& arena = *arenas_[i];
    const std::uint64_t size = arena.size_granules();
    const std::uint64_t limit = arena.limit_granules();
    if (size <= limit || arena.used_beyond(limit) != 0 || reserver_->busy()) continue;
    if (!arena.truncate(limit)) continue;
    ++losses_;
    publish_size();
    MC_FAILPOINT("resize.before_punch");
    collapsed_bytes_[i] = std::min(collapsed_bytes_[i], limit * kGranuleBytes);
    order_punch(i, i * stride_ + limit * kGranuleBytes, (size - limit) * kGranuleBytes);
    set_limit(i);
    gave = true;
  }
  return gave;
}

std::uint64_t ExtentPool::reserved_bytes() const {
  std::uint64_t granules = 0;
  for (const auto& arena : arenas_) granules += arena->size_granules();
  return granules * kGranuleBytes;
}

std::vector<shm::ExtentRecord> ExtentPool::reserved_ranges() const {
  std::vector<shm::ExtentRecord> ranges;
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    const std::uint64_t bytes = arenas_[i]->size_granules() * kGranuleBytes;
    if (bytes > 0) ranges.push_back({i * stride_, bytes});
  }
  return ranges;
}

std::uint64_t ExtentPool::used_bytes() const {
  std::uint64_t granules = 0;
  for (const auto& arena : arenas_) granules += arena->used_granules();
  return granules * kGranuleBytes;
}

std::uint64_t ExtentPool::free_bytes() const {
  std::uint64_t granules = 0;
  for (const auto& arena : arenas_) granules += arena->free_granules();
  return granules * kGranuleBytes;
}

std::size_t ExtentPool::memory_bytes() const {
  std::size_t bytes = 0;
  for (const auto& arena : arenas_) bytes += arena->memory_bytes();
  return bytes;
}

}  // namespace mc::agent
