# SPDX-License-Identifier: Apache-2.0
"""The blocks of code of the Markdown pages, and the commands of blocks with the language `sh`."""

import pathlib
import re
import subprocess
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOST = re.compile(r"# on (\d+\.\d+\.\d+\.\d+(?:, \d+\.\d+\.\d+\.\d+)*)\b")
# The first word of a line that a reader would type.
PROGRAM = re.compile(
    r"(?:\$ |sudo |\w+=\S+ )*(?:(?:\./|ctl/|tests/|build/|\.ci/|systemd/|python/)[\w./-]+"
    r"|mc-(?:agent|master)|mcctl|mckv|mooncake_\w+|mc_store_rest_server|transfer_engine_\w+|pip3?"
    r"|python3?|pytest|curl|wget|git|cmake|ctest|ninja|cc|c\+\+|gcc|g\+\+|sudo|systemctl|journalctl"
    r"|openssl|vllm|lmcache|redis-server|redis-cli|etcd|export|cd|apt|apt-get|docker|gdb)(?:\s|$)")
DRAWING = re.compile(r"[─-◿←-⇿]")  # frames, arrows, triangles


class Block(typing.NamedTuple):
    page: str  # relative to the root of the repository
    line: int  # of the first command
    heading: str  # the nearest heading above, without its marks
    script: str
    language: str = "sh"  # "": none

    def __str__(self):
        return f"{self.page}:{self.line}"

    def parts(self):
        """[(address, script)]: the commands of each host; first those above all `# on ADDRESS`."""
        parts = {"": []}
        for _, address, command in self.commands():
            for one in address.split() or [""]:
                parts.setdefault(one, []).append(command + "\n")
        return [(address, "".join(commands)) for address, commands in parts.items()]

    def addresses(self):
        """The addresses of the hosts that the block names, in this order."""
        named = (address for _, address, _ in self.commands())
        return list(dict.fromkeys(one for address in named for one in address.split()))

    def commands(self):
        """(line number, address, command): a command has one line, or the lines up to its end.

        The comment `# on ADDRESS` names the host of the lines below; above, the address is "".
        `# on ADDRESS, ADDRESS` names several, which `address` has with a space between. A block of
        another language is a single command, which compiles or runs the block.
        """
        if self.language != "sh":
            yield self.line, "", self.script
            return
        address, command, first = "", "", 0
        for number, line in enumerate(self.script.splitlines(), self.line):
            if found := HOST.match(line):
                address = found[1].replace(",", "")
            if not command and (not line.strip() or line.startswith("#")):
                continue
            first = number if not command else first
            command += line + "\n"
            # bash warns where a quotation or a document of the lines so far has no end.
            if not line.endswith("\\") and not subprocess.run(
                    ["bash", "-n"], input=command, capture_output=True, text=True).stderr:
                yield first, address, command.rstrip("\n")
                command = ""
        if command:
            raise ValueError(f"{self.page}:{first}: the command has no end: {command}")


def pages():
    """All pages, relative to the root."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(str(page) for page in found if page.parts[0] != "build")


def blocks(page):
    """The blocks of code of a page: in a fence, or indented by four spaces."""
    heading, first, lines, language = "", 0, [], None
    for number, line in enumerate([*(ROOT / page).read_text().splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        indented = language is None and line.startswith("    ")
        if lines and (fence or (language is None and not indented)):
            yield Block(page, first, heading, "\n".join(lines) + "\n", language or "")
            lines = []
        if fence:
            language = line.strip()[3:].strip() if language is None else None
        elif language is not None or indented:
            first = first if lines else number
            lines.append(line if language is not None else line[4:])
        elif line.startswith("#"):
            heading = line.lstrip("# ")


def shell_blocks(page):
    """The blocks of a page, which is a path relative to the root."""
    return (block for block in blocks(page) if block.language == "sh")


def unmarked_commands(page):
    """(block, line number, line): lines that a reader would type, outside blocks `sh`."""
    for block in blocks(page):
        if block.language in ("", "bash", "shell", "console", "text"):
            for number, line in enumerate(block.script.splitlines(), block.line):
                if PROGRAM.match(line) and not DRAWING.search(line):
                    yield block, number, line
