# SPDX-License-Identifier: Apache-2.0
"""A shell on a host of tests/python/hosts.py that runs one command after the other."""

import os
import select
import subprocess
import time

# Reads commands from descriptor $1 and reports each on descriptor $2: "done JOB" or "end STATUS".
# JOB is the process id of the newest job in the background. With `set -m` such a job is a group of
# processes. A job that has ended with an error ends the shell.
LOOP = r"""
set -m
cd "$3"
trap 'echo "end $?" >&"$reports"' EXIT
commands=$1 reports=$2 jobs=
while IFS= read -r -d '' -u "$commands" command; do
  eval "$command"
  [[ " $jobs " == *" $! "* ]] || jobs+=" $!"
  for job in $jobs; do kill -0 "$job" 2>/dev/null || wait "$job"; done
  echo "done $!" >&"$reports"
done
trap - EXIT"""

# Status 0: a process of the job $1 listens; 3: the job has ended. An agent listens to its clients
# and, in a cluster, has joined: before, all reads of other hosts' objects are misses.
SERVES = r"""
pids=$(pgrep -g "$1" -d '|') || exit 3
kinds=tcp,unix
if pgrep -g "$1" -x mc-agent; then kinds=unix; fi
ss -Hlp -A $kinds | grep -E "LISTEN.*pid=($pids)," || exit 1
[[ $kinds != unix ]] || ! mcctl cluster status --json | grep '"master_ready": false'"""


class Failed(Exception):
    """The command failed; the text says how."""


class Shell:
    def __init__(self, host, directory, environment, log):
        """log: the file for the output of all commands."""
        self._host, self._environment, self._log = host, environment, log
        self._jobs, self._reports = set(), b""
        commands, self._to_shell = os.pipe()
        self._from_shell, reports = os.pipe()
        with open(log, "a") as output:
            self._process = subprocess.Popen(
                host.command("bash", "-e", "-o", "pipefail", "-c", LOOP, "bash", str(commands),
                             str(reports), str(directory)),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
                pass_fds=(commands, reports))
        os.close(commands)
        os.close(reports)

    def run(self, command, limit_s):
        """Runs the command; returns the output. A server in the background then serves."""
        begin, deadline = os.path.getsize(self._log), time.monotonic() + limit_s
        try:
            job = self._pass(command, deadline)
            if job and job not in self._jobs:
                self._jobs.add(job)
                while (status := self._serves(job)) != 0:
                    if status == 3:
                        self._pass(f"wait {job}", deadline)
                        break
                    if time.monotonic() > deadline:
                        raise Failed(f"the job in the background opens no port in {limit_s:.0f} s")
                    time.sleep(0.01)  # no event tells of another process's port
                    self._pass(":", deadline)
        except Failed as failed:
            raise Failed(f"{failed}\n{self._output(begin)}") from None
        return self._output(begin)

    def _output(self, begin):
        with open(self._log, "rb") as log:
            log.seek(begin)
            return log.read().decode(errors="replace")

    def _pass(self, command, deadline):
        """Waits until the shell has run the command; returns the newest job, or ""."""
        try:
            os.write(self._to_shell, command.encode() + b"\0")
        except BrokenPipeError:
            raise Failed("an earlier command has ended the shell") from None
        while b"\n" not in self._reports:
            left = max(deadline - time.monotonic(), 0)
            if not select.select([self._from_shell], [], [], left)[0]:
                raise Failed("the command has not ended in time")
            if not (piece := os.read(self._from_shell, 4096)):
                raise Failed("the shell was killed")
            self._reports += piece
        report, _, self._reports = self._reports.partition(b"\n")
        kind, _, value = report.decode().partition(" ")
        if kind == "end":
            raise Failed(f"exit status {value}")
        return value

    def _serves(self, job):
        words = self._host.command("bash", "-c", SERVES, "bash", job)
        return subprocess.run(words, env=self._environment, capture_output=True).returncode

    def end(self):
        os.close(self._to_shell)
        os.close(self._from_shell)
        self._process.kill()
        self._process.wait()
