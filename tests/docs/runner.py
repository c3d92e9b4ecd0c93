# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a page's blocks one after the other, and tells of each."""

import collections
import re

from machine import TIME_SCALE, WATCHDOG_S
from shell import Failed

LONG_LIMIT_S = 900 * TIME_SCALE
AFTER_FAILURE = "an earlier command failed"


class Runner:
    def __init__(self, table, limit_s, in_boxes=False):
        """limit_s: of a command. in_boxes: the commands run under a real systemd."""
        self.table, self._limit_s, self._in_boxes = table, limit_s, in_boxes
        self.counts = collections.Counter()

    def obstacle(self, block, command):
        """Why this command and the later ones of the block cannot run here, or ""."""
        return ""

    def why_not(self, command, place):
        """Why this command alone cannot run here, or ""."""
        return ""

    def excuse(self, entry):
        """Why a command with this entry of the table does not run, or ""."""
        return entry["reason"]

    def say(self, kind, where, command, text=""):
        self.counts[kind] += 1
        first = re.split(r"\s+# ", command.splitlines()[0])[0]
        print(f"{kind:7} {where}: {first}" + (f"  ({text})" if text else ""), flush=True)

    def summary(self):
        kinds = ("ok", "not run", "SKIPPED", "FAIL")
        return ", ".join(f"{self.counts[kind]} {kind}" for kind in kinds)

    def run_block(self, block, place, stop=""):
        """Returns why later commands of the block cannot run, or "".

        place(): the place of the block's commands: run(addresses, command, limit_s), check() of the
        servers in the background. stop: why no command can run.
        """
        ran = False
        for number, address, command in block.commands():
            where = f"{block.page}:{number}"
            entry = self.table.not_run(block.page, command, self._in_boxes)
            text = self.table.as_run(block, command)
            if entry and (reason := self.excuse(entry)):
                self.say("not run", where, command, reason)
                continue
            stop = stop or self.obstacle(block, command)
            if stop:
                self.say("SKIPPED", where, command, stop)
            elif reason := self.why_not(command, place):
                self.say("SKIPPED", where, command, reason)
            else:
                ran = True
                try:
                    place().run(address, text, LONG_LIMIT_S if entry else self._limit_s)
                    self.say("ok", where, command)
                except Failed as failed:
                    self.say("FAIL", where, command, failed)
                    stop = AFTER_FAILURE
        if ran and not stop:
            try:
                place().check()
            except Failed as failed:
                self.say("FAIL", block, "a server in the background", failed)
                stop = AFTER_FAILURE
        return stop
