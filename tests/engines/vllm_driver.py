#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One vLLM engine in one process, driven by JSON lines on stdin.

The engine core, the worker and the KV connector all run in this process
(VLLM_ENABLE_V1_MULTIPROCESSING=0), so a start costs one import of vLLM and
not three.  Requests are stepped by hand, and stepping goes on between
requests, because a P2P connector frees a producer's blocks in later, empty
steps.

stdin:   {"op": "gen", "id": "r1", "ids": [..], "max_tokens": 4, "kv": {..}}; its client goes away
             with "leave_after": ["steps", 2] or ["tokens", 4]
         {"op": "abort", "id": "r1"} | {"op": "blocks"} | {"op": "metrics"} | {"op": "reset"} | {"op": "quit"}
stdout:  lines "@@ {json}": ready, result, aborted, blocks, metrics, reset, bye
"""
import argparse
import json
import os
import queue
import sys
import threading
import time

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_HOST_IP", "127.0.0.1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "INFO")
# Block hashes must be equal in every process that shares a store.
os.environ.setdefault("PYTHONHASHSEED", "0")

T0 = time.time()


def say(kind: str, **kw) -> None:
    sys.stdout.write("@@ " + json.dumps({"kind": kind, **kw}) + "\n")
    sys.stdout.flush()


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--kv", default="", help="kv_transfer_config JSON, empty for none")
    p.add_argument("--block-size", type=int, default=32)
    p.add_argument("--max-len", type=int, default=2048)
    p.add_argument("--step-tokens", type=int, default=0, help="most tokens a step, 0: vLLM's choice")
    p.add_argument("--load-format", default="auto")
    p.add_argument("--no-prefix-cache", action="store_true")
    a = p.parse_args()

    lines: queue.Queue = queue.Queue()

    def reader() -> None:
        for line in sys.stdin:
            lines.put(line)
        lines.put('{"op": "quit"}')

    from vllm import LLM, SamplingParams

    # vLLM's CPU kernel rebinding walks every loaded module and trips over
    # llvmlite's lazy library object, which answers for any attribute name
    # (seen when LMCache has imported numba first).
    from collections.abc import Mapping
    import vllm.triton_utils.dispatcher as _disp

    def _vars(obj):
        d = obj.__dict__
        return d if isinstance(d, Mapping) else {}

    _disp.vars = _vars
    t_import = time.time() - T0
    kw = {}
    if a.kv:
        kw["kv_transfer_config"] = json.loads(a.kv)
    if a.step_tokens:
        kw["max_num_batched_tokens"] = a.step_tokens
    llm = LLM(
        model=a.model,
        dtype="bfloat16",
        load_format=a.load_format,
        enforce_eager=True,
        max_model_len=a.max_len,
        max_num_seqs=4,
        block_size=a.block_size,
        seed=0,
        enable_prefix_caching=not a.no_prefix_cache,
        disable_log_stats=False,
        **kw,
    )
    eng = llm.llm_engine
    threading.Thread(target=reader, daemon=True).start()
    say("ready", import_s=round(t_import, 1), init_s=round(time.time() - T0, 1), pid=os.getpid())

    started: dict[str, float] = {}
    leaving: dict[str, list] = {}  # what is left of their leave_after

    def abort(name: str) -> None:
        leaving.pop(name, None)
        if started.pop(name, None) is not None:
            eng.abort_request([name])
            say("aborted", id=name)

    quitting = working = False
    while not quitting:
        try:
            # A request that waits for a peer makes empty steps: no need of a whole core.
            cmd = json.loads(lines.get(timeout=0.0 if working else 0.005 if started else 0.02))
        except queue.Empty:
            cmd = None
        if cmd:
            if cmd["op"] == "gen":
                sp = SamplingParams(
                    temperature=0,
                    max_tokens=cmd.get("max_tokens", 8),
                    ignore_eos=True,
                    extra_args={"kv_transfer_params": cmd["kv"]} if cmd.get("kv") else None,
                )
                started[cmd["id"]] = time.time()
                eng.add_request(cmd["id"], {"prompt_token_ids": cmd["ids"]}, sp)
                if "leave_after" in cmd:
                    leaving[cmd["id"]] = cmd["leave_after"]
            elif cmd["op"] == "abort":
                abort(cmd["id"])
            elif cmd["op"] == "blocks":
                scheduler = eng.engine_core.engine_core.scheduler
                say("blocks", free=scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
                    requests=len(scheduler.requests))
            elif cmd["op"] == "metrics":
                out = {}
                for m in llm.get_metrics():
                    v = getattr(m, "value", None)
                    if v is not None and any(
                        k in m.name for k in ("prefix_cache", "kv_", "connector", "mooncake", "offload")
                    ):
                        key = m.name + ("" if not m.labels else str({k: v2 for k, v2 in m.labels.items() if k not in ("model_name", "engine")}))
                        out[key] = v
                say("metrics", metrics=out)
            elif cmd["op"] == "reset":
                say("reset", ok=bool(llm.reset_prefix_cache()))
            elif cmd["op"] == "quit":
                quitting = True
        for name, (unit, count) in list(leaving.items()):
            if unit == "steps" and count:
                leaving[name] = [unit, count - 1]
            elif unit == "steps":
                abort(name)
        outputs = eng.step()
        working = bool(outputs)
        for o in outputs:
            if leaving.get(o.request_id) == ["tokens", len(o.outputs[0].token_ids)]:
                abort(o.request_id)
            elif o.finished:
                leaving.pop(o.request_id, None)
                say(
                    "result",
                    id=o.request_id,
                    tokens=list(o.outputs[0].token_ids),
                    cached=o.num_cached_tokens,
                    kv=o.kv_transfer_params,
                    wall_s=round(time.time() - started.pop(o.request_id), 6),
                )
    try:
        eng.engine_core.shutdown()
    except Exception as e:  # the proof is over; say why and leave
        say("shutdown_error", err=repr(e))
    say("bye")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
