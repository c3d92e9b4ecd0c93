// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include <fmt/core.h>
#include <json/value.h>

#include "ctl/agent_question.h"
#include "ctl/processes.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "libmc/base/clock.h"
#include "libmc/base/fd.h"
#include "libmc/base/host_port.h"
#include "libmc/base/way.h"
#include "libmc/client/admin.h"
#include "metadata/master/client/ask_master.h"
#include "metadata/store/checks.h"

namespace mc::ctl {
namespace {

// Between two looks: no event tells of another process's lock, or of a new agent's socket.
constexpr auto kLook = std::chrono::milliseconds(10);
constexpr std::uintmax_t kMostLogBytes = 1 << 20;

// Options of a started agent that the environment may override: the pool has the contributions of
// the processes, and the agent ends after the last process.
constexpr std::pair<const char*, const char*> kAgentDefaults[] = {
    {"MC_AGENT_POOL_BYTES", "0"}, {"MC_AGENT_END_IDLE_SECONDS", "60"}};

struct JoinOptions {
  std::string master;
  std::string key_file;
  std::string runtime_dir;
  std::string cluster_id;  // beside a store's URL
  std::string listen;      // host or host:port; empty: the address on the way to the master

  bool by_store() const { return master.find("://") != std::string::npos; }
};

struct Joined {
  std::string socket;
  std::string cluster;
  pid_t started = 0;      // 0: an agent served already
  bool operated = false;  // an operator has put the agent into the cluster
};

// The directory of the agents that join starts.
std::string runtime_dir(const JoinOptions& options) {
  if (!options.runtime_dir.empty()) return options.runtime_dir;
  const std::string shared = "/run/mc";  // of containers that share an agent, for example
  if (::access(shared.c_str(), W_OK | X_OK) == 0) return shared;
  return "/dev/shm/mc-" + std::to_string(::geteuid());
}

// This host's address on the way to the master or the store, for peers of the same network.
Result<std::string> own_address(std::string master) {
  if (const std::size_t scheme = master.find("://"); scheme != std::string::npos) {
    master = master.substr(scheme + 3);
    master = master.substr(0, master.find_first_of("/?,"));
    master = master.substr(master.find('@') + 1);
  }
  const auto parts = split_address(master);
  if (!parts) return fail(parts.error());
  return way_to(parts->host, parts->port).map([](const Way& way) { return way.own; });
}

Result<metadata::MasterFacts> facts_of(const JoinOptions& options, std::uint64_t deadline_ns) {
  if (options.by_store()) {
    Status status = metadata::check_cluster_id(options.cluster_id);
    if (!status.ok()) return fail(status);
    return metadata::MasterFacts{options.cluster_id, options.master};
  }
  metadata::rpc::DialOptions dialing;
  dialing.address = options.master;
  auto key = auth::ClusterKey::find(options.key_file);
  if (!key) return fail(key.error());
  dialing.key = std::move(*key);
  return metadata::ask_master(std::move(dialing), deadline_ns);
}

// Processes that join at the same time start a single agent.
Result<Fd> lock_directory(const std::string& directory, std::uint64_t deadline_ns) {
  std::error_code error;  // the next mkdir reports the cause
  const std::filesystem::path parent = std::filesystem::path(directory).parent_path();
  std::filesystem::create_directories(parent.parent_path(), error);
  ::mkdir(parent.c_str(), 0700);
  struct stat status {};
  const bool safe = ::stat(parent.c_str(), &status) == 0 &&
                    (status.st_uid == 0 || status.st_uid == ::geteuid()) &&
                    (status.st_mode & 0022) == 0;
  if (!safe) {
    return fail(MC_PERMISSION_DENIED,
                parent.string() +
                    " must belong to this user or to root and be writable by nobody "
                    "else; name another directory with --runtime-dir");
  }
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(MC_PERMISSION_DENIED, errno_text(directory, errno));
  }
  Fd lock(::open((directory + "/join.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return fail(MC_PERMISSION_DENIED, errno_text(directory + "/join.lock", errno));
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (now_ns() >= deadline_ns) {
      return fail(MC_TIMEOUT, "another process starts the agent of " + directory +
                                  "; see agent.log in that directory");
    }
    std::this_thread::sleep_for(kLook);
  }
  return lock;
}

bool serves(const std::string& socket) { return connect_unix(socket, 0).has_value(); }

// The cluster in the agent's status; null: no cluster, or no answer.
Json::Value cluster_status(const std::string& socket, std::uint64_t deadline_ns) {
  Json::Value question;
  question["verb"] = "status";
  const std::uint64_t now = now_ns();
  const auto status =
      client::admin_call(socket, question, deadline_ns > now ? deadline_ns - now : 0);
  return status ? field(*status, "cluster") : Json::Value();
}

// Objects of other hosts are found when the agent talks to all masters. MC_AGENT_UNAVAILABLE: the agent
// has ended.
Status wait_for_masters(const std::string& socket, const std::string& master,
                        std::uint64_t deadline_ns) {
  while (!flag_field(cluster_status(socket, deadline_ns), "master_ready")) {
    if (now_ns() >= deadline_ns) {
      return {MC_TIMEOUT, "the agent at " + socket + " does not reach the masters of " + master +
                              "; see agent.log beside the socket"};
    }
    if (!serves(socket)) return {MC_AGENT_UNAVAILABLE, "the agent at " + socket + " has ended"};
    std::this_thread::sleep_for(kLook);
  }
  return {};
}

// The address for peers. If the way to the master is a loopback address, the way to the address in
// the master's answer counts.
Result<std::string> peer_address(const JoinOptions& options, const metadata::MasterFacts& facts) {
  if (!options.listen.empty()) return options.listen;
  auto address = own_address(options.master);
  const bool loopback = address && (address->starts_with("127.") || *address == "[::1]");
  if (!loopback) return address;
  auto told = own_address(facts.address);
  return told ? told : address;
}

// A log of years must not fill the memory of /dev/shm.
void limit_log(const std::string& path) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) < kMostLogBytes || error) return;
  std::filesystem::rename(path, path + ".old", error);
}

// "host:0" and "[v6 address]:0" have a port; "::1" is an address alone.
bool has_port(const std::string& address) {
  const std::size_t colon = address.find(':');
  return address.find("]:") != std::string::npos ||
         (colon != std::string::npos && colon == address.rfind(':'));
}

Result<pid_t> start_agent(const JoinOptions& options, const std::string& directory,
                          const metadata::MasterFacts& facts, std::uint64_t deadline_ns) {
  const auto address = peer_address(options, facts);
  if (!address) return fail(address.error());
  std::vector<std::string> words{program("mc-agent"),
                                 "--runtime-dir",
                                 directory,
                                 options.by_store() ? "--cluster-store" : "--masters",
                                 options.master,
                                 "--cluster-id",
                                 facts.cluster,
                                 "--listen",
                                 has_port(*address) ? *address : *address + ":0"};
  if (!options.key_file.empty()) {
    words.insert(words.end(), {"--cluster-key-file", options.key_file});
  }
  for (const auto& [name, value] : kAgentDefaults) ::setenv(name, value, 0);
  const std::string log = directory + "/agent.log";
  limit_log(log);
  const pid_t pid = spawn(words, log, Lives::kOnItsOwn);
  if (pid < 0) return fail(MC_NO_MEMORY, errno_text("fork", errno));
  while (!serves(directory + "/agent.sock")) {
    if (::waitpid(pid, nullptr, WNOHANG) == pid) {
      return fail(MC_AGENT_UNAVAILABLE,
                  "mc-agent has ended: " + last_line_of(log) + "; see " + log);
    }
    if (now_ns() >= deadline_ns) {
      return fail(MC_TIMEOUT, "mc-agent does not answer yet; see " + log);
    }
    std::this_thread::sleep_for(kLook);
  }
  return pid;
}

Result<Joined> join(const Context& context, const JoinOptions& options) {
  const std::uint64_t deadline_ns = now_ns() + timeout_ns(context);
  const auto facts = facts_of(options, deadline_ns);
  if (!facts) return fail(facts.error());
  if (const std::string host = client::default_agent_socket();
      serves(host) && text_field(cluster_status(host, deadline_ns), "id") == facts->cluster) {
    return Joined{host, facts->cluster, 0, true};
  }
  const std::string directory = runtime_dir(options) + "/" + facts->cluster;
  Joined joined{directory + "/agent.sock", facts->cluster};
  const auto lock = lock_directory(directory, deadline_ns);
  if (!lock) return fail(lock.error());
  while (true) {
    if (!serves(joined.socket)) {
      const auto started = start_agent(options, directory, *facts, deadline_ns);
      if (!started) return fail(started.error());
      joined.started = *started;
    }
    const Status status = wait_for_masters(joined.socket, options.master, deadline_ns);
    if (status.ok()) return joined;
    // The socket of an agent that dies takes connections until the kernel has closed the socket.
    if (status.code() != MC_AGENT_UNAVAILABLE) return fail(status);
  }
}

void run_join(Context& context, JoinOptions options) {
  const auto take = [](const char* name, std::string& value) {
    const char* const given = std::getenv(name);
    if (value.empty() && given != nullptr) value = given;
  };
  take("MC_RUNTIME_DIR", options.runtime_dir);
  if (options.cluster_id.empty()) options.cluster_id = "default";
  for (std::string* const path : {&options.key_file, &options.runtime_dir}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).string();
  }
  const auto joined = join(context, options);
  if (!joined) {
    report_status(context, "join", joined.error().code(), joined.error().text());
    return;
  }
  if (!context.json) {
    fmt::print("{}\n", joined->socket);
    return;
  }
  Json::Value value;
  value["socket"] = joined->socket;
  value["cluster"] = joined->cluster;
  value["started"] = joined->started;
  value["operated"] = joined->operated;
  print_json_line(value);
}

}  // namespace

Verb join_verb(Context& context) {
  const auto options = std::make_shared<JoinOptions>();
  return {
      .name = "join",
      .text = R"(Find or start this host's agent for the cluster of a master

Asks the master for its cluster, and prints the socket of this host's agent in that cluster. That is
the agent at the default socket, if it is in the cluster, else the agent in the directory
RUNTIME_DIR/CLUSTER. If no agent runs there, join starts an mc-agent, which goes on when mcctl has
ended and writes agent.log beside the socket. The pool of this agent has the memory that processes
contribute, as setup() of the mooncake package does, and the agent ends a minute after the last
process. The environment can give other options of the agent, such as MC_AGENT_POOL_BYTES=16GiB and
MC_AGENT_END_IDLE_SECONDS=0.)",
      .footer = R"(EXAMPLES
  mcctl join 10.0.0.1:7400
  MC_AGENT=$(mcctl join master:7400 --cluster-key-file /etc/mc/cluster.key) python engine.py

EXIT STATUS
  0 an agent serves; 1 failure; 2 wrong usage)",
      .options =
          {{.name = "MASTER",
            .value = &options->master,
            .help = "Address of a master of the cluster, host:port, or the URL of the "
                    "masters' store: redis://host:port, etcd://host:port",
            .required = true},
           {"--cluster-id", &options->cluster_id,
            "Name of the cluster in the store; a master tells its cluster (default: default)",
            "NAME"},
           {"--listen", &options->listen,
            "Address of this host for its peers, as listen of mc-agent; without a port, the agent "
            "takes any port; default: the address by which this host reaches the master",
            "HOST[:PORT]"},
           {"--runtime-dir", &options->runtime_dir,
            "Directory of the agents that join starts; default: MC_RUNTIME_DIR, else /run/mc "
            "if writable, else /dev/shm/mc-UID",
            "DIR"},
           {"--cluster-key-file", &options->key_file,
            "File with the cluster's key; default: MC_CLUSTER_KEY_FILE, else the key in MC_CLUSTER_KEY",
            "FILE"}},
      .run = [options, &context] { run_join(context, *options); },
  };
}

}  // namespace mc::ctl
