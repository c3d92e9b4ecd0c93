// SPDX-License-Identifier: Apache-2.0
//
// The error of an exception that ends at the border of the C ABI. Callers in C catch no exceptions.
// Threads: any.
#pragma once

#include <new>
#include <system_error>

#include "mc/mc.h"

namespace mc {

struct Caught {
  mc_status code;
  const char* text;  // lives as long as the process; takes no memory
};
// REQUIRES: the caller is in a catch block.
inline Caught caught_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {MC_NO_MEMORY, "this process gets no more memory; raise its limit or end other work"};
  } catch (const std::system_error&) {
    return {
        MC_NO_MEMORY,
        "this process gets no more threads or locks; raise ulimit -u, ulimit -v, or pids.max of "
        "its cgroup"};
  } catch (...) {
    return {MC_INTERNAL, "an exception ended the call; please report the call and its arguments"};
  }
}

}  // namespace mc
