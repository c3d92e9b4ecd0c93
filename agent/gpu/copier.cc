// SPDX-License-Identifier: Apache-2.0
#include "agent/gpu/copier.h"

#include <algorithm>

namespace mc::gpu {

using device::Calls;

namespace {

constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY
constexpr int kHostType = 1;    // CU_MEMORYTYPE_HOST
constexpr int kDeviceType = 2;  // CU_MEMORYTYPE_DEVICE
constexpr std::uint64_t kLinearBytes = 32 * 1024;

// Two rows of equal size, which a copy engine copies.
device::Copy2d two_rows(const Copy& copy) {
  device::Copy2d rows{};
  rows.from_type = kHostType;
  rows.from_host = copy.host;
  rows.to_type = kDeviceType;
  rows.to_device = copy.device;
  rows.rows = 2;
  rows.row_bytes = copy.bytes / 2;
  rows.from_pitch = rows.row_bytes;
  rows.to_pitch = rows.row_bytes;
  return rows;
}

}  // namespace

Result<std::unique_ptr<Copier>> Copier::create(const device::Driver& driver, int device) {
  const device::Current current(driver, device);
  if (!current.status().ok()) return fail(current.status());
  std::unique_ptr<Copier> made(new Copier(driver, device));
  for (Lane& lane : made->lanes_) {
    const Status status = driver.call<&Calls::stream_create>(&lane.stream, device::kNonBlocking);
    if (!status.ok()) return fail(status);
  }
  return made;
}

Copier::~Copier() {
  const device::Current current(driver_, device_);
  if (!current.status().ok()) return;
  const Calls& calls = driver_.calls();
  for (Lane& lane : lanes_) {
    if (lane.stream == nullptr) continue;
    static_cast<void>(calls.stream_synchronize(lane.stream));
    for (const Mark& mark : lane.marks) idle_events_.push_back(mark.event);
    static_cast<void>(calls.stream_destroy(lane.stream));
  }
  for (void* const event : idle_events_) static_cast<void>(calls.event_destroy(event));
}

Status Copier::begin(const Copy& copy, Lane& lane) {
  lane.used = true;
  if (!copy.to_device) {
    return driver_.call<&Calls::copy_to_host_async>(static_cast<void*>(copy.host), copy.device,
                                                    copy.bytes, lane.stream);
  }
  if (copy.bytes >= kLinearBytes || copy.bytes == 1) {
    return driver_.call<&Calls::copy_to_device_async>(
        copy.device, static_cast<const void*>(copy.host), copy.bytes, lane.stream);
  }
  Copy even = copy;
  even.bytes = copy.bytes / 2 * 2;
  const device::Copy2d rows = two_rows(even);
  Status status = driver_.call<&Calls::copy_2d_async>(&rows, lane.stream);
  if (status.ok() && even.bytes < copy.bytes) {
    // The last two bytes, of which the first was copied already.
    const std::uint64_t at = copy.bytes - 2;
    const device::Copy2d rest = two_rows({true, copy.device + at, copy.host + at, 2});
    status = driver_.call<&Calls::copy_2d_async>(&rest, lane.stream);
  }
  return status;
}

Result<void*> Copier::take_event() {
  void* event = nullptr;
  if (!idle_events_.empty()) {
    event = idle_events_.back();
    idle_events_.pop_back();
    return event;
  }
  const Status status = driver_.call<&Calls::event_create>(&event, device::kWithoutTiming);
  if (!status.ok()) return fail(status);
  return event;
}

Status Copier::mark(Lane& lane, std::uint64_t tag) {
  const auto event = take_event();
  if (!event) return event.error();
  lane.marks.push_back({*event, tag});
  return driver_.call<&Calls::event_record>(*event, lane.stream);
}

Status Copier::submit(std::span<const Copy> copies, std::uint64_t tag) {
  const device::Current current(driver_, device_);
  if (!current.status().ok()) return current.status();
  for (std::size_t i = 0; i < copies.size();) {
    Copy copy = copies[i++];
    while (i < copies.size() && !copy.apart && copies[i].to_device == copy.to_device &&
           copies[i].device == copy.device + copy.bytes &&
           copies[i].host == copy.host + copy.bytes) {
      copy.apart = copies[i].apart;
      copy.bytes += copies[i++].bytes;
    }
    if (copy.bytes == 0) continue;
    if (const Status status = begin(copy, lane_of(copy)); !status.ok()) return status;
  }
  Group group{tag, 0};
  for (Lane& lane : lanes_) {
    if (!lane.used) continue;
    lane.used = false;
    if (const Status status = mark(lane, tag); !status.ok()) return status;
    ++group.lanes;
  }
  groups_.push_back(group);
  return {};
}

Status Copier::poll(std::vector<std::uint64_t>& done) {
  const device::Current current(driver_, device_);
  if (!current.status().ok()) return current.status();
  for (Lane& lane : lanes_) {
    while (!lane.marks.empty()) {
      const Mark mark = lane.marks.front();
      const int error = driver_.calls().event_query(mark.event);
      if (error == kNotReady) break;
      if (error != 0) return driver_.call<&Calls::event_query>(mark.event);
      lane.marks.pop_front();
      idle_events_.push_back(mark.event);
      const auto group = std::find_if(groups_.begin(), groups_.end(),
                                      [&](const Group& one) { return one.tag == mark.tag; });
      --group->lanes;
    }
  }
  std::erase_if(groups_, [&](const Group& group) {
    if (group.lanes > 0) return false;
    done.push_back(group.tag);
    return true;
  });
  return {};
}

bool Copier::is_idle() const { return groups_.empty(); }

}  // namespace mc::gpu
