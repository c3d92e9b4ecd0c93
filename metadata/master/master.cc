// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/master.h"

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>

#include "libmc/base/clock.h"
#include "metadata/rpc/dialer.h"
#include "metadata/store/open_store.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {

namespace {

constexpr auto kTick = std::chrono::milliseconds(50);
constexpr std::uint64_t kSecondNs = 1'000'000'000;

Result<rpc::ListenerOptions> listener_options(const MasterOptions& options) {
  rpc::ListenerOptions listening;
  const auto address = rpc::split_address(options.listen);
  if (!address) return fail(address.error());
  listening.host = address->host;
  listening.port = static_cast<std::uint16_t>(std::stoul(address->port));
  listening.own.role = rpc::Role::kMaster;
  listening.own.cluster = rpc::cluster_tag(options.cluster_id);
  listening.max_links = static_cast<std::uint32_t>(options.max_links);
  listening.tls.cert = options.tls_cert;
  listening.tls.key = options.tls_key;
  if (!options.key_file.empty()) {
    auto key = rpc::ClusterKey::from_file(options.key_file);
    if (!key) return fail(key.error());
    listening.key = std::move(*key);
  }
  return listening;
}

}  // namespace

Result<std::unique_ptr<Master>> Master::create(const MasterOptions& options) {
  if (const Status status = check_master_options(options); !status.ok()) return fail(status);
  const auto listening = listener_options(options);
  if (!listening) return fail(listening.error());
  auto store = open_cluster_store(options.store, options.cluster_id);
  if (!store) return fail(store.error());
  if (!(*store)->capabilities().elects()) {
    return fail(MC_UNSUPPORTED, (*store)->name() +
                                    " cannot elect a leader; use memory:// for one "
                                    "master, redis:// or etcd:// for several");
  }
  std::unique_ptr<Master> master(new Master(options));
  auto listener = rpc::Listener::create(master->io_, *listening, *master);
  if (!listener) return fail(listener.error());
  master->listener_ = std::move(*listener);
  master->address_ = options.advertise.empty() ? options.listen : options.advertise;
  Master* self = master.get();
  auto& io = master->io_;
  master->elector_ = std::make_unique<Elector>(
      std::move(*store), master->address_, static_cast<std::uint32_t>(options.leader_ttl_ms),
      Elector::Callbacks{
          .leading =
              [self, &io](Term term) {
                boost::asio::post(io, [self, term = std::move(term)] { self->begin(term); });
              },
          .lost = [self, &io] { boost::asio::post(io, [self] { self->end(); }); },
          .leader =
              [self, &io](std::string leader) {
                boost::asio::post(io, [self, leader = std::move(leader)] {
                  self->leader_ = leader;
                  spdlog::info("event=standby leader={}", leader);
                });
              },
          .trouble =
              [self](const Status& status) {
                if (self->may_log(self->trouble_logged_ns_)) {
                  spdlog::warn("event=cluster_store error=\"{}\"", status.to_string());
                }
              }});
  master->tick();
  return master;
}

Master::~Master() {
  elector_.reset();
  end();
  listener_.reset();
}

bool Master::may_log(std::uint64_t& last_ns) {
  const std::uint64_t now = now_ns();
  if (last_ns != 0 && now - last_ns < kSecondNs) return false;
  last_ns = now;
  return true;
}

void Master::run() { io_.run(); }
void Master::stop() { io_.stop(); }

void Master::begin(const Term& term) {
  spdlog::info("event=leading epoch={} members_known={}", term.epoch, term.members.size());
  reign_ = std::make_unique<Reign>(
      options_, term,
      Reign::Outside{.save =
                         [this](std::string key, std::optional<std::string> value) {
                           elector_->save(std::move(key), std::move(value));
                         },
                     .link_count = [this] { return listener_->link_count(); },
                     .refused_links = [this] { return listener_->refused_count(); }},
      now_ns());
}

// Links end with the reign: all that is open on them was asked of a leader.
void Master::end() {
  if (reign_ != nullptr) spdlog::warn("event=not_leading epoch={}", reign_->epoch());
  while (!links_.empty()) (*links_.begin())->close({MC_CLOSED, "this master does not lead now"});
  reign_.reset();
}

void Master::tick() {
  tick_.expires_after(kTick);
  tick_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    if (reign_ != nullptr && elector_->leads(reign_->epoch())) reign_->tick(now_ns());
    tick();
  });
}

void Master::on_link(const std::shared_ptr<rpc::Link>& link) { links_.insert(link); }

void Master::on_refused(const Status& why, const std::string& address) {
  if (may_log(refused_logged_ns_)) {
    spdlog::warn("event=refused peer={} error=\"{}\" refused_in_all={}", address, why.to_string(),
                 listener_->refused_count());
  }
}

void Master::on_request(rpc::Link& link, const rpc::Request& request) {
  if (reign_ != nullptr && elector_->leads(reign_->epoch())) {
    reign_->on_request(link, request, now_ns());
    return;
  }
  std::string body;
  wire::encode(wire::Refusal{"this master is a standby; ask the leader", leader_}, body);
  link.answer(request.id, rpc::kNotLeader, std::move(body), 0);
}

void Master::on_cancel(rpc::Link& link, std::uint32_t id) {
  if (reign_ != nullptr) reign_->on_cancel(link, id);
}

void Master::on_closed(rpc::Link& link, const Status& why) {
  spdlog::debug("event=link_closed node={} error=\"{}\"", link.peer().node, why.to_string());
  if (reign_ != nullptr) reign_->on_closed(link);
  links_.erase(link.shared_from_this());
}

}  // namespace mc::metadata
