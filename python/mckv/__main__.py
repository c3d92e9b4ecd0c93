# SPDX-License-Identifier: Apache-2.0
"""The command mckv: mckv proxy ..."""

import sys


def main() -> None:
    if sys.argv[1:2] == ["proxy"]:
        try:
            from mckv.proxy.cli import main as proxy
        except ImportError as error:
            sys.exit(f"mckv proxy: {error}; install it with: pip install 'mckv[proxy]'")
        proxy(sys.argv[2:])
        return
    print("usage: mckv proxy --help\n\nThe pool's own programs are mc-agent, mc-master and mcctl.")
    sys.exit(0 if sys.argv[1:2] in (["--help"], ["-h"]) else 2)


if __name__ == "__main__":
    main()
