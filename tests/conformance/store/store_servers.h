// SPDX-License-Identifier: Apache-2.0
//
// The servers for the tests of the cluster stores: a real redis-server, a real etcd and
//   a small server of Mooncake's metadata protocol. The servers run on free loopback ports, in
//   their own directories, and end with the test.
// Threads: the test's thread.
// Owns: processes and directories.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mc::conformance {

class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file with this text and returns its path.
  std::string file(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

// A free port for a server of a test. A lock file holds the port until this process ends, so that
// no other test gets the same port. No process gets such a port from the kernel unasked.
int free_port();

class StoreServer {
 public:
  // The command line for a port.
  using Command = std::function<std::vector<std::string>(const std::string& directory, int port)>;
  // Starts the server, on another port if a port turns out to be taken.
  explicit StoreServer(Command command);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Returns when the server says that it is ready; the port and the directory are as before.
  void start();
  void kill_hard();
  void pause(bool paused);  // returns when the server has stopped
  int port() const { return port_; }
  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  const std::string& directory() const { return directory_.path(); }
  std::string log() const;

 private:
  bool try_start();
  bool is_ready(std::size_t log_bytes_before) const;

  const Command command_;
  TempDirectory directory_;
  int port_ = 0;
  pid_t pid_ = 0;
};

// Settings under which a kill loses no acknowledged write.
StoreServer::Command redis_command(std::vector<std::string> more = {});
StoreServer::Command etcd_command(std::vector<std::string> more = {}, bool tls = false);
StoreServer::Command metadata_command();

// A certificate authority and a certificate for 127.0.0.1 and localhost, as PEM files.
struct Certificates {
  explicit Certificates(const TempDirectory& directory);
  std::string ca;
  std::string cert;
  std::string key;
};

// Runs a program to the end and returns the output; fails the test if the program fails.
std::string run_program(const std::vector<std::string>& words);
std::string redis_cli(int port, std::vector<std::string> words);

}  // namespace mc::conformance
