// SPDX-License-Identifier: Apache-2.0
//
// The part of an operation that a single lane carries.
// Threads: a value.
#pragma once

#include "transport/flow/operations.h"
#include "transport/priority.h"
#include "transport/tcp/frame.h"

namespace mc::transport::tcp {

struct Slice {
  OperationId operation = kNoOperation;  // none: a ping or a cut
  Expected expected;
  std::uint64_t offset_bytes = 0;  // in the operation
  std::uint32_t size_bytes = 0;
  std::uint32_t received_bytes = 0;
  std::uint64_t asked_ns = 0;
  Priority priority = Priority::kForeground;
  Cursor start;
  Cursor at;
};

}  // namespace mc::transport::tcp
