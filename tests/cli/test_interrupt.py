"""Ctrl-C during startup: exit code 130, no output."""

import subprocess
import sys

import pytest

# a library that swallows Ctrl-C while it is imported
LIBRARY = """
import os, signal, sys

wanted = sys.argv.pop(1)

class Library:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:
                pass

sys.meta_path.insert(0, Library())
from alchemy.__main__ import main
code = main()
print("it went on, to", code)
"""

AT_WORK = """
import os, signal, sys
import alchemy.cli
from alchemy.__main__ import main

def command():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        print("tidied up")

alchemy.cli.main = command
sys.exit(main())
"""


def start(code, *words, cwd):
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, cwd=cwd)


@pytest.mark.parametrize("name", ["alchemy.cli", "alchemy.errors", "alchemy.cli.run", "alchemy.cli.launch", "torch"])
def test_while_something_is_imported(name, project):
    done = start(LIBRARY, name, "run", "train.toml", "--device", "-1", cwd=project)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_command_at_work_tidies_up(tmp_path):
    done = start(AT_WORK, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "tidied up\n", "")


def test_who_ignores_it_is_not_asked(tmp_path):
    """As shells do for background jobs."""
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    done = start(ignoring + LIBRARY, "alchemy.errors", "--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("it went on, to 0\n")
