// SPDX-License-Identifier: Apache-2.0
#include "agent/options/options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "agent/options/option_table.h"
#include "agent/pool/policy/policy.h"
#include "libmc/options/option_file.h"
#include "libmc/options/option_loader.h"
#include "libmc/options/option_value.h"
#include "mc/limits.h"

namespace mc::agent {
namespace {

constexpr std::string_view kEnvironmentPrefix = "MC_AGENT_";
constexpr std::string_view kRuntimeDirVariable = "RUNTIME_DIRECTORY";
constexpr std::size_t kMaxEmbeddedBytes = 1 << 16;
constexpr int kMaxGpu = 63;
constexpr std::size_t kMaxNamespaceTables = MC_MAX_NAMESPACES - 1;  // "default" needs no table

std::string_view variable_of(const char* const* environment, std::string_view name) {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

class Loader {
 public:
  Status add_default_runtime_dir(const char* const* environment);
  Status add_file(const OptionFile& file);
  Status add_lines(std::string_view lines);
  OptionLoader<Options>& top() { return top_; }
  Result<LoadedOptions> finish();

 private:
  Status add_namespace(const FileTable& table);
  Status check() const;
  Status check_pool(std::uint64_t pool_bytes, std::uint64_t max_pool_bytes,
                    std::uint64_t capacity_bytes, const std::string& subject) const;
  std::vector<OptionText> listing() const;

  OptionLoader<Options> top_{agent_rows(), kEnvironmentPrefix, "namespace"};
  Options defaults_;
  std::vector<std::vector<Origin>> namespace_origins_;  // by namespace and row
  std::vector<std::string> namespace_where_;
};

Status Loader::add_default_runtime_dir(const char* const* environment) {
  const std::string_view given = variable_of(environment, kRuntimeDirVariable);
  // systemd separates several directories of a unit by colons; the first is the agent's.
  const std::string_view first = given.substr(0, given.find(':'));
  const std::string own = "/dev/shm/mc-" + std::to_string(::geteuid());
  const auto& row = *find_row(agent_rows(), "runtime_dir");
  const Origin origin{"default", "environment " + std::string(kRuntimeDirVariable)};
  if (const auto status = assign(row, first.empty() ? own : first, origin, defaults_);
      !status.ok()) {
    return status;
  }
  defaults_.policy = std::string(policy_names().front());
  top_.values() = defaults_;
  return {};
}

Status Loader::add_file(const OptionFile& file) {
  if (Status status = top_.add_table(file.top); !status.ok()) return status;
  if (file.namespaces.size() > kMaxNamespaceTables) {
    return {MC_INVALID_ARGUMENT, "[[namespace]] (" + file.namespaces[kMaxNamespaceTables].where +
                                     "): an agent has at most " +
                                     std::to_string(kMaxNamespaceTables) +
                                     " namespaces beside 'default'; remove some"};
  }
  for (const FileTable& table : file.namespaces) {
    if (const auto status = add_namespace(table); !status.ok()) return status;
  }
  return {};
}

Status Loader::add_namespace(const FileTable& table) {
  OptionLoader<NamespaceOptions> loader(namespace_rows());
  if (Status status = loader.add_table(table); !status.ok()) return status;
  NamespaceOptions& tenant = loader.values();
  const std::string subject = "[[namespace]] (" + table.where + "): ";
  if (loader.origin_of("name").source == "default") {
    return {MC_INVALID_ARGUMENT, subject + "the table has no name; add name = \"...\""};
  }
  if (tenant.name == "default") {
    return {MC_INVALID_ARGUMENT,
            subject +
                "namespace 'default' always exists; the options at the top of the file are "
                "its own, so move these there"};
  }
  std::vector<NamespaceOptions>& namespaces = top_.values().namespaces;
  for (std::size_t i = 0; i < namespaces.size(); ++i) {
    if (namespaces[i].name != tenant.name) continue;
    return {MC_INVALID_ARGUMENT, subject + "namespace " + options::quoted(tenant.name) +
                                     " was described before (" + namespace_where_[i] +
                                     "); rename or remove one"};
  }
  namespaces.push_back(std::move(tenant));
  namespace_origins_.push_back(loader.origins());
  namespace_where_.push_back(table.where);
  return {};
}

Status Loader::add_lines(std::string_view lines) {
  if (lines.size() > kMaxEmbeddedBytes) {
    return {MC_INVALID_ARGUMENT, "the embedded options are longer than 64KiB"};
  }
  for (std::size_t number = 1; !lines.empty(); ++number) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = trimmed(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.empty() || line.front() == '#') continue;
    const Origin origin{"embedded", "embedded options, line " + std::to_string(number)};
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return {MC_INVALID_ARGUMENT, options::quoted(line) + " (" + origin.where +
                                       "): not of the form name=value; write one option per line"};
    }
    const auto status = top_.add(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)),
                                 Spelling::kName, origin);
    if (!status.ok()) return status;
  }
  return {};
}

Status Loader::check_pool(std::uint64_t pool_bytes, std::uint64_t max_pool_bytes,
                          std::uint64_t capacity_bytes, const std::string& subject) const {
  const std::uint64_t most_bytes = kMaxPoolBytesPerArena * top_.values().arenas;
  const std::string arenas = " is more than " + format_size(most_bytes) + ", 1TiB for each of " +
                             std::to_string(top_.values().arenas) +
                             " arena(s); raise arenas or ask for less";
  const auto refuse = [&](std::string_view option, std::uint64_t bytes, const std::string& why) {
    return Status(MC_INVALID_ARGUMENT,
                  subject + std::string(option) + " = " + format_size(bytes) + why);
  };
  if (pool_bytes > most_bytes) return refuse("pool_bytes", pool_bytes, arenas);
  if (max_pool_bytes > most_bytes) return refuse("max_pool_bytes", max_pool_bytes, arenas);
  if (max_pool_bytes != 0 && max_pool_bytes < pool_bytes) {
    return refuse("max_pool_bytes", max_pool_bytes,
                  " is less than pool_bytes = " + format_size(pool_bytes) +
                      "; raise it, or use 0 for this host's memory");
  }
  if (pool_bytes != 0 && capacity_bytes > pool_bytes) {
    return refuse("capacity_bytes", capacity_bytes,
                  " is more than pool_bytes = " + format_size(pool_bytes) +
                      "; lower it, or use 0 for the pool's size");
  }
  return {};
}

Status Loader::check() const {
  const Options& given = top_.values();
  if (given.socket.size() > kMaxSocketPathBytes) {
    return {MC_INVALID_ARGUMENT, about("socket", top_.origin_of("socket")) + ": " +
                                     options::quoted(given.socket) + " has more than " +
                                     std::to_string(kMaxSocketPathBytes) +
                                     " bytes; choose a shorter runtime_dir or socket"};
  }
  if (const auto gpus = numbers_of_gpus(given.gpus); !gpus) {
    return {MC_INVALID_ARGUMENT,
            about("gpus", top_.origin_of("gpus")) + ": " + std::string(gpus.error().text())};
  }
  std::string subject;
  for (const std::string_view name : {"pool_bytes", "max_pool_bytes", "capacity_bytes", "arenas"}) {
    const Origin& origin = top_.origin_of(name);
    if (origin.source != "default") subject += (subject.empty() ? "" : "; ") + origin.where;
  }
  if (auto status =
          check_pool(given.pool_bytes, given.max_pool_bytes, given.capacity_bytes, subject + ": ");
      !status.ok()) {
    return status;
  }
  for (std::size_t i = 0; i < given.namespaces.size(); ++i) {
    const NamespaceOptions& tenant = given.namespaces[i];
    const std::uint64_t pool_bytes = tenant.pool_bytes != 0 ? tenant.pool_bytes : given.pool_bytes;
    auto status = check_pool(
        pool_bytes, tenant.max_pool_bytes, tenant.capacity_bytes,
        "namespace " + options::quoted(tenant.name) + " (" + namespace_where_[i] + "): ");
    if (!status.ok()) return status;
  }
  return {};
}

// The value without the password of a URL: "redis://user:***@host".
std::string without_password(const std::string& value) {
  const std::size_t scheme = value.find("://");
  if (scheme == std::string::npos) return value;
  const std::size_t user = scheme + 3;
  const std::size_t host = value.rfind('@', value.find('?'));
  const std::size_t colon = value.find(':', user);
  if (host == std::string::npos || host < user || colon >= host) return value;
  return value.substr(0, colon + 1) + "***" + value.substr(host);
}

std::vector<OptionText> Loader::listing() const {
  std::vector<OptionText> text;
  const Options& given = top_.values();
  for (const auto& row : agent_rows()) {
    text.push_back({std::string(row.name), without_password(row.text_of(given)),
                    row.text_of(defaults_), top_.origin_of(row.name).source,
                    std::string(row.help)});
  }
  const NamespaceOptions unannounced;
  for (std::size_t i = 0; i < given.namespaces.size(); ++i) {
    const NamespaceOptions& tenant = given.namespaces[i];
    for (std::size_t at = 0; at < namespace_rows().size(); ++at) {
      const auto& row = namespace_rows()[at];
      if (row.name == "name") continue;
      text.push_back({"namespace." + tenant.name + "." + std::string(row.name), row.text_of(tenant),
                      row.text_of(unannounced), namespace_origins_[i][at].source,
                      std::string(row.help)});
    }
  }
  return text;
}

Result<LoadedOptions> Loader::finish() {
  Options& given = top_.values();
  if (given.runtime_dir.empty()) given.runtime_dir = defaults_.runtime_dir;
  if (given.policy.empty()) given.policy = defaults_.policy;
  defaults_.socket = given.runtime_dir + "/agent.sock";
  if (given.socket.empty()) given.socket = defaults_.socket;
  if (auto status = check(); !status.ok()) return fail(std::move(status));
  return LoadedOptions{given, listing()};
}

Result<LoadedOptions> load(const OptionFile& file,
                           const std::vector<std::pair<std::string, std::string>>& flags,
                           const char* const* environment) {
  Loader loader;
  if (auto status = loader.add_default_runtime_dir(environment); !status.ok()) return fail(status);
  if (auto status = loader.add_file(file); !status.ok()) return fail(status);
  if (auto status = loader.top().add_environment(environment); !status.ok()) return fail(status);
  if (auto status = loader.top().add_flags(flags); !status.ok()) return fail(status);
  return loader.finish();
}

}  // namespace

Result<LoadedOptions> load_options_text(
    std::string_view toml, const std::string& name,
    const std::vector<std::pair<std::string, std::string>>& flags, const char* const* environment) {
  const auto file = parse_config(toml, name);
  if (!file) return fail(file.error());
  return load(*file, flags, environment);
}

Result<LoadedOptions> load_options(const std::string& config_path,
                                   const std::vector<std::pair<std::string, std::string>>& flags,
                                   const char* const* environment) {
  if (config_path.empty()) return load({}, flags, environment);
  const auto text = read_config(config_path);
  if (!text) return fail(text.error());
  return load_options_text(*text, config_path, flags, environment);
}

Result<LoadedOptions> load_embedded_options(std::string_view lines) {
  Loader loader;
  if (auto status = loader.add_default_runtime_dir(nullptr); !status.ok()) return fail(status);
  if (auto status = loader.add_lines(lines); !status.ok()) return fail(status);
  return loader.finish();
}

std::vector<OptionText> option_table() {
  std::vector<OptionText> table;
  Options defaults;
  defaults.policy = std::string(policy_names().front());
  for (const auto& row : agent_rows()) {
    std::string value = row.text_of(defaults);
    if (row.name == "runtime_dir") value = "$RUNTIME_DIRECTORY, else /dev/shm/mc-UID";
    if (row.name == "socket") value = "<runtime_dir>/agent.sock";
    table.push_back({std::string(row.name), value, value, "default",
                     std::string(row.help) + "; " + row.domain.accepts(), row.domain.type(),
                     std::string(row.alias)});
  }
  return table;
}

Result<std::optional<std::vector<int>>> numbers_of_gpus(const std::string& gpus) {
  if (gpus == "auto") return std::optional<std::vector<int>>();
  std::vector<int> numbers;
  if (gpus == "none") return std::optional(numbers);
  for (const std::string& item : split_list(gpus)) {
    int number = -1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    const bool whole = error == std::errc() && end == item.data() + item.size();
    if (!whole || number < 0 || number > kMaxGpu || std::ranges::count(numbers, number) > 0) {
      return fail(MC_INVALID_ARGUMENT,
                  options::quoted(gpus) + " is neither auto, none, nor a list of GPUs such as 0,1");
    }
    numbers.push_back(number);
  }
  if (numbers.empty()) return fail(MC_INVALID_ARGUMENT, "gpus names no GPU; for no worker: none");
  return std::optional(numbers);
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) items.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return items;
}

}  // namespace mc::agent
