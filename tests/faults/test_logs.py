"""Fault 9: log lines lost to markup and braces, tomlkit's floats in saved states, a hash seed set too late."""

import os
import subprocess
import sys

import pytest
import tomlkit

import alchemy.runner
from alchemy import prepare_cfg, run
from alchemy.config import dumps
from alchemy.records.metrics_file import comparable

TAG = "a [/x] {brace} {0} [bold]tag"


def test_markup_and_braces_reach_console_and_file(tmp_path, capfd):
    import line_parts

    result = run([line_parts.config("Talking", folder=tmp_path, tag=TAG)], device=[-1], desc="why [/y] {z}")[0]
    assert result.exception is None, result.exception
    line = "a line with [/x] and {} and {y} and 中文"
    assert line in (result.record_dir / "run.log").read_text()
    assert line in capfd.readouterr().out
    assert (result.record_dir / "README.md").read_text() == f"# {TAG}\n\nwhy [/y] {{z}}\n"
    assert prepare_cfg(result.record_dir / "cfg.toml")["tag"] == TAG


def test_the_traceback_of_a_failure_is_in_the_log(tmp_path):
    import line_parts

    result = run([line_parts.config("Broken", folder=tmp_path, tag=TAG)], device=[-1])[0]
    log = (result.record_dir / "run.log").read_text()
    assert "broken [/x] {here}" in log
    assert "Traceback" in log
    assert "line_parts.py" in log


@pytest.mark.parametrize("kind", ["AdamW", "HFAdamW"])
def test_the_optimizer_holds_plain_numbers(monkeypatch, kind):
    import line_parts

    held = []
    optim = {"type": f"alchemy.optim.{kind}", "lr": 0.1, "betas": [0.9, 0.99], "eps": 1e-8, "max_grad_norm": 1.0}
    document = tomlkit.parse(dumps(line_parts.config(optim=optim)))
    assert isinstance(document["optim"]["lr"], tomlkit.items.Float)
    last = alchemy.runner.evaluate_at_end
    monkeypatch.setattr(
        alchemy.runner, "evaluate_at_end", lambda run: (held.append(run.optim.optimizer.state_dict()), last(run))
    )
    result = run([document], device=[-1])[0]
    assert result.exception is None, result.exception
    values = [value for group in held[0]["param_groups"] for value in group.values()]
    values += [inner for value in values if isinstance(value, list | tuple) for inner in value]
    assert {type(value).__module__ for value in values} == {"builtins"}


def test_the_hash_seed_changes_nothing(tmp_path):
    import line_parts

    rows = []
    for hash_seed in ("1", "2"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        (folder / "line.toml").write_text(dumps(line_parts.config(folder=folder / "records", epochs=2)))
        command = [sys.executable, "-m", "alchemy", "run", "line.toml", "--device", "-1"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=120)
        rows.append(comparable(next(folder.glob("records/*/metrics.jsonl"))))
    assert rows[0] == rows[1]
    assert rows[0]
