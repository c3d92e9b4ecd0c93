// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster/master/inner_master.h"

namespace mc::agent {

Result<std::unique_ptr<InnerMaster>> InnerMaster::start(const Options& options) {
  metadata::MasterOptions master;
  master.listen = options.master_listen;
  master.cluster_id = options.cluster_id;
  master.cluster_key_file = options.cluster_key_file;
  master.insecure = options.insecure;
  if (!options.cluster_store.empty()) master.cluster_store = options.cluster_store;
  if (!options.master_tls_ca.empty()) {
    if (options.peer_tls_cert.empty() || options.peer_tls_key.empty()) {
      return fail(
          MC_INVALID_ARGUMENT,
          "master_tls_ca: masters must show certificates, so the one of master_listen needs "
          "peer_tls_cert and peer_tls_key; set them, or take master_listen away");
    }
    master.tls_cert = options.peer_tls_cert;
    master.tls_key = options.peer_tls_key;
  }
  auto made = metadata::Master::create(master);
  if (!made) {
    return fail(made.error().code(), "master_listen: " + std::string(made.error().text()));
  }
  return std::unique_ptr<InnerMaster>(new InnerMaster(std::move(*made)));
}

InnerMaster::InnerMaster(std::unique_ptr<metadata::Master> master)
    : master_(std::move(master)), thread_([this] { master_->run(); }) {}

InnerMaster::~InnerMaster() {
  master_->stop();
  thread_.join();
}

}  // namespace mc::agent
