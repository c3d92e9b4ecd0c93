// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/batch.h"

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

}  // namespace mc::transfer
