# SPDX-License-Identifier: Apache-2.0
"""Measures Mooncake's agent mode: master, real client and one dummy client, on loopback.

Run with the Python of the environment made by `install`. One JSON line a case on stdout, with the
field names of `mcctl bench --json`; `call` names the fastest of Mooncake's calls for that case, and
`calls` has the p50 of each. The dummy client is a process of its own (--worker): a call that hangs
or crashes there still leaves this process able to clean up.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import sys
import sysconfig
import time

from children import BenchError, Children, free_ports, listens

KIB = 1024
MIB = 1024 * KIB
SMALL_BYTES = 4 * KIB
LARGE_BYTES = 4 * MIB
SMALL_KEYS = 1000
LARGE_KEYS = 32
MIN_OPERATIONS = 2000

# Options of the real client. `default` has the settings as shipped; the others are the documented
# settings that made a case here faster.
CONFIGS = {
    "default": ({}, []),
    "threads": ({}, ["--threads=4"]),
    # Whole objects in memory shared with the dummy client: then get_buffer copies nothing.
    "hot_cache": ({"MC_STORE_LOCAL_HOT_CACHE_SIZE": str(1024 * MIB),
                   "MC_STORE_LOCAL_HOT_CACHE_USE_SHM": "1",
                   "MC_STORE_LOCAL_HOT_ADMISSION_THRESHOLD": "1"}, ["--threads=4"]),
}


def percentile(ordered, part):
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def measure(call, warm_up, operations):
    """Times call(0), call(1), ... one by one; the first `warm_up` are not counted."""
    clock = time.perf_counter_ns
    for i in range(warm_up):
        call(i)
    spent_ns = []
    for i in range(warm_up, warm_up + operations):
        start = clock()
        call(i)
        spent_ns.append(clock() - start)
    total_ns = sum(spent_ns)
    spent_ns.sort()
    return {"p50_ns": percentile(spent_ns, 0.50), "p99_ns": percentile(spent_ns, 0.99),
            "ops_per_s": round(operations * 1e9 / total_ns, 1)}


def expect(good, what):
    if not good:
        raise BenchError(f"Mooncake: {what}")


class Worker:
    """The dummy client: the process an inference engine would be."""

    def __init__(self, server, config, operations):
        import mooncake.store

        self._config = config
        self._operations = operations
        self._store = mooncake.store.MooncakeDistributedStore()
        self._connect(server)
        # The only memory a dummy client may register is memory from the client's pool.
        self._buffer = self._store.alloc_from_mem_pool(LARGE_BYTES)
        expect(self._buffer, "no buffer from the pool")
        registered = self._store.register_buffer(self._buffer, LARGE_BYTES)
        expect(registered == 0, "register_buffer failed")

    def _connect(self, server):
        deadline = time.monotonic() + 15
        while self._store.setup_dummy(64 * MIB, 64 * MIB, server) != 0:
            expect(time.monotonic() < deadline, "setup_dummy failed for 15 s")
            time.sleep(0.1)

    def _report(self, case, size, keys, calls):
        results = {}
        for name, call in calls.items():
            results[name] = measure(call, max(self._operations // 10, 4 * keys), self._operations)
        best = min(results, key=lambda name: results[name]["p50_ns"])
        line = {"case": case, "size": size, "keys": keys, **results[best], "call": best,
                "config": self._config,
                "calls": {name: result["p50_ns"] for name, result in results.items()}}
        print(json.dumps(line), flush=True)

    def _fill(self, prefix, keys, size):
        for k in range(keys):
            ctypes.memset(self._buffer, k % 251, size)
            expect(self._store.put_from(f"{prefix}{k}", self._buffer, size) == 0, "put_from failed")

    def _check_bytes(self, prefix, keys, size):
        """Each call that is timed returns the bytes that were put."""
        for k in (0, 1, keys - 1):
            wanted = bytes([k % 251]) * size
            key = f"{prefix}{k}"
            ctypes.memset(self._buffer, 255, size)
            expect(self._store.get_into(key, self._buffer, size) == size, "get_into failed")
            expect(ctypes.string_at(self._buffer, size) == wanted, "get_into: wrong bytes")
            expect(self._store.get(key) == wanted, "get: wrong bytes")
            expect(bytes(self._store.get_buffer(key)) == wanted, "get_buffer: wrong bytes")

    def _readers(self, prefix, keys, size):
        store, buffer = self._store, self._buffer
        names = [f"{prefix}{k}" for k in range(keys)]

        def get_into(i):
            expect(store.get_into(names[i % keys], buffer, size) == size, "get_into failed")

        def get(i):
            expect(len(store.get(names[i % keys])) == size, "get failed")

        def get_buffer(i):
            expect(store.get_buffer(names[i % keys]).size() == size, "get_buffer failed")

        return {"get_into": get_into, "get": get, "get_buffer": get_buffer}

    def run(self):
        store, buffer = self._store, self._buffer
        self._report("python_noop", 0, 1, {"noop": lambda i: expect(True, "")})

        value = os.urandom(SMALL_BYTES)
        self._report("put", SMALL_BYTES, 1, {
            "put": lambda i: expect(store.put(f"put{i}", value) == 0, "put failed"),
            "put_from": lambda i: expect(
                store.put_from(f"from{i}", buffer, SMALL_BYTES) == 0, "put_from failed")})

        self._fill("small", SMALL_KEYS, SMALL_BYTES)
        self._check_bytes("small", SMALL_KEYS, SMALL_BYTES)
        readers = self._readers("small", SMALL_KEYS, SMALL_BYTES)
        self._report("get_copy", SMALL_BYTES, SMALL_KEYS,
                     {name: readers[name] for name in ("get_into", "get")})
        self._report("exists", SMALL_BYTES, SMALL_KEYS, {"is_exist": lambda i: expect(
            store.is_exist(f"small{i % SMALL_KEYS}") == 1, "is_exist failed")})

        self._fill("large", LARGE_KEYS, LARGE_BYTES)
        self._check_bytes("large", LARGE_KEYS, LARGE_BYTES)
        readers = self._readers("large", LARGE_KEYS, LARGE_BYTES)
        self._report("get_view", LARGE_BYTES, LARGE_KEYS,
                     {name: readers[name] for name in ("get_buffer", "get_into")})
        store.close()


def library_env():
    """The environment with the libraries that `install` unpacked on the run path."""
    env = dict(os.environ)
    debian = os.path.join(sys.prefix, "debian")
    arch = sysconfig.get_config_var("MULTIARCH")
    paths = [os.path.join(debian, "usr/lib", arch), os.path.join(debian, "lib", arch)]
    env["LD_LIBRARY_PATH"] = ":".join(filter(None, [*paths, env.get("LD_LIBRARY_PATH")]))
    return env


def run_servers_and_worker(children, options):
    package = os.path.join(sysconfig.get_paths()["platlib"], "mooncake")
    extra_env, extra_flags = CONFIGS[options.config]
    env = library_env()
    rpc_port, metrics_port, client_port = free_ports(3)

    master = children.start("mooncake_master", [
        f"{package}/mooncake_master", f"--rpc_port={rpc_port}", "--rpc_address=127.0.0.1",
        f"--metrics_port={metrics_port}", "--metrics_host=127.0.0.1", "--logtostderr"], env)
    children.wait_until(master, lambda: listens(socket.AF_INET, ("127.0.0.1", rpc_port)),
                        "mooncake_master listens")
    client = children.start("mooncake_client", [
        f"{package}/mooncake_client", "--host=127.0.0.1", f"--port={client_port}",
        f"--master_server_address=127.0.0.1:{rpc_port}", "--metadata_server=P2PHANDSHAKE",
        "--protocol=tcp", "--global_segment_size=1GB", "--local_buffer_size=64MB",
        "--logtostderr", *extra_flags], {**env, **extra_env})
    children.wait_until(client, lambda: listens(socket.AF_INET, ("127.0.0.1", client_port)),
                        "mooncake_client listens", timeout_s=30)
    return children.output("mooncake_dummy_client", [
        sys.executable, os.path.abspath(__file__), "--worker", f"127.0.0.1:{client_port}",
        "--config", options.config, "--operations", str(options.operations)],
        options.timeout_s, env)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", choices=CONFIGS, default="default")
    parser.add_argument("--operations", type=int, default=MIN_OPERATIONS,
                        help="timed operations a call (at least %(default)s)")
    parser.add_argument("--timeout-s", type=float, default=120.0)
    parser.add_argument("--worker", metavar="HOST:PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.operations < MIN_OPERATIONS:
        parser.error(f"--operations: at least {MIN_OPERATIONS}")
    try:
        if options.worker:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            Worker(options.worker, options.config, options.operations).run()
            return 0
        with Children() as children:
            sys.stdout.write(run_servers_and_worker(children, options))
        return 0
    except BenchError as error:
        print(f"mooncake_agent: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
