// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/core.h>

#include "ctl/agent_question.h"
#include "ctl/processes.h"
#include "ctl/text/failure.h"
#include "ctl/text/json.h"
#include "ctl/text/progress.h"
#include "ctl/text/size.h"
#include "libmc/base/fd.h"
#include "libmc/client/admin.h"

namespace mc::ctl {
namespace {

namespace fs = std::filesystem;

struct BundleOptions {
  std::string file;
};

// A file of the bundle: the output of a command.
struct Collected {
  std::string file;
  std::vector<std::string> words;
};

// A directory that ends with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "mc-support-XXXXXX").string();
    if (!error && ::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const fs::path& path() const { return path_; }  // empty: errno has the reason

 private:
  fs::path path_;
};

// The pid of the agent; 0 if the agent does not answer.
std::uint64_t agent_pid(const Context& context) {
  Json::Value request;
  request["verb"] = "status";
  constexpr std::uint64_t kWaitNs = 1000000000u;
  const auto answer = client::admin_call(socket_path(context), request, kWaitNs);
  return answer ? number_field(*answer, "pid") : 0;
}

// Facts about the agent and the host. No command reads the objects, their keys, or a file that an option
// names: keys, tokens and passwords are in files.
std::vector<Collected> things_to_collect(const Context& context) {
  std::vector<std::string> self{"/proc/self/exe", "--json", "--timeout-ms", "2000"};
  if (!context.agent.empty()) self.insert(self.end(), {"--agent", context.agent});
  const auto mcctl = [&](std::vector<std::string> verb) {
    std::vector<std::string> words = self;
    words.insert(words.end(), verb.begin(), verb.end());
    return words;
  };
  std::vector<Collected> out{
      {"version.txt", {"/proc/self/exe", "--version"}},
      {"status.json", mcctl({"status"})},
      {"segments.json", mcctl({"segment", "list"})},
      {"namespaces.json", mcctl({"namespace", "list"})},
      {"config.json", mcctl({"config"})},
      {"events.json", mcctl({"events"})},
      {"activity.json", mcctl({"top", "--once"})},
      {"cluster.json", mcctl({"cluster", "status"})},
      {"nodes.json", mcctl({"nodes"})},
      {"rails.json", mcctl({"rails"})},
      {"doctor.json", mcctl({"doctor"})},
      {"topology.json", mcctl({"topo"})},
      {"kernel.txt", {"uname", "-a"}},
      {"memory.txt", {"cat", "/proc/meminfo"}},
      {"processors.txt", {"lscpu"}},
      {"file_systems.txt", {"df", "-h", "/dev/shm", "/run", "/tmp"}},
      {"limits.txt", {"sh", "-c", "ulimit -a; cat /proc/sys/fs/file-nr"}},
      {"network.txt", {"ip", "-brief", "address"}},
      {"journal_agent.txt",
       {"journalctl", "--no-pager", "-o", "short-iso", "-n", "2000", "-u", "mc-agent"}},
      {"journal_master.txt",
       {"journalctl", "--no-pager", "-o", "short-iso", "-n", "2000", "-u", "mc-master"}},
  };
  if (const std::uint64_t pid = agent_pid(context); pid != 0) {
    const std::string proc = fmt::format("/proc/{}/", pid);
    out.push_back(
        {"agent_process.txt", {"cat", proc + "status", proc + "limits", proc + "cgroup"}});
  }
  return out;
}

// Runs a command into a file. The exit status; nullopt: the command did not start or did not end in time.
std::optional<int> run_into(const std::vector<std::string>& words, const std::string& file) {
  constexpr std::chrono::seconds kLongest{20};
  const pid_t pid = spawn(words, file, Lives::kWithParent);
  if (pid < 0) return std::nullopt;
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  int state = 0;
  for (;;) {
    const pid_t ended = ::waitpid(pid, &state, WNOHANG);
    if (ended == pid) break;
    if (std::chrono::steady_clock::now() >= deadline) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &state, 0);
      return std::nullopt;
    }
    ::usleep(5000);  // no descriptor tells of the end of a child
  }
  if (!WIFEXITED(state) || WEXITSTATUS(state) == 127) return std::nullopt;
  return WEXITSTATUS(state);
}

std::string default_file() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("mc-support-{}-{:%Y%m%dT%H%M%S}.tar.gz", host, fmt::localtime(now));
}

void run_support_bundle(Context& context, const BundleOptions& options) {
  constexpr std::string_view kVerb = "support-bundle";
  const std::string file = options.file.empty() ? default_file() : options.file;
  ::umask(077);  // journals and events are for root and the agent's user
  const TemporaryDirectory temporary;
  const fs::path folder = temporary.path() / "mc-support";
  std::error_code error;
  if (temporary.path().empty() || !fs::create_directory(folder, error)) {
    report(context, kVerb, kExitFailed,
           {errno_text("make a folder for temporary files", errno),
            "set TMPDIR to a folder with room that this user may write to"});
    return;
  }
  const std::vector<Collected> things = things_to_collect(context);
  Progress progress("collecting", things.size());
  Json::Value missing(Json::arrayValue);
  std::ofstream list(folder / "README.txt");
  for (std::size_t i = 0; i < things.size(); ++i) {
    progress.update(i, things[i].file);
    const auto status = run_into(things[i].words, (folder / things[i].file).string());
    list << things[i].file << ": " << fmt::format("{}", fmt::join(things[i].words, " ")) << " -> "
         << (status ? std::to_string(*status) : "no answer") << '\n';
    if (!status || *status != 0) missing.append(things[i].file);
  }
  list.close();
  progress.finish();
  const std::string messages = (temporary.path() / "tar.txt").string();
  const auto packed = run_into(
      {"tar", "--force-local", "-czf", file, "-C", temporary.path().string(), "mc-support"},
      messages);
  if (packed != 0) {
    const std::string cause = last_line_of(messages);
    report(context, kVerb, kExitFailed,
           {cause.empty() ? "tar does not run" : cause,
            "a FILE in a folder with room that this user may write to"});
    return;
  }
  const std::uintmax_t bytes = fs::file_size(file, error);
  if (context.json) {
    Json::Value document;
    document["file"] = file;
    document["bytes"] = u64(bytes);
    document["files"] = u64(things.size());
    document["incomplete"] = missing;
    print_json(document);
    return;
  }
  fmt::print("{}, {}: {} files\n", file, format_bytes(bytes), things.size());
  if (!missing.empty()) {
    std::string names;
    for (const Json::Value& name : missing) names += (names.empty() ? "" : ", ") + name.asString();
    fmt::print("failed or incomplete; README.txt inside has the commands: {}\n", names);
  }
}

}  // namespace

Verb support_bundle_verb(Context& context) {
  auto options = std::make_shared<BundleOptions>();
  return {
      .name = "support-bundle",
      .text = R"(Collect facts about the agent and this host into a file for a report

The file is a compressed tar archive with the answers of the other verbs, the agent's last events, the
journals of the services, and facts about the host: kernel, memory, processors, file systems, limits,
addresses. README.txt in the archive lists the commands with their exit statuses. A command that fails
leaves its error in its file. The agent need not run. Only the user who runs the verb can read the
archive.

The archive has no secrets: no keys of clusters, tokens or passwords, no objects and no keys of objects.
It has addresses, names of hosts, paths, and labels of sessions.)",
      .footer = R"(EXAMPLES
  mcctl support-bundle
  mcctl support-bundle /tmp/report.tar.gz --json

EXIT STATUS
  0 written; 1 the file cannot be written; 2 wrong usage)",
      .options = {{"FILE", &options->file,
                   "The archive; default: mc-support-HOST-TIME.tar.gz here"}},
      .run = [options, &context] { run_support_bundle(context, *options); },
  };
}

}  // namespace mc::ctl
