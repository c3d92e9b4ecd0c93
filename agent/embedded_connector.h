// SPDX-License-Identifier: Apache-2.0
//
// Registers "embedded" as an address of mc_open() in this program.
// Threads: call once, before the first mc_open().
#pragma once

namespace mc::agent {
void register_embedded_agent();
}  // namespace mc::agent
