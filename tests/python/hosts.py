# SPDX-License-Identifier: Apache-2.0
"""Hosts in namespaces of this machine, for tests as root."""

import contextlib
import ctypes
import os
import pathlib
import select
import subprocess

END_LIMIT_S = 60
# Prints "ready" when the host is ready. The names of the hosts need no DNS server. This process
# ends with the test, which holds its standard input.
START = """mount -t tmpfs -o size=$1,mode=1777 tmpfs /dev/shm
echo "127.0.0.1 localhost" >/dev/shm/hosts
echo "$3" >>/dev/shm/hosts
mount --bind /dev/shm/hosts /etc/hosts
mount --bind /dev/null /etc/resolv.conf
rm /dev/shm/hosts
hostname "$2"
ip link set lo up
echo ready
exec cat"""


def child_of(process):
    """The process id of the only child of a subprocess.Popen, as this machine counts."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(children.read_text())


def enter_network(file):
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newnet = 0x40000000
    if libc.setns(file.fileno(), clone_newnet) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Host:
    """A host with namespaces of its own: network, mounts, host name and processes.

    /dev/shm is the host's own; the other folders are those of this machine. All processes of the
    host end with the host.
    """

    def __init__(self, name, shm_bytes=2 << 30, names=""):
        """names: lines of /etc/hosts."""
        self.name = name
        self.address = None
        kinds = ["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._first = subprocess.Popen(
            ["unshare", *kinds, "sh", "-ec", START, "sh", str(shm_bytes), name, names],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if self._first.stdout.readline() != "ready\n":
            raise RuntimeError(f"no namespaces for host {name} can be made here")
        self.pid = child_of(self._first)
        self._end = os.fdopen(os.pidfd_open(self.pid), "rb", buffering=0)

    def command(self, *words):
        """The command line that runs these words on the host, in the caller's directory.

        The process of this command line passes no signal on: signals go to child_of() of it.
        """
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--pid",
                "--wd=.", "--", *words]  # fmt: skip

    def run(self, *words):
        done = subprocess.run(self.command(*words), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    @contextlib.contextmanager
    def network(self):
        """Sockets that the calling thread makes in this block are sockets of the host."""
        with open("/proc/thread-self/ns/net") as own, open(f"/proc/{self.pid}/ns/net") as other:
            enter_network(other)
            try:
                yield
            finally:
                enter_network(own)

    def listens(self, port):
        return bool(self.run("ss", "-Hltn", f"sport = :{port}"))

    def end(self):
        self._first.kill()
        self._first.communicate()
        if self._end.closed:
            return
        # The first process closes its files before the kernel ends the others, and counts as ended
        # when these have ended.
        with self._end:
            if not select.select([self._end], [], [], END_LIMIT_S)[0]:
                raise RuntimeError(f"the processes of host {self.name} do not end")


@contextlib.contextmanager
def connected_hosts(*addresses, shm_bytes=2 << 30):
    """Hosts with these IPv4 addresses in one network of 24 bits, joined by a bridge."""
    names = [f"host{number}" for number in range(1, len(addresses) + 1)]
    lines = "\n".join(map(" ".join, zip(addresses, names, strict=True)))
    with contextlib.ExitStack() as stack:

        def start(name):
            host = Host(name, shm_bytes, lines)
            stack.callback(host.end)
            return host

        hub = start("hub")
        hub.run("ip", "link", "add", "bridge", "type", "bridge")
        hub.run("ip", "link", "set", "bridge", "up")
        hosts = []
        for name, address in zip(names, addresses, strict=True):
            host = start(name)
            host.address = address
            port = f"to-{name}"
            # In the hub's network, but with the process ids of this machine.
            subprocess.run(
                ["nsenter", f"--target={hub.pid}", "--net", "ip", "link", "add", port,
                 "type", "veth", "peer", "name", "eth0", "netns", str(host.pid)],
                check=True,
            )  # fmt: skip
            hub.run("ip", "link", "set", port, "master", "bridge", "up")
            host.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")
            host.run("ip", "route", "add", "default", "dev", "eth0")
            hosts.append(host)
        yield hosts
