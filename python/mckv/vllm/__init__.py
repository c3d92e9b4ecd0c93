# SPDX-License-Identifier: Apache-2.0
"""vLLM's KV connector on the pool of this host.

vllm serve MODEL --kv-transfer-config '{"kv_connector": "MckvConnector", "kv_role": "kv_both",
  "kv_connector_module_path": "mckv.vllm", "kv_load_failure_policy": "recompute"}'

    connector   the class that vLLM makes, twice: for its scheduler and for its worker
    scheduler   what to load and what to save, step by step; no torch, no vllm
    worker      loads layer by layer from pinned views, saves whole blocks
    card        tells how blocks are named, for mckv proxy
    stats       what vLLM logs and exports
"""

from typing import Any

__all__ = ["MckvConnector"]


def __getattr__(name: str) -> Any:
    """Only who asks for the connector needs vllm."""
    if name != "MckvConnector":
        raise AttributeError(name)
    from mckv.vllm.connector import MckvConnector

    return MckvConnector
