// SPDX-License-Identifier: Apache-2.0
#include "cluster/network.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <stdexcept>

#include "conformance/store/store_servers.h"

namespace mc::cluster {

namespace {

constexpr const char* kOwnNamespace = "/proc/thread-self/ns/net";

Fd own_namespace() { return Fd(::open(kOwnNamespace, O_RDONLY | O_CLOEXEC)); }

void enter(const Fd& net) {
  if (::setns(net.get(), CLONE_NEWNET) != 0) {
    throw std::runtime_error(errno_text("setns to a host of the test", errno));
  }
}

// Makes a namespace with the loopback up. This thread stays in the old namespace.
Fd make_namespace() {
  const Fd outside = own_namespace();
  if (::unshare(CLONE_NEWNET) != 0) {
    throw std::runtime_error(errno_text("unshare of the network", errno));
  }
  Fd made = own_namespace();
  conformance::run_program({"ip", "link", "set", "lo", "up"});
  enter(outside);
  return made;
}

void run(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  conformance::run_program(words);
}

std::string port_of(std::size_t host) { return "port" + std::to_string(host); }

}  // namespace

// Tries in a child process, so that the namespace of the trial disappears with the child.
std::string Network::obstacle() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    bool can = ::unshare(CLONE_NEWNET) == 0;
    can = can && ::freopen("/dev/null", "w", stderr) != nullptr;
    can = can && ::system(
                     "ip link add ours type veth peer name theirs"
                     " && ip link add hub type bridge"
                     " && tc qdisc add dev ours root blackhole") == 0;
    ::_exit(can ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return "hosts in network namespaces need root, bridges, veth pairs and tc's blackhole";
}

Network::Network(std::size_t hosts) : bridge_(make_namespace()) {
  const Fd outside = own_namespace();
  enter(bridge_);
  run("ip link add hub type bridge");
  run("ip link set hub up");
  for (std::size_t host = 0; host < hosts; ++host) {
    hosts_.push_back(make_namespace());
    const std::string port = port_of(host);
    run("ip link add " + port + " type veth peer name eth0 netns /proc/" +
        std::to_string(::getpid()) + "/fd/" + std::to_string(hosts_.back().get()));
    run("ip link set " + port + " master hub up");
    const Inside inside(*this, host);
    run("ip addr add " + address(host) + "/24 dev eth0");
    run("ip link set eth0 up");
  }
  enter(outside);
}

void Network::set_rule(std::size_t host, bool out, const std::string& rule) const {
  const Fd outside = own_namespace();
  enter(out ? hosts_[host] : bridge_);
  const std::string device = out ? "eth0" : port_of(host);
  run("tc qdisc replace dev " + device + " root " + (rule.empty() ? "pfifo" : rule));
  enter(outside);
}

void Network::cut(std::size_t host, Way way) const {
  if (way != Way::kIn) set_rule(host, true, "blackhole");
  if (way != Way::kOut) set_rule(host, false, "blackhole");
}

void Network::slow(std::size_t host, const std::string& rate) const {
  for (const bool out : {true, false}) {
    set_rule(host, out, "tbf rate " + rate + " burst 2kb latency 10s");
  }
}

void Network::heal(std::size_t host) const {
  for (const bool out : {true, false}) set_rule(host, out, {});
}

Network::Inside::Inside(const Network& network, std::size_t host) : outside_(own_namespace()) {
  enter(network.hosts_[host]);
}

Network::Inside::~Inside() { ::setns(outside_.get(), CLONE_NEWNET); }

}  // namespace mc::cluster
