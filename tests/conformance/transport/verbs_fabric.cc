// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/verbs_fabric.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

namespace mc::transport::testing {

namespace {

struct Device : ibv_device {
  FabricDevice is;
  bool present = true;
  bool port_up = true;
  int pairs = 0;
  std::uint64_t locked_bytes = 0;
};
struct Context : ibv_context {
  Device* of = nullptr;
  bool gone = false;
  std::deque<ibv_event_type> events;
};
struct Channel : ibv_comp_channel {
  std::deque<ibv_cq*> events;
};
struct Completions : ibv_cq {
  std::deque<ibv_wc> entries;
  Channel* calls = nullptr;
  bool armed = false;
};
struct Receives : ibv_srq {
  std::deque<std::pair<std::uint64_t, ibv_sge>> entries;
};
struct Region : ibv_mr {
  unsigned access = 0;
  std::uint64_t address = 0;
};
struct Request {
  ibv_send_wr request;
  std::vector<ibv_sge> places;
  std::vector<std::byte> payload;  // inline
};
struct Pair : ibv_qp {
  Context* of = nullptr;
  unsigned access = 0;
  std::uint32_t peer = 0;
  std::uint8_t subnet = 0;  // of the peer's address
  std::deque<Request> posted;
};

VerbsFabric* fabric = nullptr;

[[noreturn]] void wrong(const char* what) { throw std::logic_error(what); }

}  // namespace

struct VerbsFabric::State {
  std::vector<std::unique_ptr<Device>> devices;
  std::set<Context*> contexts;
  std::map<std::uint32_t, Pair*> pairs;
  std::map<std::uint32_t, Region*> regions;  // by key
  std::set<std::uint8_t> cut;
  std::mutex registering;
  std::uint32_t next_key = 100;
  std::uint32_t next_number = 17;

  void complete(Pair& pair, const Request& request, ibv_wc_status status) {
    ibv_wc done{};
    done.wr_id = request.request.wr_id;
    done.status = status;
    done.qp_num = pair.qp_num;
    push(static_cast<Completions&>(*pair.send_cq), done);
  }
  static void push(Completions& queue, const ibv_wc& done) {
    queue.entries.push_back(done);
    if (!queue.armed) return;
    queue.armed = false;
    queue.calls->events.push_back(&queue);
    const std::uint64_t one = 1;
    static_cast<void>(!::write(queue.calls->fd, &one, sizeof one));
  }

  Region* find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, unsigned right) {
    const auto at = regions.find(key);
    if (at == regions.end() || (at->second->access & right) != right) return nullptr;
    const Region& region = *at->second;
    const bool inside = address >= region.address && bytes <= region.length &&
                        address - region.address <= region.length - bytes;
    return inside ? at->second : nullptr;
  }

  // Carries out the oldest request as a NIC would. False: the request has to wait.
  bool work_on(Pair& pair) {
    Request& request = pair.posted.front();
    ibv_wc_status status = fabric->failure_;
    if (!fabric->nothing_ && status == IBV_WC_SUCCESS) {
      const auto peer = pairs.find(pair.peer);
      // A destroyed queue pair does not answer, like a queue pair behind a cut.
      if (cut.contains(pair.subnet) || pair.of->gone || peer == pairs.end() ||
          peer->second->state != IBV_QPS_RTR || peer->second->of->gone ||
          !peer->second->of->of->port_up || !pair.of->of->port_up) {
        return false;
      }
      if (request.request.opcode == IBV_WR_SEND &&
          static_cast<Receives*>(peer->second->srq)->entries.empty()) {
        return false;
      }
      status = move(request, *peer->second);
    }
    const bool tells = (request.request.send_flags & IBV_SEND_SIGNALED) != 0;
    if (tells || status != IBV_WC_SUCCESS) complete(pair, request, status);
    pair.posted.pop_front();
    if (status != IBV_WC_SUCCESS) flush(pair);
    return true;
  }

  void flush(Pair& pair) {
    pair.state = IBV_QPS_ERR;
    for (const Request& request : pair.posted) {
      if (fabric->late_) ++fabric->late_completions_;
      complete(pair, request, fabric->late_ ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
    }
    pair.posted.clear();
  }

  ibv_wc_status move(Request& request, Pair& to) {
    std::uint64_t bytes = request.payload.size();
    for (const ibv_sge& place : request.places) bytes += place.length;
    const bool reads = request.request.opcode == IBV_WR_RDMA_READ;
    if (request.request.opcode == IBV_WR_SEND) return deliver(request, to, bytes);
    if (bytes == 0) return IBV_WC_SUCCESS;
    const unsigned right = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    const auto& remote = request.request.wr.rdma;
    if ((to.access & right) == 0 || !find(remote.rkey, remote.remote_addr, bytes, right)) {
      return IBV_WC_REM_ACCESS_ERR;
    }
    auto* there = reinterpret_cast<std::byte*>(remote.remote_addr);
    if (!request.payload.empty()) std::memcpy(there, request.payload.data(), bytes);
    for (const ibv_sge& place : request.places) {
      if (!find(place.lkey, place.addr, place.length,
                reads ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0u)) {
        return IBV_WC_LOC_PROT_ERR;
      }
      auto* here = reinterpret_cast<std::byte*>(place.addr);
      std::memcpy(reads ? here : there, reads ? there : here, place.length);
      there += place.length;
    }
    return IBV_WC_SUCCESS;
  }

  ibv_wc_status deliver(const Request& request, Pair& to, std::uint64_t bytes) {
    auto& receives = static_cast<Receives*>(to.srq)->entries;
    const auto [id, place] = receives.front();
    if (bytes > place.length) return IBV_WC_REM_INV_REQ_ERR;
    receives.pop_front();
    auto* there = reinterpret_cast<std::byte*>(place.addr);
    std::ranges::copy(request.payload, there);
    for (const ibv_sge& from : request.places) {
      std::memcpy(there, reinterpret_cast<std::byte*>(from.addr), from.length);
      there += from.length;
    }
    ibv_wc done{};
    done.wr_id = id;
    done.byte_len = static_cast<std::uint32_t>(bytes);
    done.qp_num = to.qp_num;
    push(static_cast<Completions&>(*to.recv_cq), done);
    return IBV_WC_SUCCESS;
  }

  static void say(Context& context, ibv_event_type type) {
    context.events.push_back(type);
    const std::uint64_t one = 1;
    static_cast<void>(!::write(context.async_fd, &one, sizeof one));
  }
};

namespace {

using State = VerbsFabric::State;
State* state = nullptr;

int event_fd() { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

template <typename Event>
bool take_event(int fd, std::deque<Event>& events, Event* event) {
  std::uint64_t count = 0;
  static_cast<void>(!::read(fd, &count, sizeof count));
  if (events.empty()) {
    errno = EAGAIN;
    return false;
  }
  *event = events.front();
  events.pop_front();
  return true;
}

ibv_device** get_device_list(int* count) {
  auto** list = new ibv_device*[state->devices.size() + 1];
  *count = 0;
  for (auto& device : state->devices) {
    if (device->present) list[(*count)++] = device.get();
  }
  return list;
}

ibv_context* open_device(ibv_device* device) {
  auto* context = new Context;
  context->device = device;
  context->of = static_cast<Device*>(device);
  context->async_fd = event_fd();
  state->contexts.insert(context);
  return context;
}

int close_device(ibv_context* context) {
  for (const auto& [number, pair] : state->pairs) {
    if (pair->of == context) wrong("a device was closed before a queue pair of it");
  }
  ::close(context->async_fd);
  state->contexts.erase(static_cast<Context*>(context));
  delete static_cast<Context*>(context);
  return 0;
}

int query_device(ibv_context* context, ibv_device_attr* attributes) {
  const FabricDevice& is = static_cast<Context*>(context)->of->is;
  attributes->max_sge = attributes->max_sge_rd = is.max_pieces;
  attributes->max_cqe = 32767;
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 16;
  return 0;
}

int query_port(ibv_context* context, std::uint8_t, ibv_port_attr* attributes) {
  const Device& device = *static_cast<Context*>(context)->of;
  attributes->state = device.port_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->active_mtu = device.is.mtu;
  attributes->active_width = device.is.lanes;
  attributes->active_speed = device.is.lane_speed;
  attributes->link_layer = device.is.link_layer;
  attributes->lid = device.is.host;
  return 0;
}

std::vector<rdma::GidEntry> query_gids(ibv_context* context, std::uint8_t) {
  const FabricDevice& is = static_cast<Context*>(context)->of->is;
  rdma::GidEntry local;
  local.gid.raw[0] = 0xfe;
  local.gid.raw[1] = 0x80;
  local.gid.raw[15] = is.host;
  rdma::GidEntry ipv4;
  const std::uint8_t raw[16] = {0, 0, 0,    0,    0,  0,  0,         0,
                                0, 0, 0xff, 0xff, 10, 77, is.subnet, is.host};
  std::memcpy(ipv4.gid.raw, raw, sizeof raw);
  ipv4.index = 1;
  const auto type = is.link_layer == IBV_LINK_LAYER_ETHERNET ? rdma::GidType::kRoceV2
                                                             : rdma::GidType::kInfiniBand;
  local.type = ipv4.type = type;
  return {local, ipv4};
}

ibv_mr* register_memory(ibv_pd* domain, std::uint64_t address, std::size_t bytes, unsigned access) {
  const std::scoped_lock lock(state->registering);
  Device& device = *static_cast<Context*>(domain->context)->of;
  if (bytes > device.is.lockable_bytes - std::min(device.is.lockable_bytes, device.locked_bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  device.locked_bytes += bytes;
  auto* region = new Region;
  region->context = domain->context;
  region->pd = domain;
  region->address = address;
  region->length = bytes;
  region->access = access;
  region->lkey = region->rkey = state->next_key++;
  state->regions[region->rkey] = region;
  return region;
}

int dereg_mr(ibv_mr* given) {
  auto* region = static_cast<Region*>(given);
  static_cast<Context*>(region->context)->of->locked_bytes -= region->length;
  state->regions.erase(region->rkey);
  delete region;
  return 0;
}

ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  auto* context = static_cast<Context*>(domain->context);
  if (context->of->pairs >= context->of->is.max_pairs) {
    errno = ENOMEM;
    return nullptr;
  }
  ++context->of->pairs;
  auto* pair = new Pair;
  pair->of = context;
  pair->context = context;
  pair->send_cq = attributes->send_cq;
  pair->recv_cq = attributes->recv_cq;
  pair->srq = attributes->srq;
  pair->qp_num = state->next_number++;
  pair->state = IBV_QPS_RESET;
  state->pairs[pair->qp_num] = pair;
  return pair;
}

int modify_qp(ibv_qp* given, ibv_qp_attr* attributes, int mask) {
  auto& pair = static_cast<Pair&>(*given);
  if (!state->pairs.contains(pair.qp_num)) wrong("a queue pair was used after its end");
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) pair.access = attributes->qp_access_flags;
  if ((mask & IBV_QP_DEST_QPN) != 0) {
    pair.peer = attributes->dest_qp_num;
    pair.subnet = attributes->ah_attr.grh.dgid.raw[14];
  }
  if ((mask & IBV_QP_STATE) == 0) return 0;
  pair.state = attributes->qp_state;
  if (pair.state == IBV_QPS_ERR) state->flush(pair);
  return 0;
}

}  // namespace

std::size_t VerbsFabric::pairs() const { return state_->pairs.size(); }
std::size_t VerbsFabric::registrations() const { return state_->regions.size(); }

std::uint64_t VerbsFabric::remote_writable_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [key, region] : state_->regions) {
    if ((region->access & IBV_ACCESS_REMOTE_WRITE) != 0) bytes += region->length;
  }
  return bytes;
}

VerbsFabric::VerbsFabric() : state_(std::make_unique<State>()) {
  if (fabric != nullptr) wrong("there is one fabric at a time");
  fabric = this;
  state = state_.get();
}

VerbsFabric::~VerbsFabric() {
  fabric = nullptr;
  state = nullptr;
}

void VerbsFabric::add(const FabricDevice& device) {
  state_->devices.push_back(std::make_unique<Device>());
  state_->devices.back()->is = device;
  state_->devices.back()->node_type = device.node_type;
}

FabricDevice& VerbsFabric::device(const std::string& name) {
  for (auto& device : state_->devices) {
    if (device->is.name == name && device->present) return device->is;
  }
  wrong("no such device");
}

void VerbsFabric::remove(const std::string& name) {
  for (auto& device : state_->devices) {
    if (device->is.name != name || !device->present) continue;
    device->present = false;
    for (Context* context : state_->contexts) {
      if (context->of != device.get()) continue;
      context->gone = true;
      State::say(*context, IBV_EVENT_DEVICE_FATAL);
    }
  }
}

void VerbsFabric::cut(std::uint8_t subnet, bool is_cut) {
  if (is_cut) {
    state_->cut.insert(subnet);
  } else {
    state_->cut.erase(subnet);
  }
}

void VerbsFabric::set_port(const std::string& name, bool is_up) {
  for (Context* context : state_->contexts) {
    if (context->of->is.name != name) continue;
    context->of->port_up = is_up;
    State::say(*context, is_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  }
}

rdma::Verbs VerbsFabric::verbs() {
  rdma::Verbs verbs;
  verbs.get_device_list = get_device_list;
  verbs.free_device_list = [](ibv_device** list) { delete[] list; };
  verbs.get_device_name = [](ibv_device* device) {
    return static_cast<Device*>(device)->is.name.c_str();
  };
  verbs.open_device = open_device;
  verbs.close_device = close_device;
  verbs.query_device = query_device;
  verbs.faults_pages = [](ibv_context* context) {
    return static_cast<Context*>(context)->of->is.faults_pages;
  };
  verbs.query_port = query_port;
  verbs.query_gids = query_gids;
  verbs.alloc_pd = [](ibv_context* context) {
    auto* domain = new ibv_pd{};
    domain->context = context;
    return domain;
  };
  verbs.dealloc_pd = [](ibv_pd* domain) {
    delete domain;
    return 0;
  };
  verbs.reg_mr = [](ibv_pd* domain, void* data, std::size_t bytes, unsigned access) {
    fabric->last_access_ = access;
    return register_memory(domain, reinterpret_cast<std::uint64_t>(data), bytes, access);
  };
  verbs.reg_dmabuf_mr = [](ibv_pd* domain, std::uint64_t, std::size_t bytes, std::uint64_t address,
                           int fd, unsigned access) -> ibv_mr* {
    fabric->last_dmabuf_fd_ = fd;
    if (static_cast<Context*>(domain->context)->of->is.takes_dmabuf) {
      return register_memory(domain, address, bytes, access);
    }
    errno = EOPNOTSUPP;
    return nullptr;
  };
  verbs.dereg_mr = dereg_mr;
  verbs.create_comp_channel = [](ibv_context* context) -> ibv_comp_channel* {
    auto* channel = new Channel;
    channel->context = context;
    channel->fd = event_fd();
    return channel;
  };
  verbs.destroy_comp_channel = [](ibv_comp_channel* channel) {
    ::close(channel->fd);
    delete static_cast<Channel*>(channel);
    return 0;
  };
  verbs.create_cq = [](ibv_context* context, int, ibv_comp_channel* channel) -> ibv_cq* {
    auto* queue = new Completions;
    queue->context = context;
    queue->calls = static_cast<Channel*>(channel);
    return queue;
  };
  verbs.destroy_cq = [](ibv_cq* queue) {
    delete static_cast<Completions*>(queue);
    return 0;
  };
  verbs.req_notify_cq = [](ibv_cq* queue) {
    static_cast<Completions*>(queue)->armed = true;
    return 0;
  };
  verbs.get_cq_event = [](ibv_comp_channel* channel, ibv_cq** queue, void**) {
    return take_event(channel->fd, static_cast<Channel*>(channel)->events, queue) ? 0 : -1;
  };
  verbs.ack_cq_events = [](ibv_cq*, unsigned) {};
  verbs.poll_cq = [](ibv_cq* given, int most, ibv_wc* completions) {
    auto& queue = static_cast<Completions&>(*given);
    if (!fabric->held_) {
      for (auto& [number, pair] : state->pairs) {
        if (pair->send_cq != given) continue;
        for (int i = 0; i < 8 && !pair->posted.empty() && state->work_on(*pair); ++i) {
        }
      }
    }
    int count = 0;
    for (; count < most && !queue.entries.empty(); queue.entries.pop_front()) {
      completions[count++] = queue.entries.front();
    }
    return count;
  };
  verbs.create_srq = [](ibv_pd* domain, ibv_srq_init_attr*) -> ibv_srq* {
    auto* queue = new Receives;
    queue->context = domain->context;
    return queue;
  };
  verbs.destroy_srq = [](ibv_srq* queue) {
    delete static_cast<Receives*>(queue);
    return 0;
  };
  verbs.post_srq_recv = [](ibv_srq* queue, ibv_recv_wr* first, ibv_recv_wr**) {
    static_cast<Receives*>(queue)->entries.emplace_back(first->wr_id, first->sg_list[0]);
    return 0;
  };
  verbs.create_qp = create_qp;
  verbs.modify_qp = modify_qp;
  verbs.destroy_qp = [](ibv_qp* given) {
    auto* pair = static_cast<Pair*>(given);
    --pair->of->of->pairs;
    state->pairs.erase(pair->qp_num);
    delete pair;
    return 0;
  };
  verbs.post_send = [](ibv_qp* given, ibv_send_wr* first, ibv_send_wr**) {
    auto& pair = static_cast<Pair&>(*given);
    ++fabric->doorbells_;
    for (; first != nullptr; first = first->next) {
      ++fabric->requests_;
      if ((first->send_flags & IBV_SEND_SIGNALED) != 0) ++fabric->signalled_requests_;
      Request request{*first, {first->sg_list, first->sg_list + first->num_sge}, {}};
      if ((first->send_flags & IBV_SEND_INLINE) != 0) {
        for (const ibv_sge& place : request.places) {
          auto* data = reinterpret_cast<std::byte*>(place.addr);
          request.payload.insert(request.payload.end(), data, data + place.length);
        }
        request.places.clear();
      }
      pair.posted.push_back(std::move(request));
    }
    if (pair.state == IBV_QPS_ERR) state->flush(pair);
    return 0;
  };
  verbs.get_async_event = [](ibv_context* given, ibv_async_event* event) {
    auto* context = static_cast<Context*>(given);
    return take_event(context->async_fd, context->events, &event->event_type) ? 0 : -1;
  };
  verbs.ack_async_event = [](ibv_async_event*) {};
  return verbs;
}

}  // namespace mc::transport::testing
