# SPDX-License-Identifier: Apache-2.0
"""What a transfer engine over TCP is told of this host: its NUMA nodes, and no NICs."""

import json
import pathlib


def local_topology() -> str:
    """{"cpu:0": [[preferred NICs], [other NICs]]} as JSON."""
    nodes = sorted(
        path.name.removeprefix("node")
        for path in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")
    ) or ["0"]  # fmt: skip
    return json.dumps({f"cpu:{node}": [[], []] for node in nodes}, indent=2)
