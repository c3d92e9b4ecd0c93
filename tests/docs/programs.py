# SPDX-License-Identifier: Apache-2.0
"""Looks up options and verbs of the pages' commands in the help of the programs."""

import re
import subprocess

from blocks import blocks

COMMAND = re.compile(r"(?:^|[\s/;&|(`])(mc-agent|mc-master|mcctl)((?:\s+[^\s;&|#`]+)*)")


def help_of(binary, *words):
    done = subprocess.run([binary, *words, "--help"], capture_output=True, text=True, timeout=30)
    return done.stdout if done.returncode == 0 else ""


def code_lines(page):
    """(line number, text) of the blocks of code, also of drawings."""
    for block in blocks(page):
        for number, line in enumerate(block.script.splitlines(), block.line):
            # Comments and output are prose.
            yield number, re.split(r"\s#\s|  \s{2,}", line.strip())[0]


def unknown_words(binaries, pages):
    """(errors, number of the commands): options of mc-agent and mc-master, and verbs of mcctl."""
    helps = {name: help_of(binaries / name) for name in ("mc-agent", "mc-master")}
    verbs, wrong, count = {}, [], 0
    for page in pages:
        for number, line in code_lines(page):
            for program, text in COMMAND.findall(line):
                words = text.split()
                count += 1
                if program == "mcctl":
                    verb = next((w for w in words if not w.startswith("-")), "")
                    if not re.fullmatch(r"[a-z]+", verb):
                        continue
                    if verb not in verbs:
                        verbs[verb] = bool(help_of(binaries / program, verb))
                    if not verbs[verb]:
                        wrong.append(f"{page}:{number}: mcctl has no verb {verb}")
                    continue
                for word in words:
                    flag = word.split("=")[0]
                    known = re.search(rf"{re.escape(flag)}(?![\w-])", helps[program])
                    if re.fullmatch(r"--[a-z][a-z-]+", flag) and not known \
                            and flag not in ("--help", "--keeper"):
                        wrong.append(f"{page}:{number}: {program} has no option {flag}")
    return wrong, count
