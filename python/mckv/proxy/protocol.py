# SPDX-License-Identifier: Apache-2.0
"""Messages to prefill and decode engines, for each way of moving KV from one to the other.

    mooncake    vLLM's MooncakeConnector: both engines get the same transfer_id at the same time;
                the first engine waits for the second. The decoder gets the prefiller's engine id
                and the address of the bootstrap server, which the proxy asks by GET /query.
    sequential  first the prefiller, then the decoder, with the kv_transfer_params of the
                prefiller's answer, if any (NixlConnector), or with only the shared pool between
                both (store connectors, mckv.vllm).

A prefiller computes the prompt and one token, which the proxy drops.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

MOONCAKE = "mooncake"
SEQUENTIAL = "sequential"
PROTOCOLS = (MOONCAKE, SEQUENTIAL)
MAX_RANKS = 1024


def prefill_request(request: Mapping[str, Any], protocol: str, transfer_id: str) -> dict[str, Any]:
    made = dict(request)
    for name in ("stream_options", "min_tokens", "best_of", "stop", "stop_token_ids"):
        made.pop(name, None)
    made |= {"stream": False, "max_tokens": 1, "n": 1}
    if "max_completion_tokens" in made:
        made["max_completion_tokens"] = 1
    made["kv_transfer_params"] = {"do_remote_decode": True, "do_remote_prefill": False}
    if protocol == MOONCAKE:
        made["kv_transfer_params"]["transfer_id"] = transfer_id
    else:
        names = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")
        made["kv_transfer_params"] |= dict.fromkeys(names)  # the prefiller fills in the rest
    return made


def decode_request(
    request: Mapping[str, Any],
    protocol: str,
    transfer_id: str,
    engine_id: str = "",
    bootstrap: str = "",
    answered: Any = None,
) -> dict[str, Any]:
    """answered: kv_transfer_params from the prefiller's answer."""
    made = dict(request)
    made.pop("kv_transfer_params", None)
    if protocol == MOONCAKE:
        made["kv_transfer_params"] = {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            "transfer_id": transfer_id,
            "remote_engine_id": engine_id,
            "remote_bootstrap_addr": bootstrap,
        }
    elif isinstance(answered, dict):
        made["kv_transfer_params"] = answered
    return made


def new_transfer_id() -> str:
    return f"xfer-{uuid.uuid4()}"


def engine_ids(answer: Any) -> dict[int, str]:
    """Engine ids by data-parallel rank, from a bootstrap server's answer to GET /query.

    Raises ValueError for any other answer.
    """
    if not isinstance(answer, dict) or not 0 < len(answer) <= MAX_RANKS:
        raise ValueError("a bootstrap server answers with its data-parallel ranks")
    made = {}
    for rank, entry in answer.items():
        name = entry.get("engine_id") if isinstance(entry, dict) else None
        if not rank.isdecimal() or int(rank) >= MAX_RANKS or not isinstance(name, str) or not name:
            raise ValueError(f"rank {rank[:20]!r} has no engine_id")
        made[int(rank)] = name
    return made
