// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/lane.h"

#include <rdma/fi_errno.h>

#include "transport/fabric/tcp_connections.h"

namespace mc::transport::fabric {

namespace {
// Limit of polls that drain an ended connection; each poll takes a part.
constexpr int kMostLooks = 4096;
}  // namespace

Lane::Lane(Domain& domain, Endpoint endpoint, const DomainEntry& remote)
    : domain_(domain),
      endpoint_(std::move(endpoint)),
      remote_(remote.address.begin(), remote.address.begin() + remote.address_bytes) {
  free_.reserve(kLaneDepth);
  for (Request& request : requests_) free_.push_back(&request);
}

Result<std::unique_ptr<Lane>> Lane::open(Domain& domain, const DomainEntry& remote) {
  auto endpoint = domain.make_endpoint(2 * kLaneDepth);
  if (!endpoint) return fail(endpoint.error());
  std::unique_ptr<Lane> lane(new Lane(domain, std::move(*endpoint), remote));
  if (fi_av_insert(lane->endpoint_.addresses(), remote.address.data(), 1, &lane->address_, 0,
                   nullptr) != 1) {
    return fail(MC_INVALID_ARGUMENT,
                "libfabric refuses the peer's address on domain " + domain.name());
  }
  auto memory = domain.register_memory(reinterpret_cast<std::byte*>(lane->beacon_.get()),
                                       sizeof(Beacon), FI_READ);
  if (!memory) return fail(memory.error());
  lane->beacon_memory_ = std::move(*memory);
  return lane;
}

void Lane::close() {
  if (endpoint_.get() == nullptr) return;
  if (posted() > 0 && domain_.breaks_when_closed()) {
    end_tcp_connections(remote_);
    std::array<Completion, kLaneDepth> ended;
    std::size_t count = 0;
    for (int i = 0; i < kMostLooks && count < posted(); ++i) count += endpoint_.poll(ended);
  }
  endpoint_.close();
}

Lane::Posted Lane::post(const Slice& slice, Verb verb, std::span<const iovec> places,
                        std::span<void* const> descriptors, const RemotePlace& remote) {
  Request& request = *free_.back();
  std::uint64_t bytes = 0;
  for (const iovec& place : places) bytes += place.iov_len;
  const fi_rma_iov target{remote.address, bytes, remote.key};
  fi_msg_rma message{};
  message.msg_iov = places.data();
  message.desc = const_cast<void**>(descriptors.data());
  message.iov_count = places.size();
  message.addr = address_;
  message.rma_iov = &target;
  message.rma_iov_count = 1;
  message.context = &request.context;
  const ssize_t error = verb == Verb::kRead ? fi_readmsg(endpoint_.get(), &message, FI_COMPLETION)
                                            : fi_writemsg(endpoint_.get(), &message,
                                                          FI_COMPLETION | FI_DELIVERY_COMPLETE);
  if (error == -FI_EAGAIN) return Posted::kLater;
  if (error != 0) return Posted::kFailed;
  request.slice = slice;
  request.is_out = true;
  free_.pop_back();
  return Posted::kYes;
}

Lane::Posted Lane::look(const DomainEntry& remote) {
  iovec place{&beacon_->epoch, sizeof beacon_->epoch};
  void* descriptor = fi_mr_desc(beacon_memory_.get());
  return post(Slice{}, Verb::kRead, {&place, 1}, {&descriptor, 1},
              {remote.beacon_address, remote.beacon_key});
}

std::optional<Slice> Lane::take(const Completion& completion) {
  auto* request = static_cast<Request*>(completion.context);
  if (request == nullptr || !request->is_out) return std::nullopt;
  request->is_out = false;
  free_.push_back(request);
  return request->slice;
}

std::vector<Slice> Lane::outstanding() const {
  std::vector<Slice> slices;
  for (const Request& request : requests_) {
    if (request.is_out) slices.push_back(request.slice);
  }
  return slices;
}

bool Lane::carries(OperationId operation) const {
  for (const Request& request : requests_) {
    if (request.is_out && request.slice.operation == operation) return true;
  }
  return false;
}

}  // namespace mc::transport::fabric
