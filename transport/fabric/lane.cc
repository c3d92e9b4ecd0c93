// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/lane.h"

#include <dirent.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <string_view>

namespace mc::transport::fabric {

namespace {

// Limit of polls that drain an ended connection; each poll takes a part.
constexpr int kMostLooks = 4096;

// Later fields of a sockaddr_in6 differ between equal addresses.
bool is_same(const sockaddr_storage& one, const sockaddr_storage& other) {
  if (one.ss_family != other.ss_family) return false;
  if (one.ss_family == AF_INET) {
    const auto& a = reinterpret_cast<const sockaddr_in&>(one);
    const auto& b = reinterpret_cast<const sockaddr_in&>(other);
    return a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
  }
  if (one.ss_family != AF_INET6) return false;
  const auto& a = reinterpret_cast<const sockaddr_in6&>(one);
  const auto& b = reinterpret_cast<const sockaddr_in6&>(other);
  return a.sin6_port == b.sin6_port &&
         std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) == 0;
}

// Ends this process' connections to the address, a sockaddr_in or sockaddr_in6. A remedy for an
// error of libfabric's tcp provider before 1.18. If an endpoint is closed while the answer to a
// read arrives, the provider frees the read twice, and ofi_rxm then follows a null pointer. The
// provider frees a read correctly after the read's connection has ended. So connections are ended
// first, and the endpoint is closed when the provider has seen that.
void end_tcp_connections(std::span<const std::uint8_t> address) {
  sockaddr_storage wanted{};
  if (address.size() > sizeof wanted) return;
  std::memcpy(&wanted, address.data(), address.size());
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir("/proc/self/fd"), ::closedir);
  if (list == nullptr) return;
  while (const dirent* entry = ::readdir(list.get())) {
    const std::string_view name(entry->d_name);
    int fd = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), fd);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    if (is_same(peer, wanted)) static_cast<void>(::shutdown(fd, SHUT_RDWR));
  }
}

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
