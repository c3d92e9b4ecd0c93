// SPDX-License-Identifier: Apache-2.0
//
// Named points where a test may kill, stop or fail the process. Release builds contain
//   none (MC_FAILPOINTS=OFF makes the macro empty).
//
// The environment variable MC_FAILPOINTS="name=action,name@N=action" arms failpoints. @N: at the
// Nth time. Actions: kill (SIGKILL to this process), stop (SIGSTOP), pause (writes the name and a
// newline to the descriptor in MC_FAILPOINT_FD, then waits for a byte from this descriptor).
// tests/crash finds the names in the sources: each failpoint must be a literal MC_FAILPOINT("…").
// Threads: any.
#pragma once

#ifdef MC_FAILPOINTS

namespace mc {
void failpoint_reached(const char* name);
}  // namespace mc

#define MC_FAILPOINT(name) ::mc::failpoint_reached(name)

#else

#define MC_FAILPOINT(name) static_cast<void>(0)

#endif
