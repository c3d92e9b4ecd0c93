// SPDX-License-Identifier: Apache-2.0
//
// The state machine of one proof of the cluster key (cluster_hello.h draws the messages). It
//   does no I/O: the owner sends output(), reads wanted() bytes and passes the bytes to take().
//   Masters' ports and lanes of the data network use the same machine.
//
//     dialer:   output hello ──► take hello ──► output proof ──► take admission ──► done
//     listener: take hello ──► output hello ──► take proof ──► output admission ──► done
// Threads: the owner's.
// Trusts: no peer. The machine takes at most 104 bytes.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "libmc/auth/cluster_hello.h"

namespace mc::auth {

class KeyProof {
 public:
  // own: without a nonce. full: this listener has no free link, and says so to a peer that has the
  // key. same_role: a listener accepts only peers of its own role.
  KeyProof(const ClusterHello& own, ClusterKey key, bool dialer, bool full = false,
           bool same_role = false);

  // Binds the proof to a TLS session. REQUIRES: before the hellos are exchanged.
  void bind(std::string channel_binding) { binding_ = std::move(channel_binding); }

  // Bytes to send before the next read; empty: none. The owner clears the text when sent.
  std::string& output() { return output_; }
  // Bytes to read next; 0: no more. Later bytes belong to the next protocol.
  [[nodiscard]] std::size_t wanted() const { return wanted_; }
  // REQUIRES: bytes.size() == wanted().
  void take(std::string_view bytes);

  // The proof is complete, or has failed, once output() is sent and wanted() is 0. A listener sends
  // its refusal before it reports the failure.
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] const ClusterHello& peer() const { return peer_; }

 private:
  enum class Step : std::uint8_t { kHello, kProof, kAdmission, kEnd };

  void expect(Step step, std::size_t bytes) {
    step_ = step;
    wanted_ = bytes;
  }
  void end(Status status);
  void take_hello(std::string_view bytes);
  void take_proof(std::string_view bytes);
  void take_admission(std::string_view bytes);
  [[nodiscard]] std::string text(bool of_dialer) const;

  ClusterHello own_;
  ClusterHello peer_;
  const ClusterKey key_;
  const bool dialer_;
  const bool full_;
  const bool same_role_;
  std::string binding_;
  std::string output_;
  Step step_ = Step::kHello;
  std::size_t wanted_ = kHelloBytes;
  Status status_;
};

}  // namespace mc::auth
