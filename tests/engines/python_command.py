# SPDX-License-Identifier: Apache-2.0
"""`python -m sglang.launch_server` with the flags that a tiny model on a CPU needs.

SGLang's scheduler is a spawned process, which imports this file again, and with it the shims.
"""

import runpy
import sys

import sglang_cpu_shims  # noqa: F401

TINY = ("--device=cpu", "--attention-backend=torch_native", "--dtype=bfloat16",
        "--max-total-tokens=4096", "--max-running-requests=4", "--disable-cuda-graph",
        "--skip-server-warmup", "--random-seed=0", "--disable-overlap-schedule",
        "--hicache-ratio=2")

if __name__ == "__main__":
    flag, module, *rest = sys.argv[1:]
    if flag != "-m" or module != "sglang.launch_server":
        sys.exit(f"python_command.py runs sglang.launch_server alone, not {sys.argv[1:]}")
    sys.argv[1:] = [*rest, *TINY]
    runpy.run_module(module, run_name="__main__")
