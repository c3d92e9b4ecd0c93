# SPDX-License-Identifier: Apache-2.0
"""tests/judge repeats failures of chance, and no crash, sanitizer's report or marked defect."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Fails until the file has N lines, and adds a line.
FAILS = 'echo run >>{file}; test "$(wc -l <{file})" -gt {times}'


@pytest.fixture
def judge(tmp_path):
    """Runs tests/judge: (exit status, output)."""

    def run(*words, program=ROOT / "tests" / "judge", base="none", **environment):
        done = subprocess.run(
            [program, *(["--base", base] if base else []), *map(str, words)],
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "MC_TEST_TIME_SCALE": "1", **environment},
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture
def ctest(tmp_path):
    """Makes a build folder whose CTest tests are the given shell commands."""

    def make(**commands):
        text = ""
        for name, command in commands.items():
            script = tmp_path / f"{name}.sh"
            script.write_text(command.format(file=tmp_path / f"{name}.runs", times="{times}"))
            text += f'add_test("{name.replace("__", ".")}" bash "{script}")\n'
            text += (
                f'set_tests_properties("{name.replace("__", ".")}" PROPERTIES '
                'SKIP_REGULAR_EXPRESSION ": Skipped")\n'
            )
        (tmp_path / "CTestTestfile.cmake").write_text(text)
        return tmp_path

    def runs(name):
        file = tmp_path / f"{name}.runs"
        return len(file.read_text().splitlines()) if file.exists() else 0

    make.runs = runs
    return make


def fails(times):
    return FAILS.replace("{times}", str(times))


def test_a_test_that_passes_alone_is_unstable_and_does_not_fail_the_run(judge, ctest):
    status, output = judge("ctest", ctest(once=fails(1), twice=fails(2), good="true"))
    assert status == 0
    assert "UNSTABLE: 2 tests" in output and "    twice" in output
    assert "3 passed, 0 failed, 0 skipped" in output


def test_a_test_that_fails_three_times_is_a_defect(judge, ctest):
    status, output = judge("ctest", ctest(bad=fails(3), good="true"))
    assert status == 1
    assert "bad: failed 3 times" in output and "1 passed, 1 failed" in output
    assert ctest.runs("bad") == 3


@pytest.mark.parametrize(
    "failure",
    [
        "kill -SEGV $$",
        "kill -ABRT $$",
        "echo 'DEFECT: wrong bytes: key'; false",
        "echo '==1==ERROR: AddressSanitizer: heap-use-after-free'; false",
        "echo 'WARNING: ThreadSanitizer: data race'; false",
        "echo 'a.cc:1:2: runtime error: signed integer overflow'; false",
    ],
)
def test_crashes_reports_and_marked_defects_are_not_repeated(judge, ctest, failure):
    status, output = judge("ctest", ctest(bad=f"echo run >>{{file}}; {failure}"))
    assert status == 1 and "DEFECT bad" in output
    assert ctest.runs("bad") == 1


def test_the_machine_is_measured_before_the_tests_and_before_repeats(judge, ctest, tmp_path):
    folder = tmp_path / "programs" / "tests"
    folder.mkdir(parents=True)
    for name in ("judge", "tidy"):
        shutil.copy(ROOT / "tests" / name, folder)
    (folder / "time_scale").write_text(
        "import pathlib\n"
        f"FILE = pathlib.Path({str(tmp_path / 'measurements')!r})\n"
        "def measure():\n"
        "    FILE.write_text((FILE.read_text() if FILE.exists() else '') + 'x')\n"
        "    return f'{len(FILE.read_text())}.0'\n"
    )
    commands = ctest(second='test "$MC_TEST_TIME_SCALE" = 2.0')
    program = folder / "judge"
    status, output = judge("ctest", commands, program=program, MC_TEST_TIME_SCALE="")
    assert status == 0 and "UNSTABLE: 1 tests" in output
    status, output = judge("ctest", commands, program=program, MC_TEST_TIME_SCALE="2.0")
    assert status == 0 and "UNSTABLE" not in output
    assert (tmp_path / "measurements").read_text() == "xx"


def test_a_watchdog_is_no_crash(judge, ctest):
    status, output = judge("ctest", ctest(slow=f"{fails(1)} || kill -ALRM $$"))
    assert status == 0 and "UNSTABLE: 1 tests" in output


def test_a_missing_program_is_a_failure_and_a_skip_is_listed_by_reason(judge, ctest):
    folder = ctest(skips="printf '[ RUN ]\nx.cc:1: Skipped\nno such device\n\n'")
    with open(folder / "CTestTestfile.cmake", "a") as file:
        file.write('add_test(gone "/nonexistent")\n')
    status, output = judge("ctest", folder)
    assert status == 1 and "1 failed, 1 skipped" in output
    assert "SKIPPED: 1 tests did not run here\n  no such device\n    skips" in output


def test_no_test_is_a_failure(judge, ctest):
    assert judge("ctest", ctest(good="true"), "-R", "nothing")[0] == 1


def test_many_failures_are_not_repeated(judge, ctest):
    status, output = judge("ctest", ctest(**{f"t{i}": fails(1) for i in range(45)}))
    assert status == 1 and "too many to repeat" in output
    assert ctest.runs("t0") == 1


def git(folder, *words):
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-C", str(folder)]
    subprocess.run(["git", *identity, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    """A repository with the programs and two tests, of which the second differs from the base."""
    folder = tmp_path / "repository"
    (folder / "tests").mkdir(parents=True)
    for name in ("judge", "record", "tidy"):
        shutil.copy(ROOT / "tests" / name, folder / "tests")
    source = folder / "tests" / "some_test.cc"
    text = "TEST(Some, Old) {\n  check();\n}\n\nTEST(Some, New) {\n  check();\n}\n"
    source.write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Add tests")
    source.write_text(text[:-2] + "  more();\n}\n")
    git(folder, "commit", "-qam", "Change a test")
    return folder


def test_a_test_of_the_change_must_pass_three_runs_alone(judge, ctest, repository):
    # Passes in the first run, and fails in every third.
    third = 'echo run >>{file}; test "$(($(wc -l <{file}) % 3))" -ne 0'
    folder = ctest(Some__Old=third, Some__New=third)
    status, output = judge("ctest", folder, program=repository / "tests" / "judge", base=None)
    assert status == 1
    assert "Some.New: a test of this change: run 2 of 3 alone failed" in output
    assert ctest.runs("Some__Old") == 1


def test_names_of_parameters_belong_to_the_changed_test(judge, ctest, repository):
    folder = ctest(**{"Kinds/Some__New/redis".replace("/", "_S_"): "echo run >>{file}"})
    listing = folder / "CTestTestfile.cmake"
    listing.write_text(listing.read_text().replace('"Kinds_S_Some.New_S_redis"', '"K/Some.New/r"'))
    program = repository / "tests" / "judge"
    status, output = judge("ctest", folder, program=program, base="HEAD~1")
    assert status == 0 and "1 tests differ from HEAD~1" in output
    assert ctest.runs("Kinds_S_Some__New_S_redis") == 4


@pytest.fixture
def judge_python(judge, repository):
    """Runs tests/judge on the Python tests of a text: (exit status, output)."""

    def run(text):
        folder = repository / "tests" / "python"
        folder.mkdir(exist_ok=True)
        (repository / "pytest.ini").write_text(
            "[pytest]\n"
        )  # makes names relative to the repository
        for name in ("conftest.py", "machine.py"):
            shutil.copy(ROOT / "tests" / "python" / name, folder)
        (folder / "test_some.py").write_text("import os, pathlib, signal, time, pytest\n" + text)
        return judge("pytest", sys.executable, folder, program=repository / "tests" / "judge")

    return run


def test_a_python_test_that_hangs_does_not_end_the_others(judge_python, tmp_path):
    status, output = judge_python(
        f"runs = pathlib.Path({str(tmp_path / 'runs')!r})\n"
        "def test_before(): pass\n"
        "@pytest.mark.watchdog(1)\n"
        "def test_hangs():\n"
        "    known = runs.exists()\n"
        "    runs.touch()\n"
        "    while not known: time.sleep(1)\n"
        "@pytest.mark.skip(reason='not here')\n"
        "def test_skips(): pass\n"
        "def test_after(): pass\n"
    )
    assert status == 0, output
    assert "3 passed, 0 failed, 1 skipped" in output and "UNSTABLE: 1 tests" in output
    assert "\n  Skipped: not here\n    tests/python/test_some.py::test_skips" in output


def test_the_last_python_test_may_hang_once(judge_python, tmp_path):
    status, output = judge_python(
        f"runs = pathlib.Path({str(tmp_path / 'runs')!r})\n"
        "@pytest.mark.watchdog(1)\n"
        "def test_hangs():\n"
        "    known = runs.exists()\n"
        "    runs.touch()\n"
        "    while not known: time.sleep(1)\n"
    )
    assert status == 0 and "1 passed, 0 failed" in output and "UNSTABLE: 1 tests" in output


def test_a_crash_of_the_interpreter_is_a_defect_and_the_others_run(judge_python):
    status, output = judge_python(
        "def test_crashes(): os.kill(os.getpid(), signal.SIGSEGV)\ndef test_after(): pass\n"
    )
    assert status == 1 and "1 passed, 1 failed" in output
    assert output.count("DEFECT") == 1


def test_processes_divide_the_files_of_python_tests(judge_python, repository, tmp_path):
    meets_the_other = f"""
folder = pathlib.Path({str(tmp_path)!r})
@pytest.mark.watchdog(5)
def test_runs_beside_the_other_file():
    other = {{"test_some": "test_more", "test_more": "test_some"}}[__name__]
    with open(folder / __name__, "x"): pass
    while not (folder / other).exists():
        time.sleep(0.01)  # no event tells of another process's file; the watchdog limits the wait
def test_that_is_the_last_of_the_file(): pass
"""
    more = repository / "tests" / "python" / "test_more.py"
    more.parent.mkdir(exist_ok=True)
    more.write_text("import pathlib, time, pytest\n" + meets_the_other)
    status, output = judge_python(meets_the_other)
    assert status == 0 and "4 passed, 0 failed" in output and "UNSTABLE" not in output, output


def test_a_python_test_that_fails_three_times_and_a_broken_file_are_defects(judge_python):
    status, output = judge_python("def test_bad(): assert 1 == 2\n")
    assert status == 1 and "test_bad: failed 3 times" in output and "assert 1 == 2" in output
    assert judge_python("import nothing_of_this_name\n")[0] == 1


def test_a_changed_python_test_runs_three_times_alone(judge, judge_python, repository):
    judge_python("def test_old(): pass\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "Add a Python test")
    folder = repository / "tests" / "python"
    judge_python("def test_old(): pass\ndef test_new(): pass\n")
    words = ("pytest", sys.executable, folder)
    status, output = judge(*words, program=repository / "tests" / "judge", base="HEAD")
    assert status == 0 and "1 tests differ from HEAD" in output
    assert output.count("1 passed") == 3


GOOGLETEST = """
for name in A.Good A.Bad; do
  if [[ -n ${GTEST_FILTER:-} && $GTEST_FILTER != "$name" ]]; then continue; fi
  echo run >>$1/$name
  if [[ $name == A.Bad && $(wc -l <$1/$name) -le $2 ]]; then
    echo "[  FAILED  ] $name (3 ms)"; bad=1
  else
    echo "[       OK ] $name (3 ms)"
  fi
done
exit ${bad:-$3}
"""


@pytest.mark.parametrize(
    "failures, status, wanted, text",
    [
        (1, 0, 0, "UNSTABLE: 1 tests"),
        (3, 0, 1, "A.Bad: failed 3 times"),
        (0, 139, 1, "crash: status 139"),
        (0, 1, 1, "the command: failed 3 times"),
        (0, 77, 77, "SKIPPED: 1 tests"),
    ],
)
def test_a_command_of_googletests_is_judged_by_test_and_status(
    judge, tmp_path, failures, status, wanted, text
):
    words = ("gtest", "bash", "-c", GOOGLETEST, "run", tmp_path, failures, status)
    got, output = judge(*words)
    assert got == wanted and text in output, output


def test_a_program_is_one_test(judge, tmp_path):
    command = fails(1).format(file=tmp_path / "runs")
    assert judge("program", "bash", "-c", command)[0] == 0
    assert judge("program", "false")[0] == 1
    assert judge("program", "bash", "-c", "exit 77")[0] == 77


def test_wrong_usage_is_refused(judge):
    assert judge("nothing", "here")[0] == 2
