# SPDX-License-Identifier: Apache-2.0
"""Console scripts for the programs in the wheel."""

import os
import pathlib
import sys
from typing import NoReturn

_BIN = pathlib.Path(__file__).resolve().parent / "bin"
_STAGED = pathlib.Path(__file__).parent / "bin"


def program(name: str) -> str:
    """The path of mc-agent, mc-gpu, mc-master or mcctl as installed with this package."""
    for folder in (_STAGED, _BIN):
        path = folder / name
        if os.access(path, os.X_OK):
            return str(path)
    raise FileNotFoundError(
        f"{name} is not part of this installation of mckv ({_STAGED}); install the package {name}"
    )


def _become(name: str) -> NoReturn:
    try:
        path = program(name)
    except FileNotFoundError as error:
        sys.exit(str(error))
    os.execv(path, [path, *sys.argv[1:]])


def mc_agent() -> NoReturn:
    _become("mc-agent")


def mc_gpu() -> NoReturn:
    _become("mc-gpu")


def mc_master() -> NoReturn:
    _become("mc-master")


def mcctl() -> NoReturn:
    _become("mcctl")
