// SPDX-License-Identifier: Apache-2.0
//
// The record of the clients' operations in one run, and the rules that the record must
//   obey. Each put's bytes name the put. A read thus shows which put wrote the bytes.
// Threads: The simulator's.
// Owns: The records. hash() identifies the whole history.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace mc::sim {

class History {
 public:
  using Number = std::uint32_t;
  enum class Ending : std::uint8_t {
    kOpen,     // or the outcome is unknown
    kStored,   // acknowledged
    kExisted,  // acknowledged; the key existed, so the bytes were not needed
    kRefused,
  };
  struct Put {
    unsigned key = 0;
    std::uint64_t size = 0;
    bool upsert = false, announced = false;
    std::uint64_t begin_ns = 0, end_ns = UINT64_MAX;
    std::int64_t clock_ahead_ns = 0;  // the wall clock of the put's host, at the end of the put
    Ending ending = Ending::kOpen;
    std::uint64_t memory = 0;  // times that the store has lost its content
    std::int64_t time_by_clock() const {
      return static_cast<std::int64_t>(end_ns) + clock_ahead_ns;
    }
  };
  struct Remove {
    unsigned key = 0;
    std::uint64_t begin_ns = 0, end_ns = UINT64_MAX;
    bool over = false;  // the removal removes no more objects from now on
    bool sure = false;  // an object was removed, and all holders have confirmed
    std::uint64_t memory = 0;
  };

  explicit History(std::uint64_t seed) : seed_(seed) {}

  // ---- What happens
  Number begin_put(unsigned key, std::uint64_t size, bool upsert, std::uint64_t now_ns);
  void end_put(Number put, Ending ending, bool announced, std::uint64_t memory,
               std::int64_t clock_ahead_ns, std::uint64_t now_ns);
  std::size_t begin_remove(unsigned key, std::uint64_t memory, std::uint64_t now_ns);
  void end_remove(std::size_t remove, bool over, bool sure, std::uint64_t now_ns);
  // A client read these bytes. Returns the put that wrote the bytes.
  struct Reader {
    unsigned id = 0;
    std::uint64_t node = 0;
  };
  std::optional<Number> read(const Reader& reader, unsigned key, std::span<const std::byte> bytes,
                             std::uint64_t begin_ns, std::uint64_t now_ns);
  void note(std::uint64_t what) { hash_ = (hash_ ^ what) * 0x100000001b3u; }
  // Links or processes fail in this period, or clocks are disturbed. nodes: those whose own links or
  // processes fail; none: all nodes.
  void disturbed(std::uint64_t from_ns, std::uint64_t to_ns, std::vector<std::uint64_t> nodes = {});
  // No disturbance touches this period.
  bool calm(std::uint64_t from_ns, std::uint64_t to_ns) const;
  // No disturbance of this node touches this period.
  bool calm_at(std::uint64_t node, std::uint64_t from_ns, std::uint64_t to_ns) const;
  // A node's memory is lost, with all objects and puts under way.
  void lost(unsigned key, std::uint64_t now_ns);
  void evicted() { evicted_ = true; }

  // ---- At the end: what every node reads when all is well again; none: a miss
  void final_read(unsigned key, std::uint64_t node, std::optional<Number> put);
  // memory: times that the store has lost its content, at the end.
  void finish(unsigned keys, std::uint64_t memory);

  void fail(std::string what);
  const std::vector<std::string>& failures() const { return failures_; }
  std::uint64_t hash() const { return hash_; }
  std::vector<std::byte> bytes_of(Number put) const;
  const Put& put(Number number) const { return puts_[number]; }
  std::size_t put_count() const { return puts_.size(); }
  std::uint64_t reads = 0, misses = 0, puts_stored = 0, removes_sure = 0;
  std::uint64_t relocations = 0;  // that a master has begun
  std::uint64_t demoted = 0, promoted = 0;

 private:
  std::string name(Number put) const;
  void check_read(const Reader& reader, Number put, std::uint64_t begin_ns, std::uint64_t now_ns);
  void check_stale(const Reader& reader, Number put, std::uint64_t begin_ns, std::uint64_t now_ns);

  const std::uint64_t seed_;
  std::uint64_t hash_ = 0xcbf29ce484222325u;
  bool evicted_ = false;
  std::vector<Put> puts_;
  std::vector<Remove> removes_;
  struct Span {
    std::uint64_t from_ns, to_ns;
    std::vector<std::uint64_t> nodes;  // none: all
    bool touches(std::uint64_t from, std::uint64_t to) const {
      return from_ns <= to && from <= to_ns;
    }
  };
  std::vector<Span> disturbances_;
  std::map<unsigned, std::uint64_t> lost_;                     // key: last time
  std::map<std::pair<unsigned, unsigned>, Number> last_read_;  // reader, key
  std::map<unsigned, std::map<std::uint64_t, std::optional<Number>>> final_;
  std::vector<std::string> failures_;
};

}  // namespace mc::sim
