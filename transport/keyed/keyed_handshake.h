// SPDX-License-Identifier: Apache-2.0
//
// The handshake before a lane of the data network. Both sides prove the cluster key
//   (libmc/auth/cluster_hello.h has the messages); then the transport's own hello runs. Agents and
//   transfer engines use this handshake; a lane connects two agents or two engines.
// Threads: the socket's owner.
// Trusts: no peer. Reads 104 bytes, then the bytes of the inner handshake.
#pragma once

#include <memory>

#include "libmc/auth/cluster_hello.h"
#include "libmc/auth/cluster_key.h"
#include "transport/tcp/lane_hello.h"

namespace mc::transport {

// dialer: this side opened the lane. inner: runs after the proof.
std::unique_ptr<tcp::LaneHandshake> make_keyed_handshake(const auth::ClusterHello& own,
                                                         const auth::ClusterKey& key, bool dialer,
                                                         std::unique_ptr<tcp::LaneHandshake> inner);

}  // namespace mc::transport
