// SPDX-License-Identifier: Apache-2.0
#include "ctl/bench/dataset.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

namespace mc::ctl {
namespace {

constexpr std::uint64_t kSmallObjectBytes = 64;
constexpr std::uint64_t kSmallObjectCost = 256;  // a granule of the pool
constexpr double kUsableShare = 0.8;             // of the pool
constexpr std::size_t kMaxPicks = std::size_t{1} << 20;
constexpr std::size_t kBatchBytes = std::size_t{8} << 20;
constexpr std::size_t kBatchItems = 256;

std::uint64_t objects_that_fit(std::uint64_t object_bytes, std::uint64_t key_count,
                               std::uint64_t pool_bytes) {
  const double usable = static_cast<double>(pool_bytes) * kUsableShare;
  const double big = static_cast<double>(object_bytes);
  const double small = std::min(static_cast<double>(kSmallObjectCost), big / 2);
  const double fit = (usable - static_cast<double>(key_count) * small) / (big - small);
  return static_cast<std::uint64_t>(std::clamp(fit, 1.0, static_cast<double>(key_count)));
}

Status put_range(mc_client* client, std::uint64_t seed, std::uint64_t first, std::uint64_t end,
                 std::size_t object_bytes) {
  const std::size_t batch = std::clamp<std::size_t>(kBatchBytes / object_bytes, 1, kBatchItems);
  const std::vector<unsigned char> value(object_bytes, 0x5a);
  const mc_slice piece{value.data(), value.size()};
  std::vector<BenchKey> keys(batch);
  std::vector<mc_put_item> items(batch);
  for (std::uint64_t at = first; at < end; at += batch) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(batch, end - at));
    for (std::size_t i = 0; i < count; ++i) {
      keys[i] = bench_key(seed, at + i);
      items[i] = mc_put_item{};
      items[i].key = keys[i].slice();
      items[i].pieces = &piece;
      items[i].piece_count = 1;
    }
    const mc_status status = mc_put_batch(client, items.data(), count, nullptr);
    if (status != MC_OK) return Status(status, mc_last_error());
  }
  return {};
}

}  // namespace

// The finaliser of splitmix64.
std::uint64_t mix_bits(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

std::uint64_t random_seed() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

BenchKey bench_key(std::uint64_t seed, std::uint64_t number) {
  BenchKey key;
  const std::uint64_t base = mix_bits(seed + number * 0x9e3779b97f4a7c15);
  for (std::size_t i = 0; i < key.words.size(); ++i) {
    key.words[i] = mix_bits(base + (i + 1) * 0xd1342543de82ef95);
  }
  return key;
}

Dataset::Dataset(mc_client* client, std::size_t object_bytes, std::uint64_t key_count)
    : client_(client), object_bytes_(object_bytes), key_count_(key_count), seed_(random_seed()) {}

Dataset::Dataset(Dataset&& other) noexcept
    : client_(std::exchange(other.client_, nullptr)),
      object_bytes_(other.object_bytes_),
      key_count_(other.key_count_),
      big_count_(other.big_count_),
      measured_keys_(other.measured_keys_),
      seed_(other.seed_),
      picks_(std::move(other.picks_)),
      absent_(std::move(other.absent_)) {}

Dataset::~Dataset() {
  if (client_ == nullptr) return;
  std::vector<BenchKey> keys(kBatchItems);
  std::vector<mc_slice> slices(kBatchItems);
  std::vector<mc_status> statuses(kBatchItems);
  for (std::uint64_t at = 0; at < key_count_; at += kBatchItems) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(kBatchItems, key_count_ - at));
    for (std::size_t i = 0; i < count; ++i) {
      keys[i] = bench_key(seed_, at + i);
      slices[i] = keys[i].slice();
    }
    mc_remove_batch(client_, slices.data(), count, statuses.data(),
                    0);  // some objects may be evicted already
  }
}

Result<Dataset> Dataset::store(mc_client* client, std::size_t object_bytes, std::uint64_t key_count,
                               std::uint64_t pool_bytes) {
  Dataset dataset(client, object_bytes, key_count);
  if (Status put = dataset.put_all(pool_bytes); !put.ok()) return fail(std::move(put));
  if (Status chosen = dataset.choose_picks(); !chosen.ok()) return fail(std::move(chosen));
  // As many misses as picks: a smaller part of the index would stay in the cache.
  for (std::size_t i = 0; i < dataset.picks_.size(); ++i) {
    dataset.absent_.push_back(bench_key(~dataset.seed_, i));
  }
  return dataset;
}

// Numbers below big_count_ are the large objects. They are stored last, so that an eviction
// takes a small object.
Status Dataset::put_all(std::uint64_t pool_bytes) {
  big_count_ = object_bytes_ <= kSmallObjectBytes
                   ? key_count_
                   : objects_that_fit(object_bytes_, key_count_, pool_bytes);
  Status put = put_range(client_, seed_, big_count_, key_count_, kSmallObjectBytes);
  return put.ok() ? put_range(client_, seed_, 0, big_count_, object_bytes_) : put;
}

Status Dataset::choose_picks() {
  std::vector<std::uint32_t> order;
  std::vector<const void*> address(big_count_, nullptr);
  for (std::uint32_t i = 0; i < big_count_; ++i) {
    mc_view view{};
    if (mc_get_view(client_, bench_key(seed_, i).slice(), &view) != MC_OK) continue;
    if (view.span_count == 1 && view.length == object_bytes_) {
      address[i] = view.data;
      order.push_back(i);
    }
    mc_view_release(&view);
  }
  if (order.empty()) return Status(MC_NO_SPACE, "the pool keeps no object of this size");
  measured_keys_ = order.size();
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed_));
  order.resize(std::min(order.size(), kMaxPicks));
  for (const std::uint32_t i : order) picks_.push_back({bench_key(seed_, i), address[i]});
  return {};
}

}  // namespace mc::ctl
