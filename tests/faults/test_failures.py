"""Fault 6: a killed worker hung its parent, failures had exit code 0, and one failed run spoilt the next."""

import shutil
import subprocess

import pytest
import torch

from alchemy import run, sym_tbl


@pytest.mark.usefixtures("forked_runs")
def test_a_killed_worker_is_a_failed_result_among_good_ones():
    import line_parts

    results = run([line_parts.config(model) for model in ("Line", "Killed", "Broken", "Line")], device=[-1])
    assert [isinstance(result, Exception) for result in results] == [False, True, True, False]
    assert "killed by SIGKILL" in str(results[1].exception)
    assert "broken [/x] {here}" in str(results[2].exception)
    assert [result.cfg["model"]["type"] for result in results] == [
        f"line_parts.{model}" for model in ("Line", "Killed", "Broken", "Line")
    ]


def test_the_result_of_a_failed_run_can_be_raised():
    import line_parts

    result = run([line_parts.config("Broken")], device=[-1])[0]
    with pytest.raises(Exception, match="broken"):
        raise result  # type: ignore[misc]
    assert isinstance(result.exception, ValueError)


@pytest.mark.parametrize(("models", "code"), [(["Broken"], 1), (["Line", "Broken"], 1), (["Line"], 0)])
def test_exit_code(tmp_path, programs, models, code):
    import line_parts

    from alchemy.config import dumps

    shutil.copy(line_parts.__file__, tmp_path)
    for model in models:
        (tmp_path / f"{model}.toml").write_text(dumps(line_parts.config(model)))
    command = [programs / "alchemy", "run", *(f"{model}.toml" for model in models), "--device", "-1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr


def test_a_failed_run_leaves_nothing_for_the_next(tmp_path):
    import line_parts

    def numbers():
        result = run([line_parts.config(seed=3, epochs=2)], device=[-1])[0]
        return result.ret, result.exception

    alone = numbers()
    assert isinstance(run([line_parts.config("Broken", folder=tmp_path)], device=[-1])[0].exception, ValueError)
    torch.use_deterministic_algorithms(False)  # caused by the model, not by a built-in part
    assert sym_tbl().model is None
    assert not sym_tbl().contains_global("left_over")
    assert numbers() == alone
    assert alone[1] is None
