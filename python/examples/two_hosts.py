# SPDX-License-Identifier: Apache-2.0
"""Puts a block on one host and gets the block on another host.

two_hosts.py SOCKET_A SOCKET_B     agents of two hosts of one cluster
two_hosts.py                       starts both "hosts" on this machine: two agents on loopback
"""

import contextlib
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import mckv


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_hosts(stack: contextlib.ExitStack) -> list[str]:
    """Two agents in directories of their own; the first one runs the master, too."""
    directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mc-example-")))
    master = f"127.0.0.1:{free_port()}"
    roles = {"a": f"--master-listen={master}", "b": f"--masters={master}"}
    sockets = []
    for name, role in roles.items():
        home = directory / name
        home.mkdir(mode=0o700)
        flags = ["--pool-bytes=256MiB", "--descriptor-store=none", "--listen=127.0.0.1:0", role]
        command = [mckv.program("mc-agent"), f"--runtime-dir={home}", *flags]
        agent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        stack.callback(agent.wait)
        stack.callback(agent.terminate)
        sockets.append(str(home / "agent.sock"))
    return sockets


def members(client: mckv.Client) -> int:
    cluster = client.ask({"verb": "status"})["cluster"]
    return int(cluster["members"]) if cluster["master_ready"] else 0


def main() -> None:
    with contextlib.ExitStack() as stack:
        addresses = sys.argv[1:3] if len(sys.argv) > 2 else start_hosts(stack)
        # A client waits for an agent that is still starting, up to its timeout.
        a, b = (stack.enter_context(mckv.Client(one, timeout=20)) for one in addresses)
        block = bytes(range(256)) * 1024
        deadline = time.monotonic() + 20
        while min(members(a), members(b)) < 2:  # each agent must have joined the master
            if time.monotonic() > deadline:
                raise SystemExit("the agents did not find each other within 20 s; see their logs")
            time.sleep(0.05)
        a.put("example/two-hosts", block, upsert=True)  # complete when the master knows the place
        with b.view("example/two-hosts") as view:  # fetched from host A, verified, then in place
            assert view.tobytes() == block
            print(f"host B read {len(view)} bytes that host A holds")


if __name__ == "__main__":
    main()
