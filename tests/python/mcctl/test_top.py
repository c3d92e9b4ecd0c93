# SPDX-License-Identifier: Apache-2.0
"""mcctl top: the full screen on a terminal, plain text and JSON elsewhere."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import mckv
import pyte
import pytest
from command import mcctl
from machine import WATCHDOG_S, until

KiB = 1 << 10


class Terminal:
    """mcctl top on a pseudo-terminal, with the screen that a person would see."""

    def __init__(self, *words, columns=100, lines=30, **environment):
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.output = b""
        self._master, self._slave = pty.openpty()
        self._set_size(columns, lines)
        self.modes = termios.tcgetattr(self._slave)
        self._process = subprocess.Popen(
            [mckv.program("mcctl"), *words],
            stdin=self._slave, stdout=self._slave, stderr=self._slave,
            # The kernel tells the process of a new size only on its controlling terminal.
            preexec_fn=lambda: os.login_tty(os.dup(0)),
            env={**os.environ, "TERM": "screen", "LC_ALL": "C.UTF-8", **environment},
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._master)
        os.close(self._slave)

    def _set_size(self, columns, lines):
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def resize(self, columns, lines):
        self._screen.resize(lines, columns)
        self._screen.reset()
        self._set_size(columns, lines)

    @property
    def size(self):
        return self._screen.columns, self._screen.lines

    def press(self, keys):
        os.write(self._master, keys.encode())

    def read(self, seconds=0.1):
        if select.select([self._master], [], [], seconds)[0]:
            new = os.read(self._master, 1 << 16)
            self.output += new
            self._stream.feed(new)

    def rows(self):
        return [row.rstrip() for row in self._screen.display]

    def shows(self, pattern):
        """Waits until the screen has the pattern of a regular expression. Returns the match."""
        deadline = time.monotonic() + WATCHDOG_S
        while True:
            text = "\n".join(self.rows())
            if found := re.search(pattern, text, re.MULTILINE):
                return found
            assert time.monotonic() < deadline, f"no {pattern!r} on the screen:\n{text}"
            self.read()

    def shows_after(self, action, pattern):
        """Repeats the action until the screen has the pattern."""
        deadline = time.monotonic() + WATCHDOG_S
        while not re.search(pattern, "\n".join(self.rows())):
            assert time.monotonic() < deadline, f"no {pattern!r} on the screen"
            action()
            self.read(0.01)

    def hides(self, pattern):
        """Waits until the screen lacks the pattern."""
        deadline = time.monotonic() + WATCHDOG_S
        while re.search(pattern, "\n".join(self.rows()), re.MULTILINE):
            assert time.monotonic() < deadline, f"{pattern!r} stays on the screen"
            self.read()

    def ends(self):
        """Waits for the end of the process. Returns its status."""
        deadline = time.monotonic() + WATCHDOG_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, "mcctl top does not end"
            self.read()
        while select.select([self._master], [], [], 0)[0]:
            self.read()
        return self._process.returncode

    def signal(self, number):
        self._process.send_signal(number)

    def is_restored(self):
        """True if the terminal has its first modes, and shows the screen from before."""
        begin, end = self.output.rfind(b"\x1b[?1049h"), self.output.rfind(b"\x1b[?1049l")
        return 0 <= begin < end and termios.tcgetattr(self._slave) == self.modes


def top(agent, *words, **given):
    return Terminal("--agent", agent.socket, "top", "--interval", "0.2", *words, **given)


@contextlib.contextmanager
def clients(agent, labels):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(mckv.Client(agent.socket, label=label)) for label in labels]


def sessions_by(screen, labels):
    """The labels of the rows, in the order of the screen."""
    found = (re.search("|".join(labels), row) for row in screen.rows())
    return [match[0] for match in found if match]


def test_a_terminal_is_filled_with_figures_and_restored(make_agent):
    agent = make_agent()
    with clients(agent, ["engine 7"]) as (client,), top(agent) as screen:
        client.put("k", b"v" * 64 * KiB)
        screen.shows(r"^agent \S+  pid \d+ .*every 0.2 s")
        screen.shows(r"^default  \[[#.]+\] +0%  .* of 128 MiB")
        screen.shows(r"^q quit  h help")
        # Reads that ask no agent are counted.
        screen.shows_after(lambda: client.get("k"), r"gets [1-9][\d,]*/s.*hit ratio 100\.0%")
        screen.press("\t")
        screen.shows(r"^ *\d+  engine 7  default ")
        screen.press("h")
        screen.shows(r"^Tab +the next table")
        screen.press("h")
        screen.shows(r"engine 7")
        screen.press("q")
        assert screen.ends() == 0
        assert screen.is_restored()


def test_keys_sort_filter_and_scroll_the_sessions(make_agent):
    agent = make_agent()
    labels = ["alpha", "beta", "gamma"]
    with clients(agent, labels), top(agent, "--sort", "label") as screen:
        screen.shows(r"by label, ascending(?s:.*)gamma")
        assert sessions_by(screen, labels) == labels
        screen.press("r")
        screen.shows(r"by label, descending(?s:.*)gamma(?s:.*)alpha")
        assert sessions_by(screen, labels) == labels[::-1]
        screen.press(">")
        screen.shows(r"by namespace, ascending")
        screen.press("/BET")
        screen.shows(r"filter: BET_")
        screen.hides("alpha")
        assert sessions_by(screen, labels) == ["beta"]
        screen.press("\r\x1b")
        screen.shows("alpha")
        screen.resize(100, 5)
        screen.shows(r"rows 1-2 of 3")
        screen.press("\x1b[4~")  # End
        screen.shows(r"rows 2-3 of 3")
        screen.press("q")
        assert screen.ends() == 0


def test_the_screen_follows_the_size_of_the_terminal(make_agent):
    with top(make_agent()) as screen:
        for columns, lines in ((80, 24), (40, 10), (12, 4), (150, 50)):
            screen.resize(columns, lines)
            screen.shows(r"^agent" if lines > 5 else r"^q quit")
            # The last line has the keys, so no line before has wrapped.
            screen.shows(r"^q quit.*\Z")
            assert screen.size == (columns, lines)
        screen.shows(r"by namespace, ascending")
        screen.press("q")
        assert screen.ends() == 0


def test_the_interval_changes_and_a_pause_keeps_the_figures(make_agent):
    agent = make_agent()
    with clients(agent, ["client"]) as (client,), top(agent) as screen:
        screen.press("+")
        screen.shows("every 0.5 s")
        screen.press("-")
        screen.shows("every 0.2 s")
        screen.press("p")
        screen.shows("PAUSED")
        objects = screen.shows(r"^default +\d+% .* MiB +(\d+) ")[1]
        client.put("k", b"v")
        screen.press("\t")
        screen.shows("client")
        screen.press("\t\t")
        assert screen.shows(r"^default +\d+% .* MiB +(\d+) ")[1] == objects == "0"
        screen.press("p")
        screen.shows(r"^default +\d+% .* MiB +1 ")
        screen.press("q")
        assert screen.ends() == 0


def test_an_agent_that_goes_away_is_shown_with_its_last_figures_until_it_is_back(make_agent):
    agent = make_agent()
    with mckv.Client(agent.socket) as client:
        client.put("k", b"v" * 64 * KiB)
    with top(agent) as screen:
        first = screen.shows(r"pid (\d+) ")[1]
        agent.end(signal.SIGKILL)
        screen.shows(r"^NO ANSWER: connect to .*agent.sock")
        assert screen.shows(r"pid (\d+) ")[1] == first
        screen.shows(r"^default ")
        agent.start()
        screen.hides("NO ANSWER")
        assert screen.shows(r"pid (\d+) ")[1] == str(agent.pid) != first
        agent.send(signal.SIGSTOP)
        try:
            screen.shows(r"^NO ANSWER: the agent did not answer in time")
            screen.press("\t")
            screen.shows(r"by requests/s")
        finally:
            agent.send(signal.SIGCONT)
        screen.hides("NO ANSWER")
        screen.press("q")
        assert screen.ends() == 0
        assert screen.is_restored()


def test_an_agent_that_is_not_there_yet_is_awaited(make_agent):
    agent = make_agent()
    agent.end()
    with top(agent) as screen:
        screen.shows(r"^NO ANSWER")
        agent.start()
        screen.shows(rf"pid {agent.pid} ")
        screen.press("q")
        assert screen.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal_and_ends_the_screen(make_agent, number):
    with top(make_agent()) as screen:
        screen.shows("q quit")
        screen.signal(number)
        assert screen.ends() == -number
        assert screen.is_restored()


def test_a_stop_gives_the_terminal_to_the_shell_and_a_continue_takes_it_back(make_agent):
    with top(make_agent()) as screen:
        screen.shows("q quit")
        screen.signal(signal.SIGSTOP)
        screen.signal(signal.SIGCONT)
        until(lambda: screen.read(0.02) or screen.output.count(b"\x1b[?1049h") == 2)
        screen.shows("q quit")
        screen.press("q")
        assert screen.ends() == 0
        assert screen.is_restored()


def test_an_unknown_terminal_gets_plain_text_and_a_remedy(make_agent):
    with top(make_agent(), TERM="nonsense") as screen:
        screen.shows(r"^NAMESPACE")
        assert b"the terminal type 'nonsense' (TERM) cannot show a full screen" in screen.output
        assert b"try: set TERM to the type of the terminal" in screen.output
        assert b"\x1b" not in screen.output


@pytest.mark.parametrize(
    ("locale", "shown"), [("C.UTF-8", r"filter: aé\?\?_"), ("C", r"filter: a\?\?\?_")]
)
def test_letters_that_are_not_one_column_wide_are_replaced(make_agent, locale, shown):
    with top(make_agent(), LC_ALL=locale) as screen:
        screen.shows("q quit")
        screen.press("/aé漢\u200b")
        screen.shows(shown)
        screen.press("\x7f\x7f\x7f")
        screen.shows("filter: a_")
        screen.press("\rq")
        assert screen.ends() == 0


def test_a_cluster_shows_its_master_and_rails(hosts_of_module):
    here, there = hosts_of_module
    with mckv.Client(here.socket) as one, mckv.Client(there.socket) as two:
        one.put("remote", b"v" * 512 * KiB)
        assert len(two.get("remote")) == 512 * KiB
        with top(there, "--sort", "peer", LC_ALL="C") as screen:
            screen.shows(r"the master knows this agent +members 2, lost 0")
            screen.shows(r"^127\.0\.0\.1:\d+ +tcp +\w.* up ")
            screen.shows_after(lambda: two.get("remote"), r"remote gets [1-9]")
            screen.press("q")
            assert screen.ends() == 0


def test_once_prints_one_sample_as_text_or_as_a_document(make_agent):
    agent = make_agent()
    words = ("top", "--once", "--interval", "0.1")
    with clients(agent, ["alpha", "beta"]):
        done = mcctl(*words, agent=agent.socket)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("NAMESPACE") == 1 and "\x1b" not in done.stdout
        done = mcctl(*words, "--json", "--sort", "label", "--filter", "A", agent=agent.socket)
        (line,) = done.stdout.splitlines()
        sample = json.loads(line)
        assert [one["label"] for one in sample["sessions"]] == ["alpha", "beta"]
        assert sample["rates"]["puts_per_s"] == 0
        done = mcctl(*words, "--filter", "bet", agent=agent.socket)
        assert "beta" in done.stdout and "alpha" not in done.stdout


def test_each_line_is_a_document_until_the_reader_goes(make_agent):
    agent = make_agent()
    words = ("--agent", agent.socket, "--json", "top", "--interval", "0.1")
    process = subprocess.Popen([mckv.program("mcctl"), *words], stdout=subprocess.PIPE, text=True)
    try:
        samples = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert {sample["pid"] for sample in samples} == {agent.pid}
    finally:
        process.kill()
        process.communicate(timeout=WATCHDOG_S)


def test_without_an_agent_once_fails_with_a_remedy(make_agent):
    agent = make_agent()
    agent.end()
    done = mcctl("top", "--once", agent=agent.socket)
    assert done.returncode == 1
    assert "agent.sock" in done.stderr and "try: start mc-agent" in done.stderr


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--sort", "puts"), "no table has a column 'puts', but one has 'puts/s'"),
        (("--interval", "0"), "0 is not a number from 0.1 to 3600"),
        (("--interval", "fast"), "fast is not a number"),
        (("--filter",), "needs a value"),
        (("--srot", "label"), "there is no option --srot"),
    ],
)
def test_a_wrong_option_is_refused(make_agent, words, cause):
    done = mcctl("top", "--once", *words, agent=make_agent().socket)
    assert done.returncode == 2
    assert cause in done.stderr and "try: " in done.stderr
