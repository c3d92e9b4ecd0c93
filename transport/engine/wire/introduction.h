// SPDX-License-Identifier: Apache-2.0
//
// What it is: what runs on an engine's port once both sides have proved the cluster's key: either
//   the hello of a lane, or an introduction, in which each side gives its engine descriptor and hangs up.
//
//     dialer ── engine descriptor (160 bytes) ──► listener        the first 8 bytes tell which it is
//            ◄── engine descriptor (160 bytes) ──
// Threads: its socket's owner. Trusts: nobody; decode_card and decode_hello check what they read.
#pragma once

#include <memory>

#include "transport/engine/wire/engine_descriptor.h"
#include "transport/tcp/hello.h"

namespace mc::transfer {

// Link::lane and DialRequest::lane of an introduction, which is none.
inline constexpr std::uint32_t kIntroductionLane = 0xffffffff;

// call.peer comes back in Link::peer. theirs has the peer's engine descriptor when the handshake is done.
std::unique_ptr<transport::tcp::Handshake> make_introduction(
    const EngineDescriptor& own, const transport::DialRequest& call,
    std::shared_ptr<EngineDescriptor> theirs);
// For who dialed us, whatever it is.
std::unique_ptr<transport::tcp::Handshake> make_reception(const EngineDescriptor& own);

}  // namespace mc::transfer
