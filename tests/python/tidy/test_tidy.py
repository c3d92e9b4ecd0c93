# SPDX-License-Identifier: Apache-2.0
"""Each check of tests/tidy fails on a bad input and is silent on a good one."""

import importlib.machinery
import importlib.util
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"
TABLE = """# Page
## Include directions
| folder | may include |
|---|---|
| `shm` | `libmc/base` |
| `libmc/base` | nothing of ours |
"""


def load():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("tidy", str(ROOT / "tests" / "tidy"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", loader))
    loader.exec_module(module)
    return module


tidy = load()


@pytest.fixture
def found(tmp_path):
    """Writes files into a folder and returns the violations of one check there, as text."""

    def run(check, files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        violations, _ = tidy.run_checks(tidy.Tree(tmp_path), [check])
        return [str(v) for v in violations]

    return run


def test_help_names_every_check_and_unknown_options_are_refused():
    text = subprocess.run([ROOT / "tests" / "tidy", "--help"], capture_output=True, text=True)
    assert all(check in text.stdout for check in tidy.CHECKS)
    wrong = subprocess.run([ROOT / "tests" / "tidy", "--onyl"], capture_output=True, text=True)
    assert wrong.returncode == 2


def test_an_include_against_the_table_is_found(found):
    base = {"shm/ring.h": LICENCE, ".github/ARCHITECTURE.md": TABLE}
    good = {"libmc/base/fd.h": LICENCE, "shm/pins.h": '#include "libmc/base/fd.h"\n'}
    assert found("includes", {**base, **good}) == []
    [violation] = found("includes", {"libmc/base/clock.h": '\n#include "shm/ring.h"\n'})
    assert violation.startswith("libmc/base/clock.h:2: libmc/base may not include shm; ")


def test_a_missing_include_table_is_found(found):
    assert "no table" in found("includes", {"shm/ring.h": LICENCE})[0]


def test_a_folder_without_a_row_is_found(found):
    files = {
        ".github/ARCHITECTURE.md": TABLE,
        "shm/ring.h": LICENCE,
        "libmc/base/fd.h": LICENCE,
        "agent/a.h": '#include "shm/ring.h"\n',
    }
    assert "agent has no row" in found("includes", files)[0]


def test_a_cycle_of_folders_is_found(found):
    one_way = {"agent/a.h": '#include "shm/b.h"\n', "shm/b.h": LICENCE}
    assert found("cycles", one_way) == []
    [violation] = found("cycles", {"shm/b.h": '#include "agent/a.h"\n'})
    assert "agent -> shm (agent/a.h:1)" in violation


def test_a_file_without_licence_is_found(found):
    assert found("spdx", {"a.h": LICENCE, "b.md": "text\n"}) == []
    found_lines = found("spdx", {"c.py": "import os\n", "script": "#!/usr/bin/env bash\ntrue\n"})
    assert [line.split(":")[0] for line in found_lines] == ["c.py", "script"]


def test_a_long_file_is_found(found):
    assert found("file-size", {"a.h": LICENCE * tidy.MAX_FILE_LINES}) == []
    [violation] = found("file-size", {"a.h": LICENCE * (tidy.MAX_FILE_LINES + 1)})
    assert f"{tidy.MAX_FILE_LINES + 1} lines" in violation


@pytest.mark.parametrize(
    "head", ["int f()", "Status A::f(int x) const noexcept", "A::A(int x) : a_{x}, b_(x)"]
)
def test_a_long_function_is_found(found, head):
    steps = "  if (a) { b({1}); }\n"
    short = head + " {\n" + steps * (tidy.MAX_FUNCTION_LINES - 2) + "}\n"
    long = head + " {\n" + steps * (tidy.MAX_FUNCTION_LINES - 1) + "}\n"
    around = "namespace mc {{\nstruct S {{ int a; }};\n{}}}\n"
    assert found("function-size", {"agent/a.cc": around.format(short)}) == []
    [violation] = found("function-size", {"agent/a.cc": around.format(long)})
    assert violation.startswith("agent/a.cc:3: ") and "81 lines" in violation


def test_a_long_python_function_is_found(found):
    body = "def f():\n" + "    g()\n" * tidy.MAX_FUNCTION_LINES
    assert "f() has 81 lines" in found("function-size", {"python/a.py": body})[0]


def test_a_crowded_folder_is_found(found):
    files = {f"shm/a{n}.h": LICENCE for n in range(tidy.MAX_FOLDER_FILES)}
    assert found("folder-size", files) == []
    assert "27 source files" in found("folder-size", {"shm/more.h": LICENCE})[0]


HEADER = """namespace mc::shm {
class MC_CAPABILITY("ring") Ring final : public Base<int> {
  void turn();
  class Slot;
};
}  // namespace mc::shm
"""


def members(*definitions, namespace="mc::shm"):
    return f"namespace {namespace} {{\n{''.join(definitions)}}}  // namespace {namespace}\n"


@pytest.mark.parametrize(
    "definition",
    [
        "void Ring::turn() { f(); }\n",
        "std::function<void(int)> Ring::turned() const { return {}; }\n",
        "Ring::Ring(int x) : x_{x}, y_(x) {}\n",
        "bool Ring::operator==(const Ring& other) const { return true; }\n",
        "void Ring::Slot::turn() { f(); }\n",
        "void shm::Ring::turn() { f(); }\n",
    ],
)
def test_a_class_over_two_files_is_found(found, definition):
    one = members("int f() { return 1; }\n", "Ring::~Ring() { f(); }\n")
    files = {"shm/ring.h": HEADER, "shm/ring.cc": one, "shm/other.cc": "int f() { return 1; }\n"}
    assert found("class-spread", files) == []
    [violation] = found("class-spread", {"shm/turn.cc": members(definition)})
    assert violation.startswith("shm/ring.cc:3: mc::shm::Ring has members in 2 .cc files ")
    assert "(shm/ring.cc + shm/turn.cc), 1 allowed; " in violation


def test_functions_of_a_namespace_and_classes_of_the_same_name_may_stand_in_two_files(found):
    functions = {f"shm/{n}.cc": f"void mc::shm::{n}() {{}}\n" for n in "ab"}
    assert found("class-spread", {"shm/ring.h": HEADER, **functions}) == []
    ring = "void Ring::turn() { std::min(1, 2); }\n"
    hidden = "namespace {\nclass Ring {\n  void turn();\n};\n" + ring + "}\n"
    same_name = {
        "shm/ring.cc": members(ring),
        "agent/ring.h": HEADER.replace("shm", "agent"),
        "agent/ring.cc": members(ring, namespace="mc::agent"),
        "agent/hidden.cc": members(hidden),
        "shm/hidden.cc": members(hidden),
        "tests/ring.cc": members(ring),
    }
    assert found("class-spread", same_name) == []


def test_a_class_may_not_be_spread_beyond_its_ceiling(found):
    files = {f"shm/{n}.cc": members("void Ring::turn() { f(); }\n") for n in "ab"}
    accepted = {tidy.EXCEPTIONS: "class-spread mc::shm::Ring 2 # not yet divided\n"}
    assert found("class-spread", {"shm/ring.h": HEADER, **files, **accepted}) == []
    [violation] = found("class-spread", {"shm/c.cc": members("Ring::Ring() {}\n")})
    assert "3 .cc files (shm/a.cc + shm/b.cc + shm/c.cc), 2 accepted" in violation


def test_an_orphaned_comment_line_is_found(found):
    words = "// the agent copies the record once, checks the copy, and then uses the copy\n"
    upper = words.replace("the agent copies", "The agent copies")
    assert found("orphans", {"a.h": words * 3 + "// alone.\n" + upper}) == []
    [violation] = found("orphans", {"a.h": words + "// a lone\n" + words})
    assert violation.startswith("a.h:2: ")


def test_a_long_line_of_markdown_is_found(found):
    long = "word " * 25
    exempt = f"| {long} |\n[{long}](https://example.org)\n"
    assert found("line-length", {"a.md": exempt + "short\n"}) == []
    assert found("line-length", {"b.md": "\n" + long + "\n"})[0].startswith("b.md:2: ")


def test_a_dead_link_is_found(found):
    good = "# A b\n[self](#a-b) [site](https://example.org) [c](sub/c.md#title) `sub/c.md`\n"
    assert found("links", {"a.md": good, "sub/c.md": "# Title\n"}) == []
    assert "gone.md leads nowhere" in found("links", {"b.md": "[b](gone.md)\n"})[0]
    assert "no heading #no" in found("links", {"b.md": "[b](sub/c.md#no)\n"})[0]
    assert "`sub/gone.cc` is no file" in found("links", {"b.md": "`sub/gone.cc`\n"})[0]


def test_an_undocumented_option_is_found(found):
    table = "agent/options/option_table.cc", "metadata/master/master_options.cc"
    row = 'row<&O::pool_bytes>("pool_bytes", size(1, 2), "the size"),\n'
    files = {table[0]: row, table[1]: LICENCE}
    assert "option pool_bytes" in found("options", files)[0]
    assert found("options", {"README.md": "`--pool-bytes 4GiB`\n"}) == []


def test_unfinished_work_is_found(found):
    mark = "TO" + "DO"
    assert found("todos", {"a.h": LICENCE}) == []
    assert found("todos", {"a.h": f"// {mark}: later\n"})[0].startswith("a.h:1: ")


def test_a_mutex_that_guards_nothing_is_found(found):
    guarded = "class A {\n  std::mutex mutex_;\n  int a_ MC_GUARDED_BY(mutex_);\n};\n"
    assert found("mutexes", {"shm/a.h": guarded}) == []
    [violation] = found("mutexes", {"shm/a.h": "class A {\n  std::mutex mutex_;\n};\n"})
    assert violation.startswith("shm/a.h:2: ")


def test_an_exception_accepts_one_violation_up_to_its_ceiling(found):
    files = {"a.h": LICENCE * 1700, tidy.EXCEPTIONS: "file-size a.h 1700 # generated\n"}
    assert found("file-size", files) == []
    assert "1701 lines, 1700 accepted" in found("file-size", {"a.h": LICENCE * 1701})[0]


def test_an_exception_without_a_reason_is_an_error(found):
    [violation] = found("spdx", {tidy.EXCEPTIONS: "file-size a.h 700\n"})
    assert "not an exception" in violation


def test_an_exception_that_nothing_needs_is_named(tmp_path):
    path = tmp_path / tidy.EXCEPTIONS
    path.parent.mkdir()
    path.write_text("spdx a.h # a test needs it so\n")
    assert tidy.run_checks(tidy.Tree(tmp_path), ["spdx"])[1] == [(1, ("spdx", "a.h"))]


def test_more_unstable_tests_than_the_ceiling_and_lines_without_a_cause_are_found(found):
    listed = "# text\nceiling 1\nA.B # a port\n"
    assert found("unstable", {"tests/judge.unstable": listed}) == []
    [violation] = found("unstable", {"tests/judge.unstable": listed + "A.C # a port\n"})
    assert "2 unstable tests, 1 allowed" in violation
    [violation] = found("unstable", {"tests/judge.unstable": listed + "A.C\n"})
    assert ":4: not an unstable test" in violation
    [violation] = found("unstable", {"tests/judge.unstable": "A.B # a port\n"})
    assert "no ceiling" in violation


def test_a_ceiling_that_rose_since_the_recorded_base_is_found(tmp_path):
    def git(*words):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-C", str(tmp_path)]
        subprocess.run(["git", *identity, *words], check=True, capture_output=True)

    def violations():
        found, _ = tidy.run_checks(tidy.Tree(tmp_path), ["unstable"])
        return [str(v) for v in found]

    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "record", tmp_path / "tests")
    listed = tmp_path / "tests" / "judge.unstable"
    git("init", "-q")
    for ceiling in (5, 4):
        listed.write_text(f"ceiling {ceiling}\n")
        git("add", ".")
        git("commit", "-qm", "Lower the ceiling")
        assert violations() == []
    listed.write_text("ceiling 6\n")
    [violation] = violations()
    assert "the ceiling rose from 5 to 6" in violation
