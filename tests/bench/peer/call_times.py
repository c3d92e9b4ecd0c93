# SPDX-License-Identifier: Apache-2.0
"""How the programs that measure single calls time them."""

import time

WARM_S = 0.3


def p50(call, count):
    """Nanoseconds. call(i) must give true."""
    spent = []
    clock = time.perf_counter_ns
    for i in range(count):
        start = clock()
        good = call(i)
        spent.append(clock() - start)
        if not good:
            raise SystemExit(f"call {i} failed")
    return sorted(spent)[count // 2]


def warm(call):
    """Connections, page tables; and the kernel has found a core for each thread."""
    end, i = time.monotonic() + WARM_S, 0
    while time.monotonic() < end:
        call(i)
        i += 1
