// SPDX-License-Identifier: Apache-2.0
#include "bench/iperf3.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace mc::bench {

double iperf3_gb_per_s(int streams, double for_seconds, const std::string& congestion_control) {
  const std::string seconds = std::to_string(std::max(1, static_cast<int>(for_seconds)));
  const std::string port = std::to_string(20000 + ::getpid() % 20000);
  const int pid = ::fork();
  if (pid == 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr) std::_Exit(1);
    ::execlp("iperf3", "iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port.c_str(), nullptr);
    std::_Exit(1);
  }
  const std::string command = "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.1; iperf3 -c 127.0.0.1 -p " +
                              port + " -t " + seconds + " -P " + std::to_string(streams) + " -C " +
                              congestion_control + " -f k 2>/dev/null && break; done";
  std::FILE* out = ::popen(command.c_str(), "r");
  double kbits = 0;
  char line[512];
  while (out != nullptr && std::fgets(line, sizeof line, out) != nullptr) {
    const std::string text = line;
    const std::size_t unit = text.find(" Kbits/sec");
    if (text.find("receiver") == std::string::npos || unit == std::string::npos) continue;
    if (streams > 1 && text.find("[SUM]") == std::string::npos) continue;
    kbits = std::strtod(text.c_str() + text.rfind(' ', unit - 1), nullptr);
  }
  if (out != nullptr) ::pclose(out);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return kbits * 1000 / 8 / 1e9;
}

}  // namespace mc::bench
