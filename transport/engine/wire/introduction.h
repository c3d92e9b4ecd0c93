// SPDX-License-Identifier: Apache-2.0
//
// The message exchange on an engine's port after the proof of the cluster's key. Either
//   a lane's hello follows, or an introduction. In an introduction each side sends its engine
//   descriptor, then the dialer hangs up.
//
//     dialer ── engine descriptor (160 bytes) ──► listener     the first 8 bytes tell the kind
//            ◄── engine descriptor (160 bytes) ──
//
// Threads: the owner of the socket.
// Trusts: no peer. decode_engine_descriptor() and the lane's hello check the received bytes.
#pragma once

#include <memory>

#include "transport/engine/wire/engine_descriptor.h"
#include "transport/tcp/lane_hello.h"

namespace mc::transfer {

// Value of Link::lane and DialRequest::lane for an introduction, which makes no lane.
inline constexpr std::uint32_t kIntroductionLane = 0xffffffff;

// call.peer comes back in Link::peer. *theirs holds the peer's engine descriptor when the handshake
// is done.
std::unique_ptr<transport::tcp::LaneHandshake> make_introduction(
    const EngineDescriptor& own, const transport::DialRequest& call,
    std::shared_ptr<EngineDescriptor> theirs);
// The listener's side: accepts either kind. features: of the hellos of lanes.
std::unique_ptr<transport::tcp::LaneHandshake> make_reception(const EngineDescriptor& own,
                                                              std::uint32_t features);

}  // namespace mc::transfer
