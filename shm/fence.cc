// SPDX-License-Identifier: Apache-2.0
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/atomic.h"

namespace mc::shm {

void heavy_fence() {
  full_fence();
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

bool register_for_heavy_fences() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

}  // namespace mc::shm
