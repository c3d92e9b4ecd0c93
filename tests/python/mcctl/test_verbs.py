# SPDX-License-Identifier: Apache-2.0
"""Each verb of mcctl as a command: right and wrong calls, text and JSON, without an agent."""

import itertools
import json
import pathlib
import re
from typing import NamedTuple

import mckv
import pytest
from command import documents, mcctl
from machine import run_master

TRACE = pathlib.Path(__file__).parents[2] / "data" / "conversation_trace.jsonl"
IDS = {"node", "node_id", "incarnation", "version"}


class Case(NamedTuple):
    """A right call, with a text of its output and a name in its JSON; a wrong call, with its error.

    {key} is an object of its own, {new} a word of its own, {file} a file. {other} is the address of
    the other host, {self} of this host, {master} of the master.
    """

    right: str
    says: str
    name: str
    wrong: str
    error: str
    first: str = ""  # a call before the right call
    needs_agent: bool = True


CASES = {
    "status": Case("", "namespaces|NAMESPACE", "namespaces", "--watch 0", "--watch: 0 is not a"),
    "ls": Case("--prefix {key}", "KEY", "key", "--escaped --prefix %z", "without two hexadecimal"),
    "stat": Case("{key}", "checksum", "checksum", "", "KEY is required"),
    "put": Case("{new} {file}", "stored", "length", "{new} --ttl never", "'never' is not a dur"),
    "get": Case("{key} {file}", "", "version", "{key} --json", "cannot share standard output"),
    "rm": Case("{key}", "removed 1 object", "removed", "--all --prefix a", "in exactly one way"),
    "exists": Case("{key}", "yes ", "keys", "", "KEY is required"),
    "pin": Case("{key} --ttl 10m", "pin soft", "keys", "k --pin hard --ttl 1m", "--ttl goes"),
    "evict": Case("1MiB", "free", "free_bytes", "lots", "'lots' is not a size"),
    "segment list": Case("", "TARGET", "segments", "extra", "'extra' is one argument too many"),
    "segment resize": Case("128MiB", "target 128", "target_bytes", "tiny", "'tiny' is not a size"),
    "namespace list": Case("", "QUOTA", "namespaces", "extra", "one argument too many"),
    "namespace create": Case(
        "{new} --size 4MiB", "created", "target_bytes", "{new}", "--size is required"
    ),
    "namespace delete": Case(
        "{new} --yes", "deleted namespace", "deleted", "default", "the configuration defines",
        first="namespace create {new} --size 4MiB",
    ),
    "namespace quota": Case(
        "{new} 2MiB", "quota 2.00 MiB", "capacity_bytes", "default much", "'much' is not a size",
        first="namespace create {new} --size 4MiB",
    ),
    "trace": Case("{key}", "from this host", "get", "", "KEY is required"),
    "cluster status": Case("", "members", "agent", "extra", "one argument too many"),
    "nodes": Case("", "REACHABLE", "nodes", "extra", "one argument too many"),
    "where": Case("{key}", "replicas", "holders", "", "KEY is required"),
    "replicate": Case("{key} --replicas 2", "shall have 2", "", "k --replicas 0", "0 is not a"),
    "copy": Case("{key} {other}", "done", "task", "{key}", "NODE is required"),
    "move": Case("{key} {self} {other}", "done", "task", "{key} {self}", "TO is required"),
    "drain": Case("{other} --no-wait", "drain", "copied", "nowhere:1", "no member has"),
    "undrain": Case("{other}", "serves as before", "copied", "nowhere:1", "no member has"),
    "ping": Case("{other} --count 2", "median", "round_trip_p50_ns", "x --count 0", "0 is not a"),
    "join": Case("{master}", "agent.sock", "socket", "nowhere", "'nowhere'", needs_agent=False),
    "rails": Case("", "", "peers", "extra", "one argument too many"),
    "top": Case("--once --interval 0.1", "puts", "rates", "--interval 0", "0 is not a number"),
    "events": Case("--limit 5", "event=", "fields", "--level loud", "loud is not one of"),
    "topo": Case("", "NUMA|numa", "", "--svg", "--svg needs a value", needs_agent=False),
    "config": Case("", "pool_bytes", "options", "extra", "argument too many|no option"),
    "doctor": Case("", "agent", "checks", "extra", "one argument too many", needs_agent=False),
    "bench": Case(
        "--cases get_view --sizes 4KiB --seconds 0.1 --rounds 1 --pool-bytes 16MiB", "get_view", "",
        "--cases speed", "speed",
    ),
    "replay": Case(
        f"{TRACE} --limit 20 --workers 1 --block-bytes 256 --no-report", "hit", "", "/nowhere",
        "/nowhere",
    ),
    "support-bundle": Case("{file}", "files", "file", "a b", "too many", needs_agent=False),
    "manual": Case("{file}-pages", "", "pages", "", "DIRECTORY is required", needs_agent=False),
    "completion": Case("bash", "complete ", "", "tcsh", "tcsh is not one of", needs_agent=False),
}  # fmt: skip
WITHOUT_JSON = {"completion"}


def named_values(value, name=""):
    """All values inside a JSON value, with their names."""
    if isinstance(value, dict):
        for inner_name, inner in value.items():
            yield inner_name, inner
            yield from named_values(inner, inner_name)
    elif isinstance(value, list):
        for inner in value:
            yield name, inner
            yield from named_values(inner, name)


@pytest.fixture(scope="module")
def places(hosts_of_module):
    """The words that stand for this host, the other host and the master; the agent is here."""
    agent, _ = hosts_of_module
    nodes = json.loads(mcctl("--json", "nodes", agent=agent.socket).stdout)["nodes"]
    own = next(one["address"] for one in nodes if one["self"])
    other = next(one["address"] for one in nodes if not one["self"])
    with run_master("verbs") as master:
        yield agent, {"self": own, "other": other, "master": master}


_numbers = itertools.count()


@pytest.fixture
def call(places, tmp_path, runtime_dir):
    """Calls mcctl with words in braces."""
    agent, words = places
    file = tmp_path / "file"
    file.write_bytes(b"some bytes")
    new = f"new-{next(_numbers)}"
    key = f"key-{new}"

    def run(line, *options, socket=agent.socket):
        if "{key}" in line:
            with mckv.Client(agent.socket) as client:
                client.put(key, b"a value")
        text = line.format(**words, file=file, new=new, key=key)
        return mcctl(*options, *text.split(), agent=socket)

    yield run
    mcctl("undrain", words["other"], agent=agent.socket)


def verbs_below(*path):
    page = mcctl(*path, "--help").stdout
    section = re.search(r"^VERBS\n((?:  .*\n)+)", page, re.MULTILINE)
    if section is None:
        return {" ".join(path)}
    names = re.findall(r"^  (\S+)", section[1], re.MULTILINE)
    return set().union(*(verbs_below(*path, name) for name in names))


def test_this_file_tries_every_verb():
    assert verbs_below() == set(CASES)


@pytest.mark.parametrize("verb", CASES)
def test_a_right_call_prints_text(call, verb):
    case = CASES[verb]
    if case.first:
        assert call(case.first).returncode == 0
    done = call(f"{verb} {case.right}")
    assert done.returncode == 0, done.stderr
    assert re.search(case.says, done.stdout), done.stdout
    assert "mcctl:" not in done.stderr
    # mcctl prints ? in place of a byte that a terminal must not get. Scripts have such signs.
    assert "?" not in done.stdout or verb == "completion"


@pytest.mark.parametrize("verb", [verb for verb in CASES if verb not in WITHOUT_JSON])
def test_a_right_call_prints_json(call, verb):
    case = CASES[verb]
    if case.first:
        assert call(case.first).returncode == 0
    done = call(f"{verb} {case.right}", "--json")
    assert done.returncode == 0, done.stderr
    found = list(documents(done.stdout))
    assert found
    for document in found:
        names = [name for name, _ in named_values(document)]
        assert case.name in {"", *names}, done.stdout
        for name, value in named_values(document):
            # Readers of JSON in other languages keep 53 bits of a number.
            assert not isinstance(value, int) or abs(value) <= 2**53, (name, value)
            is_id = name in IDS and verb != "topo"  # which has NUMA nodes
            assert not is_id or isinstance(value, str | dict | list), (name, value)


@pytest.mark.parametrize("verb", CASES)
def test_a_wrong_call_names_cause_and_remedy(call, verb):
    case = CASES[verb]
    done = call(f"{verb} {case.wrong}")
    assert done.returncode in (1, 2, 3), done.stdout
    first, *others = done.stderr.splitlines()
    assert first.startswith(f"mcctl: {verb}: "), done.stderr
    assert re.search(case.error, first), done.stderr
    assert others[0].startswith("  try: "), done.stderr
    assert "?" not in done.stderr
    as_json = call(f"{verb} {case.wrong}", "--json")
    assert as_json.returncode == done.returncode
    (document,) = documents(as_json.stdout)
    assert document["error"]["exit_code"] == done.returncode
    assert document["error"]["verb"] == verb
    assert f"mcctl: {verb}: {document['error']['cause']}" == first


@pytest.mark.parametrize("verb", [verb for verb, case in CASES.items() if case.needs_agent])
def test_without_an_agent_a_call_says_so_in_time(call, tmp_path, verb):
    missing = tmp_path / "no-agent.sock"
    done = call(f"{verb} {CASES[verb].right}", "--timeout-ms", "100", socket=str(missing))
    assert done.returncode in (1, 4), done.stderr
    assert str(missing) in done.stderr
    assert "  try: " in done.stderr


@pytest.mark.parametrize("verb", CASES)
def test_the_help_of_a_verb_has_its_parts(verb):
    done = mcctl(*verb.split(), "--help")
    assert done.returncode == 0
    for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "GLOBAL OPTIONS", "EXAMPLES", "EXIT STATUS"):
        assert re.search(rf"^{part}$", done.stdout, re.MULTILINE), part
    assert mcctl("help", *verb.split()).stdout == done.stdout
