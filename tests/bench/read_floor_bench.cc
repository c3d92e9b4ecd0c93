// SPDX-License-Identifier: Apache-2.0
//
// What it is: the least that a get of 4 KiB by key can take on this machine, whatever the library:
// a
//   hash of a key of 64 bytes, one line of a table, an entry with its key, a store that pins it,
//   the copy. No checks, no collisions, no call into a library, one thread, no other process.
//   Beside it the copy alone, as libc and as mc makes it. `mcctl bench --cases get_copy` is to be
//   compared with BareGet; BareGet over Memcpy is a ratio that no store can go below.
// Threads: one.
#include <benchmark/benchmark.h>
#include <emmintrin.h>
#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "libmc/base/copy.h"
#include "libmc/base/hash.h"

namespace mc {
namespace {

constexpr std::size_t kObjectBytes = 4096;
constexpr std::size_t kKeyBytes = 64;
constexpr std::size_t kSlots = 8;
constexpr std::size_t kOrders = 1 << 16;
constexpr std::size_t kAheadBytes = 2048;  // the best of 0, 1, 1.5, 2, 3, 4 KiB
constexpr std::uint64_t kSeed = 12345;

struct alignas(64) Bucket {
  std::array<std::uint64_t, kSlots> slots;  // the hash's upper half; the entry's number, from 1
};
struct alignas(128) Entry {
  std::uint64_t version;
  std::uint64_t hash;
  std::uint64_t offset;
  std::uint64_t length;
  std::array<std::uint64_t, 4> more;
  std::array<char, kKeyBytes> key;
};

// Memory of a pool: in huge pages where the kernel gives them.
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

class Objects {
 public:
  explicit Objects(std::uint32_t count)
      : buckets_count_(count),
        keys_(count),
        order_(kOrders),
        pool_(place<char>(count * kObjectBytes)),
        buckets_(place<Bucket>(buckets_count_)),
        entries_(place<Entry>(count)) {
    std::mt19937_64 random(1);
    for (std::uint32_t i = 0; i < count && good(); ++i) {
      std::snprintf(keys_[i].data(), kKeyBytes, "%063llx",
                    static_cast<unsigned long long>(random()));
      const std::uint64_t hash = hash_key(keys_[i].data(), kKeyBytes, kSeed);
      for (std::uint64_t& slot : bucket_of(hash).slots) {
        if (slot != 0) continue;
        slot = (hash & kTagMask) | (i + std::uint64_t{1});
        break;
      }
      entries_[i] = {2, hash, i * kObjectBytes, kObjectBytes, {}, keys_[i]};
    }
    for (std::uint32_t& number : order_) number = static_cast<std::uint32_t>(random() % count);
  }

  bool good() const { return pool_ != nullptr && buckets_ != nullptr && entries_ != nullptr; }
  std::uint32_t pick(std::size_t i) const { return order_[i % kOrders]; }
  const char* data(std::uint32_t number) const { return pool_ + number * kObjectBytes; }

  const Entry* find(std::uint32_t number, std::size_t ahead_bytes) {
    const std::array<char, kKeyBytes>& key = keys_[number];
    const std::uint64_t hash = hash_key(key.data(), kKeyBytes, kSeed);
    for (const std::uint64_t slot : bucket_of(hash).slots) {
      if (((slot ^ hash) & kTagMask) != 0 || slot == 0) continue;
      const Entry& entry = entries_[static_cast<std::uint32_t>(slot) - 1];
      // In a pool the bucket tells where an object's bytes are; here its number does.
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
  Bucket& bucket_of(std::uint64_t hash) {
    return buckets_[(hash & 0xffffffff) * buckets_count_ >> 32];
  }
  static bool same(const std::array<char, kKeyBytes>& a, const std::array<char, kKeyBytes>& b) {
    __m128i difference = _mm_setzero_si128();
    for (std::size_t at = 0; at < kKeyBytes; at += sizeof difference) {
      const auto words = [at](const std::array<char, kKeyBytes>& key) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(key.data() + at));
      };
      difference = _mm_or_si128(difference, _mm_xor_si128(words(a), words(b)));
    }
    return _mm_movemask_epi8(_mm_cmpeq_epi8(difference, _mm_setzero_si128())) == 0xffff;
  }

  std::uint64_t buckets_count_;
  std::vector<std::array<char, kKeyBytes>> keys_;
  std::vector<std::uint32_t> order_;
  char* pool_;
  Bucket* buckets_;
  Entry* entries_;
  volatile std::uint64_t pin_ = 0;
};

// The same for all, so that what they read lies at the same addresses.
Objects& thousand_objects() {
  static Objects objects(1'000);
  return objects;
}

template <class Read>
void run(benchmark::State& state, const Read& read) {
  Objects& objects = thousand_objects();
  if (!objects.good()) return state.SkipWithError("no memory for the objects");
  alignas(64) static std::array<char, kObjectBytes> buffer;
  std::size_t i = 0;
  for (auto _ : state) {
    if (!read(objects, objects.pick(i++), buffer.data())) state.SkipWithError("not found");
    benchmark::DoNotOptimize(buffer);
  }
}

void Memcpy(benchmark::State& state) {
  run(state, [](Objects& objects, std::uint32_t number, char* buffer) {
    std::memcpy(buffer, objects.data(number), kObjectBytes);
    return true;
  });
}

void CopyOut(benchmark::State& state) {
  run(state, [](Objects& objects, std::uint32_t number, char* buffer) {
    copy_out(buffer, objects.data(number), kObjectBytes);
    return true;
  });
}

void BareLookup(benchmark::State& state) {
  run(state, [](Objects& objects, std::uint32_t number, char*) {
    const Entry* entry = objects.find(number, 0);
    benchmark::DoNotOptimize(entry);
    objects.unpin();
    return entry != nullptr;
  });
}

void BareGet(benchmark::State& state) {
  run(state, [](Objects& objects, std::uint32_t number, char* buffer) {
    const Entry* entry = objects.find(number, kAheadBytes);
    if (entry == nullptr) return false;
    copy_out(buffer, objects.data(0) + entry->offset, entry->length);
    objects.unpin();
    return true;
  });
}

BENCHMARK(Memcpy);
BENCHMARK(CopyOut);
BENCHMARK(BareLookup);
BENCHMARK(BareGet);

}  // namespace
}  // namespace mc

BENCHMARK_MAIN();
