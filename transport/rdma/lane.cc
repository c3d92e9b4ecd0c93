// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/lane.h"

#include <algorithm>

namespace mc::transport::rdma {

ibv_send_wr& Lane::append(const Slice& slice, std::span<const ibv_sge> places) {
  // A chain that is full leaves by itself, unsignalled work behind it or not.
  if (chained_ == kMaxChain) static_cast<void>(flush());
  slices_[tail_ % kPairDepth] = slice;
  ibv_send_wr& request = chain_[chained_];
  auto& own_places = places_[chained_];
  std::ranges::copy(places, own_places.begin());
  request.wr_id =
      std::uint64_t{index_} << 48 | std::uint64_t{generation_} << 24 | (tail_ & kPacketNumberMask);
  request.next = nullptr;
  request.sg_list = own_places.data();
  request.num_sge = static_cast<int>(places.size());
  request.send_flags = 0;
  if (chained_ > 0) chain_[chained_ - 1].next = &request;
  ++chained_;
  ++tail_;
  device().on_posted();
  return request;
}

void Lane::add(const Slice& slice, Verb verb, std::span<const ibv_sge> places,
               const RemotePlace& remote) {
  ibv_send_wr& request = append(slice, places);
  request.opcode = verb == Verb::kRead    ? IBV_WR_RDMA_READ
                   : verb == Verb::kWrite ? IBV_WR_RDMA_WRITE
                                          : IBV_WR_SEND;
  if (verb != Verb::kRead && slice.size_bytes <= pair_.inline_bytes()) {
    request.send_flags = IBV_SEND_INLINE;
  }
  request.wr.rdma.remote_addr = remote.address;
  request.wr.rdma.rkey = remote.key;
}

// A write of nothing: it needs no key, touches no memory, and is answered if there is a way.
void Lane::add_probe() {
  ibv_send_wr& request = append(Slice{}, {});
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = 0;
  request.wr.rdma.rkey = 0;
}

bool Lane::flush() {
  if (chained_ == 0) return !failed_;
  chain_[chained_ - 1].send_flags |= IBV_SEND_SIGNALED;
  chained_ = 0;
  ibv_send_wr* bad = nullptr;
  if (!failed_ && device().verbs().post_send(pair_.get(), chain_.data(), &bad) != 0) failed_ = true;
  return !failed_;
}

void Lane::end() {
  if (pair_.get() != nullptr) pair_.stop();
  const QueuePair gone = std::move(pair_);
  chained_ = 0;
  failed_ = true;
}

std::uint32_t Lane::done_by(std::uint64_t work_id) const {
  const auto number = static_cast<std::uint32_t>(work_id) & kPacketNumberMask;
  const std::uint32_t count = ((number - head_) & kPacketNumberMask) + 1;
  return count <= posted() ? count : 0;
}

void Lane::pop() {
  ++head_;
  device().on_ended(1);
}

}  // namespace mc::transport::rdma
