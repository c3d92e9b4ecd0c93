// SPDX-License-Identifier: Apache-2.0
#include "libmc/auth/key_proof.h"

#include <cstring>
#include <utility>

namespace mc::auth {

KeyProof::KeyProof(const ClusterHello& own, ClusterKey key, bool dialer, bool full, bool same_role)
    : own_(own), key_(std::move(key)), dialer_(dialer), full_(full), same_role_(same_role) {
  own_.keyed = key_.given();
  own_.nonce = make_nonce();
  if (dialer_) {
    const auto hello = encode_hello(own_);
    output_.assign(hello.data(), hello.size());
  }
}

void KeyProof::take(std::string_view bytes) {
  switch (step_) {
    case Step::kHello:
      return take_hello(bytes);
    case Step::kProof:
      return take_proof(bytes);
    case Step::kAdmission:
      return take_admission(bytes);
    case Step::kEnd:
      return;
  }
}

void KeyProof::end(Status status) {
  status_ = std::move(status);
  expect(Step::kEnd, 0);
}

std::string KeyProof::text(bool of_dialer) const {
  return dialer_ ? proof_text(of_dialer, own_, peer_, binding_)
                 : proof_text(of_dialer, peer_, own_, binding_);
}

void KeyProof::take_hello(std::string_view bytes) {
  auto peer = decode_hello(bytes);
  if (!peer) return end(peer.error());
  peer_ = *peer;
  if (!dialer_) {
    const auto hello = encode_hello(own_);
    output_.assign(hello.data(), hello.size());
    return expect(Step::kProof, kProofBytes);
  }
  if (Status status = check_hello(own_, peer_); !status.ok()) return end(std::move(status));
  const Proof proof = key_.given() ? key_.prove(text(true)) : Proof{};
  output_.assign(proof.data(), proof.size());
  expect(Step::kAdmission, kAdmissionBytes);
}

void KeyProof::take_proof(std::string_view bytes) {
  Proof proof;
  std::memcpy(proof.data(), bytes.data(), kProofBytes);
  Status status = check_hello(own_, peer_);
  if (status.ok() && same_role_ && peer_.role != own_.role) {
    status = {MC_PERMISSION_DENIED,
              "a lane joins two agents or two transfer engines; is the address right?"};
  }
  const ClusterKey used = key_.used_in(text(true), proof);
  if (status.ok() && key_.given() && !used.given()) {
    status = {MC_WRONG_KEY, "the peer has another cluster key"};
  }
  Admission admission = status.ok() ? Admission::kWelcome : Admission::kRefused;
  if (status.ok() && full_) {
    status = {MC_BUSY, "this master has no free link (max_links)"};
    admission = Admission::kFull;
  }
  // A dialer without the key receives no proof, which could help to guess the key.
  const bool proves = used.given() && admission != Admission::kRefused;
  const auto answer = encode_admission(admission, proves ? used.prove(text(false)) : Proof{});
  output_.assign(answer.data(), answer.size());
  end(std::move(status));
}

void KeyProof::take_admission(std::string_view bytes) {
  const AdmissionText answer = decode_admission(bytes);
  if (answer.admission == Admission::kRefused) {
    return end(
        {MC_WRONG_KEY, "the peer refused this side's proof; do both have the same cluster key?"});
  }
  if (key_.given() && !key_.proven(text(false), answer.proof)) {
    return end({MC_WRONG_KEY, "the peer did not prove the cluster key; is the address right?"});
  }
  if (answer.admission == Admission::kFull) {
    return end({MC_BUSY, "the peer has no free link; try again later"});
  }
  end({});
}

}  // namespace mc::auth
