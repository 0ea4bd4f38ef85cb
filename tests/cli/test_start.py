"""Startup in real processes: no torch import, no tracebacks, any encoding."""

import json
import os
import subprocess
import sys

import pytest

from tests.analysis.fake_curves import change_info
from tests.analysis.fake_runs import write_run

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
        ["queue", "add", "train.toml", "--seeds", "1,2"],
        ["queue", "ls"],
        ["__complete", "run", "train.toml#"],
        ["new", "another"],
    ],
)
def test_torch_is_not_imported(words, project):
    done = start(*words, cwd=project)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["ls", "--csv"],
        ["show", "last"],
        ["search", "demo"],
        ["tag", "last", "+a"],
        ["note", "last", "x"],
        ["purpose", "last"],
        ["open", "last"],
        ["du"],
        ["gc"],
        ["rm", "--list"],
        ["archive", "last", "-o", "{}.tar"],
        ["checkpoint", "ls", "best(dev/f1)"],
        ["config", "show", "last"],
        ["__complete", "show", "la"],
    ],
)
def test_commands_on_records_do_not_import_torch(words, tmp_path):
    from tests.analysis.fake_runs import write_run

    record = tmp_path / "records" / write_run(tmp_path / "records", 1, {"dev/f1": 0.5})
    (record / "state" / "u1").mkdir(parents=True)
    done = start(*(word.format(tmp_path / "out") for word in words), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr


def test_stop_does_not_import_torch_either(tmp_path):
    done = start("stop", "latest", cwd=tmp_path)
    assert done.returncode == 2
    assert "no running record" in done.stderr


def test_a_closed_pipe_is_met_quietly(project):
    words = [sys.executable, "-m", "alchemy", "config", "show", "train.toml"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project) as process:
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == b""


@pytest.mark.parametrize("words", [["config", "show", "train.toml"], ["run", "train.toml#tiny", "--device", "-1"]])
def test_a_full_disk_under_the_output_is_one_line(words, project):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "alchemy", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=project, timeout=60)
    assert done.returncode == 1
    first, *after = done.stderr.splitlines()
    assert first == "error: cannot write to standard output: No space left on device"
    assert all(line.startswith("to test the best weights: ") for line in after)
    if words[0] == "run":
        (record,) = (project / "records" / "train").glob("*")
        assert json.loads((record / "record.json").read_text())["status"] == "finished"


def test_arguments_that_the_locale_cannot_decode(tmp_path):
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    assert start("new", "demo", cwd=tmp_path).returncode == 0
    (tmp_path / "demo" / "试验.toml").write_bytes((tmp_path / "demo" / "train.toml").read_bytes())
    words = ["run", "试验.toml#tiny", "--device", "-1", "--desc", "试验一", "--set", "tag=标签"]
    command = [sys.executable, "-m", "alchemy", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path / "demo", env=env, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = (tmp_path / "demo" / "records" / "train").glob("*")
    info = json.loads((record / "record.json").read_text("utf-8"))
    assert (info["purpose"], info["tag"], info["cmd"][1:]) == ("试验一", "标签", words)


def test_a_background_run_gets_its_words_as_they_were_typed(tmp_path):
    code = """
import sys
from pathlib import Path
from alchemy.cli import decode_argument
from alchemy.cli.background import launch_detached
launch_detached([decode_argument(word) for word in sys.argv[1:]], folder=Path("logs"))
"""
    (tmp_path / "试验.toml").write_text("")
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = start("试验.toml", "试验一", code=code, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    (info,) = (tmp_path / "logs").glob("*.json")
    assert json.loads(info.read_text("utf-8"))["cmd"] == ["alchemy", "试验.toml", "试验一"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_terminal_can_show_any_text(encoding, tmp_path):
    env = {**os.environ, "PYTHONIOENCODING": encoding, "LANG": "C"}
    done = start("check", "试验.toml", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr + done.stdout
    assert "\\u8bd5\\u9a8c.toml" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:surrogateescape"])
def test_json_is_valid_in_any_terminal(encoding, tmp_path):
    """`surrogateescape` is how Python writes in the C locale."""
    change_info(tmp_path / write_run(tmp_path, 1, {}), purpose="试验 😀")
    env = {**os.environ, "PYTHONIOENCODING": encoding, "LANG": "C"}
    done = start("ls", "--json", cwd=tmp_path, env=env)
    assert json.loads(done.stdout)[0]["columns"]["purpose"] == "试验 😀"
    assert start("ls", cwd=tmp_path, env=env).returncode == 0
