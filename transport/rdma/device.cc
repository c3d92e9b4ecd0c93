// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/device.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "libmc/base/fd.h"
#include "transport/rdma/message.h"

namespace mc::transport::rdma {

namespace {

constexpr int kCompletionEntries = 16 * 1024;

std::uint8_t mtu_of(std::uint32_t bytes) {
  std::uint8_t mtu = IBV_MTU_256;
  while (mtu < IBV_MTU_4096 && (256u << mtu) <= bytes) ++mtu;
  return mtu;
}

// The line rate of the port, in bytes a nanosecond; 0: unknown. Widths and speeds: InfiniBand
// Architecture Specification, PortInfo; RoCE ports use the same codes.
double line_of(const ibv_port_attr& port) {
  struct Code {
    std::uint8_t code;
    double value;
  };
  const auto value_of = [](std::span<const Code> codes, std::uint8_t code) {
    const auto at = std::ranges::find(codes, code, &Code::code);
    return at == codes.end() ? 0.0 : at->value;
  };
  constexpr Code kLanes[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  constexpr Code kGigabits[] = {{1, 2.5}, {2, 5},   {4, 10},  {8, 10},
                                {16, 14}, {32, 25}, {64, 50}, {128, 100}};
  return value_of(kLanes, port.active_width) * value_of(kGigabits, port.active_speed) / 8;
}

void make_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0) static_cast<void>(::fcntl(fd, F_SETFL, flags | O_NONBLOCK));
}

}  // namespace

Result<std::unique_ptr<Device>> Device::open(const Verbs& verbs, ibv_device* device,
                                             const RdmaOptions& options, std::uint64_t epoch) {
  std::unique_ptr<Device> opened(new Device(verbs, options, epoch));
  Status status = opened->start(device);
  if (!status.ok()) return fail(std::move(status));
  return opened;
}

Device::~Device() {
  // A removed device may refuse all of these calls; the memory goes with the context.
  if (receives_ != nullptr) verbs_->destroy_srq(receives_);
  if (buffers_region_ != nullptr) verbs_->dereg_mr(buffers_region_);
  if (completions_ != nullptr) {
    take_events();
    verbs_->destroy_cq(completions_);
  }
  if (channel_ != nullptr) verbs_->destroy_comp_channel(channel_);
  if (domain_ != nullptr) verbs_->dealloc_pd(domain_);
  if (context_ != nullptr) verbs_->close_device(context_);
}

Status Device::start(ibv_device* device) {
  name_ = verbs_->get_device_name(device);
  if (device->node_type == IBV_NODE_UNSPECIFIED) {
    return {MC_UNSUPPORTED, "RDMA device " + name_ +
                                " makes no reliable connections; for an EFA, use the fabric "
                                "transport"};
  }
  context_ = verbs_->open_device(device);
  if (context_ == nullptr) {
    return {MC_UNSUPPORTED, errno_text("open RDMA device " + name_, errno) +
                                "; is /dev/infiniband readable and writable for this user?"};
  }
  make_nonblocking(context_->async_fd);
  ibv_device_attr attributes{};
  if (const int error = verbs_->query_device(context_, &attributes); error != 0) {
    return {MC_UNSUPPORTED, errno_text("query RDMA device " + name_, error)};
  }
  faults_pages_ = options_.on_demand_paging && verbs_->faults_pages(context_);
  const int pieces = std::min(
      attributes.max_sge, attributes.max_sge_rd > 0 ? attributes.max_sge_rd : attributes.max_sge);
  max_pieces_ = std::clamp(static_cast<std::uint32_t>(pieces), 1u, kMaxSlicePieces);
  const auto depth = [](int of_device) {
    return static_cast<std::uint8_t>(std::clamp(of_device, 1, static_cast<int>(kMaxReadDepth)));
  };
  reads_out_ = depth(attributes.max_qp_init_rd_atom);
  reads_in_ = depth(attributes.max_qp_rd_atom);
  Status status = find_address();
  return status.ok() ? make_queues(attributes) : status;
}

Status Device::find_address() {
  ibv_port_attr port{};
  if (const int error = verbs_->query_port(context_, options_.port, &port); error != 0) {
    return {MC_UNSUPPORTED,
            errno_text("query port " + std::to_string(options_.port) + " of RDMA device " + name_,
                       error)};
  }
  if (port.state != IBV_PORT_ACTIVE) {
    return {MC_UNSUPPORTED, "port " + std::to_string(options_.port) + " of RDMA device " + name_ +
                                " is not active; check its cable and `rdma link`"};
  }
  const auto entries = verbs_->query_gids(context_, options_.port);
  const auto chosen = choose_gid(entries, options_.gid_index);
  if (!chosen) {
    return {MC_UNSUPPORTED,
            "RDMA device " + name_ +
                (options_.gid_index >= 0
                     ? " has no GID " + std::to_string(options_.gid_index) + "; see `rdma link`"
                     : " has no RoCE v2 address; give its network interface an IP address")};
  }
  gid_index_ = chosen->index;
  std::memcpy(address_.gid.data(), chosen->gid.raw, address_.gid.size());
  address_.layer =
      port.link_layer == IBV_LINK_LAYER_ETHERNET ? LinkLayer::kEthernet : LinkLayer::kInfiniBand;
  address_.lid = port.lid;
  line_bytes_per_ns_ = line_of(port);
  address_.mtu =
      std::min(static_cast<std::uint8_t>(port.active_mtu), mtu_of(options_.max_mtu_bytes));
  return {};
}

bool Device::address_holds() const {
  const auto entries = verbs_->query_gids(context_, options_.port);
  // While the interface is down, the addresses may be missing. That is no change of address.
  const auto chosen = choose_gid(entries, options_.gid_index);
  return !chosen || std::memcmp(chosen->gid.raw, address_.gid.data(), address_.gid.size()) == 0 ||
         std::ranges::none_of(entries, [&](const GidEntry& e) { return e.index == gid_index_; });
}

Status Device::make_queues(const ibv_device_attr& attributes) {
  const auto lacks = [&](const char* what) {
    return Status(MC_NO_MEMORY, errno_text("RDMA device " + name_ + ": " + what, errno) +
                                    "; other programs may hold too many, or the limit of locked "
                                    "memory is too low (ulimit -l)");
  };
  domain_ = verbs_->alloc_pd(context_);
  if (domain_ == nullptr) return lacks("allocate a protection domain");
  channel_ = verbs_->create_comp_channel(context_);
  if (channel_ == nullptr) return lacks("create a completion channel");
  make_nonblocking(channel_->fd);
  const int entries = std::min(kCompletionEntries, attributes.max_cqe);
  completions_ = verbs_->create_cq(context_, entries, channel_);
  if (completions_ == nullptr) return lacks("create a completion queue");
  // Half of the entries stay free for completions that destroyed queue pairs may leave behind.
  room_ = static_cast<std::uint32_t>(std::max(entries / 2 - kReceiveBuffers, 64));
  ibv_srq_init_attr srq{};
  srq.attr.max_wr = kReceiveBuffers;
  srq.attr.max_sge = 1;
  receives_ = verbs_->create_srq(domain_, &srq);
  if (receives_ == nullptr) return lacks("create a shared receive queue");
  buffers_.resize(std::size_t{kReceiveBuffers} * kMaxOneSidedNotificationBytes);
  buffers_region_ =
      verbs_->reg_mr(domain_, buffers_.data(), buffers_.size(), IBV_ACCESS_LOCAL_WRITE);
  if (buffers_region_ == nullptr) return lacks("register 1 MiB of buffers");
  for (std::uint64_t i = 0; i < kReceiveBuffers; ++i) repost(kReceiveMark | i);
  return {};
}

int Device::poll(std::span<ibv_wc> completions) {
  const int count =
      verbs_->poll_cq(completions_, static_cast<int>(completions.size()), completions.data());
  return std::max(count, 0);
}

void Device::arm() { armed_ = verbs_->req_notify_cq(completions_) == 0; }

void Device::take_events() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  unsigned count = 0;
  while (verbs_->get_cq_event(channel_, &queue, &context) == 0) ++count;
  if (count == 0) return;
  verbs_->ack_cq_events(completions_, count);
  armed_ = false;
}

std::span<const std::byte> Device::received(std::uint64_t work_id, std::uint32_t bytes) const {
  const std::uint64_t index = work_id & ~kReceiveMark;
  return {buffers_.data() + index * kMaxOneSidedNotificationBytes,
          std::min<std::size_t>(bytes, kMaxOneSidedNotificationBytes)};
}

void Device::repost(std::uint64_t work_id) {
  ibv_sge place{};
  place.addr = reinterpret_cast<std::uint64_t>(buffers_.data()) +
               (work_id & ~kReceiveMark) * kMaxOneSidedNotificationBytes;
  place.length = kMaxOneSidedNotificationBytes;
  place.lkey = buffers_region_->lkey;
  ibv_recv_wr request{};
  request.wr_id = work_id;
  request.sg_list = &place;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  static_cast<void>(verbs_->post_srq_recv(receives_, &request, &bad));
}

}  // namespace mc::transport::rdma
