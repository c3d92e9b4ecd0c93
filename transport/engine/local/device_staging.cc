// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/local/device_staging.h"

namespace mc::transfer {

Result<std::unique_ptr<StagedRegion>> DeviceStaging::stand_in(const mc_transfer_range& range) {
  // A program may load its device driver after the engine was opened, so look for the driver again.
  const device::Driver* const driver = device::Driver::find();
  if (driver == nullptr) return nullptr;
  const auto device = device::device_of(*driver, range.address, range.size);
  if (!device) return fail(device.error());
  if (*device == device::kHost) return nullptr;
  return StagedRegion::make({driver, *device, static_cast<std::byte*>(range.address), range.size},
                            &moved_bytes_);
}

Status DeviceStaging::stage(std::span<Request> requests) {
  if (device::Driver::found() == nullptr) return {};
  for (Request& request : requests) {
    if (const Status staged = stage(request); !staged.ok()) {
      release(requests);
      return staged;
    }
  }
  return {};
}

void DeviceStaging::release(std::span<Request> requests) {
  for (Request& request : requests) {
    if (!request.staged) continue;
    staged_bytes_.fetch_sub(request.size_bytes, std::memory_order_relaxed);
    request.staged.reset();
  }
}

Status DeviceStaging::stage(Request& request) {
  const device::Driver* const driver = device::Driver::found();
  const auto device = device::device_of(*driver, request.local, request.size_bytes);
  if (!device) return device.error();
  if (*device == device::kHost) return {};
  if (staged_bytes_.fetch_add(request.size_bytes, std::memory_order_relaxed) + request.size_bytes >
      MC_MAX_TRANSFER_DEVICE_BYTES) {
    staged_bytes_.fetch_sub(request.size_bytes, std::memory_order_relaxed);
    return {MC_BUSY,
            "1 GiB of device memory is in flight (MC_MAX_TRANSFER_DEVICE_BYTES); submit less at "
            "once"};
  }
  auto made =
      StagedRequest::make({driver, *device, request.local, request.size_bytes}, request.write);
  if (!made) {
    staged_bytes_.fetch_sub(request.size_bytes, std::memory_order_relaxed);
    return made.error();
  }
  request.staged = std::move(*made);
  request.local = request.staged->data();
  return {};
}

Status DeviceStaging::unstage(Request& request) {
  Status status;
  if (request.status == MC_OK) {
    if (!request.write) status = request.staged->to_device();
    if (status.ok()) moved_bytes_ += request.size_bytes;
  }
  staged_bytes_.fetch_sub(request.size_bytes, std::memory_order_relaxed);
  request.local = nullptr;
  request.staged.reset();
  return status;
}

}  // namespace mc::transfer
