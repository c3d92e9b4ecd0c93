// SPDX-License-Identifier: Apache-2.0
//
// A network of hosts. Each host is a network namespace; all hosts share a bridge. A
//   host's cable can be cut in either direction or both, and can be made slow. The namespaces have
//   no names, so a namespace disappears with the last process, however the test ends.
//
//     host 0: eth0 ══ port0 ┐
//     host 1: eth0 ══ port1 ┤ bridge, in a namespace too      kOut: eth0 drops outgoing packets
//     host 2: eth0 ══ port2 ┘                                 kIn: the port drops incoming packets
//
// Threads: the test's thread.
// Owns: the namespaces.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "libmc/base/fd.h"

namespace mc::cluster {

enum class Way { kBoth, kOut, kIn };

class Network {
 public:
  // Why this machine does not allow the network; empty: the machine allows it.
  static std::string obstacle();
  explicit Network(std::size_t hosts);

  static std::string address(std::size_t host) { return "10.79.0." + std::to_string(host + 1); }
  // Packets are lost silently, as with a cut cable.
  void cut(std::size_t host, Way way) const;
  // Limits both directions, in bits per second.
  void slow(std::size_t host, const std::string& rate) const;
  void heal(std::size_t host) const;

  // While the object lives, sockets and processes of this thread belong to that host.
  class Inside {
   public:
    Inside(const Network& network, std::size_t host);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Fd outside_;
  };

 private:
  // Sets the traffic rule for a direction of a host's cable; empty: no rule.
  void set_rule(std::size_t host, bool out, const std::string& rule) const;

  Fd bridge_;
  std::vector<Fd> hosts_;
};

}  // namespace mc::cluster
