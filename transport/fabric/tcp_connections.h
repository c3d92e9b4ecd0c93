// SPDX-License-Identifier: Apache-2.0
//
// A remedy for an error of libfabric's tcp provider before 1.18. If an endpoint is
//   closed while the answer to a read arrives, the provider frees the read twice, and ofi_rxm then
//   follows a null pointer. The provider frees a read correctly after the read's connection has
//   ended. So connections are ended first, and the endpoint is closed when the provider has seen
//   that.
// Threads: any.
// Owns: nothing.
#pragma once

#include <cstdint>
#include <span>

namespace mc::transport::fabric {

// Ends this process' connections to the address, a sockaddr_in or sockaddr_in6.
void end_tcp_connections(std::span<const std::uint8_t> address);

}  // namespace mc::transport::fabric
