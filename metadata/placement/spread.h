// SPDX-License-Identifier: Apache-2.0
//
// Weighted rendezvous hashing. Every (thing, candidate) pair has a fixed draw, and the
//   candidate with the least draw wins. Each candidate wins things in proportion to the weight. A
//   candidate that comes or goes moves only the things that it wins or had won. Draws are
//   exponential with rate `weight` (Schindelhauer and Schomaker, "Weighted distributed hash
//   tables", 2005).
// Threads: any; pure functions.
#pragma once

#include <cmath>
#include <cstdint>

namespace mc::metadata {

// The finaliser of splitmix64.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr std::uint64_t pair_hash(std::uint64_t thing, std::uint64_t candidate) {
  return mix64(thing ^ mix64(candidate));
}

// REQUIRES: weight > 0.
inline double draw(std::uint64_t thing, std::uint64_t candidate, double weight) {
  // In (0, 1): 53 bits and a half, so that the logarithm is finite and never 0.
  const double uniform = (static_cast<double>(pair_hash(thing, candidate) >> 11) + 0.5) * 0x1.0p-53;
  return -std::log(uniform) / weight;
}

}  // namespace mc::metadata
