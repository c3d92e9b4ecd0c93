// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/fabric_transport.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "libmc/base/hash.h"

namespace mc::transport::fabric {

namespace {

// After the last completion, providers are only polled for so long; then they notify by descriptor.
constexpr std::uint64_t kBusyNs = 50'000;
constexpr std::uint64_t kEdgesNs = 200'000;  // between two looks at links when busy
// The time between two looks at a provider without descriptor: while requests are out, otherwise.
constexpr std::uint64_t kAttentiveNs = 50'000;
constexpr std::uint64_t kIdleNs = 20'000'000;
// Between two looks at serving endpoints by a loop that does not sleep.
constexpr std::uint64_t kServeNs = 10'000;
constexpr std::size_t kCompletionsAtOnce = 64;
// A provider without room for a request is offered the request again after so long.
constexpr std::uint64_t kFullNs = 20'000;
// The pause before a closed domain is tried again. The pause doubles after each failure.
constexpr std::uint64_t kShortestPauseNs = 1'000'000'000;
constexpr std::uint64_t kLongestPauseNs = 60'000'000'000;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

}  // namespace

Result<std::unique_ptr<FabricTransport>> FabricTransport::create(const FabricOptions& options,
                                                                 const Library& library,
                                                                 Dialer& dialer) {
  if (options.node == 0) return fail(MC_INVALID_ARGUMENT, "a transport needs its node's id");
  if (options.domains.size() > kMaxDomains) {
    return fail(MC_INVALID_ARGUMENT, "at most 32 domains of libfabric");
  }
  auto found = find_domains(library, options);
  if (!found) return fail(found.error());
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail(MC_NO_MEMORY, errno_text("epoll_create1", errno));
  auto wakeup = make_eventfd();
  if (!wakeup) return fail(wakeup.error());
  std::unique_ptr<FabricTransport> made(new FabricTransport(
      options, library, dialer, std::move(*found), std::move(epoll), std::move(*wakeup)));
  Status status = made->edges_.watch(made->workers_.fd(), &made->workers_, Edges::Kind::kReadable);
  if (status.ok()) status = made->open_domains();
  if (!status.ok()) return fail(std::move(status));
  return made;
}

FabricTransport::FabricTransport(const FabricOptions& options, const Library& library,
                                 Dialer& dialer, std::vector<Info> found, Fd epoll, Fd wakeup)
    : options_(options),
      library_(library),
      edges_(std::move(epoll)),
      domains_(found.size()),
      registrar_(domains_),
      regions_(options_.node, options_.incarnation, options_.registering_threads, registrar_,
               workers_),
      workers_(options_.registering_threads, std::move(wakeup)),
      backend_(options_, domains_, regions_, requester_),
      requester_(Backend::traits(options_), edges_, dialer, counters_, backend_),
      responder_(domains_, regions_, edges_) {
  for (Info& info : found) slots_.push_back({std::move(info), "", false, 0, 0, kNever});
}

FabricTransport::~FabricTransport() = default;

std::uint64_t FabricTransport::new_epoch() {
  const std::uint64_t words[2] = {options_.incarnation, ++epochs_count_};
  return hash_key(words, sizeof words, options_.node) | 1;
}

Info FabricTransport::info_of(std::size_t slot) const {
  return {library_.dupinfo(slots_[slot].info.get()), library_.freeinfo};
}

Status FabricTransport::open_domains() {
  bool one_sided = true;
  Status first;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    auto opened = Domain::open(library_, info_of(slot), new_epoch());
    Status status = opened ? use(slot, std::move(*opened)) : opened.error();
    if (status.ok()) {
      one_sided = one_sided && !domains_[slot]->is_software();
      continue;
    }
    try_later(slot, std::string(status.text()));
    if (first.ok()) first = std::move(status);
  }
  if (std::ranges::none_of(domains_, [](const auto& domain) { return domain != nullptr; })) {
    return {first.code(), obstacles()};
  }
  capabilities_ = {
      .name = "fabric",
      .write = true,
      .notify = true,
      .one_sided = one_sided,
      .checks_generation = false,
      .registers_pieces = true,
      .memory_kinds = 1u << static_cast<unsigned>(MemoryKind::kHost),
      .max_operations = kMaxOperations,
      .max_pieces = kMaxPieces,
      .max_notification_bytes = kMaxOneSidedNotificationBytes,
      .max_operation_bytes = kMaxOperationBytes,
  };
  return {};
}

Status FabricTransport::attach(Link link) {
  return link.accepted ? responder_.attach(std::move(link))
                       : requester_.attach(std::move(link), now_ns_);
}

bool FabricTransport::close_region(RegionId region) {
  if (!regions_.knows(region)) return true;
  if (!regions_.close(region)) return false;
  end_lingering_requests();
  return true;
}

void FabricTransport::set_backed(RegionId region, std::span<const MemoryRange> ranges) {
  if (regions_.back(region, ranges)) end_lingering_requests();
}

// The requests end with the serving endpoint.
void FabricTransport::end_lingering_requests() {
  bool moved = false;
  for (std::size_t slot = 0; slot < domains_.size(); ++slot) {
    if (!domains_[slot] || !domains_[slot]->requests_linger()) continue;
    moved = true;
    move(slot);
  }
  if (moved) responder_.announce();
}

Status FabricTransport::watch(Domain& domain) {
  const int fd = domain.serving().wait_fd();
  return fd < 0 ? Status() : edges_.watch(fd, &serving_events_, Edges::Kind::kReadable);
}

void FabricTransport::move(std::size_t slot) {
  Domain& domain = *domains_[slot];
  edges_.forget(domain.serving().wait_fd(), &serving_events_);
  Status status = domain.renew(new_epoch());
  if (status.ok()) status = watch(domain);
  next_serve_ns_ = now_ns_;
  if (!status.ok()) close_domain(slot, std::string(status.text()));
}

void FabricTransport::move_as_asked() {
  bool moved = false;
  for (const auto& [slot, epoch] : std::exchange(responder_.moves(), {})) {
    // With another epoch, the domain has moved since.
    if (slot >= domains_.size() || !domains_[slot] || domains_[slot]->epoch() != epoch) continue;
    moved = true;
    move(slot);
  }
  if (moved) responder_.announce();
}

// ---- Domains that come and go -----------------------------------------------------------------

Status FabricTransport::use(std::size_t slot, std::unique_ptr<Domain> opened) {
  domains_[slot] = std::move(opened);
  Status status = regions_.on_opened(slot);
  if (status.ok()) status = watch(*domains_[slot]);
  if (!status.ok()) {
    regions_.on_closing(slot);
    domains_[slot].reset();
    return status;
  }
  slots_[slot].why.clear();
  slots_[slot].opened_ns = now_ns_;
  next_serve_ns_ = now_ns_;
  return status;
}

void FabricTransport::close_domain(std::size_t slot, const std::string& why) {
  workers_.finish(domains_[slot].get());
  backend_.lanes().on_closing(slot, now_ns_);
  regions_.on_closing(slot);
  edges_.forget(domains_[slot]->serving().wait_fd(), &serving_events_);
  domains_[slot].reset();
  // A domain that breaks at first use must not be opened all the time.
  if (now_ns_ >= slots_[slot].opened_ns + kLongestPauseNs) slots_[slot].pause_ns = 0;
  try_later(slot, why);
  backend_.lanes().on_domains_changed(now_ns_);
  responder_.announce();
}

void FabricTransport::close_broken() {
  for (const Lanes::Broken& broken : std::exchange(backend_.lanes().broken(), {})) {
    if (domains_[broken.slot]) close_domain(broken.slot, broken.why);
  }
}

void FabricTransport::try_later(std::size_t slot, const std::string& why) {
  Slot& at = slots_[slot];
  at.why = why;
  at.pause_ns = std::clamp(2 * at.pause_ns, kShortestPauseNs, kLongestPauseNs);
  at.try_ns = now_ns_ + at.pause_ns;
  next_open_ns_ = std::min(next_open_ns_, at.try_ns);
}

void FabricTransport::open_again() {
  next_open_ns_ = kNever;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    Slot& at = slots_[slot];
    if (domains_[slot] || at.opening) continue;
    if (now_ns_ < at.try_ns) {
      next_open_ns_ = std::min(next_open_ns_, at.try_ns);
      continue;
    }
    at.opening = true;
    const auto opened =
        std::make_shared<Result<std::unique_ptr<Domain>>>(fail(MC_UNSUPPORTED, "not opened"));
    const auto info = std::make_shared<Info>(info_of(slot));
    workers_.run(
        &at,
        [this, opened, info, epoch = new_epoch()] {
          *opened = Domain::open(library_, std::move(*info), epoch);
        },
        [this, opened, slot] { on_opened(slot, std::move(*opened)); });
  }
}

void FabricTransport::on_opened(std::size_t slot, Result<std::unique_ptr<Domain>> opened) {
  slots_[slot].opening = false;
  const Status status = opened ? use(slot, std::move(*opened)) : opened.error();
  if (!status.ok()) return try_later(slot, std::string(status.text()));
  backend_.lanes().on_domains_changed(now_ns_);
  responder_.announce();
}

// ---- The loop ---------------------------------------------------------------------------------

std::size_t FabricTransport::submit(std::span<Operation> operations, std::uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  return requester_.submit(operations, now_ns_);
}

void FabricTransport::poll(std::uint64_t now_ns, std::vector<Event>& events) {
  now_ns_ = std::max(now_ns_, now_ns);
  const bool worked = backend_.lanes().poll(now_ns_);
  if (worked) busy_ns_ = now_ns_;
  if (!worked || now_ns_ >= next_edges_ns_) {
    // A serving endpoint has work, or a peer has announced requests.
    if (edges_.take(now_ns_)) next_serve_ns_ = now_ns_;
    next_edges_ns_ = now_ns_ + kEdgesNs;
  }
  if (!responder_.moves().empty()) move_as_asked();
  if (now_ns_ >= next_serve_ns_) serve();
  if (now_ns_ >= next_open_ns_) open_again();
  if (backend_.lanes().is_full()) backend_.lanes().try_again(now_ns_);
  requester_.tick(now_ns_);
  requester_.pump_all(now_ns_);
  if (!backend_.lanes().broken().empty()) close_broken();
  fall_asleep();
  hand_out(events);
}

// Lets providers work for peers. No request of this side completes there.
void FabricTransport::serve() {
  const bool is_busy = now_ns_ < busy_ns_ + kBusyNs;
  const bool is_attentive = responder_.is_attentive(now_ns_);
  next_serve_ns_ = now_ns_ + (is_busy ? kServeNs : kIdleNs);
  serving_wake_ns_ = is_busy ? next_serve_ns_ : ~std::uint64_t{0};
  has_fds_ = true;
  for (const auto& domain : domains_) {
    if (!domain) continue;
    std::array<Completion, kCompletionsAtOnce> none;
    static_cast<void>(domain->serving().poll(none));
    if (domain->serving().wait_fd() < 0) {
      has_fds_ = false;
      const bool is_wanted = is_attentive && domain->wants_attention();
      if (is_wanted) next_serve_ns_ = now_ns_ + kServeNs;
      serving_wake_ns_ = std::min(serving_wake_ns_, now_ns_ + (is_wanted ? kAttentiveNs : kIdleNs));
    } else if (!is_busy && !domain->serving().may_sleep(domain->fabric())) {
      next_serve_ns_ = serving_wake_ns_ = now_ns_;
    }
  }
}

// Sets the time at which providers must be called although no descriptor says so.
void FabricTransport::fall_asleep() {
  if (now_ns_ < busy_ns_ + kBusyNs || (has_fds_ && !backend_.lanes().may_sleep())) {
    wake_ns_ = 0;
  } else if (!has_fds_ && backend_.lanes().is_busy()) {
    wake_ns_ = std::min(serving_wake_ns_, now_ns_ + kAttentiveNs);
  } else {
    wake_ns_ = serving_wake_ns_;
  }
}

std::uint64_t FabricTransport::next_poll_ns() const {
  if (!responder_.arrived().empty() || requester_.has_events()) return 0;
  const std::uint64_t tick_ns =
      backend_.lanes().is_full() ? requester_.now_ns() + kFullNs : requester_.next_tick_ns();
  return std::min({tick_ns, next_open_ns_, wake_ns_});
}

void FabricTransport::hand_out(std::vector<Event>& events) {
  auto& own = requester_.events();
  events.insert(events.end(), own.begin(), own.end());
  own.clear();
  responder_.arrived().take(events);
}

std::string FabricTransport::describe_rails(PeerId id) const {
  const one_sided::OneSidedPeer* peer = requester_.peers().find(id);
  return peer == nullptr ? "" : backend_.lanes().describe(static_cast<const FabricPeer&>(*peer));
}

std::string FabricTransport::obstacles() const {
  std::string text;
  for (const Slot& slot : slots_) {
    if (!slot.why.empty()) text += (text.empty() ? "" : "; ") + slot.why;
  }
  return text;
}

std::string FabricTransport::describe_devices() const {
  std::string text;
  for (const auto& domain : domains_) {
    if (!domain) continue;
    text += (text.empty() ? "" : ", ") + std::string(domain->info().fabric_attr->prov_name) + " " +
            domain->name();
  }
  return text;
}

}  // namespace mc::transport::fabric
