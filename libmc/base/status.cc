// SPDX-License-Identifier: Apache-2.0
#include "mc/mc.h"

namespace {

struct Row {
  mc_status status;
  const char* name;
  mc_retry retry;
  const char* text;
};

constexpr Row kRows[] = {
    {MC_OK, "MC_OK", MC_RETRY_NEVER, "success"},
    {MC_INVALID_ARGUMENT, "MC_INVALID_ARGUMENT", MC_RETRY_NEVER,
     "an argument is null, empty, oversized or contradicts another"},
    {MC_TOO_LARGE, "MC_TOO_LARGE", MC_RETRY_NEVER,
     "larger than the pool, the quota or a limit; it will never fit"},
    {MC_BUFFER_TOO_SMALL, "MC_BUFFER_TOO_SMALL", MC_RETRY_NEVER,
     "the object is longer than the buffer; its length was stored"},
    {MC_TIMEOUT, "MC_TIMEOUT", MC_RETRY_LATER,
     "the deadline passed; the request may still take effect"},
    {MC_CANCELLED, "MC_CANCELLED", MC_RETRY_LATER, "the request was cancelled"},
    {MC_BUSY, "MC_BUSY", MC_RETRY_LATER, "too many requests, views or channels at once"},
    {MC_NO_SPACE, "MC_NO_SPACE", MC_RETRY_LATER,
     "no room by the deadline: everything left is pinned, reserved or being read"},
    {MC_QUOTA_EXCEEDED, "MC_QUOTA_EXCEEDED", MC_RETRY_LATER,
     "the session holds as much as its quota allows; commit or abandon something first"},
    {MC_UNSUPPORTED, "MC_UNSUPPORTED", MC_RETRY_NEVER,
     "this agent, namespace or build does not do that"},
    {MC_NOT_FOUND, "MC_NOT_FOUND", MC_RETRY_NEVER, "no object has this key"},
    {MC_CORRUPT, "MC_CORRUPT", MC_RETRY_NEVER,
     "the bytes do not match their checksum and were not returned"},
    {MC_GROUP_ABORTED, "MC_GROUP_ABORTED", MC_RETRY_LATER,
     "a member of the group failed, so none was stored"},
    {MC_HOLDER_AWAY, "MC_HOLDER_AWAY", MC_RETRY_LATER,
     "a host that holds the object, or may hold it, cannot be reached; mcctl nodes shows which hosts are away"},
    {MC_DISK_AWAY, "MC_DISK_AWAY", MC_RETRY_LATER,
     "a disk of this host that holds the object, or may hold it, cannot be read; mcctl status shows the disks"},
    {MC_FORKED, "MC_FORKED", MC_RETRY_REOPEN,
     "this client was opened before fork(); open one in the child"},
    {MC_CLOSED, "MC_CLOSED", MC_RETRY_REOPEN, "the client was closed"},
    {MC_SESSION_LOST, "MC_SESSION_LOST", MC_RETRY_REOPEN, "the agent ended this session"},
    {MC_PERMISSION_DENIED, "MC_PERMISSION_DENIED", MC_RETRY_NEVER,
     "this user may not use that socket or namespace"},
    {MC_VERSION_MISMATCH, "MC_VERSION_MISMATCH", MC_RETRY_NEVER,
     "libmc and the agent do not share a layout version; upgrade the older one"},
    {MC_NO_SUCH_NAMESPACE, "MC_NO_SUCH_NAMESPACE", MC_RETRY_NEVER,
     "the agent has no namespace of that name"},
    {MC_DEVICE_FAILED, "MC_DEVICE_FAILED", MC_RETRY_NEVER,
     "the CUDA driver refused a copy to or from a device; was the memory freed, or does the device "
     "have to be reset?"},
    {MC_WRONG_KEY, "MC_WRONG_KEY", MC_RETRY_NEVER,
     "the other side has another cluster key, or just one side has a key; give both the same key file"},
    {MC_AGENT_UNAVAILABLE, "MC_AGENT_UNAVAILABLE", MC_RETRY_LATER,
     "no agent answers at the socket"},
    {MC_NO_MEMORY, "MC_NO_MEMORY", MC_RETRY_LATER,
     "this process or host is out of memory, descriptors or threads"},
    {MC_INTERNAL, "MC_INTERNAL", MC_RETRY_NEVER, "a broken invariant; please report it"},
    {MC_NO_MASTER, "MC_NO_MASTER", MC_RETRY_LATER,
     "no master tells where the object is; mcctl cluster status shows why"},
    {MC_NOT_ADVERTISED, "MC_NOT_ADVERTISED", MC_RETRY_NEVER,
     "other hosts cannot dial the address of this host's agent; set its option listen"},
};

const Row* find_row(mc_status status) {
  for (const Row& row : kRows) {
    if (row.status == status) return &row;
  }
  return nullptr;
}

}  // namespace

extern "C" {

const char* mc_status_name(mc_status status) noexcept {
  const Row* row = find_row(status);
  return row != nullptr ? row->name : "MC_UNKNOWN";
}

const char* mc_status_text(mc_status status) noexcept {
  const Row* row = find_row(status);
  return row != nullptr ? row->text : "a status of another version of the library";
}

mc_retry mc_status_retry(mc_status status) noexcept {
  const Row* row = find_row(status);
  return row != nullptr ? row->retry : MC_RETRY_NEVER;
}

const char* mc_version(void) noexcept { return MC_VERSION; }

}  // extern "C"
