# SPDX-License-Identifier: Apache-2.0
"""The commands of a page on hosts, as printed, with engines of a tiny model.

The page's programs are wrappers in a folder on PATH: `vllm` and `python -m sglang.launch_server`
add the flags that a tiny model on a CPU needs, mooncake_master and mckv run from the source tree,
and pip installs nothing, because PYTHONPATH has the packages.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

from pool_agent import HERE, ROOT, Failed, wait_until
from services import RUNUSER
from vllm_engine import START_LIMIT_S

sys.path[:0] = [str(ROOT / "tests/docs"), str(ROOT / "tests/python")]
from blocks import shell_blocks  # noqa: E402
from hosts import connected_hosts  # noqa: E402, F401 (the tests import this name from here)
from scripts import write_script, write_scripts  # noqa: E402

MASTER = "10.0.0.1:50051"
SAVE_LIMIT_S = 60
SEGMENT = 256 << 20  # bytes that a vLLM engine adds to the pool of its host
# Memory that a page gives to a real engine. SGLang reads no unit but gb.
SUBSTITUTES = ((r"\b\d+G(i?B)\b", r"256M\1"), (r"\b\d+gb\b", "1gb"), (r"-gb \d+\b", "-gb 1"),
               (r"(max_local_cpu_size:) \d+", r"\1 0.5"))


def real(script, model):
    for pattern, size in SUBSTITUTES:
        script = re.sub(pattern, size, script)
    return re.sub(r"\bMODEL\b", model, script)


def printed(page, word):
    """The block of the page that is for several hosts and contains this word."""
    found = [one for one in shell_blocks(page) if len(one.parts()) > 1 and word in one.script]
    if len(found) != 1:
        raise Failed(f"{page}: {len(found)} blocks for several hosts contain {word}")
    return found[0]


def wrappers(options, folder):
    """Makes the folder of the programs that pages name; returns the value of PATH."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    write_scripts(folder, options.python)
    for name, line in (
        ("vllm", f"{options.python} {HERE}/vllm_command.py"),
        ("python", f"env PYTHONPATH={options.venv}/side-sglang:$PYTHONPATH {options.python} "
                   f"{HERE}/python_command.py"),
        ("lmcache", f"{options.venv}/bin/lmcache"),
        ("pip", "echo not run: pip"),
    ):
        write_script(folder / name, f'#!/bin/sh\nexec {line} "$@"\n')
    write_script(folder / "runuser", RUNUSER)
    return f"{folder}:{options.agent_bin}:{os.environ['PATH']}"


class Deployment:
    """The commands of a block on hosts, in a folder that the hosts share."""

    def __init__(self, block, hosts, folder, environment, model):
        self._block = block
        self._hosts = {host.address: host for host in hosts}
        self._folder = pathlib.Path(folder)
        self._folder.mkdir()
        self._running = []
        (_, everywhere), *parts = [(where, real(script, model)) for where, script in block.parts()]
        if not parts:
            everywhere, parts = "", [(hosts[0].address, everywhere)]
        done = subprocess.run(
            ["bash", "-ec", everywhere + "env -0 >environment"], cwd=self._folder,
            env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{block}: {done.stderr}")
        lines = (self._folder / "environment").read_bytes().split(b"\0")
        self._environment = dict(os.fsdecode(line).split("=", 1) for line in lines if line)
        for address, script in parts:
            self.start(address, script)

    def start(self, address, script):
        """Runs more lines on the host, in the background."""
        if address not in self._hosts:
            raise Failed(f"{self._block}: no host has the address {address}")
        log = self.log(self._hosts[address])
        with open(log, "ab") as file:
            self._running.append((log, subprocess.Popen(
                self._hosts[address].command("bash", "-ec", script + "wait\n"),
                cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT)))

    def log(self, host):
        """The file with the output of the host's commands."""
        return self._folder / f"{host.address}.log"

    def wait(self, ports, healthy):
        """Until healthy(host, port) for the port of each host."""
        servers = list(zip(self._hosts.values(), ports, strict=True))

        def all_serve():
            for log, process in self._running:
                if process.poll() is not None:
                    raise Failed(f"{self._block}: the commands ended; see {log}")
            return all(healthy(host, port) for host, port in servers)

        if not wait_until(all_serve, START_LIMIT_S):
            raise Failed(f"{self._block}: not all of the ports {ports} serve after {START_LIMIT_S} "
                         f"s; see {self._folder}")

    def status(self, host, master=MASTER):
        """What `mcctl status` says. The page names the agent by the master, or not at all."""
        agent = f"MC_AGENT=$(mcctl join {master}) " if master else ""
        return json.loads(self.output(host, agent + "mcctl --json status"))

    def output(self, host, script):
        """Runs lines on the host, and returns their output."""
        done = subprocess.run(host.command("bash", "-ec", script),
                              env=self._environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{host.name}: {script.strip()}: {done.stderr.strip()}")
        return done.stdout

    def wait_for_objects(self, host, count, master=MASTER):
        """Waits until the host's pool holds so many objects. Returns the number of objects."""
        def held():
            return self.status(host, master)["namespaces"][0]["objects"]

        wait_until(lambda: held() >= count, SAVE_LIMIT_S)
        return held()

    def wait_for_blocks_of(self, holder, host):
        """Until the host finds all blocks that MckvConnector keeps on the holder, and no block is
        added between two looks."""
        blocks, looks = "mcctl ls --prefix vllm/ --keys", [set()]

        def found():
            looks.append(set(self.output(holder, f"{blocks} --local").split()))
            here = set(self.output(host, blocks).split())
            return looks[-1] == looks[-2] and looks[-1] and looks[-1] <= here

        if not wait_until(found, SAVE_LIMIT_S):
            raise Failed(f"{host.name} does not find the blocks of {holder.name}")
