# SPDX-License-Identifier: Apache-2.0
"""The services of a cluster on hosts of tests/python/hosts.py, as the units of systemd/ run them.

mc-master on the first host and mc-agent on each host run as the user mc. Their configuration is the
one that systemd/cluster.md prints, with a smaller pool. The user `engine` belongs to the group mc,
and allow_uids has its id.
"""

import json
import os
import pathlib
import re
import subprocess

from pool_agent import Failed, wait_until

ENGINE = "engine"
USER_IDS = {"mc": 999, ENGINE: 2000}
PEER_PORT, LIMIT_S = 7401, 30
FLAGS = re.DOTALL | re.MULTILINE
# The users and the folder /run of the host alone.
USERS = """for file in passwd group; do grep -vE '^(mc|engine):' /etc/$file >/dev/shm/$file; done
printf '%s\\n' "mc:x:$1:$1::/:/bin/false" "engine:x:$2:$2::/run/engine:/bin/sh" >>/dev/shm/passwd
printf '%s\\n' "mc:x:$1:engine" "engine:x:$2:" >>/dev/shm/group
for file in passwd group; do mount --bind /dev/shm/$file /etc/$file; rm /dev/shm/$file; done
mount -t tmpfs -o mode=755 tmpfs /run
install -d -o mc -g mc -m 750 /run/mc
install -d -o engine -g engine -m 750 /run/engine"""
# runuser -u USER -- COMMAND... The user may read all files, because Python and the build may lie in
# folders of root. The user may write only its own files, and connect where its groups may.
RUNUSER = """#!/bin/sh
user=$2 home=/run/$2
shift 3
exec setpriv --reuid=$user --regid=$user --init-groups --inh-caps=+dac_read_search \\
  --ambient-caps=+dac_read_search env HOME=$home USER=$user LOGNAME=$user TMPDIR=$home "$@"
"""
PAGE = pathlib.Path(__file__).resolve().parents[2] / "systemd/cluster.md"


def printed_configuration(name, **changes):
    """The file /etc/mc/NAME.toml of the page. changes: new values of options."""
    block = rf"^cat > /etc/mc/{name}.toml <<'TOML'\n(.*?)^TOML$"
    text = re.search(block, PAGE.read_text(), FLAGS)[1]
    for option, value in changes.items():
        text, count = re.subn(rf"^{option} = [^\n]*$", f'{option} = "{value}"', text, flags=FLAGS)
        if count != 1:
            raise Failed(f"{PAGE.name} prints {option} {count} times in {name}.toml")
    return text


class Services:
    """All processes end with their hosts."""

    def __init__(self, hosts, folder, environment):
        self._folder, self._environment = pathlib.Path(folder), environment
        self._folder.mkdir()
        key = self._write("cluster.key", os.urandom(32).hex() + "\n")
        for host in hosts:
            host.run("sh", "-ec", USERS, "sh", *map(str, USER_IDS.values()))
        # Engines of root have filled vLLM's cache, which saves seconds at each start.
        cache = environment["VLLM_CACHE_ROOT"]
        subprocess.run(["chown", "-R", str(USER_IDS[ENGINE]), cache], check=True)
        self._start(hosts[0], "mc-master", printed_configuration("master", cluster_key_file=key))
        for host in hosts:
            listen = f"{host.address}:{PEER_PORT}"
            text = printed_configuration(
                "agent", listen=listen, cluster_key_file=key, pool_bytes="256MiB"
            )
            self._start(host, "mc-agent", text)
        for host in hosts:
            if not wait_until(lambda: self._members(host) == len(hosts), LIMIT_S):  # noqa: B023
                raise Failed(f"the agents do not form a cluster; see {folder}")

    def _write(self, name, text):
        path = self._folder / name
        path.touch(0o600)
        path.write_text(text)
        os.chown(path, USER_IDS["mc"], USER_IDS["mc"])
        return path

    def _start(self, host, program, text):
        config = self._write(f"{program}-{host.address}.toml", text)
        with open(config.with_suffix(".log"), "wb") as log:
            subprocess.Popen(
                host.command("runuser", "-u", "mc", "--", program, "--config", config),
                env={**self._environment, "RUNTIME_DIRECTORY": "/run/mc"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _members(self, host):
        """The number of hosts that the engine's user sees in the cluster."""
        done = subprocess.run(
            host.command("runuser", "-u", ENGINE, "--", "mcctl", "nodes", "--json"),
            env=self._environment,
            capture_output=True,
            text=True,
        )
        return len(json.loads(done.stdout)["nodes"]) if done.returncode == 0 else 0
