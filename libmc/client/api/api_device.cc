// SPDX-License-Identifier: Apache-2.0
//
// The C ABI over Client: registrations of device memory.
#include "libmc/client/api/api.h"
#include "libmc/client/device/device_copies.h"

using namespace mc;
using namespace mc::client;

namespace {

mc_status close_memory(mc_client* client, const Registrations::Memory& memory) {
  if (memory == nullptr) return MC_OK;
  auto channel = channel_of(client);
  if (!channel) return set_error(channel.error());
  (*channel)->devices().close(*memory);
  return MC_OK;
}

}  // namespace

extern "C" {

mc_status mc_register_memory(mc_client* client, const void* address, size_t size) noexcept try {
  if (client == nullptr || address == nullptr || size == 0) {
    return invalid("client and address must not be null, and size must not be 0");
  }
  if (of(client).inherited_by_fork()) return set_error(MC_FORKED);
  const device::Driver* const driver = device::Driver::found();
  if (driver == nullptr) return MC_OK;
  Registrations::Memory replaced;
  const auto added = of(client).registrations().add(*driver, address, size, &replaced);
  if (const mc_status status = close_memory(client, replaced); status != MC_OK) return status;
  return added ? MC_OK : set_error(added.error());
} catch (...) {
  return caught();
}

mc_status mc_unregister_memory(mc_client* client, const void* address) noexcept try {
  if (client == nullptr) return invalid("client must not be null");
  if (of(client).inherited_by_fork()) return set_error(MC_FORKED);
  return close_memory(client, of(client).registrations().remove(address));
} catch (...) {
  return caught();
}

}  // extern "C"
