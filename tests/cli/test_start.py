"""What it costs to start, in real processes: no torch, no tracebacks, any encoding."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from alchemy.cli import main
code = main(sys.argv[1:])
assert "torch" not in sys.modules, "torch was imported"
assert "numpy" not in sys.modules, "numpy was imported"
sys.exit(code)
"""


def start(*words, code=PROGRAM, **kwargs):
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, **kwargs)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    assert start("new", "demo", cwd=folder).returncode == 0
    return folder / "demo"


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["version"],
        ["check", "train.toml"],
        ["config", "show", "train.toml"],
        ["config", "explain", "train.toml", "optim.lr"],
        ["config", "diff", "train.toml", "train.toml"],
        ["config", "schema"],
        ["parts"],
        ["completion", "bash"],
        ["__complete", "run", "train.toml#"],
        ["new", "another"],
    ],
)
def test_torch_is_not_imported(words, project):
    done = start(*words, cwd=project)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr


def test_stop_does_not_import_torch_either(tmp_path):
    done = start("stop", "latest", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no running record" in done.stderr


def test_a_closed_pipe_is_met_quietly(project):
    words = [sys.executable, "-m", "alchemy", "config", "schema"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project) as process:
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_terminal_can_show_any_text(encoding, tmp_path):
    env = {**os.environ, "PYTHONIOENCODING": encoding, "LANG": "C"}
    done = start("check", "试验.toml", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr + done.stdout
    assert "\\u8bd5\\u9a8c.toml" in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["version"]])
def test_it_answers_in_a_blink(words):
    def cpu_seconds(*command):
        before = os.times()
        subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        return after.children_user - before.children_user + after.children_system - before.children_system

    bare = min(cpu_seconds("-c", "pass") for _ in range(5))
    ours = min(cpu_seconds("-m", "alchemy", *words) for _ in range(5))
    assert ours - bare <= 0.15
