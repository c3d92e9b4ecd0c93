# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the pages' commands: tests/docs/commands.toml."""

import fnmatch
import pathlib
import re
import shlex
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
# Commands that take a block of another language from standard input. A block of Python may have
# `await` outside of functions.
RUN_PYTHON = """import ast, asyncio, sys
code = compile(sys.stdin.read(), "the block", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
if found := eval(code, {}): asyncio.run(found)"""
LANGUAGES = {"python": "python -c " + shlex.quote(RUN_PYTHON),
             "cpp": "c++ -std=c++20 -Wall -Werror -fsyntax-only -x c++ -"}


class Table:
    """tests/docs/commands.toml; remembers the entries that matched no command."""

    def __init__(self):
        with open(HERE / "commands.toml", "rb") as file:
            self._table = tomllib.load(file)
        self.environment = self._table["environment"]
        self.unused = [entry for kind, entries in self._table.items() if kind != "environment"
                       for entry in entries]

    def _entries(self, kind, page, command, key="line", found=str.startswith):
        for entry in self._table.get(kind, []):
            if fnmatch.fnmatch(page, entry.get("page", "*")) and found(command, entry[key]):
                if entry in self.unused:
                    self.unused.remove(entry)
                yield entry

    def not_run(self, page, command, in_boxes=False):
        """The entry that keeps the command from running, or None."""
        found = list(self._entries("not_run", page, command))
        return next((entry for entry in found if not (in_boxes and entry.get("boxes"))), None)

    def pages_in_boxes(self):
        """The pages for tests/booted/pages: lists of pages that share hosts, in order."""
        journeys = {}
        for entry in self._table["not_run"]:
            if "boxes" in entry:
                journeys.setdefault(entry["boxes"], []).append(entry["page"])
        return list(journeys.values())

    def as_run(self, block, command):
        """The command after all replacements, for bash."""
        page = block.page
        if block.language in LANGUAGES:
            entry = next(self._entries("program", page, command), {})
            return (f"{entry.get('shell', '')}\n{LANGUAGES[block.language]} <<'END OF BLOCK'\n"
                    f"{entry.get('before', '')}{command}END OF BLOCK")
        for entry in self._entries("replace", page, command, "from", str.__contains__):
            command = command.replace(entry["from"], entry["to"])
        bare = re.split(r"\s+# ", command)[0]
        if said := re.search(r"\s# exit status (\d+)", command):
            command = f"{{ status=0; {bare} || status=$?; [[ $status == {said[1]} ]]; }}"
        for entry in self._entries("status", page, command):
            command = bare + f" || [[ $? == {entry['status']} ]]"
        for _ in self._entries("repeat", page, command):
            command = f"until {command}\ndo sleep 0.1; done"
        return command
