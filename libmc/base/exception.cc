// SPDX-License-Identifier: Apache-2.0
#include "libmc/base/exception.h"

#include <new>
#include <system_error>

namespace mc {

Caught caught_exception() noexcept {
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
