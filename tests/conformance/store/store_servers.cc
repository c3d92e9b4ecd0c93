// SPDX-License-Identifier: Apache-2.0
#include "conformance/store/store_servers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

#include "libmc/base/clock.h"
#include "libmc/base/fd.h"
#include "process_stop.h"

namespace mc::conformance {
namespace {

constexpr std::uint64_t kLookAgainNs = 5000000;
constexpr int kPortAttempts = 5;
// Below the kernel's usual range for outgoing connections. tests/python/machine.py has the same
// range and the same directory of lock files.
constexpr int kFirstPort = 10000;
constexpr int kPortCount = 22000;
// Each server writes one of these lines when the server has its port and its data. An answer on the
// port proves less: a stranger's server may answer.
constexpr std::array kReadyLines = {
    "Ready to accept connections",     // redis-server
    "Sentinel ID is",                  // redis-sentinel
    "ready to serve client requests",  // etcd
    "the metadata server is ready",
};

bool can_bind(int port) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Takes the lock file of a port. The file stays open, and locked, until the process ends.
bool hold(const std::string& directory, int port) {
  Fd file(
      ::open((directory + "/" + std::to_string(port)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 || !can_bind(port)) return false;
  static_cast<void>(file.release());
  return true;
}

std::vector<char*> argv_of(std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return argv;
}

}  // namespace

TempDirectory::TempDirectory() {
  std::string pattern = testing::TempDir() + "mc-store-XXXXXX";
  path_ = ::mkdtemp(pattern.data());
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDirectory::file(const std::string& name, const std::string& text) const {
  std::ofstream(file(name)) << text;
  return file(name);
}

int free_port() {
  const std::string directory = "/tmp/mc-test-ports-" + std::to_string(::geteuid());
  ::mkdir(directory.c_str(), 0700);
  std::random_device random;
  for (int attempt = 0; attempt < kPortCount; ++attempt) {
    const int port = kFirstPort + static_cast<int>(random() % kPortCount);
    if (hold(directory, port)) return port;
  }
  throw std::runtime_error("no port is free; see " + directory);
}

StoreServer::StoreServer(Command command) : command_(std::move(command)) {
  // A process that is no test may take the port between the question and the start.
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    port_ = free_port();
    if (try_start()) return;
  }
  throw std::runtime_error("a server of the test does not start: " + log());
}

StoreServer::~StoreServer() { kill_hard(); }

void StoreServer::start() {
  if (!try_start()) throw std::runtime_error("a server of the test does not start: " + log());
}

bool StoreServer::try_start() {
  std::vector<std::string> words = command_(directory_.path(), port_);
  const std::vector<char*> argv = argv_of(words);
  const std::string log_path = directory_.file("log");
  const std::size_t log_bytes_before = log().size();
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    const int out = ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  const Fd exited(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  const std::uint64_t watchdog_ns = now_ns() + kWatchdogNs;
  while (now_ns() < watchdog_ns) {
    if (wait_readable(exited.get(), kLookAgainNs)) break;
    if (is_ready(log_bytes_before)) return true;
  }
  kill_hard();
  return false;
}

bool StoreServer::is_ready(std::size_t log_bytes_before) const {
  const std::string text = log();
  return std::ranges::any_of(kReadyLines, [&](const char* line) {
    return text.find(line, log_bytes_before) != std::string::npos;
  });
}

void StoreServer::kill_hard() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void StoreServer::pause(bool paused) {
  if (paused) {
    stop_process(pid_);
  } else {
    ::kill(pid_, SIGCONT);
  }
}

std::string StoreServer::log() const {
  std::ifstream file(directory_.file("log"));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

StoreServer::Command redis_command(std::vector<std::string> more) {
  return [more](const std::string& directory, int port) {
    std::vector<std::string> words = {"redis-server",
                                      "--port",
                                      std::to_string(port),
                                      "--bind",
                                      "127.0.0.1",
                                      "--dir",
                                      directory,
                                      "--appendonly",
                                      "yes",
                                      "--appendfsync",
                                      "always",
                                      "--save",
                                      "",
                                      "--repl-diskless-sync-delay",
                                      "0"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
}

StoreServer::Command etcd_command(std::vector<std::string> more, bool tls) {
  return [more, tls](const std::string& directory, int port) {
    const std::string client = (tls ? "https" : "http") + ("://127.0.0.1:" + std::to_string(port));
    // Each start has another port for peers, so that a taken port stops only one start.
    const std::string peer = "http://127.0.0.1:" + std::to_string(free_port());
    // Short elections: a lease lasts at least one and a half elections.
    std::vector<std::string> words = {"etcd",
                                      "--data-dir=" + directory + "/data",
                                      "--listen-client-urls=" + client,
                                      "--advertise-client-urls=" + client,
                                      "--listen-peer-urls=" + peer,
                                      "--initial-advertise-peer-urls=" + peer,
                                      "--initial-cluster=default=" + peer,
                                      "--heartbeat-interval=" + option_time(50),
                                      "--election-timeout=" + option_time(500)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
}

StoreServer::Command metadata_command() {
  return [](const std::string&, int port) {
    std::vector<std::string> words{"python3"};
    words.emplace_back(MC_SOURCE_DIR "/tests/conformance/store/metadata_server.py");
    words.push_back(std::to_string(port));
    return words;
  };
}

Certificates::Certificates(const TempDirectory& directory)
    : ca(directory.file("ca.pem")),
      cert(directory.file("cert.pem")),
      key(directory.file("key.pem")) {
  const std::string ca_key = directory.file("ca-key.pem");
  const std::string request = directory.file("request.pem");
  const std::string names = directory.file("names", "subjectAltName=IP:127.0.0.1,DNS:localhost\n");
  const std::vector<std::string> make_key = {"-newkey", "ec", "-pkeyopt",
                                             "ec_paramgen_curve:prime256v1", "-nodes"};
  std::vector<std::string> authority = {
      "openssl", "req",  "-x509", "-days", "2", "-subj", "/CN=mc test authority",
      "-keyout", ca_key, "-out",  ca};
  authority.insert(authority.end(), make_key.begin(), make_key.end());
  std::vector<std::string> asking = {"openssl", "req", "-subj", "/CN=mc test",
                                     "-keyout", key,   "-out",  request};
  asking.insert(asking.end(), make_key.begin(), make_key.end());
  run_program(authority);
  run_program(asking);
  run_program({"openssl", "x509", "-req", "-days", "2", "-in", request, "-CA", ca, "-CAkey", ca_key,
               "-CAcreateserial", "-extfile", names, "-out", cert});
}

std::string run_program(const std::vector<std::string>& words) {
  std::vector<std::string> copy = words;
  const std::vector<char*> argv = argv_of(copy);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  const Fd reading(ends[0]);
  ::close(ends[1]);
  std::string output;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = ::read(reading.get(), buffer.data(), buffer.size())) > 0;) {
    output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0) << words[0] << ": " << output;
  return output;
}

std::string redis_cli(int port, std::vector<std::string> words) {
  words.insert(words.begin(), {"redis-cli", "-p", std::to_string(port)});
  return run_program(words);
}

}  // namespace mc::conformance
