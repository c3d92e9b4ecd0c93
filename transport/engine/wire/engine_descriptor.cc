// SPDX-License-Identifier: Apache-2.0
#include "transport/engine/wire/engine_descriptor.h"

#include <cstring>
#include <string>

#include "transport/engine/wire/directory.h"

namespace mc::transfer {

EngineDescriptor blank_engine_descriptor() {
  EngineDescriptor engine_descriptor{};
  engine_descriptor.magic = kEngineDescriptorMagic;
  engine_descriptor.version = kEngineDescriptorVersion;
  engine_descriptor.size_bytes = sizeof engine_descriptor;
  return engine_descriptor;
}

Result<EngineDescriptor> decode_engine_descriptor(std::span<const std::byte> bytes) {
  EngineDescriptor engine_descriptor;
  if (bytes.size() != sizeof engine_descriptor)
    return fail(MC_INVALID_ARGUMENT, "an engine descriptor has 160 bytes");
  std::memcpy(&engine_descriptor, bytes.data(), sizeof engine_descriptor);
  if (engine_descriptor.magic != kEngineDescriptorMagic) {
    return fail(MC_INVALID_ARGUMENT, "the process at that address is not a transfer engine");
  }
  if (engine_descriptor.version != kEngineDescriptorVersion ||
      engine_descriptor.size_bytes != sizeof engine_descriptor) {
    return fail(MC_VERSION_MISMATCH, "the peer's engine speaks version " +
                                         std::to_string(engine_descriptor.version) + ", this one " +
                                         std::to_string(kEngineDescriptorVersion) +
                                         "; upgrade the older one");
  }
  if (engine_descriptor.reserved0 != 0 || engine_descriptor.reserved1 != 0 ||
      engine_descriptor.node == 0 || engine_descriptor.directory_bytes < kDirectoryHeadBytes ||
      engine_descriptor.directory_bytes > kMaxDirectoryBytes) {
    return fail(MC_INVALID_ARGUMENT, "the peer's engine descriptor has a field out of range");
  }
  return engine_descriptor;
}

}  // namespace mc::transfer
