// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/batch.h"

#include <algorithm>

#include "libmc/base/checksum.h"
#include "transport/engine/local/local_memory.h"
#include "transport/engine/wire/notification.h"

namespace mc::transfer {

Result<std::unique_ptr<Batch>> make_batch(std::span<const mc_transfer_request> requests,
                                          const SubmitOptions& options) {
  if ((requests.empty() && options.notify == 0) || requests.size() > MC_MAX_TRANSFER_REQUESTS) {
    return fail(MC_INVALID_ARGUMENT,
                "a batch has 1 to 1048576 requests (MC_MAX_TRANSFER_REQUESTS)");
  }
  if (options.note_name.size() + options.note_message.size() > MC_MAX_TRANSFER_NOTE_BYTES) {
    return fail(MC_INVALID_ARGUMENT,
                "a notification has at most 4088 bytes (MC_MAX_TRANSFER_NOTE_BYTES)");
  }
  auto batch = std::make_unique<Batch>();
  batch->notifies = options.notify != 0;
  batch->priority = options.priority;
  batch->requests.reserve(requests.size() + 1);
  for (const mc_transfer_request& request : requests) {
    Request row;
    row.write = request.verb == MC_TRANSFER_PUT;
    row.local = static_cast<std::byte*>(request.local);
    row.segment = request.segment;
    row.remote = request.remote;
    row.size_bytes = request.size;
    const bool known = request.verb == MC_TRANSFER_PUT || request.verb == MC_TRANSFER_GET;
    if (!known || row.local == nullptr || row.size_bytes == 0 ||
        row.size_bytes > MC_MAX_OBJECT_BYTES || row.size_bytes > ~std::uint64_t{0} - row.remote) {
      return fail(MC_INVALID_ARGUMENT,
                  "a request has a verb, local memory, and 1 B to 1 TiB at a remote address");
    }
    batch->requests.push_back(std::move(row));
  }
  if (batch->notifies) {
    batch->note = encode_notification(options.note_name, options.note_message);
    Request row;
    row.segment = options.notify;
    batch->requests.push_back(std::move(row));
  }
  batch->open = batch->requests.size();
  return batch;
}

void add_checks(Batch& batch) {
  const std::size_t given = batch.given();
  for (std::size_t i = 0; i < given; ++i) {
    const Request& request = batch.requests[i];
    // A write from an address without memory fails later, without questions.
    if (!request.write || !is_memory(request.local, request.size_bytes, false)) continue;
    for (std::uint64_t at = 0; at < batch.requests[i].size_bytes; at += kMaxCheckBytes) {
      const Request& written = batch.requests[i];
      const std::uint64_t bytes = std::min(kMaxCheckBytes, written.size_bytes - at);
      batch.checks.push_back({static_cast<std::uint32_t>(i),
                              {.address = written.remote + at,
                               .size_bytes = bytes,
                               .checksum = checksum(0, written.local + at, bytes)}});
      Request row;
      row.segment = written.segment;
      batch.requests.push_back(std::move(row));
    }
  }
  batch.open = batch.requests.size();
}

Batch::Range Batch::requests_of(Stage which) const {
  const std::size_t first_check = requests.size() - checks.size();
  switch (which) {
    case Stage::kData:
      return {0, given()};
    case Stage::kChecks:
      return {first_check, requests.size()};
    case Stage::kNote:
      break;
  }
  return {given(), first_check};
}

}  // namespace mc::transfer
