// SPDX-License-Identifier: Apache-2.0
//
// The four messages of fixed size before the first frame. Each side names itself and
//   proves that it belongs to the cluster.
//
//     dialer ── Hello (72 bytes, with a nonce) ──────────────────► listener
//            ◄── Hello (72 bytes, with a nonce) ──
//            ── proof (32): HMAC(key, "dialer", transcript) ─────►
//            ◄── Admission (40): code, HMAC(key, "listener", transcript)
//
// transcript = both hellos and, with TLS, the session's exported keying material. So a proof is
// valid for this connection and this direction only, and cannot be carried into another connection.
// The dialer proves first, so a stranger receives no bytes from which the key could be guessed.
//
//   Hello   0       8         10     11     12         16     24            32      64        72
//           │ magic │ version │ role │ auth │ features │ node │ incarnation │ nonce │ cluster │
//   Admission 0      2         8       40
//           │ code │ 0 … 0   │ proof │
//
// Threads: values.
// Trusts: nothing. check_hello() names each mismatch.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "libmc/auth/cluster_key.h"
#include "mc/status.h"

namespace mc::auth {

inline constexpr std::size_t kHelloBytes = 72;
inline constexpr std::size_t kAdmissionBytes = 40;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::uint16_t kProtocolVersion = 1;
inline constexpr std::uint32_t kFeatures = 0;  // bits for abilities of later versions

enum class Role : std::uint8_t { kAgent = 1, kMaster = 2, kTool = 3, kEngine = 4 };

struct ClusterHello {
  std::uint16_t version = kProtocolVersion;
  Role role = Role::kTool;
  bool keyed = false;  // has a cluster key, and requires one of the peer
  std::uint32_t features = kFeatures;
  std::uint64_t node = 0;
  std::uint64_t incarnation = 0;
  std::array<char, kNonceBytes> nonce{};
  std::uint64_t cluster = 0;  // cluster_tag(); 0 from a kTool: any cluster
  bool operator==(const ClusterHello&) const = default;
};

enum class Admission : std::uint16_t { kWelcome, kRefused, kFull };

// Detects a wrong address early. The tag is no secret.
std::uint64_t cluster_tag(std::string_view cluster_id);
std::array<char, kNonceBytes> make_nonce();

std::array<char, kHelloBytes> encode_hello(const ClusterHello& hello);
// Errors: MC_VERSION_MISMATCH: another protocol, or another version of this protocol.
Result<ClusterHello> decode_hello(std::string_view bytes);
// Whether the two sides may continue. Errors: MC_WRONG_KEY, MC_PERMISSION_DENIED and
// MC_INVALID_ARGUMENT with the remedy.
Status check_hello(const ClusterHello& own, const ClusterHello& peer);

std::array<char, kAdmissionBytes> encode_admission(Admission admission, const Proof& proof);
struct AdmissionText {
  Admission admission = Admission::kRefused;
  Proof proof{};
};
AdmissionText decode_admission(std::string_view bytes);

// The bytes that a proof is made over.
std::string proof_text(bool of_dialer, const ClusterHello& dialer, const ClusterHello& listener,
                       std::string_view channel_binding);

}  // namespace mc::auth
