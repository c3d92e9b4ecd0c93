// SPDX-License-Identifier: Apache-2.0
#include "transport/one_sided/region_descriptor.h"

#include <algorithm>

#include "transport/one_sided/control_message.h"

namespace mc::transport {

namespace {

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

constexpr std::uint32_t kUnguarded = 1u << 31;  // of Header::rights

struct DeviceWords {
  std::uint64_t epoch;
  std::uint32_t slot;
  std::uint32_t reserved;
};
static_assert(sizeof(DeviceWords) == 16);

void append_key(std::vector<std::byte>& bytes, const DescriptorFormat& format, std::uint64_t key) {
  if (format.key_bytes == sizeof key) return append_value(bytes, key);
  append_value(bytes, static_cast<std::uint32_t>(key));
}

// REQUIRES: bytes holds at least one key.
std::uint64_t take_key(std::span<const std::byte>& bytes, const DescriptorFormat& format) {
  std::uint64_t key = 0;
  std::uint32_t short_key = 0;
  if (format.key_bytes == sizeof key) {
    static_cast<void>(take_front(bytes, key));
    return key;
  }
  static_cast<void>(take_front(bytes, short_key));
  return short_key;
}

}  // namespace

std::uint32_t chunk_shift_for(const DescriptorFormat& format, std::uint64_t size_bytes,
                              std::size_t devices) {
  std::uint32_t shift = kUsualChunkShift;
  const auto bytes = [&] {
    const std::uint64_t chunks = ((size_bytes - 1) >> shift) + 1;
    return sizeof(Header) + chunks * sizeof(Cover) +
           devices * (sizeof(DeviceWords) + chunks * format.key_bytes);
  };
  while (shift < kMaxChunkShift && bytes() > kMaxDescriptorBytes) ++shift;
  return shift;
}

Cover whole_chunk(std::uint64_t size_bytes, std::uint32_t chunk_shift, std::uint64_t chunk) {
  const std::uint64_t bytes =
      std::min(std::uint64_t{1} << chunk_shift, size_bytes - (chunk << chunk_shift));
  return {0, static_cast<std::uint32_t>((bytes + kCoverPageBytes - 1) / kCoverPageBytes)};
}

bool RegionDescriptor::covers_all(std::uint64_t offset_bytes, std::uint64_t bytes) const {
  if (bytes == 0 || bytes > size_bytes || offset_bytes > size_bytes - bytes) return false;
  const std::uint64_t end = offset_bytes + bytes;
  for (std::uint64_t at = offset_bytes; at < end;) {
    const std::uint64_t chunk = at >> chunk_shift;
    const std::uint64_t begin = chunk << chunk_shift;
    const std::uint64_t until = std::min(end, (chunk + 1) << chunk_shift);
    const Cover& cover = covers[chunk];
    if (at < begin + cover.from * kCoverPageBytes || until > begin + cover.to * kCoverPageBytes) {
      return false;
    }
    at = until;
  }
  return true;
}

std::vector<std::byte> RegionDescriptor::encode(const DescriptorFormat& format) const {
  std::vector<std::byte> bytes;
  Header header{};
  header.magic = format.magic;
  header.version = 1;
  header.device_count = static_cast<std::uint16_t>(devices.size());
  header.region = region;
  header.incarnation = incarnation;
  header.base = base;
  header.size_bytes = size_bytes;
  header.rights = rights | (guarded ? 0 : kUnguarded);
  header.chunk_shift = chunk_shift;
  append_value(bytes, header);
  for (const Cover& cover : covers) append_value(bytes, cover);
  for (const RegionKeys& device : devices) {
    append_value(bytes, DeviceWords{device.epoch, device.slot, 0});
    for (const std::uint64_t key : device.keys) append_key(bytes, format, key);
  }
  return bytes;
}

std::optional<RegionDescriptor> RegionDescriptor::decode(const DescriptorFormat& format,
                                                         std::span<const std::byte> bytes) {
  Header header{};
  if (bytes.size() > kMaxDescriptorBytes || !take_front(bytes, header)) return std::nullopt;
  if (header.magic != format.magic || header.version != 1 || header.reserved != 0 ||
      header.region == kNoRegion || header.size_bytes == 0 ||
      header.base > ~std::uint64_t{0} - header.size_bytes ||
      (header.rights & ~(kKnownRights | kUnguarded)) != 0 ||
      header.device_count > format.max_devices || header.chunk_shift < kMinChunkShift ||
      header.chunk_shift > kMaxChunkShift) {
    return std::nullopt;
  }
  RegionDescriptor descriptor;
  descriptor.region = header.region;
  descriptor.incarnation = header.incarnation;
  descriptor.base = header.base;
  descriptor.size_bytes = header.size_bytes;
  descriptor.rights = header.rights & kKnownRights;
  descriptor.guarded = (header.rights & kUnguarded) == 0;
  descriptor.chunk_shift = header.chunk_shift;
  const std::uint64_t chunks = descriptor.chunk_count();
  // No memory is reserved before the length of the bytes is checked.
  if (chunks > bytes.size() / sizeof(Cover)) return std::nullopt;
  descriptor.covers.resize(chunks);
  for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
    Cover& cover = descriptor.covers[chunk];
    const Cover whole = whole_chunk(header.size_bytes, header.chunk_shift, chunk);
    if (!take_front(bytes, cover) || cover.from > cover.to || cover.to > whole.to)
      return std::nullopt;
  }
  std::uint64_t seen = 0;
  for (std::uint32_t i = 0; i < header.device_count; ++i) {
    DeviceWords device{};
    if (!take_front(bytes, device) || device.slot >= format.max_devices || device.reserved != 0 ||
        device.epoch == 0 || (seen & std::uint64_t{1} << device.slot) != 0 ||
        bytes.size() / format.key_bytes < chunks) {
      return std::nullopt;
    }
    seen |= std::uint64_t{1} << device.slot;
    RegionKeys keys{static_cast<std::uint8_t>(device.slot), device.epoch, {}};
    keys.keys.resize(chunks);
    for (std::uint64_t& key : keys.keys) key = take_key(bytes, format);
    descriptor.devices.push_back(std::move(keys));
  }
  if (!bytes.empty()) return std::nullopt;
  return descriptor;
}

}  // namespace mc::transport
