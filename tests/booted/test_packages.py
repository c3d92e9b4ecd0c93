# SPDX-License-Identifier: Apache-2.0
"""The wheel and the Debian packages on a machine on which mc never was: tests/run --debian."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import Load, run
from machine import TIME_SCALE, WATCHDOG_S, until

PACKAGES = ("libmc0", "libmc-dev", "mc-agent", "mc-master", "mcctl", "python3-mckv")
SOCKET = "/run/mc/agent.sock"
CONFIG = pathlib.Path("/etc/mc")
OBJECTS = {b"key %d" % number: bytes([number]) * 5000 for number in range(100)}


def apt(*words):
    done = subprocess.run(
        ["apt-get", "-q", "-y", "-o", "Dpkg::Options::=--force-confold", *words],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True, text=True, timeout=300 * TIME_SCALE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def install(release):
    apt(
        "install",
        "--no-install-recommends",
        *map(str, pathlib.Path(f"/packages/{release}").glob("*.deb")),
    )


def unit_is(state, unit="mc-agent"):
    done = subprocess.run(["systemctl", "is-" + state, "--quiet", unit], check=False)
    return done.returncode == 0


def pid_of_agent():
    return json.loads(run("mcctl", "status", "--json"))["pid"]


@pytest.fixture(scope="module", autouse=True)
def lists():
    apt("update")


@pytest.fixture
def from_wheel(tmp_path):
    """An agent from the wheel alone: (folder of programs, environment of its clients).

    Before the packages, whose dependencies bring the same libraries.
    """
    assert "libspdlog" not in run("ldconfig", "--print-cache")
    apt("install", "--no-install-recommends", "python3-venv", "python3-numpy")
    run("python3", "-m", "venv", "--system-site-packages", tmp_path)
    programs = tmp_path / "bin"
    (wheel,) = pathlib.Path("/packages/wheel").glob("*.whl")
    run(programs / "pip", "install", "--no-index", wheel)
    agent = subprocess.Popen(
        [programs / "mc-agent", f"--runtime-dir={tmp_path}", "--pool-bytes=64MiB"]
    )
    address = str(tmp_path / "agent.sock")
    try:
        until(lambda: os.path.exists(address))
        yield programs, {"MC_AGENT": address, "PATH": os.environ["PATH"]}
    finally:
        agent.terminate()
        agent.wait(WATCHDOG_S)


def test_the_wheel_alone_brings_programs_and_libraries(from_wheel):
    programs, environment = from_wheel
    for program in ("mc-agent", "mc-gpu", "mc-master", "mcctl"):
        run(programs / program, "--version")
    code = (
        "import mckv; client = mckv.Client(); client.put('mine', b'value'); "
        "print(client.view('mine').tobytes())"
    )
    assert "b'value'" in run(programs / "python", "-c", code, env=environment)
    assert run(programs / "mcctl", "get", "mine", env=environment) == "value"
    # The README's lines, whose array is NumPy's.
    page = pathlib.Path(__file__).parents[2].joinpath("README.md").read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    prelude = "import mckv, numpy\narray = numpy.arange(4, dtype='f4')\n"
    view = lines.strip().splitlines()[-1].partition("#")[0].strip()
    assert view.startswith("client.view(")
    run(
        programs / "python",
        "-c",
        f"{prelude}{lines}assert ({view} == array).all()",
        env=environment,
    )


@pytest.fixture
def first():
    """The first release, freshly installed."""
    install(1)
    until(lambda: unit_is("active"))
    yield
    run("dpkg", "--purge", *PACKAGES)


def test_the_services_run_and_the_commands_work(first):
    for unit in ("mc-agent", "mc-master"):
        assert unit_is("active", unit) and unit_is("enabled", unit)
    pathlib.Path("/tmp/value").write_bytes(b"value")
    run("mcctl", "put", "key", "/tmp/value")
    assert run("mcctl", "get", "key") == "value"
    code = "import mckv; print(mckv.Client().get('key'), mckv.__version__)"
    assert run("python3", "-c", code).startswith("b'value'")
    assert "mc-agent" in run("python3", "-c", "import mckv; print(mckv.program('mc-agent'))")
    assert "usage" in run("mckv", "--help").lower()


def test_the_packages_have_manual_pages_completion_and_a_changelog(first):
    share = pathlib.Path("/usr/share")
    for page in (
        "man1/mcctl.1",
        "man1/mcctl-segment-resize.1",
        "man8/mc-agent.8",
        "man8/mc-gpu.8",
        "man8/mc-master.8",
    ):
        text = run("gzip", "-dc", share / "man" / f"{page}.gz")
        assert text.startswith(".TH ") and ".SH OPTIONS" in text
    for script in (
        "bash-completion/completions/mcctl",
        "zsh/vendor-completions/_mcctl",
        "fish/vendor_completions.d/mcctl.fish",
    ):
        assert "mcctl" in share.joinpath(script).read_text()
    for package in PACKAGES:
        text = run("gzip", "-dc", share / "doc" / package / "changelog.Debian.gz")
        assert text.startswith("mc (")


@pytest.mark.parametrize("build", ["", "example_"])
def test_programs_built_against_the_packages_run(first, build):
    for name in ("put_get_view", "batch_async", "transfer"):
        run(f"/packages/examples/{build}{name}")


def test_an_upgrade_under_load_loses_no_object_and_breaks_no_view(first):
    sys.path.insert(0, "/usr/lib/python3/dist-packages")
    import mckv

    with mckv.Client(SOCKET, timeout=WATCHDOG_S) as client:
        for key, value in OBJECTS.items():
            client.put(key, value)
        view = client.view(b"key 7")
        before = pid_of_agent()
        with Load(SOCKET, OBJECTS) as load:
            install(2)
            until(lambda: unit_is("active"))
            load.goes_on()
        assert pid_of_agent() != before
        assert bytes(view) == OBJECTS[b"key 7"]


def test_an_upgrade_keeps_the_configuration_and_starts_no_stopped_service(first):
    text = CONFIG.joinpath("agent.toml").read_text() + '\npool_bytes = "96MiB"\n'
    CONFIG.joinpath("agent.toml").write_text(text)
    run("systemctl", "disable", "--now", "mc-master")
    run("systemctl", "disable", "mc-agent")
    before = pid_of_agent()
    install(2)
    assert CONFIG.joinpath("agent.toml").read_text() == text
    until(lambda: unit_is("active"))
    assert pid_of_agent() != before
    assert json.loads(run("mcctl", "status", "--json"))["namespaces"][0]["pool_bytes"] == 96 << 20
    assert not unit_is("active", "mc-master") and not unit_is("enabled", "mc-master")


def test_an_upgrade_with_a_wrong_configuration_installs_and_names_the_journal(first):
    text = CONFIG.joinpath("agent.toml").read_text()
    CONFIG.joinpath("agent.toml").write_text(text + "\npool_byts = 7\n")
    install(2)
    assert "ok installed" in run("dpkg-query", "--show", "--showformat=${Status}", "mc-agent")
    assert not unit_is("active")
    CONFIG.joinpath("agent.toml").write_text(text)
    until(lambda: unit_is("active"))


def test_a_removal_stops_the_services_and_a_purge_leaves_the_keys_of_the_administrator(first):
    key = CONFIG / "cluster.key"
    key.write_text("k" * 64)
    run("dpkg", "--remove", *PACKAGES)
    assert not unit_is("active") and not unit_is("active", "mc-master")
    assert not pathlib.Path("/usr/bin/mc-agent").exists()
    assert CONFIG.joinpath("agent.toml").exists()
    install(1)
    until(lambda: unit_is("active"))
    run("dpkg", "--purge", *PACKAGES)
    assert [path.name for path in CONFIG.iterdir()] == ["cluster.key"]
    key.unlink()
    install(1)
    until(lambda: unit_is("active"))
    run("dpkg", "--purge", *PACKAGES)
    assert not CONFIG.exists()
    assert not list(pathlib.Path("/").glob("usr/lib/systemd/system/mc-*"))
