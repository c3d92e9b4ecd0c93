# SPDX-License-Identifier: Apache-2.0
"""A process with a store: each line of input is a call, [method, arguments]; each answer a line.

python store_process.py MASTER SEGMENT_BYTES       the first answer is that of setup()
"""

import base64
import json
import logging
import os
import sys

from mooncake.store import MooncakeDistributedStore, ReplicateConfig


def plain(value):
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


class Store(MooncakeDistributedStore):
    """Calls whose arguments and results are JSON."""

    def put(self, key, value):
        return super().put(key, base64.b64decode(value))

    def put_on(self, segment, key, value):
        config = ReplicateConfig()
        config.preferred_segment = segment
        return super().put(key, base64.b64decode(value), config)

    def segments_of(self, key):
        found = self.get_replica_desc(key)
        return [one.get_memory_descriptor().buffer_descriptor.transport_endpoint for one in found]


def main():
    master, segment = sys.argv[1], int(sys.argv[2])
    logging.basicConfig(level=logging.WARNING)
    store = Store()
    name = os.environ.get("LOCAL_HOSTNAME", "localhost")
    code = store.setup(name, "P2PHANDSHAKE", segment, 1 << 20, "tcp", "", master)
    print(json.dumps(code), flush=True)
    for line in sys.stdin:
        method, arguments = json.loads(line)
        print(json.dumps(plain(getattr(store, method)(*arguments))), flush=True)
    store.close()


main()
