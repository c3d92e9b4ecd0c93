// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/domain.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "libmc/base/hash.h"
#include "transport/one_sided/registrar.h"

namespace mc::transport::fabric {

namespace {

constexpr std::size_t kServingEntries = 256;
constexpr int kMostKeyTries = 16;

}  // namespace

Domain::Domain(const Library& library, Info info)
    : library_(library),
      info_(std::move(info)),
      name_(info_->domain_attr->name == nullptr ? "" : info_->domain_attr->name),
      beacon_(std::make_unique<Beacon>()) {}

Domain::~Domain() = default;

Status Domain::cannot(const std::string& what, long error) const {
  const mc_status code = error == -FI_ENOMEM || error == -FI_EMFILE || error == -FI_EAGAIN
                             ? MC_NO_MEMORY
                             : MC_UNSUPPORTED;
  return {code,
          library_.error_text("libfabric provider " + std::string(info_->fabric_attr->prov_name) +
                                  ", domain " + name_ + ": cannot " + what,
                              error)};
}

Status Domain::cannot_make(const std::string& what, long error) {
  broken_ = broken_ || error == -FI_ENODEV || error == -FI_EIO || error == -FI_EADDRNOTAVAIL ||
            error == -ENXIO;
  return cannot(what, error);
}

Result<std::unique_ptr<Domain>> Domain::open(const Library& library, Info info,
                                             std::uint64_t epoch) {
  std::unique_ptr<Domain> opened(new Domain(library, std::move(info)));
  Status status = opened->start(epoch);
  if (!status.ok()) return fail(std::move(status));
  return opened;
}

Status Domain::start(std::uint64_t epoch) {
  fid_fabric* fabric = nullptr;
  if (const int error = library_.fabric(info_->fabric_attr, &fabric, nullptr); error != 0) {
    return cannot("open its fabric", error);
  }
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (const int error = fi_domain(fabric, info_.get(), &domain, nullptr); error != 0) {
    return cannot("open it", error);
  }
  domain_.reset(domain);
  key_seed_ = epoch;
  beacon_->epoch = epoch;
  auto memory =
      register_memory(reinterpret_cast<std::byte*>(beacon_.get()), sizeof(Beacon), FI_REMOTE_READ);
  if (!memory) return memory.error();
  beacon_memory_ = std::move(*memory);
  return renew(epoch);
}

Status Domain::renew(std::uint64_t epoch) {
  serving_.close();
  auto made = make_endpoint(kServingEntries);
  if (!made) return made.error();
  std::swap(serving_.addresses_, made->addresses_);
  std::swap(serving_.completions_, made->completions_);
  std::swap(serving_.endpoint_, made->endpoint_);
  serving_.wait_fd_ = made->wait_fd_;
  beacon_->epoch = epoch;
  return {};
}

Result<Endpoint> Domain::make_endpoint(std::size_t entries) {
  Endpoint made;
  fi_av_attr vector{};
  vector.type = FI_AV_UNSPEC;
  fid_av* addresses = nullptr;
  int error = fi_av_open(get(), &vector, &addresses, nullptr);
  if (error != 0) return fail(cannot_make("open an address vector", error));
  made.addresses_.reset(addresses);
  fi_cq_attr queue{};
  queue.size = entries;
  queue.format = FI_CQ_FORMAT_CONTEXT;
  fid_cq* completions = nullptr;
  for (const fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_NONE}) {
    queue.wait_obj = wait;
    error = fi_cq_open(get(), &queue, &completions, nullptr);
    if (error == 0) break;
  }
  if (error != 0) return fail(cannot_make("open a completion queue", error));
  made.completions_.reset(completions);
  const bool has_fd = queue.wait_obj == FI_WAIT_FD &&
                      fi_control(&completions->fid, FI_GETWAIT, &made.wait_fd_) == 0;
  if (!has_fd) made.wait_fd_ = -1;
  fid_ep* endpoint = nullptr;
  error = fi_endpoint(get(), info_.get(), &endpoint, nullptr);
  if (error != 0) return fail(cannot_make("open an endpoint", error));
  made.endpoint_.reset(endpoint);
  error = fi_ep_bind(endpoint, &addresses->fid, 0);
  if (error == 0) error = fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = fi_enable(endpoint);
  if (error != 0) return fail(cannot_make("enable an endpoint", error));
  return made;
}

void Endpoint::close() {
  endpoint_.reset();
  completions_.reset();
  addresses_.reset();
  wait_fd_ = -1;
}

bool Domain::breaks_when_closed() const {
  return FI_VERSION_LT(library_.version, FI_VERSION(1, 18)) &&
         std::string_view(info_->fabric_attr->prov_name).starts_with("tcp");
}

std::size_t Domain::max_pieces() const {
  return std::clamp<std::size_t>(info_->tx_attr->iov_limit, 1, kMaxRequestPieces);
}

double Domain::line_bytes_per_ns() const {
  const bool is_known = info_->nic != nullptr && info_->nic->link_attr != nullptr;
  return is_known ? static_cast<double>(info_->nic->link_attr->speed) / 8e9 : 0;
}

DomainEntry Domain::entry(std::size_t slot) const {
  DomainEntry entry{};
  entry.epoch = epoch();
  entry.beacon_address = base_of(reinterpret_cast<const std::byte*>(beacon_.get()));
  entry.beacon_key = fi_mr_key(beacon_memory_.get());
  entry.address_format = info_->addr_format;
  entry.protocol = info_->ep_attr->protocol;
  entry.slot = static_cast<std::uint16_t>(slot);
  std::size_t bytes = entry.address.size();
  // A longer address is reported as no bytes: the domain then serves no peer.
  if (fi_getname(&serving_.get()->fid, entry.address.data(), &bytes) == 0) {
    entry.address_bytes = static_cast<std::uint16_t>(bytes);
  }
  std::ranges::copy(name_, entry.name.begin());
  return entry;
}

Result<Owned<fid_mr>> Domain::register_memory(std::byte* data, std::uint64_t bytes,
                                              std::uint64_t access) {
  const std::size_t key_bytes = info_->domain_attr->mr_key_size;
  const std::uint64_t mask =
      key_bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * key_bytes) - 1;
  fid_mr* memory = nullptr;
  int error = -FI_ENOKEY;
  // If the provider makes no key, this side chooses a key that peers cannot guess by counting.
  for (int tries = 0; error == -FI_ENOKEY && tries < kMostKeyTries; ++tries) {
    const std::uint64_t number = ++next_key_;
    const std::uint64_t key = hash_key(&number, sizeof number, key_seed_) & mask;
    error = fi_mr_reg(get(), data, bytes, access, 0, key, 0, &memory, nullptr);
  }
  if (error == 0) return Owned<fid_mr>(memory);
  Status status = cannot("register " + std::to_string(bytes) + " bytes", error);
  if (error == -FI_ENOMEM || error == -FI_EPERM || error == -FI_EAGAIN) {
    status = {MC_NO_MEMORY, std::string(status.text()) + locked_memory_remedy()};
  }
  return fail(std::move(status));
}

std::uint64_t Domain::base_of(const std::byte* data) const {
  const bool by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  return by_address ? reinterpret_cast<std::uint64_t>(data) : 0;
}

std::size_t Endpoint::poll(std::span<Completion> completions) {
  std::size_t count = 0;
  while (count < completions.size()) {
    fi_cq_entry entries[32];
    const std::size_t wanted = std::min(completions.size() - count, std::size(entries));
    const ssize_t got = fi_cq_read(completions_.get(), entries, wanted);
    if (got > 0) {
      for (ssize_t i = 0; i < got; ++i) completions[count++] = {entries[i].op_context, 0};
      continue;
    }
    if (got != -FI_EAVAIL) break;
    fi_cq_err_entry failed{};
    if (fi_cq_readerr(completions_.get(), &failed, 0) != 1) break;
    completions[count++] = {failed.op_context, failed.err == 0 ? FI_EOTHER : failed.err};
  }
  return count;
}

bool Endpoint::may_sleep(fid_fabric* fabric) {
  fid* queue = &completions_->fid;
  return fi_trywait(fabric, &queue, 1) == FI_SUCCESS;
}

}  // namespace mc::transport::fabric
