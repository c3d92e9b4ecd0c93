# SPDX-License-Identifier: Apache-2.0
"""vLLM's KV connector on the pool of this host.

vllm serve MODEL --kv-transfer-config '{"kv_connector": "MckvConnector", "kv_role": "kv_both",
  "kv_connector_module_path": "mckv.vllm", "kv_load_failure_policy": "recompute"}'

    connector   the class that vLLM creates twice: in the scheduler and in the worker
    scheduler   chooses the blocks to load and to save in each step; no torch, no vllm
    worker      loads layer by layer from pinned views, saves whole blocks
    card        publishes the key card, for mckv proxy
    stats       the counters that vLLM logs and exports
"""

from typing import Any

__all__ = ["MckvConnector"]


def __getattr__(name: str) -> Any:
    """Imports vllm only if the connector is used."""
    if name != "MckvConnector":
        raise AttributeError(name)
    from mckv.vllm.connector import MckvConnector

    return MckvConnector
