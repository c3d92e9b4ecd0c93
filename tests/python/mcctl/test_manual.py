# SPDX-License-Identifier: Apache-2.0
"""Manual pages of the programs, read by the tools that users have."""

import os
import re
import shutil
import subprocess

import mckv
import pytest
from machine import WATCHDOG_S

TERMINAL = {"LC_ALL": "C.UTF-8", "MANWIDTH": "80", "PATH": os.environ["PATH"]}


def output(*words):
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=WATCHDOG_S, check=True
    ).stdout


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The folder of all pages."""
    directory = tmp_path_factory.mktemp("pages")
    output(mckv.program("mcctl"), "manual", directory)
    for program in ("mc-agent", "mc-master"):
        directory.joinpath(f"{program}.8").write_text(output(mckv.program(program), "--man"))
    return directory


def plain(page):
    """The text of a page without the escapes of man(7)."""
    text = page.read_text().replace("\\-", "-").replace("\\:", "")
    return re.sub(r"\\f[BRI]", "", text)


def needs(tool):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is missing: ctl/install-deps test installs {tool}")


def test_mandoc_finds_no_fault_in_the_pages(pages):
    needs("mandoc")
    done = subprocess.run(
        ["mandoc", "-T", "lint", *pages.iterdir()],
        capture_output=True, text=True, timeout=WATCHDOG_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_man_shows_each_page_without_a_warning(pages):
    needs("man")
    needs("groff")
    for page in pages.iterdir():
        done = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", page],
            capture_output=True, text=True, timeout=WATCHDOG_S, check=True, env=TERMINAL,
        )  # fmt: skip
        assert done.stderr == "", page
        assert page.stem.upper() in done.stdout and "SEE ALSO" in done.stdout


def test_each_verb_has_a_page_with_the_options_of_its_help(pages):
    named = set()
    for page in pages.glob("mcctl*.1"):
        named.update(re.findall(r"^\.BR (mcctl\S*) \(1\)", plain(page), re.MULTILINE))
    assert named == {page.stem for page in pages.glob("mcctl*.1")}
    assert {"mcctl", "mcctl-put", "mcctl-segment", "mcctl-segment-resize"} <= named
    for name in named:
        text = plain(pages / f"{name}.1")
        words = re.search(r"\n\.SH SYNOPSIS\n(.*)\n", text)[1].split()
        assert "-".join(words) == name
        shown = output(mckv.program("mcctl"), *words[1:], "--help")
        options = re.findall(r"^  (-\S+)", shown.partition("OPTIONS\n")[2], re.MULTILINE)
        assert "--json" in options
        assert [option for option in options if f"\n{option}" not in text] == []


@pytest.mark.parametrize(
    ("program", "earlier"), [("mc-agent", []), ("mc-master", ["store", "key-file", "tls-ca"])]
)
def test_the_pages_of_the_services_have_all_options_and_no_earlier_name(pages, program, earlier):
    text = plain(pages / f"{program}.8")
    shown = output(mckv.program(program), "--help")
    options = re.findall(r"^  (?:-h,)?(--[a-z-]+)", shown, re.MULTILINE)
    assert len(options) > 20 and "--cluster-key-file" in options
    for option in options:
        assert re.search(rf"^(-h, )?{option}( |$)", text, re.MULTILINE), option
    for name in earlier:
        assert f"--{name} " not in text and f"--{name} " not in shown


def test_a_page_that_cannot_be_written_is_named(tmp_path):
    tmp_path.joinpath("file").touch()
    done = subprocess.run(
        [mckv.program("mcctl"), "manual", tmp_path / "file"],
        capture_output=True, text=True, timeout=WATCHDOG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"^mcctl: manual: create .*/file: .*\n  try: ", done.stderr)
