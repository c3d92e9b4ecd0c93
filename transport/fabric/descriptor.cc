// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/descriptor.h"

namespace mc::transport::fabric {

namespace {

constexpr std::uint32_t kDescriptorMagic = 0x3246434d;  // "MCF2"

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t device_count;
  std::uint64_t region;
  std::uint64_t incarnation;
  std::uint64_t size_bytes;
  std::uint32_t rights;
  std::uint32_t reserved0;
  std::uint64_t reserved1;
};
static_assert(sizeof(Header) == 48);
static_assert(sizeof(Header) + kMaxDomains * sizeof(RegionKey) <= kMaxDescriptorBytes);

}  // namespace

std::vector<std::byte> RegionDescriptor::encode() const {
  std::vector<std::byte> bytes;
  append_value(bytes, Header{kDescriptorMagic, 1, static_cast<std::uint16_t>(devices.size()),
                             region, incarnation, size_bytes, rights, 0, 0});
  for (const RegionKey& device : devices) append_value(bytes, device);
  return bytes;
}

std::optional<RegionDescriptor> RegionDescriptor::decode(std::span<const std::byte> bytes) {
  Header header{};
  if (!take_front(bytes, header)) return std::nullopt;
  if (header.magic != kDescriptorMagic || header.version != 1 || header.reserved0 != 0 ||
      header.reserved1 != 0 || header.region == kNoRegion || header.size_bytes == 0 ||
      (header.rights & ~kKnownRights) != 0 || header.device_count > kMaxDomains ||
      bytes.size() != header.device_count * sizeof(RegionKey)) {
    return std::nullopt;
  }
  RegionDescriptor descriptor;
  descriptor.region = header.region;
  descriptor.incarnation = header.incarnation;
  descriptor.size_bytes = header.size_bytes;
  descriptor.rights = header.rights;
  descriptor.devices.resize(header.device_count);
  std::uint64_t seen = 0;
  for (RegionKey& device : descriptor.devices) {
    static_cast<void>(take_front(bytes, device));
    if (device.slot >= kMaxDomains || device.reserved != 0 || device.epoch == 0 ||
        (seen & std::uint64_t{1} << device.slot) != 0 ||
        device.base > ~std::uint64_t{0} - header.size_bytes) {
      return std::nullopt;
    }
    seen |= std::uint64_t{1} << device.slot;
  }
  return descriptor;
}

}  // namespace mc::transport::fabric
