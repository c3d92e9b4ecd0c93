// SPDX-License-Identifier: Apache-2.0
//
// Shared parts of the C ABI: access to handles, arguments, deadlines and errors.
// Threads: any thread.
// Trusts: the caller's pointers, as a C function must. Sizes, counts and flags are checked.
#pragma once

#include <algorithm>
#include <cstddef>

#include "libmc/base/clock.h"
#include "libmc/client/api/errors.h"
#include "libmc/client/client.h"
#include "libmc/client/writing.h"
#include "mc/mc.h"

namespace mc::client {

inline constexpr const char* kBadKey =
    "a key has 1 to 1024 bytes (MC_MAX_KEY_BYTES), and the prefix \"\\0mc stripe \" belongs to mc";
inline constexpr const char* kBadCount = "a batch has 1 to 1024 items (MC_MAX_BATCH_ITEMS)";

inline Client& of(mc_client* client) { return *reinterpret_cast<Client*>(client); }

inline mc_status invalid(const char* text) { return set_error(Status(MC_INVALID_ARGUMENT, text)); }

inline bool bad_count(std::size_t count) { return count - 1 >= MC_MAX_BATCH_ITEMS; }

inline std::uint64_t deadline_in(const Client& client, std::uint64_t timeout_ns) {
  if (timeout_ns == 0) timeout_ns = client.default_timeout_ns();
  return now_ns() + std::min<std::uint64_t>(timeout_ns, MC_MAX_TIMEOUT_NS);
}

// Returns the thread's channel; tries the quick path first.
inline Result<ChannelUse> channel_of(mc_client* client, std::uint64_t timeout_ns = 0) {
  if (Channel* quick = of(client).quick_channel()) return ChannelUse(quick);
  return of(client).channel(deadline_in(of(client), timeout_ns));
}

// Checks and converts the options; null means the defaults. Errors: MC_INVALID_ARGUMENT.
Result<PutRules> rules_from(const Client& client, const mc_put_options* options);

// Reads the objects that this host has; the other items get MC_NOT_FOUND.
void get_here(mc_client* client, Channel& channel, mc_get_item* items, std::size_t count);
bool bad_item(const mc_get_item& item);
mc_status first_failure(const mc_get_item* items, std::size_t count);
// False: at least one key is invalid.
bool exist_here(Channel& channel, const mc_slice* keys, std::size_t count, mc_status* statuses);

inline mc_group* group_of(const mc_put_options* options) {
  constexpr std::size_t kEnd = offsetof(mc_put_options, group) + sizeof(mc_group*);
  return options != nullptr && options->struct_size >= kEnd ? options->group : nullptr;
}

}  // namespace mc::client
