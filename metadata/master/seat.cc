// SPDX-License-Identifier: Apache-2.0
#include "metadata/master/seat.h"

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>

#include "libmc/base/clock.h"
#include "metadata/wire/codec.h"

namespace mc::metadata {

Seat::Seat(boost::asio::io_context& io, const MasterOptions& options, const std::string& address,
           Elector::Share share, std::unique_ptr<ClusterStore> store, Outside outside)
    : io_(io),
      options_(options),
      share_(share.number),
      outside_(std::move(outside)),
      elector_(std::make_unique<Elector>(std::move(store), address,
                                         static_cast<std::uint32_t>(options.leader_ttl_ms), share,
                                         callbacks())) {}

void Seat::stop() {
  elector_.reset();
  end();
}

// They come from the elector's thread, and act in the loop.
Elector::Callbacks Seat::callbacks() {
  return {.leading =
              [this](Term term) {
                boost::asio::post(io_, [this, term = std::move(term)] { begin(term); });
              },
          .lost = [this] { boost::asio::post(io_, [this] { end(); }); },
          .leader =
              [this](std::string leader) {
                boost::asio::post(io_, [this, leader = std::move(leader)] {
                  leader_ = leader;
                  spdlog::info("event=standby share={} leader={}", share_, leader);
                });
              },
          .trouble = outside_.store_trouble};
}

bool Seat::leads() const { return reign_ != nullptr && elector_->leads(reign_->epoch()); }

void Seat::begin(const Term& term) {
  spdlog::info("event=leading share={} epoch={} members_known={}", share_, term.epoch,
               term.members.size());
  reign_ = std::make_unique<Reign>(
      options_, term,
      Reign::Outside{.save =
                         [this](std::string key, std::optional<std::string> value,
                                std::function<void()> done) {
                           if (done) {
                             done = [this, act = std::move(done)] { boost::asio::post(io_, act); };
                           }
                           elector_->save(std::move(key), std::move(value), std::move(done));
                         },
                     .link_count = outside_.link_count,
                     .refused_links = outside_.refused_links},
      now_ns());
}

void Seat::end() {
  if (reign_ != nullptr) {
    spdlog::warn("event=not_leading share={} epoch={}", share_, reign_->epoch());
  }
  outside_.ended();
  reign_.reset();
}

void Seat::tick() {
  if (leads()) reign_->tick(now_ns());
}

void Seat::on_request(rpc::Link& link, const rpc::Request& request) {
  if (leads()) {
    reign_->on_request(link, request, now_ns());
    return;
  }
  std::string body;
  wire::encode(wire::Refusal{"this master does not lead; ask the leader", leader_}, body);
  link.answer(request.id, rpc::kNotLeader, std::move(body), 0);
}

void Seat::on_cancel(rpc::Link& link, std::uint32_t id) {
  if (reign_ != nullptr) reign_->on_cancel(link, id);
}

void Seat::on_closed(rpc::Link& link) {
  if (reign_ != nullptr) reign_->on_closed(link);
}

}  // namespace mc::metadata
