// SPDX-License-Identifier: Apache-2.0
//
// The lower bound of a get of 4 KiB by key on this machine, for any library: a hash of a key of 64
//   bytes, a line of a table, an entry with the key, a store that pins the entry, and the copy.
//   There are no checks, no collisions, no library calls, and no other threads or processes. Memcpy
//   is the copy alone, by libc and by mc. Compare `mcctl bench --cases get_copy --keys N` with
//   BareGet of --keys=N. No store can have a lower ratio than BareGet to Memcpy. As in mcctl bench,
//   keys are read in sequence and objects in a random order without repetition; if memory does not
//   suffice, only as many objects as fit have bytes.
// Threads: a single thread.
#include <benchmark/benchmark.h>
#include <emmintrin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "libmc/base/copy.h"
#include "libmc/base/hash.h"

namespace mc {
namespace {

constexpr std::size_t kObjectBytes = 4096;
constexpr std::size_t kKeyBytes = 64;
constexpr std::size_t kSlots = 8;
constexpr std::size_t kMostPicks = 1 << 16;
constexpr std::uint32_t kKeysUnlessTold = 1'000;
constexpr std::uint64_t kSeed = 12345;

struct alignas(64) Bucket {
  std::array<std::uint64_t, kSlots> slots;  // upper half of the hash; number of the entry, from 1
};
struct alignas(128) Entry {
  std::uint64_t version;
  std::uint64_t hash;
  std::uint64_t offset;
  std::uint64_t length;
  std::array<std::uint64_t, 4> more;
  std::array<char, kKeyBytes> key;
};

// Memory like that of a pool: in huge pages if the kernel provides them.
template <class T>
T* place(std::size_t count) {
  constexpr std::size_t kHuge = 2 << 20;
  const std::size_t bytes = (count * sizeof(T) + 2 * kHuge) / kHuge * kHuge;
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  ::madvise(at, bytes, MADV_HUGEPAGE);
  std::memset(at, 1, bytes);
  std::memset(at, 0, bytes);
  return static_cast<T*>(at);
}

using Key = std::array<char, kKeyBytes>;

// The number of objects of 4 KiB that fit into half of the free memory.
std::uint64_t objects_that_fit() {
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES));
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / 2 / kObjectBytes;
}

class Objects {
 public:
  explicit Objects(std::uint32_t count)
      : buckets_count_(count),
        with_data_(static_cast<std::uint32_t>(std::min<std::uint64_t>(count, objects_that_fit()))),
        pool_(place<char>(with_data_ * kObjectBytes)),
        buckets_(place<Bucket>(buckets_count_)),
        entries_(place<Entry>(count)) {
    for (std::uint32_t i = 0; i < count && good(); ++i) insert(i);
    std::vector<std::uint32_t> order(with_data_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    order.resize(std::min(order.size(), kMostPicks));
    for (const std::uint32_t number : order) picks_.push_back({entries_[number].key, number});
  }

  struct Pick {
    Key key;
    std::uint32_t number;
  };
  bool good() const { return pool_ != nullptr && buckets_ != nullptr && entries_ != nullptr; }
  const Pick& pick(std::size_t i) const { return picks_[i % picks_.size()]; }
  const char* data(std::uint32_t number) const { return pool_ + number * kObjectBytes; }

  const Entry* find(const Key& key, std::size_t ahead_bytes) {
    const std::uint64_t hash = hash_key(key.data(), kKeyBytes, kSeed);
    for (const std::uint64_t slot : bucket_of(hash).slots) {
      if (((slot ^ hash) & kTagMask) != 0 || slot == 0) continue;
      const Entry& entry = entries_[static_cast<std::uint32_t>(slot) - 1];
      // In a pool, the bucket has the address of the bytes; here the object's number gives it.
      const char* ahead = data(static_cast<std::uint32_t>(slot) - 1);
      for (std::size_t at = 0; at < ahead_bytes; at += 64) __builtin_prefetch(ahead + at);
      if (entry.version != 2) continue;
      pin_ = slot;
      if (entry.hash == hash && same(entry.key, key) && entry.version == 2) return &entry;
    }
    return nullptr;
  }
  void unpin() { pin_ = 0; }

 private:
  static constexpr std::uint64_t kTagMask = 0xffffffff00000000;

  void insert(std::uint32_t number) {
    Entry& entry = entries_[number];
    for (std::size_t at = 0; at < kKeyBytes; at += sizeof(std::uint64_t)) {
      const std::uint64_t word = random_();
      std::memcpy(entry.key.data() + at, &word, sizeof word);
    }
    entry.version = 2;
    entry.hash = hash_key(entry.key.data(), kKeyBytes, kSeed);
    entry.offset = number % with_data_ * kObjectBytes;
    entry.length = kObjectBytes;
    for (std::uint64_t& slot : bucket_of(entry.hash).slots) {
      if (slot != 0) continue;
      slot = (entry.hash & kTagMask) | (number + std::uint64_t{1});
      break;
    }
  }
  Bucket& bucket_of(std::uint64_t hash) {
    return buckets_[(hash & 0xffffffff) * buckets_count_ >> 32];
  }
  static bool same(const Key& a, const Key& b) {
    __m128i difference = _mm_setzero_si128();
    for (std::size_t at = 0; at < kKeyBytes; at += sizeof difference) {
      const auto words = [at](const Key& key) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(key.data() + at));
      };
      difference = _mm_or_si128(difference, _mm_xor_si128(words(a), words(b)));
    }
    return _mm_movemask_epi8(_mm_cmpeq_epi8(difference, _mm_setzero_si128())) == 0xffff;
  }

  std::mt19937_64 random_{1};
  std::uint64_t buckets_count_;
  std::uint32_t with_data_;
  std::vector<Pick> picks_;
  char* pool_;
  Bucket* buckets_;
  Entry* entries_;
  volatile std::uint64_t pin_ = 0;
};

std::uint32_t key_count = kKeysUnlessTold;

// All benchmarks share this object, so that they read the same addresses.
Objects& all_objects() {
  static Objects objects(key_count);
  return objects;
}

template <class Read>
void run(benchmark::State& state, const Read& read) {
  Objects& objects = all_objects();
  if (!objects.good()) return state.SkipWithError("no memory for the objects");
  alignas(64) static std::array<char, kObjectBytes> buffer;
  std::size_t i = 0;
  for (auto _ : state) {
    if (!read(objects, objects.pick(i++), buffer.data())) state.SkipWithError("not found");
    benchmark::DoNotOptimize(buffer);
  }
}

void Memcpy(benchmark::State& state) {
  run(state, [](Objects& objects, const Objects::Pick& pick, char* buffer) {
    std::memcpy(buffer, objects.data(pick.number), kObjectBytes);
    return true;
  });
}

void CopyOut(benchmark::State& state) {
  run(state, [](Objects& objects, const Objects::Pick& pick, char* buffer) {
    copy_out(buffer, objects.data(pick.number), kObjectBytes);
    return true;
  });
}

void BareLookup(benchmark::State& state) {
  run(state, [](Objects& objects, const Objects::Pick& pick, char*) {
    const Entry* entry = objects.find(pick.key, 0);
    benchmark::DoNotOptimize(entry);
    objects.unpin();
    return entry != nullptr;
  });
}

// With this number of prefetched bytes of the object.
void BareGet(benchmark::State& state) {
  const auto ahead_bytes = static_cast<std::size_t>(state.range(0));
  run(state, [=](Objects& objects, const Objects::Pick& pick, char* buffer) {
    const Entry* entry = objects.find(pick.key, ahead_bytes);
    if (entry == nullptr) return false;
    copy_out(buffer, objects.data(0) + entry->offset, entry->length);
    objects.unpin();
    return true;
  });
}

BENCHMARK(Memcpy);
BENCHMARK(CopyOut);
BENCHMARK(BareLookup);
BENCHMARK(BareGet)->Arg(0)->Arg(1024)->Arg(2048)->Arg(4096);

}  // namespace
}  // namespace mc

int main(int argc, char** argv) {
  constexpr std::string_view kKeys = "--keys=";
  benchmark::Initialize(&argc, argv);
  if (argc > 1 && std::string_view(argv[1]).starts_with(kKeys)) {
    mc::key_count = static_cast<std::uint32_t>(std::strtoul(argv[1] + kKeys.size(), nullptr, 10));
  }
  if (mc::key_count == 0 || argc > 2 ||
      (argc == 2 && !std::string_view(argv[1]).starts_with(kKeys))) {
    std::fprintf(stderr, "usage: read_floor_bench [--keys=N] [--benchmark_...]\n");
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
}
