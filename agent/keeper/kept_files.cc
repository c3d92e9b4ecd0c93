// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/kept_files.h"

#include <spdlog/spdlog.h>

namespace mc::agent {

KeptDescriptors KeptFiles::take_all() {
  auto kept = store_->take_all();
  if (kept) return std::move(*kept);
  spdlog::warn("event=take_over_failed cause=\"{}\" effect=\"starting empty\"",
               kept.error().to_string());
  return {};
}

Status KeptFiles::try_keep(const std::string& name, int fd) {
  Status status = store_->put(name, fd);
  if (!status.ok()) {
    spdlog::warn("event=keep_failed name={} cause=\"{}\" effect=\"a crash would lose it\"", name,
                 status.to_string());
  }
  return status;
}

void KeptFiles::forget(const std::string& name) {
  if (Status status = store_->drop(name); !status.ok()) {
    spdlog::warn("event=drop_failed name={} cause=\"{}\"", name, status.to_string());
  }
}

void KeptFiles::forget_all_but(const std::set<std::string>& wanted, const KeptDescriptors& kept) {
  for (const auto& [name, fd] : kept) {
    if (!wanted.contains(name)) forget(name);
  }
}

void KeptFiles::drop_all() {
  if (Status status = store_->drop_all(); !status.ok()) {
    spdlog::warn("event=drop_all_failed cause=\"{}\"", status.to_string());
  }
}

bool KeptFiles::restart() {
  const Status status = store_->restart();
  if (!status.ok()) spdlog::error("event=keeper_lost cause=\"{}\"", status.to_string());
  return status.ok();
}

}  // namespace mc::agent
