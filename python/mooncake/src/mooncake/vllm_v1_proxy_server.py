# SPDX-License-Identifier: Apache-2.0
"""python -m mooncake.vllm_v1_proxy_server: Mooncake's flags for `mckv proxy --way sequential`.

    --prefiller-hosts H... --prefiller-ports P... --decoder-hosts H... --decoder-ports P...
    --host 127.0.0.1 --port 8000

A single host applies to all ports. GET /healthcheck of Mooncake is /health here.
"""

from __future__ import annotations

import argparse
import sys


def proxy_arguments(given: list[str]) -> list[str]:
    """The flags of `mckv proxy`. Exits with 2 if the numbers of hosts and ports differ."""
    parser = argparse.ArgumentParser(prog="vllm_v1_proxy_server", allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    for role, port in (("prefiller", 8100), ("decoder", 8200)):
        parser.add_argument(f"--{role}-hosts", f"--{role}-host", nargs="+", default=["localhost"])
        parser.add_argument(
            f"--{role}-ports", f"--{role}-port", type=int, nargs="+", default=[port]
        )
    options = parser.parse_args(given)
    made = ["--way=sequential", f"--host={options.host}", f"--port={options.port}"]
    for role, flag in (("prefiller", "--prefill"), ("decoder", "--decode")):
        hosts, ports = getattr(options, f"{role}_hosts"), getattr(options, f"{role}_ports")
        if len(hosts) == 1:
            hosts = hosts * len(ports)
        if len(hosts) != len(ports):
            parser.error(f"--{role}-hosts and --{role}-ports differ in number")
        for host, port in zip(hosts, ports, strict=True):
            made += [flag, f"http://{host}:{port}"]
    return made


def main() -> None:
    from mckv.proxy.cli import main as proxy

    proxy(proxy_arguments(sys.argv[1:]))


if __name__ == "__main__":
    main()
