# SPDX-License-Identifier: Apache-2.0
"""mckv proxy: one OpenAI-compatible address in front of many engines.

    cli, options     the program and its table of options
    server           HTTP paths: /v1/..., /instances/..., /status, /health, /metrics
    exchange         one request: admission, attempts, streaming, retries
    protocol         messages to prefill and decode engines (kv_transfer_params)
    instances        the instances, their health, and the queue
    pool, hosts      blocks of a prompt in the pool, and the node of each host
    tokens           tokens of a prompt, from which the keys are derived
    choice, prefix   pure: choice of an instance; index of prefixes and instances
    health, metrics  background checks of engines; metrics for Prometheus

One event loop, one thread. The proxy bounds every request and every engine's answer.
"""
