// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/etcd/etcd_store.h"

#include "metadata/store/checks.h"
#include "metadata/store/etcd/etcd_answer.h"
#include "metadata/store/etcd/etcd_request.h"
#include "metadata/store/retry.h"

namespace mc::metadata {
namespace {

// Lease ids are etcd's int64. etcd never grants a larger id.
constexpr LeaseId kMaxLeaseId = ~LeaseId{0} >> 1;

}  // namespace

EtcdStore::EtcdStore(const StoreUrl& url, std::string_view cluster_id)
    : name_("etcd " + text_of(url.endpoints)), prefix_(cluster_prefix(cluster_id)), gateway_(url) {}

template <typename T, typename Decode>
Result<T> EtcdStore::ask(Repeatable repeatable, const char* path, const std::string& body,
                         std::uint64_t deadline_ns, Decode decode) {
  const auto attempt = [&](std::uint64_t until_ns) -> Result<T> {
    const auto answer = gateway_.call(path, body, until_ns);
    if (!answer) return fail(answer.error());
    return decode(*answer);
  };
  return until_deadline<T>(name_, repeatable == Repeatable::kYes, deadline_ns, attempt);
}

Result<Entry> EtcdStore::get(std::string_view key, std::uint64_t deadline_ns) {
  if (Status status = check_key(key); !status.ok()) return fail(status);
  auto listing = ask<std::vector<Entry>>(
      Repeatable::kYes, "/v3/kv/range", etcd_get(full(key)), deadline_ns,
      [&](const HttpAnswer& answer) { return decode_etcd_range(answer, prefix_); });
  if (!listing) return fail(listing.error());
  if (listing->empty()) return fail(MC_NOT_FOUND, no_such_key(key));
  return std::move(listing->front());
}

Result<Revision> EtcdStore::put(std::string_view key, std::string_view value, LeaseId lease,
                                std::uint64_t deadline_ns) {
  if (Status status = check_write(key, value); !status.ok()) return fail(status);
  if (lease > kMaxLeaseId) return fail(MC_NOT_FOUND, no_such_lease(lease));
  auto revision = ask<Revision>(Repeatable::kNo, "/v3/kv/put", etcd_put(full(key), value, lease),
                                deadline_ns, decode_etcd_put);
  if (!revision && revision.error().code() == MC_NOT_FOUND) {
    return fail(MC_NOT_FOUND, no_such_lease(lease));
  }
  return revision;
}

Result<Swap> EtcdStore::compare_and_set(std::string_view key, Revision expected,
                                        std::string_view value, LeaseId lease,
                                        std::uint64_t deadline_ns) {
  if (Status status = check_write(key, value); !status.ok()) return fail(status);
  if (lease > kMaxLeaseId) return fail(MC_NOT_FOUND, no_such_lease(lease));
  auto swap = ask<Swap>(Repeatable::kNo, "/v3/kv/txn",
                        etcd_compare_and_put(full(key), expected, value, lease), deadline_ns,
                        decode_etcd_swap);
  if (!swap && swap.error().code() == MC_NOT_FOUND) return fail(MC_NOT_FOUND, no_such_lease(lease));
  return swap;
}

Result<bool> EtcdStore::write_guarded(const Guard& guard, std::string_view key,
                                      const std::optional<std::string>& value,
                                      std::uint64_t deadline_ns) {
  if (Status status = check_guarded(guard, key, value); !status.ok()) return fail(status);
  return ask<bool>(Repeatable::kYes, "/v3/kv/txn",
                   etcd_write_guarded(full(guard.key), guard.revision, full(key), value),
                   deadline_ns, decode_etcd_succeeded);
}

Status EtcdStore::remove(std::string_view key, std::uint64_t deadline_ns) {
  if (Status status = check_key(key); !status.ok()) return status;
  const auto deleted = ask<bool>(Repeatable::kNo, "/v3/kv/deleterange", etcd_delete(full(key)),
                                 deadline_ns, decode_etcd_deleted);
  if (!deleted) return deleted.error();
  return *deleted ? Status() : Status(MC_NOT_FOUND, no_such_key(key));
}

Result<std::vector<Entry>> EtcdStore::list(std::string_view prefix, std::uint64_t deadline_ns) {
  if (Status status = check_prefix(prefix); !status.ok()) return fail(status);
  auto listing = ask<std::vector<Entry>>(
      Repeatable::kYes, "/v3/kv/range", etcd_list(full(prefix), kMaxListEntries), deadline_ns,
      [&](const HttpAnswer& answer) { return decode_etcd_range(answer, prefix_); });
  if (!listing && listing.error().code() == MC_TOO_LARGE) return fail(list_too_large(prefix));
  return listing;
}

Result<Lease> EtcdStore::grant_lease(std::uint32_t ttl_ms, std::uint64_t deadline_ns) {
  if (Status status = check_ttl(ttl_ms); !status.ok()) return fail(status);
  // Repeatable, because a lease with a lost id ends by itself.
  return ask<Lease>(Repeatable::kYes, "/v3/lease/grant", etcd_grant((ttl_ms + 999) / 1000),
                    deadline_ns, decode_etcd_grant);
}

Status EtcdStore::keep_alive(LeaseId lease, std::uint64_t deadline_ns) {
  if (lease > kMaxLeaseId) return {MC_NOT_FOUND, no_such_lease(lease)};
  const auto alive = ask<bool>(Repeatable::kYes, "/v3/lease/keepalive", etcd_lease(lease),
                               deadline_ns, decode_etcd_keep_alive);
  if (!alive) return alive.error();
  return *alive ? Status() : Status(MC_NOT_FOUND, no_such_lease(lease));
}

Status EtcdStore::revoke(LeaseId lease, std::uint64_t deadline_ns) {
  if (lease > kMaxLeaseId) return {MC_NOT_FOUND, no_such_lease(lease)};
  const auto done = ask<bool>(Repeatable::kNo, "/v3/lease/revoke", etcd_lease(lease), deadline_ns,
                              [](const HttpAnswer& answer) -> Result<bool> {
                                Status status = decode_etcd_ok(answer);
                                if (!status.ok()) return fail(std::move(status));
                                return true;
                              });
  if (done) return {};
  if (done.error().code() == MC_NOT_FOUND) return {MC_NOT_FOUND, no_such_lease(lease)};
  return done.error();
}

}  // namespace mc::metadata
