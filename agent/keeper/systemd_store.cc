// SPDX-License-Identifier: Apache-2.0
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "agent/keeper/descriptor_store.h"

namespace mc::agent {
namespace {

struct NameList {
  char** names = nullptr;
  ~NameList() {
    for (char** name = names; name != nullptr && *name != nullptr; ++name) std::free(*name);
    std::free(names);
  }
};

Status sent(int result) {
  if (result > 0) return {};
  if (result == 0) {
    return {MC_UNSUPPORTED,
            "NOTIFY_SOCKET is no longer set; start mc-agent by systemd, or set "
            "descriptor_store to keeper"};
  }
  return {MC_AGENT_UNAVAILABLE, errno_text("send a notification to systemd", -result)};
}

// FileDescriptorName in mc-agent.socket.
constexpr std::string_view kUnitSocket = "listener";
constexpr std::uint64_t kBusTimeoutUs = 2'000'000;

// FileDescriptorStoreMax of this process's unit. Systemd 254 and later set the variable FDSTORE to the
// limit; earlier versions tell the limit over D-Bus alone.
std::optional<std::uint32_t> limit_of_store() {
  std::uint32_t limit = 0;
  if (const char* const told = std::getenv("FDSTORE"); told != nullptr) {
    const std::string_view text = told;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (end.ec == std::errc() && end.ptr == text.data() + text.size()) return limit;
  }
  sd_bus* opened = nullptr;
  if (sd_bus_open_system(&opened) < 0) return std::nullopt;
  const std::unique_ptr<sd_bus, decltype(&sd_bus_flush_close_unref)> bus(opened,
                                                                         sd_bus_flush_close_unref);
  sd_bus_set_method_call_timeout(bus.get(), kBusTimeoutUs);
  // "self" is the caller's unit.
  if (sd_bus_get_property_trivial(
          bus.get(), "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/self",
          "org.freedesktop.systemd1.Service", "FileDescriptorStoreMax", nullptr, 'u', &limit) < 0) {
    return std::nullopt;
  }
  return limit;
}

// Systemd drops a descriptor beyond FileDescriptorStoreMax without an answer, so the store counts.
// Systemd keeps a descriptor over any number of restarts until FDSTOREREMOVE, and drops all
// descriptors at a stop of the unit.
class SystemdStore final : public DescriptorStore {
 public:
  explicit SystemdStore(std::optional<std::uint32_t> limit) : limit_(limit) {}
  Result<std::map<std::string, Fd>> take_all() override;
  Status put(const std::string& name, int fd) override;
  Status drop(const std::string& name) override;
  Status drop_all() override;
  int death_fd() const override { return -1; }
  Status restart() override { return {}; }

 private:
  static Status remove(const std::string& name);

  const std::optional<std::uint32_t> limit_;
  std::set<std::string> names_;  // names that systemd holds for this agent
};

Result<std::map<std::string, Fd>> SystemdStore::take_all() {
  NameList list;
  const int count = sd_listen_fds_with_names(1, &list.names);
  if (count < 0) return fail(MC_INTERNAL, errno_text("read what systemd kept", -count));
  std::map<std::string, Fd> kept;
  for (int i = 0; i < count; ++i) {
    const std::string name = list.names[i];
    if (name == kUnitSocket) continue;  // taken by take_unit_socket()
    // The Fd takes ownership first: a descriptor with a foreign name is closed here.
    Fd fd(SD_LISTEN_FDS_START + i);
    if (is_store_name(name)) kept.insert_or_assign(name, std::move(fd));
  }
  for (const auto& [name, fd] : kept) names_.insert(name);
  return kept;
}

Status SystemdStore::remove(const std::string& name) {
  return sent(sd_pid_notify(0, 0, ("FDSTOREREMOVE=1\nFDNAME=" + name).c_str()));
}

Status SystemdStore::put(const std::string& name, int fd) {
  if (auto status = check_store_entry(name, fd); !status.ok()) return status;
  // Systemd would keep both descriptors under the same name.
  if (names_.contains(name)) {
    if (auto status = drop(name); !status.ok()) return status;
  }
  if (limit_ && names_.size() >= *limit_) {
    return {MC_NO_SPACE, "systemd's descriptor store is full (FileDescriptorStoreMax=" +
                             std::to_string(*limit_) +
                             "); raise the limit in the unit to 3 for each client and namespace"};
  }
  // FDPOLL=0: by default systemd watches the descriptor and drops it at the first hang-up.
  const std::string text = "FDSTORE=1\nFDNAME=" + name + "\nFDPOLL=0";
  auto status = sent(sd_pid_notify_with_fds(0, 0, text.c_str(), &fd, 1));
  if (status.ok()) names_.insert(name);
  return status;
}

Status SystemdStore::drop(const std::string& name) {
  if (auto status = check_store_name(name); !status.ok()) return status;
  auto status = remove(name);
  if (status.ok()) names_.erase(name);
  return status;
}

Status SystemdStore::drop_all() {
  while (!names_.empty()) {
    if (auto status = drop(*names_.begin()); !status.ok()) return status;
  }
  return {};
}

}  // namespace

Result<Fd> take_unit_socket(const std::string& path) {
  NameList list;
  // 0: the variables stay for take_all().
  const int count = sd_listen_fds_with_names(0, &list.names);
  for (int i = 0; i < count; ++i) {
    if (list.names[i] != kUnitSocket) continue;
    Fd socket(SD_LISTEN_FDS_START + i);
    if (sd_is_socket_unix(socket.get(), SOCK_SEQPACKET, 1, path.c_str(), 0) > 0) return socket;
    return fail(MC_INVALID_ARGUMENT, "mc-agent.socket does not listen at " + path +
                                         "; give ListenSequentialPacket and the option socket "
                                         "the same path");
  }
  return Fd();
}

Result<std::unique_ptr<DescriptorStore>> make_systemd_store() {
  const char* const socket = std::getenv("NOTIFY_SOCKET");
  if (socket == nullptr || *socket == '\0') {
    return fail(MC_UNSUPPORTED,
                "not started by systemd (NOTIFY_SOCKET is not set); use the unit mc-agent.service, "
                "or set descriptor_store to keeper");
  }
  const auto limit = limit_of_store();
  if (limit && *limit == 0) {
    return fail(MC_UNSUPPORTED,
                "the unit has no descriptor store; set FileDescriptorStoreMax as in "
                "mc-agent.service, or set descriptor_store to keeper");
  }
  if (!limit) {
    spdlog::warn(
        "event=store_limit_unknown effect=\"a client beyond FileDescriptorStoreMax loses its session "
        "in a crash\" remedy=\"let the agent reach the system's D-Bus\"");
  }
  return std::make_unique<SystemdStore>(limit);
}

}  // namespace mc::agent
