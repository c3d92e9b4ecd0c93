// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/policy/lru.h"
#include "agent/pool/policy/prefix.h"
#include "agent/pool/policy/s3fifo.h"

namespace mc::agent {

std::unique_ptr<EvictionPolicy> make_policy(std::string_view name) {
  if (name == "prefix") return std::make_unique<PrefixPolicy>();
  if (name == "lru") return std::make_unique<LruPolicy>();
  if (name == "s3fifo") return std::make_unique<S3FifoPolicy>();
  return nullptr;
}

std::vector<std::string_view> policy_names() { return {"prefix", "lru", "s3fifo"}; }

}  // namespace mc::agent
