// SPDX-License-Identifier: Apache-2.0
//
// Copies as the driver offers them.
#include <atomic>
#include <cstring>
#include <vector>

#include "device/fake/exports.h"
#include "device/fake/memory.h"
#include "device/fake/misuse.h"
#include "device/fake/streams.h"

namespace mc::fake {

namespace {

constexpr std::size_t kMaxBatch = 50'000;  // larger batches hung or crashed real drivers
constexpr int kLateByte = 0xdb;

std::atomic<std::uint64_t> pageable_copies{0};

struct Copy {
  Place to;
  Place from;
  std::uint64_t bytes = 0;
};

void run(const Copy& copy) {
  if (copy.to.host == nullptr || copy.from.host == nullptr) return poison(kIllegalAddress);
  std::memmove(copy.to.host, copy.from.host, copy.bytes);
}

bool is_pageable(const Place& place) { return place.chunk == 0 && place.pin == 0; }

// The copy of pageable memory returns when the source has been read; the bytes may arrive later.
int submit_copy(Copy copy, const std::shared_ptr<Stream>& stream) {
  if (stream->is_capturing() && (is_pageable(copy.to) || is_pageable(copy.from))) {
    return kCaptureUnsupported;
  }
  if (copy.bytes == 0) return kSuccess;
  if (is_pageable(copy.to) || is_pageable(copy.from)) ++pageable_copies;
  if (is_pageable(copy.to)) {
    Streams::get().submit(stream, [copy] { run(copy); });
    stream->wait_for(stream->submitted());
    return poison_error();
  }
  // A reader who is too early finds these bytes.
  if (copy.to.chunk == 0) std::memset(copy.to.host, kLateByte, copy.bytes);
  std::shared_ptr<std::vector<std::byte>> staged;
  if (is_pageable(copy.from)) {
    staged = std::make_shared<std::vector<std::byte>>(copy.from.host, copy.from.host + copy.bytes);
    copy.from.host = staged->data();
  }
  Memory::get().use(copy.to, 1);
  Memory::get().use(copy.from, 1);
  Streams::get().submit(stream, [copy, staged] {
    run(copy);
    Memory::get().use(copy.to, -1);
    Memory::get().use(copy.from, -1);
  });
  return kSuccess;
}

int start_copy(const Entry& entry, CUdeviceptr to, Side to_side, CUdeviceptr from, Side from_side,
               std::uint64_t bytes, CUstream stream) {
  if (entry.error() != kSuccess) return entry.error();
  Copy copy;
  copy.bytes = bytes;
  if (const int error = Memory::get().find_place(to, bytes, to_side, &copy.to)) return error;
  if (const int error = Memory::get().find_place(from, bytes, from_side, &copy.from)) return error;
  return submit_copy(copy, Streams::get().find(entry.call(), stream));
}

CUdeviceptr host(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

int start_batch(const Entry& entry, const CUdeviceptr* to, const CUdeviceptr* from,
                const std::size_t* bytes, std::size_t count, const CUmemcpyAttributes* attributes,
                const std::size_t* firsts, std::size_t attribute_count, CUstream stream) {
  if (entry.error() != kSuccess) return entry.error();
  if (is_default_stream(stream) || count == 0 || attribute_count == 0 || attribute_count > count ||
      firsts[0] != 0) {
    return kInvalidValue;
  }
  if (count > kMaxBatch) misuse(entry.call(), "a batch that hangs real drivers");
  for (std::size_t i = 0; i < attribute_count; ++i) {
    if (attributes[i].srcAccessOrder < kOrderStream || attributes[i].srcAccessOrder > kOrderAny) {
      return kInvalidValue;
    }
  }
  // A batch has no order. Here the last copy is the first.
  for (std::size_t i = count; i-- > 0;) {
    if (const int error =
            start_copy(entry, to[i], Side::kEither, from[i], Side::kEither, bytes[i], stream)) {
      return error;
    }
  }
  return kSuccess;
}

}  // namespace

std::uint64_t count_pageable_copies() { return pageable_copies.load(); }

}  // namespace mc::fake

using namespace mc::fake;  // NOLINT(google-build-using-namespace): the functions below are C

extern "C" {

int cuMemcpyDtoH_v2(void* to, CUdeviceptr device, std::size_t bytes) {
  const Entry entry("cuMemcpyDtoH_v2");
  if (const int error =
          start_copy(entry, host(to), Side::kHost, device, Side::kDevice, bytes, nullptr)) {
    return error;
  }
  const auto stream = Streams::get().find(entry.call(), nullptr);
  stream->wait_for(stream->submitted());
  return poison_error();
}

int cuMemcpyHtoD_v2(CUdeviceptr device, const void* from, std::size_t bytes) {
  const Entry entry("cuMemcpyHtoD_v2");
  return start_copy(entry, device, Side::kDevice, host(from), Side::kHost, bytes, nullptr);
}

int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return start_copy(Entry("cuMemcpyAsync"), to, Side::kEither, from, Side::kEither, bytes, stream);
}

int cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr device, std::size_t bytes, CUstream stream) {
  return start_copy(Entry("cuMemcpyDtoHAsync_v2"), host(to), Side::kHost, device, Side::kDevice,
                    bytes, stream);
}

int cuMemcpyHtoDAsync_v2(CUdeviceptr device, const void* from, std::size_t bytes, CUstream stream) {
  return start_copy(Entry("cuMemcpyHtoDAsync_v2"), device, Side::kDevice, host(from), Side::kHost,
                    bytes, stream);
}

int cuMemcpy2DAsync_v2(const CUmemcpy2d* copy, CUstream stream) {
  const Entry entry("cuMemcpy2DAsync_v2");
  if (entry.error() != kSuccess) return entry.error();
  constexpr int kHostType = 1;
  constexpr int kDeviceType = 2;
  for (const int type : {copy->srcMemoryType, copy->dstMemoryType}) {
    if (type != kHostType && type != kDeviceType) return kInvalidValue;
  }
  const bool from_host = copy->srcMemoryType == kHostType;
  const bool to_host = copy->dstMemoryType == kHostType;
  const CUdeviceptr from = from_host ? host(copy->srcHost) : copy->srcDevice;
  const CUdeviceptr to = to_host ? host(copy->dstHost) : copy->dstDevice;
  for (std::size_t row = 0; row < copy->Height; ++row) {
    const int error =
        start_copy(entry, to + (copy->dstY + row) * copy->dstPitch + copy->dstXInBytes,
                   to_host ? Side::kHost : Side::kDevice,
                   from + (copy->srcY + row) * copy->srcPitch + copy->srcXInBytes,
                   from_host ? Side::kHost : Side::kDevice, copy->WidthInBytes, stream);
    if (error != kSuccess) return error;
  }
  return kSuccess;
}

int cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                       CUmemcpyAttributes* attributes, std::size_t* firsts,
                       std::size_t attribute_count, std::size_t* failed, CUstream stream) {
  if (failed != nullptr) *failed = ~std::size_t{0};
  return start_batch(Entry("cuMemcpyBatchAsync"), to, from, bytes, count, attributes, firsts,
                     attribute_count, stream);
}

int cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                          CUmemcpyAttributes* attributes, std::size_t* firsts,
                          std::size_t attribute_count, CUstream stream) {
  return start_batch(Entry("cuMemcpyBatchAsync_v2"), to, from, bytes, count, attributes, firsts,
                     attribute_count, stream);
}

}  // extern "C"
