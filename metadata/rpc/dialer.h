// SPDX-License-Identifier: Apache-2.0
//
// An attempt to reach a listener: resolve, connect, TLS, prove. The result is a link
//   or an error.
// Threads: the io_context's thread.
// Owns: itself until the call of `done`, which happens exactly once.
// Trusts: no peer; see cluster_hello.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "metadata/rpc/rpc_handshake.h"
#include "metadata/rpc/rpc_link.h"
#include "metadata/rpc/tls.h"

namespace mc::metadata::rpc {

struct DialOptions {
  std::string address;  // host:port, [v6]:port
  auth::ClusterHello own;
  auth::ClusterKey key;
  TlsContext tls;           // from dialer_tls()
  std::string server_name;  // the name in the listener's certificate; empty: the host
  // A leader may have many copies under way at an agent, and must still reach the agent with removals.
  RpcLinkOptions link = {.max_requests = 1024};
};

using Dialled = std::function<void(Result<std::shared_ptr<RpcLink>>)>;

// The link is started and calls handler from then on. Errors: MC_INVALID_ARGUMENT (bad address),
// MC_AGENT_UNAVAILABLE, MC_TIMEOUT, MC_WRONG_KEY, MC_PERMISSION_DENIED (TLS), MC_VERSION_MISMATCH, MC_BUSY.
void dial(boost::asio::any_io_executor executor, const DialOptions& options,
          std::uint64_t deadline_ns, RpcLinkHandler& handler, Dialled done);

// Whether the peer, and other hosts that the peer serves, can dial this side's own address. Both are host:port. Resolves
// the peer's name and so may block. Errors: MC_NOT_ADVERTISED: the own address is one of loopback, and the peer is on
// another host. A peer without a way is no error.
Status check_advertised(const std::string& own, const std::string& peer);

}  // namespace mc::metadata::rpc
