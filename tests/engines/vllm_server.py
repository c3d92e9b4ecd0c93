# SPDX-License-Identifier: Apache-2.0
"""Servers as the proofs start them: `vllm serve` of the tiny model, `mckv proxy`, and requests."""

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request

from pool_agent import Failed
from vllm_engine import BLOCK, START_LIMIT_S, free_port


class Program:
    """A server in a process of its own."""

    def __init__(self, command, environment, log, host="127.0.0.1"):
        self.port = free_port()
        self.url = f"http://{host}:{self.port}"
        self._log = log
        self.process = subprocess.Popen(
            [*command, f"--host={host}", f"--port={self.port}"], env=environment, start_new_session=True,
            stdout=open(log, "wb"), stderr=subprocess.STDOUT)

    def wait(self):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/health", timeout=5).read()
                return
            if self.process.poll() is not None:
                raise Failed(f"a server ended; see {self._log}")
            time.sleep(0.2)
        raise Failed(f"a server did not start in {START_LIMIT_S} s; see {self._log}")

    def metric(self, name):
        return metric(self.url, name)

    def end(self, number=signal.SIGTERM):
        """With all that it started: vLLM's engines outlive a server that is killed."""
        if self.process.poll() is None and number != signal.SIGKILL:
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def metric(url, name):
    """The sum of a server's metrics whose lines begin with the name."""
    text = urllib.request.urlopen(f"{url}/metrics", timeout=30).read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def ask(url, body, headers=None):
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})
    return urllib.request.urlopen(request, timeout=200)


def server_environment(environment):
    return environment | {
        "PYTHONHASHSEED": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1"}


def serve(options, model, environment, log, kv=None, host="127.0.0.1"):
    """A `vllm serve` of this model, named tiny."""
    command = [os.path.join(options.venv, "bin/vllm"), "serve", model, "--served-model-name=tiny",
               "--dtype=bfloat16", "--enforce-eager", "--max-model-len=1024", "--max-num-seqs=4",
               f"--block-size={BLOCK}", "--seed=0"]
    if kv:
        command += ["--kv-transfer-config", json.dumps(kv)]
    return Program(command, environment, log, host)
