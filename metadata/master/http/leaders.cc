// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/http/leaders.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "libmc/base/clock.h"
#include "libmc/base/mutex.h"
#include "metadata/wire/wire_limits.h"

namespace mc::metadata {

namespace {

constexpr std::uint64_t kPatienceNs = 5'000 * kMs;
// The hosts walk over their indexes. Shorter than the patience of the HTTP server.
constexpr std::uint64_t kRemovalNs = 25'000 * kMs;
constexpr std::uint32_t kRecoveryWaitMs = 1000;
constexpr std::string_view kHex = "0123456789abcdef";

// The answers of several partitions to one question.
struct Gathered {
  Gathered(std::size_t keys, std::size_t parts,
           Leaders::Done<std::vector<Leaders::KeyPlace>> when_done)
      : done(std::move(when_done)), places(keys), missing(parts) {}

  const Leaders::Done<std::vector<Leaders::KeyPlace>> done;
  Mutex mutex;
  std::vector<Leaders::KeyPlace> places MC_GUARDED_BY(mutex);
  std::size_t missing MC_GUARDED_BY(mutex);
  Status failure MC_GUARDED_BY(mutex);

  void take(const std::vector<std::size_t>& indices, const Result<LocateAnswer>& answer) {
    bool last = false;
    {
      const MutexLock lock(mutex);
      if (!answer) failure = answer.error();
      for (std::size_t i = 0; answer && i < indices.size(); ++i) {
        const Located& key = answer->keys[i];
        const auto holders = answer->holders_of(key);
        // An object that lacks parts cannot be read.
        const Lookup state =
            key.state == Lookup::kFound && !key.whole() ? Lookup::kMiss : key.state;
        places[indices[i]] = {state, key.bytes, {holders.begin(), holders.end()}};
      }
      last = --missing == 0;
    }
    if (last) finish();
  }

  void finish() {
    Status failed;
    std::vector<Leaders::KeyPlace> found;
    {
      const MutexLock lock(mutex);
      failed = failure;
      found = std::move(places);
    }
    if (failed.ok()) {
      done(std::move(found));
    } else {
      done(fail(failed));
    }
  }
};

// The sum of the partitions' answers; a failure of any is the result.
template <typename Answer>
struct Summed {
  Summed(std::size_t parts, Leaders::Done<Answer> when_done)
      : done(std::move(when_done)), missing(parts) {}

  const Leaders::Done<Answer> done;
  Mutex mutex;
  std::optional<Answer> sum MC_GUARDED_BY(mutex);
  std::size_t missing MC_GUARDED_BY(mutex);
  Status failure MC_GUARDED_BY(mutex);

  void take(const Result<Answer>& answer) {
    Result<Answer> result = fail(MC_INTERNAL);
    {
      const MutexLock lock(mutex);
      if (!answer) {
        failure = answer.error();
      } else if (sum) {
        sum->add(*answer);
      } else {
        sum = *answer;
      }
      if (--missing != 0) return;
      result = failure.ok() ? Result<Answer>(*sum) : fail(failure);
    }
    done(std::move(result));
  }
};

}  // namespace

std::string ListCursor::text() const {
  std::string out = std::to_string(partition) + "-";
  for (const char c : after) {
    const auto byte = static_cast<unsigned char>(c);
    out += {kHex[byte >> 4], kHex[byte & 15u]};
  }
  return out;
}

std::optional<ListCursor> ListCursor::parse(std::string_view text) {
  ListCursor cursor;
  const char* const end = text.data() + text.size();
  const auto [dash, error] = std::from_chars(text.data(), end, cursor.partition);
  if (error != std::errc() || dash == end || *dash != '-') return std::nullopt;
  const std::string_view digits(dash + 1, static_cast<std::size_t>(end - dash - 1));
  if (digits.size() % 2 != 0) return std::nullopt;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const std::size_t high = kHex.find(digits[i]);
    const std::size_t low = kHex.find(digits[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    cursor.after.push_back(static_cast<char>(high << 4 | low));
  }
  return cursor;
}

Leaders::Leaders(const MasterOptions& options, std::string address, auth::ClusterKey key)
    : options_(options),
      address_(std::move(address)),
      key_(std::move(key)),
      hasher_(key_hash_secret(options.cluster_id, key_.secret())),
      clients_(options.partitions) {}

Result<MasterClient*> Leaders::client(std::uint32_t partition) {
  if (!options_.tls_cert.empty() && options_.master_tls_ca.empty()) {
    return fail(
        MC_INVALID_ARGUMENT,
        "pages about keys need master_tls_ca beside tls_cert: set it to the authority of the "
        "masters' certificates");
  }
  if (clients_[partition] == nullptr) {
    MasterClientOptions to;
    to.masters = {address_};
    to.cluster_id = options_.cluster_id;
    to.key = key_;
    to.tls.ca = options_.master_tls_ca;
    to.partition = partition;
    to.partitions = static_cast<std::uint32_t>(options_.partitions);
    auto made = MasterClient::create(to, nullptr);
    if (!made) return fail(made.error());
    clients_[partition] = std::move(*made);
  }
  return clients_[partition].get();
}

void Leaders::locate(const std::string& name_space, const std::vector<std::string>& keys,
                     Done<std::vector<KeyPlace>> done) {
  struct Part {
    std::uint32_t partition = 0;
    wire::Locate request;
    std::vector<std::size_t> indices;
  };
  std::vector<Part> parts;
  std::vector<std::size_t> open(clients_.size(), SIZE_MAX);  // by partition: the part with room
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const KeyHash hash = hasher_.name(name_space, keys[i]);
    const std::uint32_t partition = partition_of(hash, static_cast<std::uint32_t>(clients_.size()));
    std::size_t& at = open[partition];
    if (at == SIZE_MAX || parts[at].indices.size() == wire::kMaxItems) {
      at = parts.size();
      parts.push_back({partition, {}, {}});
      parts.back().request.wait_ms = kRecoveryWaitMs;
    }
    parts[at].request.keys.push_back(hash);
    parts[at].indices.push_back(i);
  }
  if (parts.empty()) return done(std::vector<KeyPlace>());
  const auto gathered = std::make_shared<Gathered>(keys.size(), parts.size(), std::move(done));
  for (Part& part : parts) {
    auto take = [gathered, indices = std::move(part.indices)](const Result<LocateAnswer>& answer) {
      gathered->take(indices, answer);
    };
    const auto asked = client(part.partition);
    if (asked) {
      (*asked)->locate(part.request, now_ns() + kPatienceNs, std::move(take));
    } else {
      take(fail(asked.error()));
    }
  }
}

void Leaders::list(const std::string& name_space, const ListCursor& cursor, std::uint32_t limit,
                   Done<ListPage> done) {
  const auto partitions = static_cast<std::uint32_t>(clients_.size());
  if (cursor.partition >= partitions) return done(ListPage());
  const auto asked = client(cursor.partition);
  if (!asked) return done(fail(asked.error()));
  const wire::Match match{name_space, "", wire::Match::Kind::kPrefix, cursor.after, limit};
  (*asked)->list(match, now_ns() + kPatienceNs,
                 [done = std::move(done), cursor, partitions](Result<wire::ListAnswer> answer) {
                   if (!answer) return done(fail(answer.error()));
                   if (answer->unconfirmed != 0) {
                     return done(fail(MC_TIMEOUT, std::to_string(answer->unconfirmed) +
                                                      " hosts did not list their keys in time"));
                   }
                   ListPage page;
                   for (wire::ListedKey& one : answer->keys) {
                     page.keys.push_back(std::move(one.key));
                   }
                   if (answer->more && !page.keys.empty()) {
                     page.next = {cursor.partition, page.keys.back()};
                   } else if (cursor.partition + 1 < partitions) {
                     page.next = {cursor.partition + 1, {}};
                   }
                   done(std::move(page));
                 });
}

template <typename Answer, typename Ask>
void Leaders::ask_all(Done<Answer> done, Ask ask) {
  const auto summed = std::make_shared<Summed<Answer>>(clients_.size(), std::move(done));
  const auto take = [summed](const Result<Answer>& answer) { summed->take(answer); };
  for (std::uint32_t partition = 0; partition < clients_.size(); ++partition) {
    const auto asked = client(partition);
    if (asked) {
      ask(**asked, take);
    } else {
      take(fail(asked.error()));
    }
  }
}

void Leaders::remove_all(const std::string& name_space, Done<wire::RemoveMatchingAnswer> done) {
  const wire::Match match{name_space, "", wire::Match::Kind::kPrefix, "", 0};
  ask_all(std::move(done), [&](MasterClient& leader, const auto& take) {
    leader.remove_matching(match, now_ns() + kRemovalNs, take);
  });
}

void Leaders::drain(const wire::Drain& request, Done<wire::DrainAnswer> done) {
  ask_all(std::move(done), [&](MasterClient& leader, const auto& take) {
    leader.drain(request, now_ns() + kPatienceNs, take);
  });
}

}  // namespace mc::metadata
