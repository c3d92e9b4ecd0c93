# SPDX-License-Identifier: Apache-2.0
"""A process with a store: each line of input is a call, [method, arguments]; each answer a line.

python store_process.py MASTER SEGMENT_BYTES       the first answer is that of setup()
"""

import base64
import json
import logging
import sys

from mooncake.store import MooncakeDistributedStore


def plain(value):
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def main():
    master, segment = sys.argv[1], int(sys.argv[2])
    logging.basicConfig(level=logging.WARNING)
    store = MooncakeDistributedStore()
    code = store.setup("localhost", "P2PHANDSHAKE", segment, 1 << 20, "tcp", "", master)
    print(json.dumps(code), flush=True)
    for line in sys.stdin:
        method, arguments = json.loads(line)
        if method == "put":
            arguments[1] = base64.b64decode(arguments[1])
        print(json.dumps(plain(getattr(store, method)(*arguments))), flush=True)
    store.close()


main()
