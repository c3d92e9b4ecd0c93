// SPDX-License-Identifier: Apache-2.0
//
// What it is: what comes before a lane of the data network: both sides prove that they have the
//   cluster's key (metadata/rpc/hello.h draws it), then the transport's own hello runs. Agents and
//   transfer engines use it; a lane joins two of a kind.
// Threads: its socket's owner. Trusts: nobody; reads 104 bytes, then what the inner one reads.
#pragma once

#include <memory>

#include "libmc/auth/cluster_key.h"
#include "metadata/rpc/hello.h"
#include "transport/tcp/hello.h"

namespace mc::transport {

// dialer: we asked for the lane. inner: what runs after the proof.
std::unique_ptr<tcp::Handshake> make_keyed_handshake(const metadata::rpc::Hello& own,
                                                     const metadata::rpc::ClusterKey& key,
                                                     bool dialer,
                                                     std::unique_ptr<tcp::Handshake> inner);

}  // namespace mc::transport
