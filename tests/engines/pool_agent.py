# SPDX-License-Identifier: Apache-2.0
"""What the engines' proofs share: an agent of their own, its counters, checks that are printed."""

import contextlib
import json
import os
import pathlib
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Failed(Exception):
    pass


def add_options(parser):
    parser.add_argument("--venv", default=str(ROOT / "build/engines"))
    parser.add_argument("--python-path",
                        default=f"{ROOT}/build/release/python:{ROOT}/python/mooncake/src",
                        help="where mckv and our mooncake modules are")
    parser.add_argument("--agent-bin", default=str(ROOT / "build/bin"))
    parser.add_argument("--keep", action="store_true", help="keep the working directory")


def wait_until(done, limit_s):
    """Whether done() was true within that time."""
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            return False
        # No event tells of the state of another process: a server's port, a pool's objects.
        time.sleep(0.05)
    return True


def start_agent(options, directory, *flags, pool="256MiB"):
    os.makedirs(directory, 0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):  # of an agent that was killed
        os.unlink(f"{directory}/agent.sock")
    agent = subprocess.Popen(
        [os.path.join(options.agent_bin, "mc-agent"), f"--runtime-dir={directory}",
         f"--pool-bytes={pool}", "--descriptor-store=none", *flags],
        stderr=open(f"{directory}.log", "ab"))
    path = f"{directory}/agent.sock"
    wait_until(lambda: os.path.exists(path) or agent.poll() is not None, 20)
    if not os.path.exists(path):
        raise Failed(f"mc-agent did not start; see {directory}.log")
    return agent


def pool_counters(options, socket):
    printed = subprocess.run(
        [os.path.join(options.agent_bin, "mcctl"), "--agent", socket, "--json", "status"],
        capture_output=True, text=True, timeout=30, check=True).stdout
    status = json.loads(printed)
    return next(one for one in status["namespaces"] if one["name"] == "default")


def wait_for_objects(options, socket, count, limit_s=30):
    """Connectors save in threads. The caller checks the number of objects."""
    wait_until(lambda: pool_counters(options, socket)["objects"] >= count, limit_s)


def check(good, what):
    print(f"{'ok  ' if good else 'FAIL'} {what}", flush=True)
    if not good:
        check.failed = True


check.failed = False


def finish(work, keep):
    """The exit status."""
    if check.failed or keep:
        print(f"logs are kept in {work}", flush=True)
    else:
        subprocess.run(["rm", "-rf", work])
    return 1 if check.failed else 0
