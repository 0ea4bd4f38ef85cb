"""Shell completion."""

import shutil
import subprocess
import sys

import pytest

from alchemy.cli.completion import SCRIPTS, complete

CONFIG = 'tag = "x"\n[variant.small]\n[variant.large]\n'


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["run", "resume", "rerun", "test"]),
        (["ver"], ["verify", "version"]),
        (["config", ""], ["show", "explain", "diff", "schema"]),
        (["config", "show", "--js"], ["--json"]),
        (["run", "a.toml", "--f"], ["--file", "--force-mp", "--fast-dev-run"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["predict", "latest", "--format", ""], ["jsonl", "csv"]),
        (["run", ""], []),
        (["nonsense", ""], []),
        (["config", "nonsense", ""], []),
    ],
)
def test_candidates(words, expected):
    found = complete(words)
    assert found[: len(expected)] == expected
    assert expected or not found


def test_variants_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.toml").write_text(CONFIG)
    (tmp_path / "broken.toml").write_text("= 1")
    assert complete(["run", "a b.toml#"]) == ["a b.toml#small", "a b.toml#large"]
    assert complete(["run", "x", "a b.toml#l"]) == ["a b.toml#large"]
    assert complete(["run", "broken.toml#"]) == complete(["run", "none.toml#"]) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(tmp_path):
    (tmp_path / "t.toml").write_text(CONFIG)
    (tmp_path / "alchemy").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m alchemy "$@"\n')
    (tmp_path / "alchemy").chmod(0o755)
    ask = 'COMP_WORDS=(alchemy run "t.toml#"); COMP_CWORD=2; _alchemy; echo "${COMPREPLY[@]}"'
    script = f'PATH="{tmp_path}:$PATH"\n{SCRIPTS["bash"]}\n{ask}'
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "t.toml#small t.toml#large\n"
    assert not done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    (tmp_path / "script").write_text(SCRIPTS[shell])
    assert subprocess.run([shell, "-n", tmp_path / "script"], timeout=60).returncode == 0


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A project whose index knows two records and one with a hostile name; another record is new."""
    from alchemy.index.record_index import RecordIndex
    from tests.analysis.fake_runs import write_run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.toml").touch()
    for number in (1, 2):
        write_run(
            tmp_path / "records", number, {"dev/f1": 0.5, "dev/loss": 1.0, "$(reboot)": 1.0}, {"optim": {"lr": 1}}
        )
    (tmp_path / "records" / write_run(tmp_path / "records", 3, {})).rename(tmp_path / "records" / "2026-$(reboot)")
    with RecordIndex.open():
        pass
    write_run(tmp_path / "records", 4, {})
    return tmp_path


ONE, TWO = "2026-03-01_13-00-00.000000", "2026-03-01_14-00-00.000000"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["show", "2026"], [TWO, ONE]),
        (["show", ""], [TWO, ONE]),
        (["resume", ONE[:14]], [ONE]),
        (["test", ""], [TWO, ONE, "train.toml"]),
        (["verify", "ledger", ONE, "2026-03-01_14"], [TWO]),
        (["tag", ONE, "2026-03-01_14"], [TWO]),
        (["note", ONE, ""], []),
        (["show", "la"], ["last", "latest"]),
        (["show", "'best(dev/f"], ["'best(dev/f1)"]),
        (["show", "records/"], []),
        (["plot", ONE, "--metric", "dev/"], ["dev/f1", "dev/loss"]),
        (["plot", ONE, "--metric", "dev/f1,dev/l"], ["dev/f1,dev/loss"]),
        (["ls", "--sort", "dev/f"], ["dev/f1"]),
        (["ls", "--columns", "id,optim."], ["id,optim.lr"]),
        (["ls", "--columns", "crea"], ["created"]),
        (["run", "2026"], []),
    ],
)
def test_names_come_from_the_index_as_it_is(index, words, expected):
    assert complete(words) == expected


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "locked", "folder"])
def test_completion_never_fails(index, damage, capfd):
    import sqlite3

    path, other = index / ".alchemy" / "index.db", sqlite3.connect(":memory:")
    if damage in ("missing", "folder"):
        path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage in ("empty", "text"):
        path.write_text("" if damage == "empty" else "no database" * 100)
    elif damage == "locked":
        other = sqlite3.connect(path)
        other.execute("BEGIN EXCLUSIVE")
    assert complete(["show", "2026"]) == []
    assert complete(["ls", "--sort", "dev/"]) == []
    other.close()
    assert capfd.readouterr() == ("", "")
