// SPDX-License-Identifier: Apache-2.0
//
// What it is: a way around an error of libfabric's tcp provider before 1.18. It frees a read twice
//   whose answer is just coming when the endpoint is closed, and ofi_rxm then follows a null
//   pointer. A read whose connection has ended it takes apart as it should: so connections are
//   ended first, and the endpoint is closed when the provider has seen that.
// Threads: any. Owns: nothing.
#pragma once

#include <cstdint>
#include <span>

namespace mc::transport::fabric {

// Ends the connections of this process to that address, a sockaddr_in or sockaddr_in6.
void end_tcp_connections(std::span<const std::uint8_t> address);

}  // namespace mc::transport::fabric
