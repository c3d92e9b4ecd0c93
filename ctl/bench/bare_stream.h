// SPDX-License-Identifier: Apache-2.0
//
// What it is: a bare TCP connection, blocking on both sides: what bytes between two processes cost
//   without us.
//
//     asks: a word of 8 bytes: how many, and in the highest bit which way
//     bytes there ◄── server      or      bytes ──► server, a word back
//
// Threads: one for each end. Owns nothing: sockets are the caller's.
// Trusts: nobody for longer than the connection lasts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mc::ctl {

bool receive_all(int fd, void* data, std::size_t bytes);
bool send_all(int fd, const void* data, std::size_t bytes);
void set_no_delay(int fd);
// Waits until it is connected; from then on calls wait, each at most so long. False: it is not.
bool become_blocking(int fd, std::uint64_t timeout_ns);

// False: the connection is over.
bool stream_read(int fd, std::span<std::byte> to);
bool stream_write(int fd, std::span<const std::byte> from);
// Answers until the connection is over. memory: where bytes come from, or go to.
void serve_stream(int fd, std::span<std::byte> memory);

}  // namespace mc::ctl
