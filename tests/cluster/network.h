// SPDX-License-Identifier: Apache-2.0
//
// What it is: a network of hosts, each a network namespace of its own on one bridge, whose cables
//   can be cut, one way or both, and made slow. The namespaces have no names: they end with their
//   last process, however the test ends.
//
//     host 0: eth0 ══ port0 ┐
//     host 1: eth0 ══ port1 ┤ bridge, in a namespace too      kOut: eth0 swallows what leaves
//     host 2: eth0 ══ port2 ┘                                 kIn: the port swallows what comes
//
// Threads: the test's. Owns: the namespaces.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "libmc/base/fd.h"

namespace mc::cluster {

enum class Way { kBoth, kOut, kIn };

class Network {
 public:
  // Why this machine lets nobody make one; empty: it does.
  static std::string obstacle();
  explicit Network(std::size_t hosts);

  static std::string address(std::size_t host) { return "10.79.0." + std::to_string(host + 1); }
  // What is sent is lost, silently, as with a cable that is cut: nobody is told.
  void cut(std::size_t host, Way way) const;
  // Both ways, in bits a second.
  void slow(std::size_t host, const std::string& rate) const;
  void heal(std::size_t host) const;

  // While it lives, what this thread opens and starts is that host's.
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
  // Sends through that host's cable, out or in, go by this rule; empty: as they come.
  void set_rule(std::size_t host, bool out, const std::string& rule) const;

  Fd bridge_;
  std::vector<Fd> hosts_;
};

}  // namespace mc::cluster
