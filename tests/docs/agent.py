# SPDX-License-Identifier: Apache-2.0
"""An mc-agent in a directory of its own, for the tests of the documents."""

import os
import socket
import subprocess
import time

START_LIMIT_S = 30


class Agent:
    """Starts with the block and ends with the block; .socket is the agent's address."""

    def __init__(self, binaries, directory, *flags):
        self.directory = os.path.join(directory, "agent")
        self.socket = os.path.join(self.directory, "agent.sock")
        self._command = [os.path.join(binaries, "mc-agent"), f"--runtime-dir={self.directory}",
                         "--pool-bytes=256MiB", "--descriptor-store=none", *flags]

    def _listens(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            return probe.connect_ex(self.socket) == 0

    def __enter__(self):
        os.mkdir(self.directory, 0o700)
        self._log = open(os.path.join(self.directory, "agent.log"), "w+")
        self._process = subprocess.Popen(self._command, stderr=self._log)
        deadline = time.monotonic() + START_LIMIT_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._log.seek(0)
                log = self._log.read()
                self.__exit__()
                raise SystemExit("mc-agent did not start; its log:\n" + log)
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
