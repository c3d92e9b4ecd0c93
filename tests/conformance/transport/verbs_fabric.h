// SPDX-License-Identifier: Apache-2.0
//
// Simulated RDMA devices below the table of verbs. The devices move bytes between the
//   regions of a process as a NIC would between hosts, and check keys and rights. Devices fail on
//   request: no queue pairs or locked memory left, paths cut, devices removed, completions late. A
//   device works when a completion queue is polled, and at no other time.
// Threads: a single thread; any for registering memory.
// Owns: devices and the objects that the verbs made.
// Trusts: the tests. Every use of a destroyed object is detected.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/rdma/verbs.h"

namespace mc::transport::testing {

struct FabricDevice {
  std::string name;
  std::uint8_t subnet = 0;  // the address is 10.77.subnet.host
  std::uint8_t host = 1;
  int max_pairs = 1000;
  std::uint64_t lockable_bytes = ~std::uint64_t{0};
  int max_pieces = 16;
  bool faults_pages = false;
  bool takes_dmabuf = true;
  ibv_mtu mtu = IBV_MTU_4096;
  std::uint8_t lanes = 0, lane_speed = 0;  // of the line, as reported by ports
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_node_type node_type = IBV_NODE_CA;
};

class VerbsFabric {
 public:
  VerbsFabric();
  ~VerbsFabric();
  VerbsFabric(const VerbsFabric&) = delete;
  VerbsFabric& operator=(const VerbsFabric&) = delete;

  static rdma::Verbs verbs();  // of the only fabric

  void add(const FabricDevice& device);
  FabricDevice& device(const std::string& name);
  // The device reports the removal, and answers no more calls.
  void remove(const std::string& name);
  // Packets between the devices of a subnet are lost, without a report.
  void cut(std::uint8_t subnet, bool is_cut);
  // The port of the device goes down or up, with a report.
  void set_port(const std::string& name, bool is_up);
  // Every request posted from now on ends with the given status.
  void fail_with(ibv_wc_status status) { failure_ = status; }
  // Requests of destroyed queue pairs still complete afterwards, with success.
  void complete_late(bool late) { late_ = late; }
  // While this holds, posted requests are not carried out.
  void hold(bool is_held) { held_ = is_held; }
  // For measurements: bytes are not moved, and keys are not checked.
  void do_nothing(bool nothing) { nothing_ = nothing; }

  std::size_t pairs() const;
  std::size_t registrations() const;
  std::uint64_t remote_writable_bytes() const;
  std::uint64_t doorbells() const { return doorbells_; }
  std::uint64_t requests() const { return requests_; }
  std::uint64_t signalled_requests() const { return signalled_requests_; }
  std::uint64_t late_completions() const { return late_completions_; }
  unsigned last_access() const { return last_access_; }
  int last_dmabuf_fd() const { return last_dmabuf_fd_; }

  struct State;

 private:
  friend struct State;
  std::unique_ptr<State> state_;
  ibv_wc_status failure_ = IBV_WC_SUCCESS;
  bool late_ = false;
  bool held_ = false;
  bool nothing_ = false;
  std::uint64_t doorbells_ = 0;
  std::uint64_t requests_ = 0;
  std::uint64_t signalled_requests_ = 0;
  std::uint64_t late_completions_ = 0;
  std::atomic<unsigned> last_access_ = 0;  // threads register at once
  std::atomic<int> last_dmabuf_fd_ = -1;
};

}  // namespace mc::transport::testing
