# SPDX-License-Identifier: Apache-2.0
"""The proxy's table of options: flags, MCKV_PROXY_NAME in the environment, defaults."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import sys
from typing import Any

from mckv.proxy import protocol
from mckv.proxy.instances import Role, checked_url

DEFAULT_BOOTSTRAP_PORT = 8998


@dataclasses.dataclass(frozen=True)
class Option:
    """One line of the table. least and most: the range of a number."""

    name: str
    default: Any
    help: str
    least: float = 0
    most: float = 0


TABLE = (
    Option("host", "127.0.0.1", "where it listens; see MCKV_PROXY_API_KEY before others reach it"),
    Option("port", 8000, "0: any that is free", 0, 65535),
    Option("way", protocol.MOONCAKE, "how KV passes: " + " or ".join(protocol.PROTOCOLS)),
    Option("max_requests", 4096, "at instances at once; 0: no limit", 0, 1 << 20),
    Option("max_requests_per_instance", 0, "at one instance at once; 0: no limit", 0, 1 << 20),
    Option("max_queue", 4096, "requests that wait for an instance", 0, 1 << 20),
    Option("queue_seconds", 60.0, "how long one waits", 0, 86400),
    Option("max_body_bytes", 16 << 20, "of a request", 1024, 1 << 30),
    Option("max_answer_bytes", 64 << 20, "of an answer that is no stream", 1024, 1 << 32),
    Option("retries", 2, "other instances that are tried before the first byte", 0, 16),
    Option("connect_seconds", 5.0, "to connect to an instance", 0.01, 600),
    Option("first_byte_seconds", 300.0, "to a stream's first byte, or prefill's end", 0.01, 86400),
    Option("answer_seconds", 1800.0, "to an answer that is no stream", 0.01, 86400),
    Option("idle_seconds", 300.0, "between two parts of a stream", 0.01, 86400),
    Option("health_interval_seconds", 2.0, "between two questions how an instance is", 0.01, 3600),
    Option("health_timeout_seconds", 2.0, "for its answer", 0.01, 3600),
    Option("health_failures", 2, "in a row, until it gets no requests", 1, 1000),
    Option("index_blocks", 200_000, "blocks of prompts that are remembered", 1, 1 << 26),
    Option("agent", "", "socket of the agent that is asked what the pool has; none: nobody is"),
    Option("namespace", "default", "of the engines' objects in the pool"),
    Option("pool_wait_seconds", 0.01, "that a request waits for the pool's answer", 0, 1),
    Option("drain_seconds", 30.0, "that requests have left when the proxy is to end", 0, 3600),
    Option("log_level", "info", "debug, info, warning or error"),
)  # fmt: skip


@dataclasses.dataclass
class Settings:
    """Checked values of the table by name, and the instances of the command line."""

    values: dict[str, Any]
    instances: list[tuple[Role, str, int]]
    admin_key: str = ""
    api_key: str = ""  # for /v1; empty: no authentication

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None


def _checked(option: Option, text: Any) -> Any:
    """Raises ValueError with a description of the valid values."""
    kind = type(option.default)
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"{option.name} = {text!r} is no number") from None
    if kind is not str and not option.least <= value <= option.most:
        raise ValueError(f"{option.name} = {text!r} is not in {option.least:g}..{option.most:g}")
    if option.name == "way" and value not in protocol.PROTOCOLS:
        raise ValueError(f"way = {text!r} is none of {', '.join(protocol.PROTOCOLS)}")
    if option.name == "log_level" and value not in ("debug", "info", "warning", "error"):
        raise ValueError(f"log_level = {text!r} is none of debug, info, warning, error")
    return value


def _instance(role: Role, words: list[str]) -> tuple[Role, str, int]:
    """URL [BOOTSTRAP-PORT], the format of vLLM's own proxies."""
    port = words[1] if len(words) > 1 else str(DEFAULT_BOOTSTRAP_PORT)
    if len(words) > 2 or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"--{role} takes URL [BOOTSTRAP-PORT], not {' '.join(words)}")
    return role, checked_url(words[0]), int(port)


def settings_of(**values: Any) -> Settings:
    """Defaults overridden by these values; for a proxy inside a program. Raises ValueError."""
    known = {one.name: one for one in TABLE}
    for name in values:
        if name not in known:
            raise ValueError(_unknown(name, list(known)))
    return Settings(
        {name: _checked(one, values.get(name, one.default)) for name, one in known.items()}, []
    )


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"unknown option {name}" + (f"; did you mean {near[0]}?" if near else "")


def parse(arguments: list[str]) -> Settings:
    """Flags before environment before defaults. Exits with status 2 and the reason."""
    parser = argparse.ArgumentParser(
        prog="mckv proxy",
        description="One OpenAI-compatible address before many engines. ADMIN_API_KEY in the "
        "environment is the key of /instances/add and /instances/remove; MCKV_PROXY_API_KEY, if "
        "set, the bearer token of /v1.",
        epilog="Each option but --prefill and --decode can be given as MCKV_PROXY_NAME, too.",
        allow_abbrev=False,
    )
    for role, more in (("prefill", " [PORT]"), ("decode", "")):
        parser.add_argument(
            f"--{role}", action="append", nargs="+", default=[], metavar="URL",
            help=f"URL{more} of an engine that {role}s; may be repeated"
            + (f"; PORT: of its bootstrap server ({DEFAULT_BOOTSTRAP_PORT})" if more else ""),
        )  # fmt: skip
    for one in TABLE:
        parser.add_argument(
            "--" + one.name.replace("_", "-"),
            help=f"{one.help} (default: {one.default})".replace("%", "%%"),
        )
    given, rest = parser.parse_known_args(arguments)
    flags = ["--" + one.name.replace("_", "-") for one in TABLE] + ["--prefill", "--decode"]
    if rest:
        parser.error(_unknown(rest[0], flags))
    try:
        values = {}
        for one in TABLE:
            text = getattr(given, one.name)
            if text is None:
                text = os.environ.get(f"MCKV_PROXY_{one.name.upper()}")
            values[one.name] = one.default if text is None else _checked(one, text)
        instances = [_instance("prefill", words) for words in given.prefill]
        instances += [_instance("decode", [word]) for words in given.decode for word in words]
    except ValueError as error:
        print(f"mckv proxy: {error}", file=sys.stderr)
        sys.exit(2)
    keys = (os.environ.get(name, "") for name in ("ADMIN_API_KEY", "MCKV_PROXY_API_KEY"))
    return Settings(values, instances, *keys)
