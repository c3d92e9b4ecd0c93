// SPDX-License-Identifier: Apache-2.0
//
// The rate of TCP streams on this machine, measured by iperf3 over loopback.
// Threads: a single thread.
// Owns: the two processes, which end with the call.
#pragma once

#include <string>

namespace mc::bench {

// GB/s as the receiver counts; 0: iperf3 is not installed.
double iperf3_gb_per_s(int streams, double seconds, const std::string& congestion_control);

}  // namespace mc::bench
