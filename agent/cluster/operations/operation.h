// SPDX-License-Identifier: Apache-2.0
//
// An operation: work that needs answers of masters or peers, or transfers. A fetch of an object, a
//   read of bytes and a question to a holder are operations. An operation is data and a step().
// Threads: the agent's loop.
// Owns: the data of one operation. The OperationTable owns the operation.
#pragma once

#include <compare>
#include <cstdint>

#include "transport/transport.h"

namespace mc::agent {

class ClusterTenant;

enum class OperationKind : std::uint8_t {
  kNone,
  kFetch,
  kCopy,
  kRead,
  kAsk,
  kGather,
  kPlace,
  kStripe,
  kMove,
  kPut,
  kRemove,
  kReplicas,
  kSeal
};

// Names an operation. The id is the cookie of the operation's transfers, and the number of the
// operation's requests to peers. No other operation gets the same id for the next 2^28 operations.
class OperationId {
 public:
  OperationId() = default;
  OperationId(OperationKind kind, std::uint32_t serial)
      : value_(static_cast<std::uint32_t>(kind) << kSerialBits | (serial & kMostSerial)) {}
  // Returns no id if the number is none.
  static OperationId of(std::uint64_t number) {
    OperationId id;
    if (number <= UINT32_MAX) id.value_ = static_cast<std::uint32_t>(number);
    return id;
  }

  OperationKind kind() const { return static_cast<OperationKind>(value_ >> kSerialBits); }
  std::uint32_t value() const { return value_; }
  explicit operator bool() const { return value_ != 0; }
  auto operator<=>(const OperationId&) const = default;

  static constexpr unsigned kSerialBits = 28;
  static constexpr std::uint32_t kMostSerial = (1u << kSerialBits) - 1;

 private:
  std::uint32_t value_ = 0;
};

class Operation {
 public:
  static constexpr std::uint64_t kNever = UINT64_MAX;

  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  OperationId id() const { return id_; }
  // Null: no namespace, or not known yet.
  ClusterTenant* tenant() const { return tenant_; }
  // The operation has ended. Only the parent still sees the operation.
  bool over() const { return over_; }

 private:
  friend class OperationTable;

  // Does all that the stored values permit. OperationTable::run() calls step(), so that no step runs
  // within another step.
  virtual void step() = 0;
  // A transfer with this operation's id as the cookie has ended.
  virtual void on_event(const transport::Event&) {}
  // Nobody wants the result any more. The operation tells everybody who still waits, and ends: now,
  // or when no transfer uses the operation's memory.
  virtual void cancel() = 0;

  OperationId id_;
  OperationId parent_;
  ClusterTenant* tenant_ = nullptr;
  std::uint64_t wake_ns_ = kNever;
  bool awake_ = false;  // step() is due
  bool cancelled_ = false;
  bool over_ = false;
};

}  // namespace mc::agent
