# SPDX-License-Identifier: Apache-2.0
"""One vLLM engine in a process of its own, as the proofs drive it; their prompts and model."""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time

from pool_agent import HERE, Failed

sys.path.append(str(HERE.parent / "python"))
from machine import TIME_SCALE, free_port  # noqa: E402, F401 (the proofs import free_port from here)

START_LIMIT_S = 400 * TIME_SCALE
REQUEST_LIMIT_S = 120 * TIME_SCALE
BLOCK = 32


class Engine:
    """vllm_driver.py in a process: JSON lines in, JSON lines out."""

    def __init__(self, options, model, log, environment, kv=None, most_tokens=1024,
                 step_tokens=0, host=None):
        """host: of tests/python/hosts.py; None: this machine."""
        command = [options.python, str(HERE / "vllm_driver.py"), "--model", model,
                   "--block-size", str(BLOCK), "--max-len", str(most_tokens),
                   "--step-tokens", str(step_tokens)]
        if kv:
            command += ["--kv", json.dumps(kv)]
        if host:
            command = host.command(*command)
        self._log = log
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(log, "wb"),
            env=environment, text=True, cwd=str(HERE))
        self._lines = []
        self._more = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        self.wait("ready", START_LIMIT_S)

    def _read(self):
        for line in self._process.stdout:
            if line.startswith("@@ "):
                with self._more:
                    self._lines.append(json.loads(line[3:]))
                    self._more.notify()
        with self._more:
            self._lines.append({"kind": "end"})
            self._more.notify()

    def wait(self, kind, limit_s=REQUEST_LIMIT_S, name=None):
        """The next line of that kind; of that request if a name is given."""
        deadline = time.monotonic() + limit_s
        with self._more:
            while True:
                for i, line in enumerate(self._lines):
                    if line["kind"] == kind and name in (None, line.get("id")):
                        return self._lines.pop(i)
                    if line["kind"] == "end":
                        raise Failed(f"the engine ended before {kind}; see {self._log}")
                if not self._more.wait(deadline - time.monotonic()):
                    raise Failed(f"no {kind} {name or ''} in {limit_s} s; see {self._log}")

    def ask(self, **question):
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()

    def generate(self, name, prompt, tokens=16):
        self.ask(op="gen", id=name, ids=prompt, max_tokens=tokens)
        return self.wait("result")

    def metrics(self):
        self.ask(op="metrics")
        return self.wait("metrics")["metrics"]

    def blocks(self):
        """Its free KV blocks, and the requests that it knows."""
        self.ask(op="blocks")
        return self.wait("blocks")

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def end(self):
        with contextlib.suppress(OSError):
            self.ask(op="quit")
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def make_model(options, work, environment, *shape):
    """The directory of a tiny model, made on the spot. shape: flags of tiny_model.py."""
    model = f"{work}/model"
    subprocess.run([options.python, str(HERE / "tiny_model.py"), model, "--weights", *shape],
                   check=True, env=environment, timeout=REQUEST_LIMIT_S, capture_output=True)
    return model


def make_prompts(count=3, shared=192):
    """Prompts of tokens that share their beginning."""
    chance = random.Random(11)
    start = [chance.randrange(3, 259) for _ in range(shared)]
    return [start + [chance.randrange(3, 259) for _ in range(8 + 40 * i)] for i in range(count)]


def blocks_of(prompts):
    """Only whole blocks are stored; the prompts share their beginning."""
    return len({tuple(prompt[:end]) for prompt in prompts
                for end in range(BLOCK, len(prompt) + 1, BLOCK)})


def base_environment(work):
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TMPDIR": work,
            "VLLM_CACHE_ROOT": f"{work}/vllm"}


def with_path(environment, options, **more):
    """The environment of an engine that finds mckv and our mooncake modules."""
    paths = options.python_path.split(":") + [os.environ.get("PYTHONPATH", "")]
    return environment | {"PYTHONPATH": ":".join(path for path in paths if path), **more}
