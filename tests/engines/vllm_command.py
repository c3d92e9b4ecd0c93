# SPDX-License-Identifier: Apache-2.0
"""`vllm` of this virtual environment, with the flags that a tiny model on a CPU needs."""

import json
import os
import sys

TINY = ("--served-model-name=tiny", "--dtype=bfloat16", "--enforce-eager", "--max-model-len=1024",
        "--max-num-seqs=4", "--block-size=32", "--seed=0")


# Connectors that call an accelerator, and the module that answers instead.
SHIMS = {"MooncakeConnector": "vllm_cpu_shims", "LMCacheConnectorV1": "lmcache_cpu_shims"}


def on_a_cpu(argument):
    if not argument.startswith('{"kv_connector"'):
        return argument
    config = json.loads(argument)
    if shim := SHIMS.get(config["kv_connector"]):
        config["kv_connector_module_path"] = shim
    return json.dumps(config)


program = os.path.join(os.path.dirname(sys.executable), "vllm")
os.execv(program, [program, *map(on_a_cpu, sys.argv[1:]), *TINY])
