# SPDX-License-Identifier: Apache-2.0
"""Boxes in one network that reaches the package index: the hosts of a page."""

import concurrent.futures
import contextlib
import fcntl
import pathlib
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "docs"), str(HERE.parent / "python")]

from hosts import connected_hosts  # noqa: E402
from machine import WATCHDOG_S  # noqa: E402
from shell import Failed, Shell  # noqa: E402

NO_BOX = 125  # exit status of tests/booted/box
FORWARDING = pathlib.Path("/proc/sys/net/ipv4/ip_forward")
LOCK = "/run/lock/mc-boxes"
TABLE = "mc_boxes"
# The link between this machine and the router: addresses of the range for benchmarks (RFC 2544).
LINK, OUTSIDE, INSIDE = "mc-boxes", "198.18.77.1", "198.18.77.2"
END_LIMIT_S, LOCK_LIMIT_S = 60, 1200
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}


class NoBoxes(Exception):
    """This machine can boot no boxes in a network; the text says why."""


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoBoxes(f"{' '.join(words)}: {done.stderr.strip()}")


def masquerade(table, source):
    """Commands of nft: the machine sends packets of the source on under its own address."""
    return (
        f"add table ip {table}; delete table ip {table}; add table ip {table}; "
        f"add chain ip {table} out {{ type nat hook postrouting priority 100; }}; "
        f"add rule ip {table} out ip saddr {source} masquerade"
    )


def prepare():
    """Makes the root file system, once for all boxes."""
    status = subprocess.run([HERE / "box", "--host", "--prepare"], check=False).returncode
    if status:
        raise NoBoxes(f"box --prepare ended with status {status}")


@contextlib.contextmanager
def only_user():
    """The link, the table and the forwarding of this machine belong to one program at a time."""
    with open(LOCK, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for the end of another run of tests/booted/pages", flush=True)
            signal.alarm(LOCK_LIMIT_S)  # ends this program
            fcntl.flock(file, fcntl.LOCK_EX)
            signal.alarm(0)
        yield


@contextlib.contextmanager
def way_out(router):
    """The router, a host of connected_hosts(), forwards packets of its network to this machine, and
    this machine to the networks that it reaches."""
    network = router.address.rpartition(".")[0] + ".0/24"
    with contextlib.ExitStack() as stack:
        call(
            *("ip", "link", "add", LINK, "type", "veth"),
            *("peer", "name", "out", "netns", str(router.pid)),
        )
        # The end of the router's namespace would remove the link a moment later.
        stack.callback(subprocess.run, ["ip", "link", "delete", LINK], check=False)
        call("ip", "address", "add", f"{OUTSIDE}/30", "dev", LINK)
        call("ip", "link", "set", LINK, "up")
        router.run("ip", "address", "add", f"{INSIDE}/30", "dev", "out")
        router.run("ip", "link", "set", "out", "up")
        router.run("ip", "route", "replace", "default", "via", OUTSIDE)
        router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        router.run("nft", masquerade(TABLE, network))
        stack.callback(subprocess.run, ["nft", f"delete table ip {TABLE}"], check=False)
        call("nft", masquerade(TABLE, INSIDE))
        stack.callback(FORWARDING.write_text, FORWARDING.read_text())
        FORWARDING.write_text("1")
        yield


class Box:
    """A machine that tests/booted/box boots in the network namespace of a host."""

    def __init__(self, host, shown):
        """shown: {folder of this machine: its place in the box}."""
        self.address = host.address
        shows = [("--show", f"{folder}:{place}") for folder, place in shown.items()]
        self._process = subprocess.Popen(
            [
                *(HERE / "box", "--host", "--network", f"/proc/{host.pid}/ns/net"),
                *("--name", host.name, *(word for show in shows for word in show)),
                *("--", "sh", "-c", 'echo "$MC_BOX_PID"; exec cat'),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._pid = None

    def await_boot(self):
        self._pid = self._process.stdout.readline().strip()
        if not self._pid:
            raise NoBoxes(f"box ended with status {self._process.wait()}")

    def command(self, *words):
        """The command line that runs these words in the box."""
        return ["nsenter", f"--target={self._pid}", "--all", "--", *words]

    def run(self, script):
        done = subprocess.run(
            self.command("bash", "-ec", script),
            env=ENVIRONMENT, capture_output=True, text=True, timeout=WATCHDOG_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise Failed(f"{self.address}: {script}: {done.stderr.strip()}")
        return done.stdout

    def ask_to_end(self):
        self._process.stdin.close()

    def end(self):
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()  # box then kills the container
            self._process.wait(END_LIMIT_S)


class Boxes:
    """The hosts of a page, with a shell each. Root of the first host may log in to the others.

    REQUIRES: the caller is the only_user().
    """

    def __init__(self, stack, addresses, shown, folder, verbose=False):
        """shown: on the first host. folder: for the output of commands. verbose: print it, too."""
        self._verbose = verbose
        network = addresses[0].rpartition(".")[0]
        hosts = stack.enter_context(connected_hosts(*addresses, f"{network}.254"))
        router = hosts.pop()
        stack.enter_context(way_out(router))
        boxes = []
        stack.callback(lambda: [box.end() for box in boxes])
        for host in hosts:
            host.run("ip", "route", "replace", "default", "via", router.address)
            box = Box(host, shown if not boxes else {})
            stack.callback(box.ask_to_end)
            boxes.append(box)
        for box in boxes:
            box.await_boot()
        self._boxes = {box.address: box for box in boxes}
        self._allow_ssh(network, *boxes)
        # The shells end before the threads that wait for them.
        self._threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(len(boxes)))
        self._shells = {}
        for box in boxes:
            log = folder / f"{box.address}.log"
            self._shells[box.address] = Shell(box, "/root", ENVIRONMENT, log)
            stack.callback(self._shells[box.address].end)

    @staticmethod
    def _allow_ssh(network, first, *others):
        known = first.run("cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub").strip()
        key = first.run(
            "mkdir -pm 700 ~/.ssh; ssh-keygen -qt ed25519 -N '' -f ~/.ssh/id_ed25519; "
            f"echo '{network}.* {known}' >~/.ssh/known_hosts; cat ~/.ssh/id_ed25519.pub"
        )
        for box in others:
            box.run(f"mkdir -pm 700 ~/.ssh; echo '{key.strip()}' >~/.ssh/authorized_keys")

    def run(self, address, command, limit_s):
        """Runs the command at the same time on all hosts that the address names."""
        addresses = address.split() or [next(iter(self._shells))]

        def run_one(one):
            try:
                output = self._shells[one].run(command, limit_s)
                if self._verbose and output:
                    print(f"{one}: {output}", end="", flush=True)
            except Failed as failed:
                raise Failed(f"on {one}: {failed}") from None

        list(self._threads.map(run_one, addresses))

    def check(self):
        """Raises Failed if a server in the background has ended with an error."""
        self.run(" ".join(self._shells), ":", WATCHDOG_S)
