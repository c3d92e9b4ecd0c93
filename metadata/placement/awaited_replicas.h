// SPDX-License-Identifier: Apache-2.0
//
// Keys whose puts end when several hosts hold the object (MC_VISIBLE_REPLICATED). The agent asks about a key after
// the directory has accepted the put.
//
//     begin ──► waits ──a holder has published the object, or a tick finds the holders or no object──► done
//                  └──the deadline of the request──► done: too few
//
// Threads: a single thread. Pure; time is an argument.
// Owns: at most kMaxKeys awaited keys.
// Trusts: the caller has checked the number of keys of a request.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "metadata/directory/directory.h"

namespace mc::metadata {

class AwaitedReplicas {
 public:
  static constexpr std::size_t kMaxKeys = 65'536;
  using Done = std::function<void(const std::vector<AwaitedState>&)>;

  explicit AwaitedReplicas(const Directory& directory) : directory_(directory) {}

  [[nodiscard]] bool has_room(std::size_t keys) const { return by_key_.size() + keys <= kMaxKeys; }
  // settled: a key without a holder is gone. Else agents have not reported all objects yet. REQUIRES:
  // has_room().
  void begin(const std::vector<AwaitedKey>& keys, bool settled, std::uint64_t deadline_ns,
             Done done);
  // The directory has applied these changes.
  void published(std::span<const PublishItem> items, bool settled);
  // Looks at some of the keys, for removed objects, and ends requests whose deadline has passed.
  void tick(bool settled, std::uint64_t now_ns);

 private:
  struct Request;
  using Requests = std::list<Request>;
  struct Awaited {
    Requests::iterator request;
    std::uint32_t number = 0;  // of the key in its request
    std::uint8_t replicas = 1;
  };
  using ByKey = std::multimap<KeyHash, Awaited>;
  struct Request {
    std::vector<AwaitedState> states;
    std::vector<ByKey::iterator> places;  // of the keys that are not decided; end(): decided
    std::uint64_t deadline_ns = 0;
    std::size_t open = 0;
    Done done;
  };

  // Ends the requests that the key decides. Returns the number of awaited keys that were compared.
  std::size_t look(KeyHash key, bool settled);
  void end(Requests::iterator request);

  const Directory& directory_;
  Requests requests_;
  ByKey by_key_;
  KeyHash next_look_;
};

}  // namespace mc::metadata
