# SPDX-License-Identifier: Apache-2.0
"""mckv proxy: one OpenAI-compatible address before many engines.

    cli, options     the program: its table of options, its life
    server           the HTTP faces: /v1/..., /instances/..., /status, /health, /metrics
    exchange         one request: admission, attempts, streaming, what is retried
    protocol         what prefill and decode engines are told (kv_transfer_params)
    instances        who there is, how each is doing, who is next in the queue
    pool, hosts      what the pool has of a prompt, and whose memory a host's engines use
    tokens           a prompt's tokens, which the pool's keys are made of
    choice, prefix   pure: which instance, and who has seen how much of a prompt
    health, metrics  what is asked of engines in the background, and what is told to Prometheus

One event loop, one thread. Requests and engines' answers are foreign bytes: every one is bounded.
"""
