// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/queue_pair.h"

#include <cerrno>
#include <cstring>

#include "libmc/base/fd.h"

namespace mc::transport::rdma {

namespace {
constexpr std::uint8_t kReceiverNotReadyTimer = 12;  // 0.64 ms until a notification is sent again
constexpr std::uint8_t kRetryForEver = 7;            // the link tells when the receiver is dead
constexpr std::uint8_t kHopLimit = 64;
}  // namespace

Result<QueuePair> QueuePair::create_asking(Device& device, const RdmaOptions& options) {
  return create(device, options, true);
}
Result<QueuePair> QueuePair::create_serving(Device& device, const RdmaOptions& options) {
  return create(device, options, false);
}

Result<QueuePair> QueuePair::create(Device& device, const RdmaOptions& options, bool asking) {
  QueuePair made;
  made.device_ = &device;
  made.options_ = &options;
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = device.completions();
  attributes.recv_cq = device.completions();
  attributes.srq = asking ? nullptr : device.receives();
  attributes.cap.max_send_wr = asking ? kPairDepth : 1;
  attributes.cap.max_send_sge = asking ? device.max_pieces() : 1;
  attributes.cap.max_recv_wr = asking ? 1 : 0;
  attributes.cap.max_recv_sge = asking ? 1 : 0;
  attributes.cap.max_inline_data = asking ? kInlineBytes : 0;
  made.pair_ = device.verbs().create_qp(device.domain(), &attributes);
  if (made.pair_ == nullptr && asking) {
    // Some devices have no inline data.
    attributes.cap.max_inline_data = 0;
    made.pair_ = device.verbs().create_qp(device.domain(), &attributes);
  }
  if (made.pair_ == nullptr) {
    return fail(MC_NO_MEMORY,
                errno_text("create a queue pair on RDMA device " + device.name(), errno) +
                    "; other programs may hold too many, or the limit of locked "
                    "memory is too low (ulimit -l)");
  }
  made.inline_bytes_ = std::min(attributes.cap.max_inline_data, kInlineBytes);
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.pkey_index = options.pkey_index;
  init.port_num = options.port;
  // Each region has separate rights for peers. No peer reaches memory through an asking end.
  init.qp_access_flags = asking ? 0u : IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  const int error = device.verbs().modify_qp(
      made.pair_, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) {
    return fail(MC_UNSUPPORTED,
                errno_text("queue pair of RDMA device " + device.name() + ": partition key " +
                               std::to_string(options.pkey_index) + ", port " +
                               std::to_string(options.port),
                           error));
  }
  return made;
}

QueuePair::~QueuePair() {
  if (pair_ != nullptr) static_cast<void>(device_->verbs().destroy_qp(pair_));
}

Status QueuePair::to_ready_to_receive(const RemoteEnd& end) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(end.mtu);
  attributes.dest_qp_num = end.pair_number;
  attributes.rq_psn = end.packet_number;
  attributes.max_dest_rd_atomic = end.read_depth;
  attributes.min_rnr_timer = kReceiverNotReadyTimer;
  attributes.ah_attr.port_num = options_->port;
  attributes.ah_attr.sl = options_->service_level;
  attributes.ah_attr.dlid = end.address.lid;
  if (end.address.layer == LinkLayer::kEthernet) {
    attributes.ah_attr.is_global = 1;
    std::memcpy(attributes.ah_attr.grh.dgid.raw, end.address.gid.data(), end.address.gid.size());
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(device_->gid_index());
    attributes.ah_attr.grh.hop_limit = kHopLimit;
    attributes.ah_attr.grh.traffic_class = options_->traffic_class;
  }
  const int error = device_->verbs().modify_qp(
      pair_, &attributes,
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) return {};
  return {MC_UNSUPPORTED,
          errno_text("RDMA device " + device_->name() + " finds no way to its peer", error) +
              "; are both in one network, and is the route up?"};
}

Status QueuePair::answer_to(const RemoteEnd& end) { return to_ready_to_receive(end); }

Status QueuePair::open_to(const RemoteEnd& end, std::uint32_t own_packet_number) {
  RemoteEnd nobody_asks = end;
  nobody_asks.read_depth = 1;
  Status status = to_ready_to_receive(nobody_asks);
  if (!status.ok()) return status;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = options_->ack_timeout;
  attributes.retry_cnt = options_->retry_count;
  attributes.rnr_retry = kRetryForEver;
  attributes.sq_psn = own_packet_number;
  attributes.max_rd_atomic = end.read_depth;
  const int error =
      device_->verbs().modify_qp(pair_, &attributes,
                                 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error == 0) return {};
  return {MC_UNSUPPORTED, errno_text("RDMA device " + device_->name() + ": ready to send", error)};
}

void QueuePair::stop() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  static_cast<void>(device_->verbs().modify_qp(pair_, &attributes, IBV_QP_STATE));
}

}  // namespace mc::transport::rdma
