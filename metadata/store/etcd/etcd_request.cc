// SPDX-License-Identifier: Apache-2.0
#include "metadata/store/etcd/etcd_request.h"

#include <json/value.h>
#include <json/writer.h>

#include "metadata/store/etcd/base64.h"

namespace mc::metadata {
namespace {

std::string written(const Json::Value& value) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  return Json::writeString(builder, value);
}

// The first key after all keys with this prefix. REQUIRES: prefix does not end with a 0xff byte.
std::string end_of(std::string_view prefix) {
  std::string end(prefix);
  ++end.back();
  return end;
}

Json::Value put_of(std::string_view key, std::string_view value, LeaseId lease) {
  Json::Value put;
  put["key"] = base64(key);
  put["value"] = base64(value);
  if (lease != kNoLease) put["lease"] = std::to_string(lease);
  return put;
}

Json::Value has_revision(std::string_view key, Revision revision) {
  Json::Value compare;
  compare["key"] = base64(key);
  compare["target"] = "MOD";
  compare["result"] = "EQUAL";
  compare["mod_revision"] = std::to_string(revision);
  return compare;
}

}  // namespace

std::string etcd_authenticate(std::string_view user, std::string_view password) {
  Json::Value request;
  request["name"] = std::string(user);
  request["password"] = std::string(password);
  return written(request);
}

std::string etcd_get(std::string_view key) {
  Json::Value request;
  request["key"] = base64(key);
  return written(request);
}

std::string etcd_list(std::string_view prefix, std::size_t max_entries) {
  Json::Value request;
  request["key"] = base64(prefix);
  request["range_end"] = base64(end_of(prefix));
  request["limit"] = std::to_string(max_entries);
  return written(request);
}

std::string etcd_put(std::string_view key, std::string_view value, LeaseId lease) {
  return written(put_of(key, value, lease));
}

std::string etcd_compare_and_put(std::string_view key, Revision expected, std::string_view value,
                                 LeaseId lease) {
  Json::Value operation;
  operation["request_put"] = put_of(key, value, lease);
  Json::Value look;
  look["request_range"]["key"] = base64(key);
  look["request_range"]["keys_only"] = true;
  Json::Value txn;
  txn["compare"].append(has_revision(key, expected));
  txn["success"].append(std::move(operation));
  txn["failure"].append(std::move(look));
  return written(txn);
}

std::string etcd_write_guarded(std::string_view guard, Revision revision, std::string_view key,
                               const std::optional<std::string>& value) {
  Json::Value operation;
  if (value) {
    operation["request_put"] = put_of(key, *value, kNoLease);
  } else {
    operation["request_delete_range"]["key"] = base64(key);
  }
  Json::Value txn;
  txn["compare"].append(has_revision(guard, revision));
  txn["success"].append(std::move(operation));
  return written(txn);
}

std::string etcd_delete(std::string_view key) { return etcd_get(key); }

std::string etcd_grant(std::uint64_t ttl_s) {
  Json::Value request;
  request["TTL"] = std::to_string(ttl_s);
  return written(request);
}

std::string etcd_lease(LeaseId lease) {
  Json::Value request;
  request["ID"] = std::to_string(lease);
  return written(request);
}

}  // namespace mc::metadata
