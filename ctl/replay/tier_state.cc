// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/tier_state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "ctl/text/agent_view.h"
#include "ctl/text/json.h"
#include "libmc/base/fd.h"

namespace mc::ctl {

double TierState::amplification() const {
  return demoted_bytes == 0
             ? 0
             : static_cast<double>(written_bytes) / static_cast<double>(demoted_bytes);
}

std::optional<TierState> tier_of(const Json::Value& status) {
  const Json::Value& tier = field(status, "tier");
  if (!tier.isObject()) return std::nullopt;
  TierState state;
  state.demoted_blocks = number_field(tier, "demoted");
  state.demoted_bytes = number_field(tier, "demoted_bytes");
  state.lost_blocks = evicted_without_disk(tier);
  state.read_blocks = number_field(tier, "read");
  state.promoted_blocks = number_field(tier, "promoted");
  state.on_the_way_blocks = number_field(tier, "served_on_the_way");
  state.serving = true;
  for (const Json::Value& disk : array_field(tier, "disks")) {
    state.written_bytes += number_field(disk, "written_bytes");
    state.copied_bytes += number_field(disk, "copied_bytes");
    state.dropped_blocks += number_field(disk, "dropped");
    if (flag_field(disk, "serving")) continue;
    state.serving = false;
    if (state.problem.empty()) state.problem = text_field(disk, "problem");
  }
  return state;
}

std::uint64_t demoting_bytes(const Json::Value& status) {
  return number_field(field(status, "tier"), "demoting_bytes");
}

Result<SsdFile> SsdFile::create(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path place =
      folder.empty() ? std::filesystem::temp_directory_path(error) : std::filesystem::path(folder);
  if (error) return fail(MC_NOT_FOUND, "no directory for temporary files: " + error.message());
  // The names of disks are separated by commas.
  if (place.string().find(',') != std::string::npos) {
    return fail(MC_INVALID_ARGUMENT,
                "the folder " + place.string() +
                    " has a comma in its name; give another one with --ssd-folder");
  }
  std::string path = (place / "mc-replay-ssd.XXXXXX").string();
  const Fd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) {
    return fail(MC_PERMISSION_DENIED, errno_text("cannot make a file in " + place.string(), errno) +
                                          "; give another folder with --ssd-folder");
  }
  return SsdFile(std::move(path));
}

SsdFile::SsdFile(SsdFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}

SsdFile& SsdFile::operator=(SsdFile&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

void SsdFile::remove() {
  if (!path_.empty()) ::unlink(std::exchange(path_, {}).c_str());
}

}  // namespace mc::ctl
