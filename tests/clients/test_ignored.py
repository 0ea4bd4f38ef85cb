"""A script that ignores a failed result does not exit successfully."""

import sys

import pytest

from alchemy import result as results

SETUP = """
import atexit
from alchemy import run
from tests import toy

broken = {"type": "tests.toy.Broken"}
"""
IGNORES = f"""{SETUP}
atexit.register(print, "other exit functions run")
run([toy.config(model=broken)], device=[-1])
atexit.register(print, "also later ones")
print("done")
"""
HELPER = f"""{SETUP}
def train():
    return run([toy.config(sched__epochs=1), toy.config(model=broken)], device=[-1])
"""
TESTED = """
import helper

def test_it():
    helper.train()
"""


def test_ignored(tmp_path, start):
    (tmp_path / "script.py").write_text(IGNORES)
    done = start(tmp_path, "script.py", code=1)
    assert done.stdout.endswith("done\nalso later ones\nother exit functions run\n")
    last = done.stderr.splitlines()[-1]
    assert last == "error: a run failed and the script ignored its result"
    assert done.stdout.count("Broken could not be built") == 1
    assert done.stderr.count("ignored its result") == 1


def test_ignored_in_a_module_of_the_script_with_runs_in_processes(tmp_path, start):
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "script.py").write_text("import helper\n\nif __name__ == '__main__':\n    helper.train()\n")
    assert "the script ignored its result" in start(tmp_path, "script.py", code=1).stderr


def test_a_program_that_calls_it_for_others_keeps_its_exit_code(tmp_path, start):
    (tmp_path / "helper.py").write_text(HELPER.replace("toy.config(sched__epochs=1), ", ""))
    (tmp_path / "test_helper.py").write_text(TESTED)
    done = start(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_helper.py")
    assert "ignored its result" not in done.stderr


def unseen_after(code):
    """Return how many failures a script has ignored after these lines."""
    exec(compile(f"{SETUP}(result,) = run([toy.config(model=broken)], device=[-1])\n{code}", "script.py", "exec"),
         {"__name__": "__main__"})  # fmt: skip
    return len(results._unseen)


@pytest.fixture(autouse=True)
def forget():
    yield
    results._unseen.clear()


@pytest.mark.parametrize("code", ["", "result.record_dir", "isinstance(result, Exception)"])
def test_what_does_not_tell_of_the_failure_is_no_look(code):
    assert unseen_after(code) == 1


@pytest.mark.parametrize(
    "code", ["result.exception", "assert result.status == 'failed'", "print(result)", "repr(result)", "f'{result}'"]
)
def test_a_look(code):
    assert unseen_after(code) == 0


def test_a_result_that_is_raised_is_shown_by_whoever_catches_it():
    with pytest.raises(results.FailedRun, match="could not be built"):
        unseen_after("raise result")
    assert not results._unseen


def test_the_error_of_a_script_keeps_its_own_exit_code(monkeypatch, capsys):
    unseen_after("")
    monkeypatch.setattr(sys, "last_value", ValueError("x"), raising=False)
    monkeypatch.setattr(results, "_script", vars(sys.modules["__main__"]))
    results._fail_if_unseen()
    assert "ignored its result" not in capsys.readouterr().err


def test_a_script_that_another_program_runs_does_not_end_that_program(capsys):
    unseen_after("")
    results._fail_if_unseen()
    assert "ignored its result" not in capsys.readouterr().err
    assert results._exit_code is None


def test_a_good_run_expects_nothing():
    assert unseen_after("result.exception; run([toy.config(sched__epochs=1)], device=[-1])") == 0
