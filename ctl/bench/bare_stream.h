// SPDX-License-Identifier: Apache-2.0
//
// A bare TCP connection with blocking calls on both sides, to measure the cost of
//   bytes between two processes without mc.
//
//     request: a word of 8 bytes: the number of bytes; the highest bit is the direction
//     bytes to the client ◄── server      or      bytes ──► server, then a word back
//
// Threads: one for each end.
// Owns: nothing; the caller owns the sockets.
// Trusts: nothing longer than the connection lasts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mc::ctl {

bool receive_all(int fd, void* data, std::size_t bytes);
bool send_all(int fd, const void* data, std::size_t bytes);
void set_no_delay(int fd);
// Waits until the socket is connected. After that, each call on the socket waits at most
// timeout_ns. False: the socket is not connected.
bool become_blocking(int fd, std::uint64_t timeout_ns);

// False: the connection is over.
bool stream_read(int fd, std::span<std::byte> to);
bool stream_write(int fd, std::span<const std::byte> from);
// Answers requests until the connection is over, from and into memory.
void serve_stream(int fd, std::span<std::byte> memory);

}  // namespace mc::ctl
