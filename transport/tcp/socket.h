// SPDX-License-Identifier: Apache-2.0
//
// The calls that make a socket a lane, and cut a lane.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "libmc/base/fd.h"

namespace mc::transport::tcp {

// Non-blocking, no delay, keepalive, and an end to unacknowledged bytes within kPeerLostNs.
Status prepare_lane(int socket);
// Errors: MC_INVALID_ARGUMENT: the kernel lacks the congestion control, or denies it to this user.
Status use_congestion_control(int socket, const std::string& name);
bool enable_zero_copy(int socket);
// Closes the socket so that the kernel drops queued bytes: no byte leaves afterwards.
void cut(Fd& socket);

// Listens on address (IPv4 or IPv6 literal); port 0: any. Errors: MC_INVALID_ARGUMENT,
// MC_PERMISSION_DENIED or MC_BUSY with the cause.
Result<Fd> listen_tcp(const std::string& address, std::uint16_t port);
Result<std::uint16_t> local_port(int socket);
// Starts to connect, and does not wait.
Result<Fd> start_connect(const std::string& address, std::uint16_t port);

}  // namespace mc::transport::tcp
