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
        ([], ["run", "resume", "test"]),
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
