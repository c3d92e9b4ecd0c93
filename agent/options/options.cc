// SPDX-License-Identifier: Apache-2.0
#include "agent/options/options.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "agent/options/option_table.h"
#include "agent/pool/policy/policy.h"
#include "libmc/options/option_file.h"
#include "libmc/options/option_value.h"
#include "mc/limits.h"

namespace mc::agent {
namespace {

constexpr std::string_view kEnvironmentPrefix = "MC_AGENT_";
constexpr std::string_view kRuntimeDirVariable = "RUNTIME_DIRECTORY";
constexpr std::size_t kMaxEmbeddedBytes = 1 << 16;
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
  Loader() : origins_(agent_rows().size()) {}

  Status add_default_runtime_dir(const char* const* environment);
  Status add_file(const OptionFile& file);
  Status add_environment(const char* const* environment);
  Status add_flags(const std::vector<std::pair<std::string, std::string>>& flags);
  Status add_lines(std::string_view lines);
  Result<LoadedOptions> finish();

 private:
  Status set(std::string_view name, std::string_view text, Spelling spelling, Origin origin);
  Status add_namespace(const FileTable& table);
  Status check() const;
  Status check_pool(std::uint64_t pool_bytes, std::uint64_t max_pool_bytes,
                    std::uint64_t capacity_bytes, const std::string& subject) const;
  const Origin& origin_of(std::string_view name) const;
  std::vector<OptionText> listing() const;

  Options options_;
  Options defaults_;
  std::vector<Origin> origins_;  // by row
  // by namespace: the options that its table names
  std::vector<std::set<std::string>> namespace_names_set_;
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
  options_ = defaults_;
  return {};
}

const Origin& Loader::origin_of(std::string_view name) const {
  const auto* const row = find_row(agent_rows(), name);
  return origins_[static_cast<std::size_t>(row - agent_rows().data())];
}

Status Loader::set(std::string_view name, std::string_view text, Spelling spelling, Origin origin) {
  const auto* const row = find_row(agent_rows(), name);
  if (row == nullptr) {
    return unknown_option(agent_rows(), name, spelling,
                          spelling == Spelling::kName ? origin.where : std::string(),
                          kEnvironmentPrefix);
  }
  const auto status = assign(*row, text, origin, options_);
  origins_[static_cast<std::size_t>(row - agent_rows().data())] = std::move(origin);
  return status;
}

Status Loader::add_file(const OptionFile& file) {
  for (const FileEntry& entry : file.top.entries) {
    const auto* const row = find_row(agent_rows(), entry.name);
    if (row == nullptr) {
      return unknown_option(agent_rows(), entry.name, Spelling::kName, entry.where, {},
                            "namespace");
    }
    auto& origin = origins_[static_cast<std::size_t>(row - agent_rows().data())];
    origin = {"file", entry.where};
    if (const auto status = assign_entry(*row, entry, origin, options_); !status.ok()) {
      return status;
    }
  }
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
  NamespaceOptions tenant;
  std::set<std::string> named;
  for (const FileEntry& entry : table.entries) {
    const auto* const row = find_row(namespace_rows(), entry.name);
    if (row == nullptr) {
      return unknown_option(namespace_rows(), entry.name, Spelling::kName, entry.where);
    }
    const Origin origin{"file", entry.where};
    if (const auto status = assign_entry(*row, entry, origin, tenant); !status.ok()) return status;
    named.insert(entry.name);
  }
  const std::string subject = "[[namespace]] (" + table.where + "): ";
  if (!named.contains("name")) {
    return {MC_INVALID_ARGUMENT, subject + "the table has no name; add name = \"...\""};
  }
  if (tenant.name == "default") {
    return {MC_INVALID_ARGUMENT,
            subject +
                "namespace 'default' always exists; the options at the top of the file are "
                "its own, so move these there"};
  }
  for (std::size_t i = 0; i < options_.namespaces.size(); ++i) {
    if (options_.namespaces[i].name != tenant.name) continue;
    return {MC_INVALID_ARGUMENT, subject + "namespace " + options::quoted(tenant.name) +
                                     " was described before (" + namespace_where_[i] +
                                     "); rename or remove one"};
  }
  options_.namespaces.push_back(std::move(tenant));
  namespace_names_set_.push_back(std::move(named));
  namespace_where_.push_back(table.where);
  return {};
}

Status Loader::add_environment(const char* const* environment) {
  // MC_AGENT, without the last underscore of the prefix, tells clients the address of the agent.
  return read_environment(agent_rows(), kEnvironmentPrefix, environment,
                          [this](std::string_view name, std::string_view text, Origin origin) {
                            return set(name, text, Spelling::kVariable, std::move(origin));
                          });
}

Status Loader::add_flags(const std::vector<std::pair<std::string, std::string>>& flags) {
  for (const auto& [given, text] : flags) {
    std::string name = given;
    std::replace(name.begin(), name.end(), '-', '_');
    const Origin origin{"flag", "flag " + spelled(name, Spelling::kFlag)};
    if (auto status = set(name, text, Spelling::kFlag, origin); !status.ok()) return status;
  }
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
    const auto status = set(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)),
                            Spelling::kName, origin);
    if (!status.ok()) return status;
  }
  return {};
}

Status Loader::check_pool(std::uint64_t pool_bytes, std::uint64_t max_pool_bytes,
                          std::uint64_t capacity_bytes, const std::string& subject) const {
  const std::uint64_t most_bytes = kMaxPoolBytesPerArena * options_.arenas;
  const std::string arenas = " is more than " + format_size(most_bytes) + ", 1TiB for each of " +
                             std::to_string(options_.arenas) +
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
  if (capacity_bytes > pool_bytes) {
    return refuse("capacity_bytes", capacity_bytes,
                  " is more than pool_bytes = " + format_size(pool_bytes) +
                      "; lower it, or use 0 for the pool's size");
  }
  return {};
}

Status Loader::check() const {
  if (options_.socket.size() > kMaxSocketPathBytes) {
    return {MC_INVALID_ARGUMENT, about("socket", origin_of("socket")) + ": " +
                                     quoted(options_.socket) + " has more than " +
                                     std::to_string(kMaxSocketPathBytes) +
                                     " bytes; choose a shorter runtime_dir or socket"};
  }
  std::string subject;
  for (const std::string_view name : {"pool_bytes", "max_pool_bytes", "capacity_bytes", "arenas"}) {
    const Origin& origin = origin_of(name);
    if (origin.source != "default") subject += (subject.empty() ? "" : "; ") + origin.where;
  }
  if (auto status = check_pool(options_.pool_bytes, options_.max_pool_bytes,
                               options_.capacity_bytes, subject + ": ");
      !status.ok()) {
    return status;
  }
  for (std::size_t i = 0; i < options_.namespaces.size(); ++i) {
    const NamespaceOptions& tenant = options_.namespaces[i];
    const std::uint64_t pool_bytes =
        tenant.pool_bytes != 0 ? tenant.pool_bytes : options_.pool_bytes;
    auto status = check_pool(
        pool_bytes, tenant.max_pool_bytes, tenant.capacity_bytes,
        "namespace " + options::quoted(tenant.name) + " (" + namespace_where_[i] + "): ");
    if (!status.ok()) return status;
  }
  return {};
}

std::vector<OptionText> Loader::listing() const {
  std::vector<OptionText> text;
  for (std::size_t i = 0; i < origins_.size(); ++i) {
    const auto& row = agent_rows()[i];
    text.push_back({std::string(row.name), row.text_of(options_), row.text_of(defaults_),
                    origins_[i].source, std::string(row.help)});
  }
  const NamespaceOptions unannounced;
  for (std::size_t i = 0; i < options_.namespaces.size(); ++i) {
    const NamespaceOptions& tenant = options_.namespaces[i];
    for (const auto& row : namespace_rows()) {
      const std::string name(row.name);
      if (name == "name") continue;
      text.push_back(
          {"namespace." + tenant.name + "." + name, row.text_of(tenant), row.text_of(unannounced),
           namespace_names_set_[i].contains(name) ? "file" : "default", std::string(row.help)});
    }
  }
  return text;
}

Result<LoadedOptions> Loader::finish() {
  if (options_.runtime_dir.empty()) options_.runtime_dir = defaults_.runtime_dir;
  if (options_.policy.empty()) options_.policy = defaults_.policy;
  defaults_.socket = options_.runtime_dir + "/agent.sock";
  if (options_.socket.empty()) options_.socket = defaults_.socket;
  if (auto status = check(); !status.ok()) return fail(std::move(status));
  return LoadedOptions{options_, listing()};
}

Result<LoadedOptions> load(const OptionFile& file,
                           const std::vector<std::pair<std::string, std::string>>& flags,
                           const char* const* environment) {
  Loader loader;
  if (auto status = loader.add_default_runtime_dir(environment); !status.ok()) return fail(status);
  if (auto status = loader.add_file(file); !status.ok()) return fail(status);
  if (auto status = loader.add_environment(environment); !status.ok()) return fail(status);
  if (auto status = loader.add_flags(flags); !status.ok()) return fail(status);
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
                     std::string(row.help) + "; " + row.domain.accepts()});
  }
  return table;
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
