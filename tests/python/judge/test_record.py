# SPDX-License-Identifier: Apache-2.0
"""tests/record knows which steps passed on which inputs, and what a change is compared with."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Repository:
    """A repository with the program and one file of the inputs of every step."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "tests").mkdir(parents=True)
        shutil.copy(ROOT / "tests" / "record", folder / "tests")
        self.git("init", "-q")
        self.commit("systemd/unit", "1")

    def git(self, *words):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-C", str(self.folder)]
        done = subprocess.run(
            ["git", *identity, *words], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.git("add", ".")
        self.git("commit", "-qm", "Change a file")
        return self.git("rev-parse", "HEAD")

    def record(self, *words):
        done = subprocess.run(
            [self.folder / "tests" / "record", *words], capture_output=True, text=True
        )
        return done.returncode, (done.stdout + done.stderr).strip()

    def has(self, step):
        return self.record("has", step)[0] == 0


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repository")


def test_a_pass_holds_for_the_same_inputs_only(repository):
    assert not repository.has("systemd")
    assert repository.record("add", "systemd", "7")[0] == 0
    assert repository.has("systemd") and not repository.has("tests")
    repository.commit("agent/a.cc", "another step's input")
    repository.commit("systemd/README.md", "a page")
    assert repository.has("systemd")
    repository.commit("systemd/unit", "2")
    assert not repository.has("systemd")
    assert "stale by 3 commits" in repository.record("list")[1]


def test_an_older_state_of_the_inputs_counts_again(repository):
    repository.record("add", "systemd", "7")
    repository.commit("systemd/unit", "2")
    repository.commit("systemd/unit", "1")
    assert repository.has("systemd")


def test_a_pass_of_changed_files_is_not_recorded(repository):
    (repository.folder / "systemd" / "unit").write_text("not committed")
    status, text = repository.record("add", "systemd", "7")
    assert status == 1 and "commit first" in text
    assert not (repository.folder / "tests" / "record.passes").exists()


def test_the_base_is_the_newest_recorded_ancestor(repository):
    first = repository.git("rev-parse", "HEAD")
    repository.record("add", "systemd", "7")
    second = repository.commit("agent/a.cc", "1")
    repository.commit("agent/a.cc", "2")
    assert repository.record("base") == (0, first)
    repository.git("checkout", "-q", second)
    repository.record("add", "tests", "9")
    repository.git("commit", "-qam", "Record a pass")
    assert repository.record("base") == (0, second)
    # A commit of another branch is no base.
    repository.git("checkout", "-q", "--orphan", "other")
    repository.git("commit", "-qm", "Begin anew")
    repository.commit("agent/a.cc", "3")
    assert repository.record("base") == (0, repository.git("rev-parse", "HEAD~1"))


def test_passes_of_the_same_run_do_not_move_the_base(repository):
    first = repository.git("rev-parse", "HEAD")
    repository.record("add", "systemd", "7")
    repository.commit("agent/a.cc", "1")
    repository.commit("agent/a.cc", "2")
    repository.record("add", "systemd", "7")
    assert repository.record("base") == (0, first)


def test_the_base_of_a_step_is_the_last_pass_of_that_step(repository):
    first = repository.git("rev-parse", "HEAD")
    repository.record("add", "clang", "7")
    repository.commit("agent/a.cc", "1")
    repository.record("add", "tests", "9")
    repository.git("commit", "-qam", "Record passes")
    second = repository.git("rev-parse", "HEAD~1")
    assert repository.record("base", "clang") == (0, first)
    assert repository.record("base", "tests") == (0, second)
    assert repository.record("base", "sim") == (0, first), "it has seen no change"
    assert repository.record("seconds", "clang") == (0, "7")
    assert repository.record("seconds", "sim") == (0, "-")


PROGRAMS = (
    "tests/run",
    "tests/tidy",
    "tests/clang_tidy",
    "systemd/check",
    "ctl/build",
    "ctl/install-deps",
)


@pytest.fixture
def check(repository):
    """.ci/run with programs that do nothing: what a run prints."""
    (repository.folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", repository.folder / ".ci")
    for name in PROGRAMS:
        path = repository.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\nexit 0\n")
        path.chmod(0o755)
    repository.commit(".gitignore", "build/\n")

    def run(*words):
        done = subprocess.run(
            ["bash", ".ci/run", *words],
            cwd=repository.folder,
            env={**os.environ, "MC_CI_INSIDE": "1"},
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    return run


def test_the_short_check_runs_no_part_and_prints_the_state_of_each(repository, check):
    assert re.search(r"^sim +0 s +- s +passed$", check("sim"), re.M)
    repository.git("add", ".")
    repository.commit("agent/a.cc", "1")
    output = check()
    assert re.search(r"^tests +\d+ s +- s +passed$", output, re.M)
    assert "== sim" not in output
    assert re.search(r"^sim +stale by 1 commits$", output, re.M)
    assert re.search(r"^etcd +never$", output, re.M)


def test_the_long_check_goes_on_with_the_parts_that_are_left(check):
    check("sim", "etcd")
    output = check("--all")
    assert "== sim" not in output and "== etcd" not in output
    assert re.search(r"^sim +0 s +- s +passed before$", output, re.M)
    assert re.search(r"^cluster +\d+ s +- s +passed$", output, re.M)


def test_wrong_usage_is_refused(repository):
    for words in ((), ("has",), ("has", "nothing"), ("add", "tests", "soon"), ("list", "more")):
        assert repository.record(*words)[0] == 2
