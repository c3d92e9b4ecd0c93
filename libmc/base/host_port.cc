// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/host_port.h"

namespace mc {

Result<HostPort> split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  HostPort parts;
  if (colon != std::string::npos) {
    parts = {address.substr(0, colon), address.substr(colon + 1)};
    if (parts.host.size() > 2 && parts.host.front() == '[' && parts.host.back() == ']') {
      parts.host = parts.host.substr(1, parts.host.size() - 2);
    } else if (parts.host.find(':') != std::string::npos) {
      parts.host.clear();
    }
  }
  const bool number = !parts.port.empty() && parts.port.size() <= 5 &&
                      parts.port.find_first_not_of("0123456789") == std::string::npos;
  if (parts.host.empty() || !number || std::stoul(parts.port) == 0 ||
      std::stoul(parts.port) > 65535) {
    return fail(MC_INVALID_ARGUMENT,
                "'" + address + "' is not an address; use host:port or [v6 address]:port");
  }
  return parts;
}

}  // namespace mc
