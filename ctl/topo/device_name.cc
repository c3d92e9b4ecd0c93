// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include <fmt/core.h>

#include "ctl/topo/topo_view.h"

namespace mc::ctl {
namespace {

struct Known {
  std::uint16_t vendor;
  std::uint16_t device;
  const char* name;
};

// Names from the PCI ID repository: devices that run models, and devices that move their bytes.
constexpr Known kKnown[] = {
    {0x10de, 0x20b0, "A100 SXM 40 GB"},
    {0x10de, 0x20b2, "A100 SXM 80 GB"},
    {0x10de, 0x20b5, "A100 PCIe 80 GB"},
    {0x10de, 0x20f1, "A100 PCIe 40 GB"},
    {0x10de, 0x2235, "A40"},
    {0x10de, 0x26b5, "L40"},
    {0x10de, 0x26b9, "L40S"},
    {0x10de, 0x27b8, "L4"},
    {0x10de, 0x2330, "H100 SXM"},
    {0x10de, 0x2331, "H100 PCIe"},
    {0x10de, 0x2335, "H200 SXM"},
    {0x10de, 0x2342, "GH200"},
    {0x10de, 0x2901, "B200"},
    {0x10de, 0x2941, "GB200"},
    {0x1002, 0x7408, "MI250X"},
    {0x1002, 0x740c, "MI250"},
    {0x1002, 0x740f, "MI210"},
    {0x1002, 0x74a1, "MI300X"},
    {0x15b3, 0x1013, "ConnectX-4"},
    {0x15b3, 0x1015, "ConnectX-4 Lx"},
    {0x15b3, 0x1017, "ConnectX-5"},
    {0x15b3, 0x1018, "ConnectX-5 VF"},
    {0x15b3, 0x1019, "ConnectX-5 Ex"},
    {0x15b3, 0x101b, "ConnectX-6"},
    {0x15b3, 0x101c, "ConnectX-6 VF"},
    {0x15b3, 0x101d, "ConnectX-6 Dx"},
    {0x15b3, 0x101e, "ConnectX VF"},
    {0x15b3, 0x101f, "ConnectX-6 Lx"},
    {0x15b3, 0x1021, "ConnectX-7"},
    {0x15b3, 0x1023, "ConnectX-8"},
    {0x15b3, 0xa2d6, "BlueField-2"},
    {0x15b3, 0xa2dc, "BlueField-3"},
    {0x14e4, 0x1750, "BCM57508"},
    {0x14e4, 0x1760, "BCM57608"},
    {0x1d0f, 0xefa0, "EFA"},
    {0x1d0f, 0xefa1, "EFA"},
    {0x1d0f, 0xefa2, "EFA"},
    {0x1d0f, 0xefa3, "EFA"},
    {0x8086, 0x1563, "X550"},
    {0x8086, 0x1592, "E810"},
    {0x8086, 0x1593, "E810"},
    {0x1af4, 0x1041, "virtio"},
    {0x1af4, 0x1000, "virtio"},
};

}  // namespace

std::string device_name(const transport::PciDevice& device) {
  const auto at = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& known) {
    return known.vendor == device.vendor && known.device == device.device;
  });
  if (at != std::end(kKnown)) return at->name;
  return device.vendor == 0 ? "" : fmt::format("{:04x}:{:04x}", device.vendor, device.device);
}

}  // namespace mc::ctl
