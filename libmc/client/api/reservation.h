// SPDX-License-Identifier: Apache-2.0
//
// The handle of mc_reserve().
#pragma once

#include <cstdint>
#include <memory>

#include "libmc/client/client.h"
#include "libmc/client/device/stream_copies.h"
#include "mc/mc.h"

struct mc_reservation {
  mc::client::Client* client;
  std::shared_ptr<mc::client::Memory> memory;
  mc::client::Reserved reserved;
  std::shared_ptr<mc::client::Staging> staging;
  std::uint64_t staging_offset = 0;
  std::uint64_t size = 0;
  // That streams order.
  const std::shared_ptr<mc::client::CopyGroup> copies = std::make_shared<mc::client::CopyGroup>();
};
