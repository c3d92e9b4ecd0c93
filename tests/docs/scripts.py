# SPDX-License-Identifier: Apache-2.0
"""The console commands of the Python packages, without an installation."""

import tomllib

from blocks import ROOT

PROJECTS = ("pyproject.toml", "python/mooncake/pyproject.toml")
PROGRAMS = ("mc-agent", "mc-master", "mcctl")  # PATH has these programs themselves


def write_script(path, text):
    path.write_text(text)
    path.chmod(0o755)


def write_scripts(folder, python):
    """Makes the commands, and `python`, in the folder; they run with this Python."""
    for project in PROJECTS:
        scripts = tomllib.loads((ROOT / project).read_text())["project"]["scripts"]
        for name in scripts.keys() - set(PROGRAMS):
            module, function = scripts[name].split(":")
            code = f"import sys; from {module} import {function}; sys.exit({function}())"
            write_script(folder / name, f"#!{python}\n{code}\n")
    write_script(folder / "python", f'#!/bin/sh\nexec "{python}" "$@"\n')
