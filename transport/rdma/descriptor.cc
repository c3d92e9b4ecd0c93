// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/descriptor.h"

#include <algorithm>
#include <cstring>

#include "transport/control_message.h"

namespace mc::transport::rdma {

namespace {

constexpr std::uint32_t kDescriptorMagic = 0x3144434d;  // "MCD1"

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t device_count;
  std::uint64_t region;
  std::uint64_t incarnation;
  std::uint64_t base;
  std::uint64_t size_bytes;
  std::uint32_t rights;
  std::uint32_t chunk_shift;
  std::uint64_t reserved;
};
static_assert(sizeof(Header) == 56);

struct DeviceWords {
  std::uint64_t epoch;
  std::uint32_t slot;
  std::uint32_t reserved;
};
static_assert(sizeof(DeviceWords) == 16);

}  // namespace

std::uint32_t chunk_shift_for(std::uint64_t size_bytes, std::size_t devices) {
  std::uint32_t shift = 30;
  const auto bytes = [&] {
    const std::uint64_t chunks = ((size_bytes - 1) >> shift) + 1;
    return sizeof(Header) + chunks * sizeof(Cover) +
           devices * (sizeof(DeviceWords) + chunks * sizeof(std::uint32_t));
  };
  while (shift < kMaxChunkShift && bytes() > kMaxDescriptorBytes) ++shift;
  return shift;
}

Cover whole_chunk(std::uint64_t size_bytes, std::uint32_t chunk_shift, std::uint64_t chunk) {
  const std::uint64_t bytes =
      std::min(std::uint64_t{1} << chunk_shift, size_bytes - (chunk << chunk_shift));
  return {0, static_cast<std::uint32_t>((bytes + kCoverPageBytes - 1) / kCoverPageBytes)};
}

std::vector<std::byte> encode_descriptor(const RegionDescriptor& descriptor) {
  std::vector<std::byte> bytes;
  Header header{};
  header.magic = kDescriptorMagic;
  header.version = 1;
  header.device_count = static_cast<std::uint16_t>(descriptor.devices.size());
  header.region = descriptor.region;
  header.incarnation = descriptor.incarnation;
  header.base = descriptor.base;
  header.size_bytes = descriptor.size_bytes;
  header.rights = descriptor.rights;
  header.chunk_shift = descriptor.chunk_shift;
  append_value(bytes, header);
  for (const Cover& cover : descriptor.covers) append_value(bytes, cover);
  for (const RegionKeys& keys : descriptor.devices) {
    append_value(bytes, DeviceWords{keys.epoch, keys.slot, 0});
    for (const std::uint32_t key : keys.keys) append_value(bytes, key);
  }
  return bytes;
}

std::optional<RegionDescriptor> decode_descriptor(std::span<const std::byte> bytes) {
  Header header{};
  if (bytes.size() > kMaxDescriptorBytes || !take_front(bytes, header)) return std::nullopt;
  if (header.magic != kDescriptorMagic || header.version != 1 || header.reserved != 0 ||
      header.region == kNoRegion || header.size_bytes == 0 ||
      header.base > ~std::uint64_t{0} - header.size_bytes || (header.rights & ~kKnownRights) != 0 ||
      header.device_count > kMaxDevices || header.chunk_shift < kMinChunkShift ||
      header.chunk_shift > kMaxChunkShift) {
    return std::nullopt;
  }
  RegionDescriptor descriptor;
  descriptor.region = header.region;
  descriptor.incarnation = header.incarnation;
  descriptor.base = header.base;
  descriptor.size_bytes = header.size_bytes;
  descriptor.rights = header.rights;
  descriptor.chunk_shift = header.chunk_shift;
  const std::uint64_t chunks = descriptor.chunk_count();
  // Nothing is reserved before the bytes are known to be there.
  if (chunks > bytes.size() / sizeof(Cover)) return std::nullopt;
  descriptor.covers.resize(chunks);
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    Cover& cover = descriptor.covers[chunk];
    const Cover whole = whole_chunk(header.size_bytes, header.chunk_shift, chunk);
    if (!take_front(bytes, cover) || cover.from > cover.to || cover.to > whole.to)
      return std::nullopt;
  }
  std::uint32_t seen = 0;
  for (std::uint32_t i = 0; i < header.device_count; ++i) {
    DeviceWords device{};
    if (!take_front(bytes, device) || device.slot >= kMaxDevices || device.reserved != 0 ||
        device.epoch == 0 || (seen & 1u << device.slot) != 0 ||
        bytes.size() / sizeof(std::uint32_t) < chunks) {
      return std::nullopt;
    }
    seen |= 1u << device.slot;
    RegionKeys keys{static_cast<std::uint8_t>(device.slot), device.epoch, {}};
    keys.keys.resize(chunks);
    for (std::uint32_t& key : keys.keys) static_cast<void>(take_front(bytes, key));
    descriptor.devices.push_back(std::move(keys));
  }
  if (!bytes.empty()) return std::nullopt;
  return descriptor;
}

std::optional<RegionDescriptor> RegionDescriptor::decode(std::span<const std::byte> bytes) {
  return decode_descriptor(bytes);
}

}  // namespace mc::transport::rdma
