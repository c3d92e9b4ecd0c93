// SPDX-License-Identifier: Apache-2.0
#include "libmc/auth/cluster_hello.h"

#include <openssl/rand.h>

#include <cstdlib>
#include <cstring>

#include "libmc/auth/little_endian.h"
#include "libmc/base/hash.h"

namespace mc::auth {

namespace {

// The line ends reveal a connection on which a proxy translates text.
constexpr std::string_view kMagic("mcrpc\r\n\0", 8);

}  // namespace

std::uint64_t cluster_tag(std::string_view cluster_id) {
  return hash_key(cluster_id.data(), cluster_id.size(), 0);
}

std::array<char, kNonceBytes> make_nonce() {
  std::array<char, kNonceBytes> nonce;
  // Without randomness a proof could be replayed, so the process must end.
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), kNonceBytes) != 1) std::abort();
  return nonce;
}

std::array<char, kHelloBytes> encode_hello(const ClusterHello& hello) {
  std::array<char, kHelloBytes> bytes;
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  store(bytes.data(), 8, hello.version);
  store(bytes.data(), 10, static_cast<std::uint8_t>(hello.role));
  store(bytes.data(), 11, static_cast<std::uint8_t>(hello.keyed ? 1 : 0));
  store(bytes.data(), 12, hello.features);
  store(bytes.data(), 16, hello.node);
  store(bytes.data(), 24, hello.incarnation);
  std::memcpy(bytes.data() + 32, hello.nonce.data(), kNonceBytes);
  store(bytes.data(), 64, hello.cluster);
  return bytes;
}

Result<ClusterHello> decode_hello(std::string_view bytes) {
  if (bytes.size() != kHelloBytes || bytes.substr(0, kMagic.size()) != kMagic) {
    return fail(MC_VERSION_MISMATCH,
                "the peer does not speak mc's protocol; is the address right, and do both sides "
                "use TLS or neither?");
  }
  ClusterHello hello;
  hello.version = load<std::uint16_t>(bytes.data(), 8);
  if (hello.version != kProtocolVersion) {
    return fail(MC_VERSION_MISMATCH, "the peer speaks version " + std::to_string(hello.version) +
                                         " of mc's protocol, this side version " +
                                         std::to_string(kProtocolVersion) + "; upgrade the older");
  }
  const auto role = load<std::uint8_t>(bytes.data(), 10);
  const auto auth = load<std::uint8_t>(bytes.data(), 11);
  if (role < 1 || role > static_cast<std::uint8_t>(Role::kEngine) || auth > 1) {
    return fail(MC_VERSION_MISMATCH,
                "the hello has an unknown role or proof; upgrade the older side");
  }
  hello.role = static_cast<Role>(role);
  hello.keyed = auth == 1;
  hello.features = load<std::uint32_t>(bytes.data(), 12);
  hello.node = load<std::uint64_t>(bytes.data(), 16);
  hello.incarnation = load<std::uint64_t>(bytes.data(), 24);
  std::memcpy(hello.nonce.data(), bytes.data() + 32, kNonceBytes);
  hello.cluster = load<std::uint64_t>(bytes.data(), 64);
  return hello;
}

Status check_hello(const ClusterHello& own, const ClusterHello& peer) {
  const auto takes_any = [](const ClusterHello& side) {
    return side.role == Role::kTool && side.cluster == 0;
  };
  if (own.cluster != peer.cluster && !takes_any(own) && !takes_any(peer)) {
    return {MC_INVALID_ARGUMENT,
            "the peer belongs to another cluster; compare the addresses and cluster ids"};
  }
  if (own.keyed && !peer.keyed) {
    return {MC_WRONG_KEY, "the peer has no cluster key; give both sides the same key file"};
  }
  if (!own.keyed && peer.keyed) {
    return {MC_WRONG_KEY, "the peer requires a cluster key; give this side its key file too"};
  }
  if (own.keyed && own.nonce == peer.nonce) {
    return {MC_PERMISSION_DENIED, "the peer repeats this side's nonce"};
  }
  return {};
}

std::array<char, kAdmissionBytes> encode_admission(Admission admission, const Proof& proof) {
  std::array<char, kAdmissionBytes> bytes{};
  store(bytes.data(), 0, static_cast<std::uint16_t>(admission));
  std::memcpy(bytes.data() + 8, proof.data(), kProofBytes);
  return bytes;
}

AdmissionText decode_admission(std::string_view bytes) {
  AdmissionText text;
  if (bytes.size() != kAdmissionBytes) return text;
  const auto code = load<std::uint16_t>(bytes.data(), 0);
  if (code <= static_cast<std::uint16_t>(Admission::kFull))
    text.admission = static_cast<Admission>(code);
  std::memcpy(text.proof.data(), bytes.data() + 8, kProofBytes);
  return text;
}

std::string proof_text(bool of_dialer, const ClusterHello& dialer, const ClusterHello& listener,
                       std::string_view channel_binding) {
  std::string text = of_dialer ? "mc dialer v1\n" : "mc listener v1\n";
  const auto first = encode_hello(dialer);
  const auto second = encode_hello(listener);
  text.append(first.data(), first.size());
  text.append(second.data(), second.size());
  text.append(channel_binding);
  return text;
}

}  // namespace mc::auth
