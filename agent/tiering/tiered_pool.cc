// SPDX-License-Identifier: Apache-2.0
#include "agent/tiering/tiered_pool.h"

namespace mc::agent {

namespace {

constexpr unsigned kReplicasMask = 7;
constexpr unsigned kUnannouncedShift = 3;

}  // namespace

std::uint8_t marks_of(const SharedObject& object) {
  return static_cast<std::uint8_t>((object.replicas - 1) | static_cast<unsigned>(object.unannounced)
                                                               << kUnannouncedShift);
}

SharedObject shared_object(const tier::TierKey& key, std::uint64_t version, std::uint64_t length,
                           unsigned marks) {
  using Unannounced = VersionBook::Unannounced;
  const auto unannounced = static_cast<Unannounced>(marks >> kUnannouncedShift & 3);
  return {.name = shared_name_of(key),
          .version = version,
          .length = length,
          .replicas = static_cast<std::uint8_t>((marks & kReplicasMask) + 1),
          .unannounced = unannounced == Unannounced::kStripe ? Unannounced::kNo : unannounced};
}

}  // namespace mc::agent
