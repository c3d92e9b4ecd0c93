# SPDX-License-Identifier: Apache-2.0
"""The RDMA NICs near each memory of this host, in Mooncake's format."""

import json
import subprocess

import mckv

_LIMIT_S = 10.0


def local_topology(device_names: str = "") -> str:
    """{"cpu:0": [[near NICs], [other NICs]], "cuda:0": ...} as JSON, from `mcctl topo`.

    device_names: only these NICs, separated by commas. Raises RuntimeError with the cause.
    """
    command = [mckv.program("mcctl"), "topo", "--json"]
    if device_names:
        command += ["--nics", device_names]
    try:
        printed = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=True
        ).stdout
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"mcctl topo: {(error.stderr or error.stdout).strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"mcctl topo: {error}") from None
    found = json.loads(printed)
    rdma = {nic["name"] for nic in found["nics"] if nic["rdma"]}

    def of_rdma(names: list[str]) -> list[str]:
        return [name for name in names if name in rdma]

    matrix = found["nic_priority_matrix"]
    return json.dumps(
        {place: [of_rdma(near), of_rdma(far)] for place, (near, far) in matrix.items()}, indent=2
    )
