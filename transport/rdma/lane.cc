// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/lane.h"

namespace mc::transport::rdma {

void Lane::link_chain() {
  for (std::uint32_t i = 0; i < kMaxChain; ++i) {
    chain_[i].next = i + 1 < kMaxChain ? &chain_[i + 1] : nullptr;
    chain_[i].sg_list = pieces_[i].data();
  }
}

// An empty write needs no key, touches no memory, and completes if there is a way to the peer.
void Lane::add_probe() {
  const Next probe = next();
  probe.slice = {};
  probe.request.num_sge = 0;
  probe.request.wr.rdma.remote_addr = 0;
  probe.request.wr.rdma.rkey = 0;
  add(probe, Verb::kWrite, 0);
}

bool Lane::flush() {
  if (chained_ == 0) return !failed_;
  ibv_send_wr& last = chain_[chained_ - 1];
  last.send_flags |= IBV_SEND_SIGNALED;
  last.next = nullptr;
  unsignalled_bytes_ = 0;
  ibv_send_wr* bad = nullptr;
  if (!failed_ && device().verbs().post_send(pair_.get(), chain_.data(), &bad) != 0) failed_ = true;
  if (chained_ < kMaxChain) last.next = &chain_[chained_];
  chained_ = 0;
  return !failed_;
}

void Lane::end() {
  if (pair_.get() != nullptr) pair_.stop();
  const QueuePair gone = std::move(pair_);
  chained_ = 0;
  failed_ = true;
}

}  // namespace mc::transport::rdma
