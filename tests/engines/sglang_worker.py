# SPDX-License-Identifier: Apache-2.0
"""One SGLang engine on the CPU, with HiCache's own mooncake backend or without; run by sglang_store.

    sglang_worker.py MODEL PROMPTS.json plain|mooncake|mckv [OBJECTS]

mooncake: SGLang's backend of that name on our modules; mckv: our own. OBJECTS: how many objects the pool holds once HiCache's thread has written all backups. Prints one line of JSON: for each prompt the greedy tokens and how many tokens were cached.
"""

import json
import sys
import time

import sglang_cpu_shims  # noqa: F401  (before the scheduler's process imports this file again)


BACKENDS = {
    "mooncake": {
        "master_server_address": "127.0.0.1:50051", "local_hostname": "127.0.0.1",
        "metadata_server": "P2PHANDSHAKE", "global_segment_size": 64 << 20,
        "protocol": "tcp", "device_name": "", "prefetch_threshold": 64},
    "mckv": {
        "backend_name": "mckv", "module_path": "mckv.sglang", "class_name": "MckvHiCache",
        "interface_v1": 1, "prefetch_threshold": 64},
}


def wait_for_objects(count, limit_s=60):
    """Backups go on in a thread of SGLang's; that they do not come is for the caller to find."""
    import mckv

    with mckv.Client(label="backups") as client:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            (space,) = client.ask({"verb": "status"})["namespaces"]
            if space["objects"] >= count:
                return
            time.sleep(0.05)


def main():
    import sglang

    model, prompts, pool = sys.argv[1], json.load(open(sys.argv[2])), sys.argv[3]
    options = dict(
        model_path=model, device="cpu", attention_backend="torch_native", dtype="bfloat16",
        page_size=64, max_total_tokens=4096, max_running_requests=4, log_level="info",
        disable_cuda_graph=True, skip_server_warmup=True, random_seed=0, disable_overlap_schedule=True,
    )
    if pool != "plain":
        options |= dict(
            enable_hierarchical_cache=True, hicache_ratio=2, hicache_mem_layout="page_first",
            hicache_io_backend="direct", hicache_write_policy="write_through",
            hicache_storage_backend="mooncake" if pool == "mooncake" else "dynamic",
            hicache_storage_prefetch_policy="wait_complete",
            hicache_storage_backend_extra_config=json.dumps(BACKENDS[pool]),
        )
    engine = sglang.Engine(**options)
    results = []
    for prompt in prompts:
        answer = engine.generate(
            input_ids=prompt, sampling_params={"temperature": 0, "max_new_tokens": 16, "ignore_eos": True})
        results.append({"tokens": answer["output_ids"],
                        "cached": answer["meta_info"]["cached_tokens"]})
    if pool != "plain":
        wait_for_objects(int(sys.argv[4]))
    print("@@ " + json.dumps(results), flush=True)
    engine.shutdown()


if __name__ == "__main__":
    main()
