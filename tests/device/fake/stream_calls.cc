// SPDX-License-Identifier: Apache-2.0
//
// Streams and events as the driver offers them, and values that streams write and wait for.
#include <chrono>
#include <thread>
#include <type_traits>

#include "device/fake/memory.h"
#include "device/fake/misuse.h"
#include "device/fake/streams.h"

namespace mc::fake {

namespace {

// The host address of a value that a stream writes or waits for.
template <typename Value>
Value* value_at(const Entry& entry, CUdeviceptr address) {
  Place place;
  if (address % sizeof(Value) != 0 ||
      Memory::get().find_place(address, sizeof(Value), Side::kEither, &place) != kSuccess ||
      place.host == nullptr) {
    misuse(entry.call(), "no place for a value");
  }
  if (place.chunk == 0 && !place.is_alias) {
    misuse(entry.call(), "host memory needs the address of cuMemHostGetDevicePointer()");
  }
  return reinterpret_cast<Value*>(place.host);
}

template <typename Value>
bool holds(Value now, Value wanted, unsigned flags) {
  switch (flags & 3U) {
    case 0:
      return static_cast<std::make_signed_t<Value>>(now - wanted) >= 0;  // cyclic
    case 1:
      return now == wanted;
    case 2:
      return (now & wanted) != 0;
    default:
      return static_cast<Value>(~(now | wanted)) != 0;
  }
}

template <typename Value>
int write_value(const Entry& entry, CUstream stream, CUdeviceptr address, Value value,
                unsigned flags) {
  if (entry.error() != kSuccess) return entry.error();
  if (flags != 0) return kInvalidValue;
  Value* const place = value_at<Value>(entry, address);
  Streams::get().submit(Streams::get().find(entry.call(), stream),
                        [place, value] { __atomic_store_n(place, value, __ATOMIC_RELEASE); });
  return kSuccess;
}

template <typename Value>
int wait_value(const Entry& entry, CUstream stream, CUdeviceptr address, Value value,
               unsigned flags) {
  if (entry.error() != kSuccess) return entry.error();
  if (flags > 3) return kInvalidValue;
  const Value* const place = value_at<Value>(entry, address);
  // A plain store of a processor, or of another process, may write the value: nothing can wake the
  // stream's thread.
  Streams::get().submit(Streams::get().find(entry.call(), stream), [place, value, flags] {
    while (!holds(__atomic_load_n(place, __ATOMIC_ACQUIRE), value, flags)) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  return kSuccess;
}

}  // namespace

}  // namespace mc::fake

using namespace mc::fake;  // NOLINT(google-build-using-namespace): the functions below are C

extern "C" {

int cuStreamCreate(CUstream* stream, unsigned flags) {
  const Entry entry("cuStreamCreate");
  if (entry.error() != kSuccess) return entry.error();
  *stream = Streams::get().make(Machine::get().physical_device(current_device()), flags);
  return kSuccess;
}

int cuStreamDestroy_v2(CUstream stream) {
  const Entry entry("cuStreamDestroy_v2");
  if (entry.error() != kSuccess) return entry.error();
  Streams::get().destroy(entry.call(), stream);
  return kSuccess;
}

int cuStreamQuery(CUstream stream) {
  const Entry entry("cuStreamQuery");
  if (entry.error() != kSuccess) return entry.error();
  const auto found = Streams::get().find(entry.call(), stream);
  if (found->is_capturing()) return kCaptureUnsupported;
  if (!found->has_ended(found->submitted())) return kNotReady;
  return poison_error();
}

int cuStreamSynchronize(CUstream stream) {
  const Entry entry("cuStreamSynchronize");
  if (entry.error() != kSuccess) return entry.error();
  const auto found = Streams::get().find(entry.call(), stream);
  if (found->is_capturing()) return kCaptureUnsupported;
  found->wait_for(found->submitted());
  return poison_error();
}

int cuStreamIsCapturing(CUstream stream, int* status) {
  const Entry entry("cuStreamIsCapturing");
  if (entry.error() != kSuccess) return entry.error();
  *status = Streams::get().find(entry.call(), stream)->is_capturing() ? 1 : 0;
  return kSuccess;
}

int cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  const Entry entry("cuStreamWaitEvent");
  if (entry.error() != kSuccess) return entry.error();
  if (flags != 0) return kInvalidValue;
  Events::get().make_wait(entry.call(), event, Streams::get().find(entry.call(), stream));
  return kSuccess;
}

int cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value,
                            unsigned flags) {
  return write_value(Entry("cuStreamWriteValue32_v2"), stream, address, value, flags);
}

int cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, std::uint32_t value,
                           unsigned flags) {
  return wait_value(Entry("cuStreamWaitValue32_v2"), stream, address, value, flags);
}

int cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, std::uint64_t value,
                            unsigned flags) {
  return write_value(Entry("cuStreamWriteValue64_v2"), stream, address, value, flags);
}

int cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, std::uint64_t value,
                           unsigned flags) {
  return wait_value(Entry("cuStreamWaitValue64_v2"), stream, address, value, flags);
}

int cuLaunchHostFunc(CUstream stream, void (*function)(void*), void* data) {
  const Entry entry("cuLaunchHostFunc");
  if (entry.error() != kSuccess) return entry.error();
  Streams::get().submit(Streams::get().find(entry.call(), stream), [function, data] {
    const InHostFunction mark;
    function(data);
  });
  return kSuccess;
}

int cuEventCreate(CUevent* event, unsigned flags) {
  const Entry entry("cuEventCreate");
  return entry.error() != kSuccess ? entry.error() : Events::get().make(event, flags);
}

int cuEventDestroy_v2(CUevent event) {
  const Entry entry("cuEventDestroy_v2");
  if (entry.error() != kSuccess) return entry.error();
  Events::get().destroy(entry.call(), event);
  return kSuccess;
}

int cuEventRecord(CUevent event, CUstream stream) {
  const Entry entry("cuEventRecord");
  if (entry.error() != kSuccess) return entry.error();
  Events::get().record(entry.call(), event, Streams::get().find(entry.call(), stream));
  return kSuccess;
}

int cuEventQuery(CUevent event) {
  const Entry entry("cuEventQuery");
  if (entry.error() != kSuccess) return entry.error();
  return Events::get().is_complete(entry.call(), event) ? poison_error() : int{kNotReady};
}

int cuEventSynchronize(CUevent event) {
  const Entry entry("cuEventSynchronize");
  if (entry.error() != kSuccess) return entry.error();
  Events::get().wait(entry.call(), event);
  return poison_error();
}

}  // extern "C"
